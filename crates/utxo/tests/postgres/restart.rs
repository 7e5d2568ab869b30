//! A server that is away, before a store is opened and while it is used; and what shares it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_utxo::{Event, Fate, Outcome, PostgresStore, Standing, Sweep, UtxoStore as _};
use tokio::sync::watch;

use crate::conformance::prunes::{service, settings};
use crate::conformance::rig::{Faulty, RULES, add, coins, get, id, is_here, mine, pays};
use crate::conformance::sweeps::due;
use crate::fixture::{self, Server, Stop};
use crate::races::connect;
use crate::suite::open_at;

#[tokio::test]
async fn a_server_that_is_away_is_an_error_that_may_pass_and_nothing_is_lost() {
    // What it acknowledged must be there after it fell over.
    let mut server = Server::with(&[]);
    let url = server.database();
    server.stop(Stop::Fast);
    let address = Address::parse(&url).unwrap();
    let away = PostgresStore::open(&address, PostgresOptions::default(), RULES).await.unwrap_err();
    assert!(away.is_retryable(), "{away}");
    server.run();
    let store = open_at(&url, RULES).await;
    coins(&store, 3).await;
    add(&store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 0)]).await;
    mine(&store, 7, &[2]).await;
    let keys = due(&store, 17).await;
    assert_eq!(keys.len(), 1);

    for how in [Stop::Fast, Stop::Crash] {
        // A deletion that is acknowledged may come back after a power cut, but not after this.
        server.stop(how);
        let sweep = Sweep { height: 17, external: true };
        let errors = [
            store.delete(keys.clone(), sweep).await.map(drop).unwrap_err(),
            store.due(17, None, 9).await.map(drop).unwrap_err(),
            store.create(vec![pays(4, &[(3, 0)], 0)], 8).await.map(drop).unwrap_err(),
            store.counts(17).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_retryable(), "{error}");
        }
        server.run();
        assert!(is_here(&store, 2).await);
        assert_eq!(get(&store, 1).await.held_by, [id(3)]);
    }
    let sweep = Sweep { height: 17, external: true };
    assert_eq!(store.delete(keys, sweep).await.unwrap(), [Fate::Deleted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_over_in_the_middle_of_a_run_is_waited_for_and_the_run_is_done() {
    let server = Arc::new(Mutex::new(Server::with(&[])));
    let url = server.lock().database();
    let store = open_at(&url, RULES).await;
    coins(&store, 60).await;
    add(&store, 6, (0..60).map(|n| pays(100 + u64::from(n), &[(1, n)], n % 2)).collect()).await;
    let all: Vec<u64> = (100..160).collect();
    mine(&store, 7, &all).await;
    let (falls, deletes) = (Arc::clone(&server), AtomicU64::new(0));
    let falling = Faulty::new(store.clone(), move |name| {
        if name == "delete" && deletes.fetch_add(1, Ordering::Relaxed) == 9 {
            tokio::task::block_in_place(|| falls.lock().stop(Stop::Crash));
        }
        None
    });
    let service = service(&falling, settings()).await;
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { Box::pin(service.run(stopped)).await }
    });
    let mut standing = service.standing();
    service.hear(Event::Block { height: 17, mined_set: true }).await.unwrap();
    let away = |stands: &Standing| {
        stands.not_ready.as_ref().is_some_and(|why| why.contains("does not answer"))
    };
    let stands = standing.wait_for(away).await.unwrap().clone();
    assert_eq!(stands.processed, None, "its run failed");
    server.lock().run();
    // Nobody tells it again.
    standing.wait_for(|stands| stands.processed == Some(17)).await.unwrap();
    stop.send_replace(true);
    running.await.unwrap();
    for n in 0..60 {
        assert_eq!(is_here(&store, 100 + n).await, n % 2 == 1, "transaction {}", 100 + n);
    }
    assert!(!is_here(&store, 1).await, "all of it is spent");
    let outcomes: Vec<_> = store.jobs().await.unwrap().into_iter().map(|job| job.outcome).collect();
    assert!(matches!(&outcomes[..], [Outcome::Completed, .., Outcome::Failed(_)]), "{outcomes:?}");
}

#[tokio::test]
async fn a_store_shares_a_database_and_opens_again_as_it_was() {
    let url = fixture::database();
    let client = connect(&url).await;
    // The names that an index has.
    client
        .batch_execute("create table meta (key text); create table schema_migrations (x bigint)")
        .await
        .unwrap();
    coins(&open_at(&url, RULES).await, 1).await;
    let store = open_at(&url, RULES).await;
    assert_eq!(get(&store, 1).await.outputs.len(), 1);
    assert!(!store.address().contains("password"), "{}", store.address());
    let foreign = "select count(*) from pg_class where relkind = 'r' \
        and relnamespace = 'public'::regnamespace and relname !~ '^utxo_'";
    assert_eq!(client.query_one(foreign, &[]).await.unwrap().get::<_, i64>(0), 2);
}
