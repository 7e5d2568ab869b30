//! The demo's four validators: blobs come, are archived, announced and pruned on all of them, and a
//! run that was cut off goes on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::tempdir;

use crate::tool::{Running, ask, run};

/// Blobs of a height, from 10 on every 21st: 1, 2, 2, and so on.
pub fn blobs_upto(head: u64) -> u64 {
    let turns = (head + 11) / 21;
    (0..turns).map(|turn| if turn % 3 == 0 { 1 } else { 2 }).sum()
}

pub fn validator(data: &Path, number: usize) -> PathBuf {
    if number == 1 { data.to_path_buf() } else { data.join("validators").join(number.to_string()) }
}

/// The last line of a demo in JSON: its summary.
pub fn summary(printed: &str) -> Value {
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

/// Every validator has every blob, and none of a final height is left. The figures that the demo
/// told are those of the stores.
fn check(data: &Path, told: &Value, head: u64) {
    assert_eq!(told["blobs"]["settled"], true, "{told:#}");
    let validators = told["blobs"]["validators"].as_array().unwrap();
    assert_eq!(validators.len(), 4);
    let (stored, pruned) = (blobs_upto(head), blobs_upto(head - 3));
    for (number, one) in (1..).zip(validators) {
        let context = format!("validator {number} at head {head}: {one:#}");
        assert_eq!(one["stored"], stored, "{context}");
        assert_eq!(one["pruned"], pruned, "{context}");
        assert_eq!(one["heights"], head + 1, "{context}");
        assert_eq!(one["finalized"], head - 3, "{context}");
        let asked = ask(&validator(data, number), "blob status");
        for (ours, theirs) in
            [("pruned", "pruned"), ("finalized", "finalized"), ("heights", "heights")]
        {
            assert_eq!(one[ours], asked[theirs], "{context} {asked:#}");
        }
        let sum =
            |words: [&str; 2]| words.iter().map(|word| asked[word].as_u64().unwrap()).sum::<u64>();
        assert_eq!(one["on_disk"], sum(["pending", "archived"]), "{context} {asked:#}");
        assert_eq!(one["archived"], sum(["pruned", "archived"]), "{context} {asked:#}");
        assert_eq!(one["waiting"], asked["pending"], "{context} {asked:#}");
        assert_eq!(asked["prune_failures"], 0, "{context} {asked:#}");
    }
}

#[test]
fn a_demo_ends_with_its_blobs_archived_and_pruned_on_all_four_and_a_second_run_goes_on() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let first = run(&data, "demo --blocks 120 --json").ends(0);
    check(&data, &summary(&first.out), 119);
    let keys: Vec<Vec<u8>> = (1..=4)
        .map(|number| {
            let key = validator(&data, number).join("notice.key");
            assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::read(key).unwrap()
        })
        .collect();
    let second = run(&data, "demo --blocks 60 --json").ends(0);
    check(&data, &summary(&second.out), 179);
    for (number, key) in (1..).zip(keys) {
        assert_eq!(std::fs::read(validator(&data, number).join("notice.key")).unwrap(), key);
    }
    // Each has proposed and archived blobs of its own.
    let signers: std::collections::BTreeSet<String> = [10, 31, 52, 73]
        .map(|height| {
            ask(&data, &format!("blob status {height}"))["blobs"][0]["records"][0]["signer"]
                .to_string()
        })
        .into();
    assert_eq!(signers.len(), 4, "{signers:?}");
    // The text says the same, and how to look.
    let third = run(&data, "demo --blocks 1").ends(0);
    for text in [
        "every final height is archived and pruned on all",
        "v4: stored",
        "blob status 157",
        "explain blob 157 0",
    ] {
        assert!(third.out.contains(text), "no `{text}` in {third:#?}");
    }
    run(&data, "verify").ends(0);
    run(&data, &format!("archive verify --archive {}/archive", data.display())).ends(0);
}

#[test]
fn without_blobs_there_are_none_and_they_begin_where_they_are_switched_on() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let ran = run(&data, "demo --blocks 40 --no-blobs --json").ends(0);
    assert!(summary(&ran.out)["blobs"].is_null(), "{ran:#?}");
    assert!(!data.join("validators").exists() && !data.join("sidecars").exists());
    run(&data, "blob status").ends(1).complains("no blobs");
    let ran = run(&data, "demo --blocks 40 --json").ends(0);
    let told = summary(&ran.out);
    assert_eq!(told["blobs"]["settled"], true, "{told:#}");
    assert_eq!(told["blobs"]["validators"][0]["heights"], 40, "{told:#}");
    run(&data, "blob status 31").ends(1).complains("not known here");
    assert_eq!(ask(&data, "blob status 52")["blobs"][0]["state"], "pruned");
}

#[test]
fn a_demo_that_is_killed_goes_on_and_ends_with_everything_archived_and_pruned() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let mut kills = 0;
    for acks in [70, 1, 40] {
        let mut demo = Running::start(&data, "demo --blocks 100000 --acks");
        for _ in 0..acks {
            demo.wait_for("ack ");
        }
        demo.child.kill().unwrap();
        demo.child.wait().unwrap();
        kills += 1;
    }
    let ran = run(&data, "demo --blocks 25 --json").ends(0);
    let head = ask(&data, "status")["head"].as_u64().unwrap();
    assert!(kills == 3 && head >= 110, "{head}");
    check(&data, &summary(&ran.out), head);
}

#[test]
fn the_paced_demo_shows_its_validators_and_stops_cleanly() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let mut demo = Running::start(&data, "demo --plain --http 127.0.0.1:0 --grpc 127.0.0.1:0");
    let line = demo.wait_for("blobs stored/archived/pruned");
    assert!(line.contains("v4 "), "{line}");
    demo.signal("INT");
    let (code, rest) = demo.end();
    assert_eq!(code, 0, "{rest}");
    assert!(rest.contains("v1: stored"), "{rest}");
}
