//! Archive parts: what a node believes of them, and how far the archive hold lets go.

use crate::common::*;
use secateur_core::{BlockHash, Locator, Part, PrunePolicy};
use secateur_store::{Finality, Settings, StoreError};

fn archived() -> Settings {
    Settings { archive_hold: true, ..Settings::default() }
}

fn refused(answer: Result<Option<u64>, StoreError>, text: &str) {
    let error = answer.unwrap_err().to_string();
    assert!(error.contains(text), "no `{text}` in {error}");
}

/// Blocks 10 to 29.
fn store() -> TestStore {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, archived());
    append(&store, 20);
    store
}

#[test]
fn the_archive_hold_follows_parts_without_a_gap_and_lets_go_of_nothing_else() {
    let store = store();
    assert_eq!(store.prune_now(100_000).unwrap().totals.blocks, 0);
    assert_eq!(store.ack_archived(&part(&store, 10, 13)).unwrap(), Some(13));
    assert_eq!(store.ack_archived(&part(&store, 18, 20)).unwrap(), Some(13), "14 to 17 miss");
    assert_eq!(store.prune_now(100_000).unwrap().totals.blocks, 4);
    assert_eq!(store.ack_archived(&part(&store, 14, 17)).unwrap(), Some(20));
    assert_eq!(store.prune_now(100_000).unwrap().totals.blocks, 7);
    assert_eq!(store.get_prune_status().unwrap().pruned_before_block, Some(20));
}

#[test]
fn a_part_that_disagrees_with_the_blocks_here_is_refused() {
    let store = store();
    let good = part(&store, 10, 13);
    let other = BlockHash([9; 32]);
    refused(store.ack_archived(&Part { parent_hash: other, ..good.clone() }), "parent hash");
    refused(store.ack_archived(&Part { last_hash: other, ..good.clone() }), "hash of block 13");
    refused(store.ack_archived(&Part { last: 99, ..good.clone() }), "not final");
    refused(store.ack_archived(&Part { first: 9, ..good.clone() }), "not here");
    refused(store.ack_archived(&Part { first: 14, ..good.clone() }), "below its first");
    refused(store.ack_archived(&Part { sha256: "x".into(), ..good.clone() }), "SHA-256");
    refused(store.ack_archived(&Part { size: 0, ..good.clone() }), "no bytes");
    let nowhere = Locator { provider: String::new(), key: "k".into() };
    refused(store.ack_archived(&Part { locator: nowhere, ..good }), "provider and key");
    assert_eq!(store.list_parts(0, 10).unwrap(), vec![]);
    assert_eq!(store.prune_now(100_000).unwrap().totals.blocks, 0);
}

#[test]
fn a_part_is_taken_once_and_one_that_overlaps_another_is_refused() {
    let store = store();
    let middle = part(&store, 14, 17);
    assert_eq!(store.ack_archived(&middle).unwrap(), None);
    assert_eq!(store.ack_archived(&middle).unwrap(), None, "the same again changes nothing");
    for (first, last) in [(10, 14), (13, 18), (15, 16), (17, 19), (14, 18), (14, 16)] {
        assert!(store.ack_archived(&part(&store, first, last)).is_err(), "{first} to {last}");
    }
    assert_eq!(store.ack_archived(&part(&store, 10, 13)).unwrap(), Some(17));
    assert_eq!(store.list_parts(0, 10).unwrap().len(), 2);
    assert_eq!(store.list_parts(11, 10).unwrap(), vec![middle.clone()]);
    assert_eq!(store.list_parts(0, 1).unwrap().len(), 1);
}

#[test]
fn a_pruned_block_is_found_in_its_part_after_a_restart_too() {
    let store = store();
    let first = part(&store, 10, 13);
    store.ack_archived(&first).unwrap();
    store.prune_now(100_000).unwrap();
    let store = TestStore::open(store.into_ground(), clock()).unwrap();
    for height in 10..=13 {
        assert_eq!(store.find_part(height).unwrap(), Some(first.clone()));
    }
    assert_eq!(store.find_part(9).unwrap(), None);
    assert_eq!(store.find_part(14).unwrap(), None);
    assert_eq!(store.find_part(u64::MAX).unwrap(), None);
    assert_eq!(store.ack_archived(&first).unwrap(), Some(13), "known, though its blocks are gone");
}

#[test]
fn blocks_that_were_cut_unarchived_do_not_hold_the_archive_back_for_ever() {
    let store = store_with(
        PrunePolicy { retain_blocks: 10, ..PrunePolicy::default() },
        Settings::default(),
    );
    append(&store, 20);
    assert_eq!(store.ack_archived(&part(&store, 10, 13)).unwrap(), Some(13));
    store.prune_now(100_000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().oldest_kept_block, Some(20));
    store.set_settings(archived()).unwrap();
    assert_eq!(store.ack_archived(&part(&store, 22, 24)).unwrap(), Some(13), "20 and 21 miss");
    assert_eq!(store.ack_archived(&part(&store, 20, 21)).unwrap(), Some(24));
}

#[test]
fn a_part_over_blocks_that_are_not_final_is_refused() {
    let settings = Settings { finality: Finality::Explicit, ..archived() };
    let store = store_with(PrunePolicy::default(), settings);
    append(&store, 10);
    store.set_finalized(13).unwrap();
    assert_eq!(store.ack_archived(&part(&store, 10, 13)).unwrap(), Some(13));
    refused(store.ack_archived(&part(&store, 14, 14)), "not final");
}
