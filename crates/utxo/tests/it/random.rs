//! Ten thousand random histories on SQLite.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use secateur_utxo::{ExternalFiles, SqliteStore};

use crate::histories::{numbers, play, rules};

const HISTORIES: u64 = 10_000;

/// Where a directory costs no disk, if there is such a place.
fn quick_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

async fn one(seed: u64) -> u64 {
    let dir = quick_dir();
    let store = SqliteStore::open(&dir.path().join("utxo.sqlite"), rules(&numbers(seed))).unwrap();
    let url = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap();
    play(seed, store, files).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_random_histories_end_as_the_naive_model_says() {
    if let Ok(seed) = std::env::var("SECATEUR_TEST_HISTORY") {
        one(seed.parse().unwrap()).await;
        return;
    }
    let next = Arc::new(AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let next = Arc::clone(&next);
            tokio::spawn(async move {
                let mut pruned = 0;
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= HISTORIES {
                        return pruned;
                    }
                    pruned += tokio::spawn(one(seed)).await.unwrap_or_else(|error| {
                        panic!("replay with SECATEUR_TEST_HISTORY={seed}: {error}")
                    });
                }
            })
        })
        .collect();
    let mut pruned = 0;
    for task in tasks {
        pruned += task.await.unwrap();
    }
    assert!(pruned > HISTORIES, "histories in which nothing is pruned show nothing: {pruned}");
}
