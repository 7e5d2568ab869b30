//! A worker that is dropped at any moment leaves an index that another one finishes, row for row.

use std::sync::Arc;
use std::time::Duration;

use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::worker::{End, WorkerOptions};
use tokio::sync::watch;

use crate::chain::{History, blocks, dump, options, run, worker};

/// A cheap generator for moments; the seed is printed when a run differs.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_random_moments_the_index_equals_an_uninterrupted_one() {
    let history = History::new(&blocks(100));
    let dir = tempfile::tempdir().unwrap();
    let clean = dir.path().join("clean.sqlite");
    run(history.source(), SqliteSink::open(&clean).unwrap(), options()).await.unwrap();
    let wanted = dump(&clean);
    let mut drops = 0;
    for seed in 0..6u64 {
        let path = dir.path().join(format!("{seed}.sqlite"));
        let mut state = seed + 1;
        // Each attempt may take longer than the one before: a slow machine gets to the end too.
        for attempt in 1.. {
            // Everything of the worker goes at once, in the middle of whatever it does.
            let sink = SqliteSink::open(&path).unwrap();
            let options = WorkerOptions {
                max_batch_rows: 20 + usize::try_from(draw(&mut state) % 200).unwrap(),
                ..options()
            };
            let (_stop, stopping) = watch::channel(false);
            let worker = worker(history.source(), sink, options, Arc::new(()));
            let moment = Duration::from_micros(500 + draw(&mut state) % (20_000 * attempt));
            match tokio::time::timeout(moment, worker.run(stopping)).await {
                Ok(end) => {
                    assert_eq!(end.unwrap(), End::CaughtUp);
                    break;
                }
                Err(_) => drops += 1,
            }
        }
        assert_eq!(dump(&path), wanted, "seed {seed}");
    }
    assert!(drops >= 6, "only {drops} drops");
}
