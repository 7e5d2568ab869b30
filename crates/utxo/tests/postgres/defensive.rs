//! Defensive mode beside writers, with more records than are looked at together.
//!
//! What looks at spenders takes turns with the chunks of the same run and gives way to writers. Whoever has a turn and
//! is not gone on with keeps everybody else waiting, until the run's time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use secateur_utxo::{Outcome, PostgresStore, Settings};
use tokio::task::JoinHandle;

use crate::conformance::prunes::{at, pruner, run};
use crate::conformance::rig::{RULES, add, block, coinbase};
use crate::fixture;
use crate::races::connect;
use crate::suite::open_at;

/// A store in which so many records with so many outputs are due at 17. Their spenders are all pruned.
async fn filled(records: u32, outputs: u32) -> PostgresStore {
    let url = fixture::database();
    let store = open_at(&url, RULES).await;
    let fill = format!(
        "insert into utxo_txs (mined_at, delete_at, outputs, spent, coinbase, conflicting, spending, txid,
            blocks, spenders, inputs, body)
        select 7, 17, {outputs}, {outputs}, false, false, true, sha256(n::text::bytea), '',
            decode(repeat('01' || encode(sha256((-n)::text::bytea), 'hex') || '00000000', {outputs}), 'hex'), '', ''
        from generate_series(1, {records}) n;
        analyze utxo_txs"
    );
    connect(&url).await.batch_execute(&fill).await.unwrap();
    store
}

/// Somebody who changes records all the while, so that the prune gives way.
struct Writer {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writer {
    fn start(store: &PostgresStore) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = [(); 2].map(|()| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let n = NEXT.fetch_add(1, Ordering::Relaxed);
                    add(&store, 7, vec![coinbase(n, 1, block(1, 1))]).await;
                }
            })
        });
        Self { stop, tasks: tasks.into() }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_with_more_spenders_than_are_collected_at_once_go_beside_writers() {
    // More than 131,072 spenders, while some of the records are yet to be read.
    let store = filled(4_000, 64).await;
    let settings = Settings { defensive: true, ..Settings::default() };
    let pruner = pruner(&store, None, settings);
    let writer = Writer::start(&store);
    // It must end by itself, long before its time is over.
    let run = Box::pin(run(&pruner, at(17)));
    let ended = tokio::time::timeout(Duration::from_mins(5), run).await;
    writer.end().await;
    let job = ended.expect("the run ends");
    assert_eq!((job.outcome, job.done.deleted), (Outcome::Completed, 4_000));
}
