//! Ten thousand random histories on SQLite.

use std::path::Path;

use secateur_utxo::{ExternalFiles, SqliteStore};

use crate::histories::{numbers, play, play_all, rules};

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

#[test]
fn ten_thousand_random_histories_end_as_the_naive_model_says() {
    play_all(HISTORIES, |_, seed| one(seed));
}
