//! A worker that is dropped at any moment leaves an index that another one finishes, row for row.

use std::sync::Arc;
use std::time::Duration;

use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::worker::{End, WorkerOptions};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::chain::{History, blocks, dump, options, run, worker};

/// A cheap generator for moments; the seed is printed when a run differs.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A runtime whose end waits for whatever its threads have begun, as a killed process's end does.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn dropped_at_random_moments_the_index_equals_an_uninterrupted_one() {
    let history = History::new(&blocks(60));
    let dir = tempfile::tempdir().unwrap();
    let clean = dir.path().join("clean.sqlite");
    let sink = SqliteSink::open(&clean).unwrap();
    runtime().block_on(run(history.source(), sink, options())).unwrap();
    let wanted = dump(&clean);
    let mut drops = 0;
    for seed in 0..3u64 {
        let path = dir.path().join(format!("{seed}.sqlite"));
        let mut state = seed + 1;
        // Each attempt may take longer than the one before: a slow machine gets to the end too.
        for attempt in 1u64.. {
            let sink = SqliteSink::open(&path).unwrap();
            let options = WorkerOptions {
                max_batch_rows: 20 + usize::try_from(draw(&mut state) % 200).unwrap(),
                ..options()
            };
            let moment =
                Duration::from_micros(500 + draw(&mut state) % (20_000 << (attempt / 2).min(12)));
            let (_stop, stopping) = watch::channel(false);
            let worker = worker(history.source(), sink, options, Arc::new(()));
            // Everything of the worker goes at once, in the middle of whatever it does.
            let ended = runtime()
                .block_on(async { tokio::time::timeout(moment, worker.run(stopping)).await });
            match ended {
                Ok(end) => {
                    assert_eq!(end.unwrap(), End::CaughtUp);
                    break;
                }
                Err(_) => drops += 1,
            }
        }
        assert_eq!(dump(&path), wanted, "seed {seed}");
    }
    assert!(drops >= 3, "only {drops} drops");
}
