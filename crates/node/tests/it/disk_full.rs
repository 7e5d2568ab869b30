//! A full disk: the demo ends with its exit code, reads go on, nothing acknowledged is lost, and
//! pruning works without any free space.

use serde_json::json;

use crate::tool::{Ledger, SmallDisk, ask, open_store, run};

fn a_full_disk_is_survived(mebibytes: u64) {
    let Some(disk) = SmallDisk::mount(mebibytes) else {
        return;
    };
    let data = disk.data();
    let mut ledger = Ledger::default();
    let full = run(&data, "demo --no-archive --blocks 100000 --budget 1GiB --acks").ends(8);
    let full = full.complains("disk full").complains("reads and pruning go on");
    assert!(ledger.note(&full.out) > 100, "{}", full.err);
    assert!(full.out.contains("appended"), "the summary is there all the same");

    // Still full: everything can be read, and every acknowledged block is there.
    let status = ask(&data, "status");
    let newest = ledger.acked.keys().next_back().copied().unwrap();
    assert_eq!(status["head"], newest);
    assert_eq!(ask(&data, "explain block 1")["state"], "kept");
    assert_eq!(ask(&data, "verify")["clean"], true);
    assert_eq!(ledger.check(&open_store(&data), "full disk"), None);
    // Another attempt may find room for a small group, and then ends in the same way.
    run(&data, "demo --no-archive --blocks 100000").ends(8);
    let head = ask(&data, "status")["head"].clone();
    assert!(head.as_u64() >= Some(newest));

    // Something else takes what was left over, to the last byte.
    disk.fill();
    assert_eq!(ask(&data, "status")["head"], head);
    run(&data, "demo --no-archive --blocks 100000").ends(8).complains("disk full");
    assert_eq!(ask(&data, "verify")["clean"], true);

    // A smaller budget makes a prune due, and the prune needs no space.
    let budget = mebibytes / 3;
    run(&data, &format!("policy set target_bytes={budget}MiB")).ends(0);
    let pruned = ask(&data, "prune --yes");
    assert!(pruned["blocks"].as_u64().unwrap() > 0, "{pruned}");
    let boundary = ledger.check(&open_store(&data), "after the prune");
    assert!(boundary.is_some());

    // And the chain goes on, now inside its budget.
    let more = run(&data, "demo --no-archive --blocks 400 --acks").ends(0);
    assert_eq!(ledger.note(&more.out), 400);
    assert!(ledger.check(&open_store(&data), "after going on") >= boundary);
    assert_eq!(ask(&data, "verify")["clean"], json!(true));
}

#[test]
fn a_full_disk_of_24_mebibytes_is_survived() {
    a_full_disk_is_survived(24);
}

#[test]
fn a_full_disk_of_48_mebibytes_is_survived() {
    a_full_disk_is_survived(48);
}

#[test]
fn a_full_disk_of_96_mebibytes_is_survived() {
    a_full_disk_is_survived(96);
}
