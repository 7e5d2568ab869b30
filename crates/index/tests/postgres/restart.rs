//! The server goes away and comes back: what was committed stays, what was not is tried again.

use std::time::Duration;

use secateur_core::Cursor;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::Sink as _;
use secateur_index::{Batch, ErrorClass, IndexError};
use tokio::sync::watch;

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
    let sink = open(&url).await;
    let (written, mut progress) = watch::channel(0);
    let (over, is_over) = watch::channel(false);
    // It writes as long as there are restarts, and so in the middle of each.
    let writer = tokio::spawn(async move {
        let mut failures = 0;
        while !*is_over.borrow() {
            let first = *written.borrow();
            failures += insist(&sink, &batch(first..first + 100)).await;
            written.send_replace(first + 100);
        }
        let end = *written.borrow();
        assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(end)));
        (end, failures)
    });
    for how in [Stop::Crash, Stop::Fast, Stop::Crash] {
        let goal = *progress.borrow() + 500;
        progress.wait_for(|written| *written >= goal).await.unwrap();
        server = tokio::task::spawn_blocking(move || {
            server.stop(how);
            server.run();
            server
        })
        .await
        .unwrap();
    }
    over.send_replace(true);
    let (end, failures) = writer.await.unwrap();
    assert!(failures >= 3, "each restart broke a connection: {failures}");
    let calm = open(&calm_url).await;
    for first in (0..end).step_by(100) {
        calm.commit(batch(first..first + 100)).await.unwrap();
    }
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
