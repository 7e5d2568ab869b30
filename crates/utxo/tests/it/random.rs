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

/// A store's file, and its log.
const FILES: [&str; 2] = ["utxo.sqlite", "utxo.sqlite-wal"];

async fn one(seed: u64) -> u64 {
    let dir = quick_dir();
    let rules = rules(&numbers(seed));
    let home = |life: u32| dir.path().join(life.to_string());
    let open = |life| SqliteStore::open(&home(life).join(FILES[0]), rules).unwrap();
    std::fs::create_dir(home(0)).unwrap();
    let store = open(0);
    let mut life = 0;
    // A process that dies leaves its files as they are; here it goes on with what was under way, so the next one
    // has a copy.
    let reopen = async || {
        let before = home(life);
        life += 1;
        std::fs::create_dir(home(life)).unwrap();
        for file in FILES.into_iter().filter(|file| before.join(file).exists()) {
            std::fs::copy(before.join(file), home(life).join(file)).unwrap();
        }
        open(life)
    };
    let url = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap();
    play(seed, store, files, reopen).await
}

#[test]
fn ten_thousand_random_histories_end_as_the_naive_model_says() {
    play_all(HISTORIES, |_, seed| one(seed));
}
