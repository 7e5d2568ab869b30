//! The server goes away and comes back: what was committed stays, what was not is tried again.

use std::time::Duration;

use secateur_core::Cursor;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::Sink as _;
use secateur_index::{Batch, ErrorClass, IndexError};

use crate::chain::{batch, connect, dump, open};
use crate::fixture::{Server, Stop};

/// Commits until it is done, as a worker does.
async fn insist(sink: &PostgresSink, batch: &Batch) -> u32 {
    let mut failures = 0;
    loop {
        match sink.commit(batch.clone()).await {
            Ok(()) => return failures,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                assert_eq!(error.class(), ErrorClass::Sink);
                failures += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_in_the_middle_loses_nothing_and_doubles_nothing() {
    // Everything as in earnest: what is committed must survive a crash of the server.
    let mut server = Server::with(&[]);
    let (calm_url, url) = (server.database(), server.database());
    let calm = open(&calm_url).await;
    for first in (0..4_000).step_by(100) {
        calm.commit(batch(first..first + 100)).await.unwrap();
    }
    let sink = open(&url).await;
    let writer = tokio::spawn(async move {
        let mut failures = 0;
        for first in (0..4_000).step_by(100) {
            failures += insist(&sink, &batch(first..first + 100)).await;
        }
        assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(4_000)));
        failures
    });
    let mut server = tokio::task::spawn_blocking(move || {
        for how in [Stop::Crash, Stop::Fast, Stop::Crash] {
            std::thread::sleep(Duration::from_millis(150));
            server.stop(how);
            std::thread::sleep(Duration::from_millis(100));
            server.run();
        }
        server
    })
    .await
    .unwrap();
    let failures = writer.await.unwrap();
    assert!(failures > 0, "no restart fell into the writing");
    assert_eq!(dump(&url).await, dump(&calm_url).await);
    server.stop(Stop::Fast);
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_waited_for_only_so_long() {
    let server = Server::start();
    let url = server.database();
    let options =
        PostgresOptions { statement_timeout: Duration::from_millis(300), ..Default::default() };
    let sink = PostgresSink::open(&Address::parse(&url).unwrap(), options).await.unwrap();
    sink.commit(batch(0..5)).await.unwrap();
    let mut other = connect(&url).await;
    let holder = other.transaction().await.unwrap();
    holder.execute("select from meta where key = 'cursor' for update", &[]).await.unwrap();
    let error = sink.commit(batch(5..10)).await.unwrap_err();
    assert!(matches!(&error, IndexError::Sink { retryable: true, .. }), "{error}");
    holder.rollback().await.unwrap();
    sink.commit(batch(5..10)).await.unwrap();
}
