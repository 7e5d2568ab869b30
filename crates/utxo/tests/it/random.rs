//! Ten thousand random histories on SQLite.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use secateur_utxo::{ExternalFiles, SqliteStore};

use crate::histories::{numbers, play, rules};

/// How many; `SECATEUR_TEST_HISTORIES` says otherwise.
const HISTORIES: u64 = 10_000;

/// Where a directory costs no disk, if there is such a place.
fn quick_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// A runtime of its own for each: steps take turns with the thread that works on the file, and nothing
/// is faster than two threads that wait for each other.
fn one(seed: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let dir = quick_dir();
    let rules = rules(&numbers(seed));
    let store = SqliteStore::open(&dir.path().join("utxo.sqlite"), rules).unwrap();
    let url = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap();
    runtime.block_on(play(seed, store, files))
}

#[test]
fn ten_thousand_random_histories_end_as_the_naive_model_says() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SECATEUR_TEST_HISTORY") {
        one(seed);
        return;
    }
    let histories = number("SECATEUR_TEST_HISTORIES").unwrap_or(HISTORIES);
    let (next, pruned) = (AtomicU64::new(0), AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= histories {
                        return;
                    }
                    let gone = std::panic::catch_unwind(|| one(seed));
                    let gone = gone.unwrap_or_else(|_| {
                        next.store(histories, Ordering::Relaxed);
                        panic!("replay with SECATEUR_TEST_HISTORY={seed}")
                    });
                    pruned.fetch_add(gone, Ordering::Relaxed);
                }
            });
        }
    });
    let pruned = pruned.into_inner();
    assert!(pruned > histories, "histories in which nothing is pruned show nothing: {pruned}");
}
