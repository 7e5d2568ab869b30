//! Bad input: each kind ends with its exit code and a clear message, and changes nothing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use crate::tool::{Running, SmallDisk, ask, files, open_store, run, small_demo};

/// A demo's directory, ready to be damaged.
fn demo() -> (TempDir, PathBuf) {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 60);
    (place, data)
}

/// Both a reading command and the demo must refuse in the same way and leave every byte alone.
#[track_caller]
fn refused(data: &Path, code: i32, text: &str) {
    let before = files(data);
    for words in ["status", "verify", "prune --yes", "demo --blocks 5"] {
        run(data, words).ends(code).complains(text);
    }
    assert!(files(data) == before, "something in {} changed", data.display());
}

#[test]
fn a_missing_directory_is_named_and_not_made() {
    let place = tempdir().unwrap();
    let data = place.path().join("nowhere");
    run(&data, "status").ends(1).complains("there is no data directory");
    assert!(!data.exists());
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let place = tempdir().unwrap();
    fs::write(place.path().join("letters.txt"), "dear diary").unwrap();
    refused(place.path(), 1, "not a Secateur data directory");
}

#[test]
fn a_file_instead_of_a_directory_is_refused() {
    let place = tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "text").unwrap();
    run(&file, "status").ends(1).complains("not a directory");
    run(&file, "demo --blocks 1").ends(1).complains("not a directory");
    assert_eq!(fs::read(&file).unwrap(), b"text");
}

#[test]
fn a_directory_of_a_newer_format_is_left_alone_even_with_unknown_keys() {
    let (_place, data) = demo();
    fs::write(data.join("store.toml"), "format = 2\nchains = [1, 2]\n").unwrap();
    refused(&data, 1, "newer secateur");
}

#[test]
fn a_store_file_with_unknown_keys_or_without_sense_is_damage() {
    let (_place, data) = demo();
    let good = fs::read_to_string(data.join("store.toml")).unwrap();
    for text in [format!("{good}colour = 1\n"), "format = ".into(), "chain_id = 1\n".into()] {
        fs::write(data.join("store.toml"), text).unwrap();
        refused(&data, 9, "store.toml is damaged");
    }
}

#[test]
fn a_chain_id_that_is_not_the_stores_is_refused() {
    let (_place, data) = demo();
    let text = fs::read_to_string(data.join("store.toml")).unwrap();
    fs::write(data.join("store.toml"), text.replace("1337", "1")).unwrap();
    run(&data, "status").ends(9).complains("chain 1, the history's own header says chain 1337");
    run(&data, "prune --yes").ends(9).complains("nothing was changed");
}

#[test]
fn links_in_place_of_lock_or_store_file_are_not_followed() {
    let (place, data) = demo();
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(data.join("LOCK")).unwrap();
    symlink(&victim, data.join("LOCK")).unwrap();
    refused(&data, 1, "symbolic link");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    fs::remove_file(data.join("LOCK")).unwrap();
    let moved = place.path().join("store.toml");
    fs::rename(data.join("store.toml"), &moved).unwrap();
    symlink(&moved, data.join("store.toml")).unwrap();
    refused(&data, 1, "symbolic link");
}

#[test]
fn a_directory_that_a_running_demo_holds_is_locked_for_everybody_else() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let mut demo = Running::start(&data, "demo --budget 4MiB");
    demo.wait_for("head ");
    let pid = format!("process {}", demo.child.id());
    let locked = |words: &str| {
        run(&data, words).ends(10).complains("in use").complains(&pid);
    };
    locked("demo --blocks 5");
    locked("node --http 127.0.0.1:0 --grpc 127.0.0.1:0");
    // Other commands ask the node in it, unless they cannot find it.
    fs::remove_file(data.join("node.json")).unwrap();
    for words in ["status", "policy set retain_days=1", "prune --yes"] {
        locked(words);
    }
    demo.signal("INT");
    assert_eq!(demo.end().0, 0);
    assert_eq!(ask(&data, "policy show")["retain_days"], 0);
}

#[test]
fn a_truncated_arena_is_corrupt() {
    let (_place, data) = demo();
    let arena = data.join("history/arena");
    let file = OpenOptions::new().write(true).open(&arena).unwrap();
    for len in [file.metadata().unwrap().len() / 2, 5000, 100, 0] {
        file.set_len(len).unwrap();
        for words in ["status", "prune --yes", "demo --blocks 5"] {
            run(&data, words).ends(9).complains("arena");
        }
        assert_eq!(fs::metadata(&arena).unwrap().len(), len, "nothing was lengthened");
    }
}

#[test]
fn a_missing_index_arena_or_both_is_told_and_nothing_is_made_in_its_place() {
    for gone in [["index.redb"].as_slice(), &["arena"], &["index.redb", "arena"]] {
        let (_place, data) = demo();
        for name in gone {
            fs::remove_file(data.join("history").join(name)).unwrap();
        }
        for words in ["status", "prune --yes", "demo --blocks 5"] {
            let told = run(&data, words).ends(9);
            let clear = ["no index file", "no arena file", "no history"];
            assert!(clear.iter().any(|text| told.err.contains(text)), "{told:#?}");
        }
        for name in gone {
            assert!(!data.join("history").join(name).exists(), "{name} was made");
        }
    }
}

#[test]
fn an_index_of_garbage_is_corrupt_and_no_panic_is_shown() {
    let garbage = |len: usize| -> Vec<u8> {
        let mut state = 0x5eca_7e42_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..len).map(|_| next()).collect()
    };
    let (_place, data) = demo();
    let index = data.join("history/index.redb");
    let good = fs::read(&index).unwrap();
    let mut late = good.clone();
    late[4096..].copy_from_slice(&garbage(good.len() - 4096));
    for bytes in [garbage(good.len()), late, good[..good.len() / 2].to_vec()] {
        fs::write(&index, &bytes).unwrap();
        for words in ["status", "demo --blocks 5"] {
            let told = run(&data, words).ends(9);
            assert!(!told.err.contains("panicked"), "{told:#?}");
        }
    }
}

#[test]
fn a_read_only_disk_is_told_and_nothing_changes() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let data = disk.data();
    small_demo(&data, 60);
    disk.make_read_only();
    refused(&data, 1, "cannot be written");
}

#[test]
fn numbers_that_make_no_sense_are_usage_errors() {
    let (_place, data) = demo();
    let before = files(&data);
    for words in [
        "prune --max-ops 0",
        "prune --max-ops many",
        "explain block -1",
        "demo --blocks 0",
        "demo --budget 1KiB",
        "demo --budget lots",
        "verify --dry-run",
        "no-such-command",
    ] {
        run(&data, words).ends(2);
    }
    assert!(files(&data) == before);
    let fresh = data.with_file_name("fresh");
    run(&fresh, "demo --budget 1KiB").ends(2).complains("too small");
    assert!(!fresh.exists(), "a refused demo makes nothing");
}

#[test]
fn damage_inside_a_block_is_found_and_named_by_verify() {
    let (_place, data) = demo();
    let arena = data.join("history/arena");
    let at = {
        let store = open_store(&data);
        let (offset, _) = store.get_pieces(store.head().unwrap()).unwrap()[0];
        usize::try_from(offset).unwrap()
    };
    let mut bytes = fs::read(&arena).unwrap();
    for byte in &mut bytes[at..at + 64] {
        *byte ^= 0xff;
    }
    fs::write(&arena, &bytes).unwrap();
    let told = run(&data, "verify --json").ends(9);
    let found = told.json();
    assert_eq!(found["clean"], false);
    assert_eq!(found["findings"][0]["kind"], "payload");
    run(&data, "verify").ends(9).complains("restore");
    run(&data, "verify --repair --yes").ends(9).complains("nothing can be derived");
}
