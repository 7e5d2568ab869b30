//! Keys, their files, and what is never shown of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::scene::key;
use crate::notice::{NoticeKey, keygen};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refusal(path: &Path) -> String {
    let error = NoticeKey::read(path).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    error
}

#[test]
fn a_new_key_is_read_back_and_only_its_owner_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    let made = keygen(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(NoticeKey::read(&path).unwrap().public_key(), made.public_key());
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["notice.key"], "nothing is left beside it");
    let other = keygen(&dir.path().join("other.key")).unwrap();
    assert_ne!(other.public_key(), made.public_key());
}

#[test]
fn a_key_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    keygen(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let error = keygen(&path).unwrap_err().to_string();
    assert!(error.contains("there is a file already"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    // Nor is a link followed, wherever it leads.
    let link = dir.path().join("link.key");
    symlink(dir.path().join("nowhere"), &link).unwrap();
    assert!(keygen(&link).is_err());
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn a_key_in_a_directory_that_is_not_there_is_refused_by_the_name_that_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nowhere/notice.key");
    let error = keygen(&path).unwrap_err().to_string();
    assert!(error.contains("nowhere/notice.key was refused: its directory"), "{error}");
}

#[test]
fn what_is_left_of_an_attempt_that_was_cut_off_is_not_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    let left = dir.path().join("notice.key.unfinished");
    fs::write(&left, "half").unwrap();
    let error = keygen(&path).unwrap_err().to_string();
    assert!(error.contains("notice.key.unfinished is left"), "{error}");
    assert!(error.contains("remove it"), "{error}");
    assert!(!path.exists());
    assert_eq!(fs::read(&left).unwrap(), b"half");
}

#[test]
fn a_key_that_others_can_reach_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    keygen(&path).unwrap();
    for mode in [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o777] {
        set_mode(&path, mode);
        let error = refusal(&path);
        assert!(error.contains("chmod 600"), "{mode:o}: {error}");
    }
    for mode in [0o600, 0o400] {
        set_mode(&path, mode);
        assert!(NoticeKey::read(&path).is_ok(), "{mode:o}");
    }
}

#[test]
fn a_link_a_directory_or_a_pipe_is_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    keygen(&path).unwrap();
    let link = dir.path().join("link.key");
    symlink(&path, &link).unwrap();
    assert!(refusal(&link).contains("symbolic link"));
    assert!(refusal(dir.path()).contains("not a file"));
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(refusal(&pipe).contains("not a file"));
    assert!(refusal(&dir.path().join("missing")).contains("no such file"));
}

#[test]
fn a_key_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    keygen(&path).unwrap();
    // Only root gives files away.
    match std::os::unix::fs::chown(&path, Some(12_345), None) {
        Ok(()) => assert!(refusal(&path).contains("another user")),
        Err(error) => println!("skipped: {error}"),
    }
}

#[test]
fn a_file_that_is_no_key_is_refused_and_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notice.key");
    let digits = "5eC2e7".repeat(11);
    let digits = &digits[..64];
    let good = format!("secateur-notice-key-v1:{digits}\n");
    let set = |text: &str| {
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
    };
    set(&good);
    assert!(NoticeKey::read(&path).is_ok());
    for text in [
        String::new(),
        digits.to_owned(),
        format!("{good}\n"),
        good.trim_end().to_owned(),
        good.replace("v1", "v2"),
        good.replace('7', "g"),
        good.replace("v1:5e", "v1:0x"),
        format!("secateur-notice-key-v1:{}\n", &digits[2..]),
        good.repeat(1_000),
    ] {
        set(&text);
        let error = refusal(&path).to_ascii_lowercase();
        assert!(!error.contains("c2e7"), "{error}");
    }
}

#[test]
fn a_key_prints_only_its_public_half() {
    let key = key(0x5e);
    let shown = format!("{key:?} {key:#?}");
    assert!(shown.contains(&key.public_key().to_string()));
    assert!(!shown.contains("5e5e"), "{shown}");
    assert!(!shown.contains("94, 94"), "{shown}");
}
