//! Holds: what stops a prune, what gives way, what never does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;
use secateur_core::{PrunePolicy, StopReason, Strength};
use secateur_sim::script::NOW;
use secateur_store::{Finality, Settings, StoreError};

fn due() -> PrunePolicy {
    PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() }
}

fn explicit() -> Settings {
    Settings { finality: Finality::Explicit, ..Settings::default() }
}

fn oldest(store: &TestStore) -> Option<u64> {
    store.get_prune_status().unwrap().oldest_kept_block
}

#[test]
fn nothing_is_cut_before_it_is_final() {
    let store = store_with(due(), explicit());
    append(&store, 10);
    let outcome = store.prune_now(1000).unwrap();
    assert_eq!(outcome.totals.blocks, 0);
    assert!(matches!(outcome.stop, StopReason::Hold { ref hold, .. } if hold == "finalized"));
    store.set_finalized(14).unwrap();
    store.prune_now(1000).unwrap();
    assert_eq!(oldest(&store), Some(15));
    assert_eq!(store.get_prune_status().unwrap().binding_hold.as_deref(), Some("finalized"));
}

#[test]
fn finality_moves_up_only_and_only_to_blocks_that_are_here() {
    let store = store_with(due(), explicit());
    append(&store, 5);
    assert!(matches!(store.set_finalized(15), Err(StoreError::Refused { .. })));
    assert!(matches!(store.set_finalized(9), Err(StoreError::Refused { .. })));
    store.set_finalized(13).unwrap();
    store.set_finalized(11).unwrap();
    assert_eq!(store.get_head(), Some(13));
}

#[test]
fn the_challenge_window_delays_finality_in_blocks_and_in_seconds() {
    let settings = Settings { challenge_blocks: 3, ..Settings::default() };
    let store = store_with(due(), settings);
    append(&store, 10);
    store.prune_now(1000).unwrap();
    assert_eq!(oldest(&store), Some(17), "19 is the head, 16 may be cut");
    let settings = Settings { challenge_seconds: 60, ..Settings::default() };
    let store = store_with(due(), settings);
    for at in 0..10 {
        let mut block = next_block(&store, SHAPE);
        block.meta.timestamp = NOW - 100 + at * 10;
        store.append(&block).unwrap();
    }
    store.prune_now(1000).unwrap();
    assert_eq!(oldest(&store), Some(14), "now is NOW - 10; NOW - 70 and older may be cut");
}

/// I6.
#[test]
fn min_keep_stands_in_an_emergency() {
    let policy = PrunePolicy { target_bytes: 40_000, min_keep_blocks: 8, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 20);
    let outcome = store.prune_now(1_000_000).unwrap();
    assert!(matches!(outcome.stop, StopReason::Hold { ref hold, .. } if hold == "min_keep"));
    let status = store.get_prune_status().unwrap();
    assert_eq!(status.head.unwrap() + 1 - status.oldest_kept_block.unwrap(), 8);
    assert!(status.pressure.emergency);
    assert!(status.alarms.iter().any(|a| a.contains("emergency")));
    assert!(status.alarms.iter().any(|a| a.contains("min_keep")));
}

#[test]
fn a_soft_consumer_gives_way_while_draining_and_a_hard_one_never() {
    for strength in [Strength::Soft, Strength::Hard] {
        let store = store_with(due(), Settings::default());
        store.register_consumer("indexer", strength).unwrap();
        append(&store, 50);
        assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0, "it has nothing yet");
        assert_eq!(store.ack_exported("indexer", 19).unwrap(), 19);
        store.prune_now(1000).unwrap();
        assert_eq!(oldest(&store), Some(20));
        let target_bytes = store.get_prune_status().unwrap().used_bytes / 2;
        store.set_prune_policy(PrunePolicy { target_bytes, ..due() }).unwrap();
        let cut = store.prune_now(1000).unwrap().totals.blocks;
        assert_eq!(cut > 0, strength == Strength::Soft, "{strength:?}");
    }
}

#[test]
fn a_soft_consumer_that_stays_silent_expires_and_a_hard_one_does_not() {
    let settings = Settings { consumer_expiry_blocks: 5, ..Settings::default() };
    let store = store_with(due(), settings);
    append(&store, 3);
    store.register_consumer("soft", Strength::Soft).unwrap();
    store.register_consumer("hard", Strength::Hard).unwrap();
    append(&store, 6);
    let status = store.get_prune_status().unwrap();
    let active: Vec<_> =
        status.holds.iter().map(|hold| (hold.kind.to_string(), hold.active)).collect();
    assert!(active.contains(&("export:soft".into(), false)));
    assert!(active.contains(&("export:hard".into(), true)));
    assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0);
    assert!(store.remove_consumer("hard").unwrap());
    assert!(!store.remove_consumer("hard").unwrap());
    assert!(store.prune_now(1000).unwrap().totals.blocks > 0);
}

#[test]
fn a_hard_consumer_is_not_made_soft_by_registering_it_again() {
    let store = store_with(due(), Settings::default());
    store.register_consumer("a", Strength::Soft).unwrap();
    store.register_consumer("a", Strength::Hard).unwrap();
    let refused = store.register_consumer("a", Strength::Soft);
    assert!(matches!(refused, Err(StoreError::Refused { .. })));
    assert_eq!(store.consumers().unwrap()["a"].strength, Strength::Hard);
}

#[test]
fn acknowledgements_never_move_back_and_never_pass_the_head() {
    let store = store_with(due(), Settings::default());
    append(&store, 5);
    assert!(matches!(store.ack_exported("nobody", 10), Err(StoreError::Refused { .. })));
    store.register_consumer("a", Strength::Hard).unwrap();
    assert_eq!(store.ack_exported("a", 12).unwrap(), 12);
    assert_eq!(store.ack_exported("a", 11).unwrap(), 12);
    assert!(matches!(store.ack_exported("a", 15), Err(StoreError::Refused { .. })));
    assert!(store.register_consumer("../etc", Strength::Soft).is_err());
}

#[test]
fn the_archive_hold_lets_nothing_go_that_is_not_archived() {
    let settings = Settings { archive_hold: true, ..Settings::default() };
    let store = store_with(PrunePolicy { target_bytes: 40_000, ..due() }, settings);
    append(&store, 20);
    assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0, "not even in an emergency");
    store.ack_archived(&part(&store, 10, 14)).unwrap();
    store.prune_now(1000).unwrap();
    assert_eq!(oldest(&store), Some(15));
}

#[test]
fn explain_tells_who_holds_a_block_and_who_cut_it() {
    use secateur_core::ExplainBlock;
    let store = store_with(due(), Settings::default());
    store.register_consumer("indexer", Strength::Hard).unwrap();
    append(&store, 6);
    store.ack_exported("indexer", 12).unwrap();
    store.prune_now(1000).unwrap();
    let ExplainBlock::Pruned { report: Some(report), .. } = store.explain_block(11).unwrap() else {
        panic!("block 11 was cut")
    };
    assert_eq!((report.by.as_str(), report.first, report.last), ("operator", 10, 12));
    let ExplainBlock::Kept { held_by, due, .. } = store.explain_block(13).unwrap() else {
        panic!("block 13 is kept")
    };
    assert_eq!(held_by, ["export:indexer"]);
    assert!(due.is_some());
    assert!(matches!(store.explain_block(16).unwrap(), ExplainBlock::NotYet { .. }));
    assert!(matches!(store.explain_block(9).unwrap(), ExplainBlock::BeforeFirst { first: 10 }));
}

/// Runs a change beside a store whose bell is watched; whether it rang is the answer.
fn rings(store: &TestStore, change: impl FnOnce(&TestStore)) -> bool {
    let rung = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&rung);
    store.forget_prune_due();
    assert!(store.on_prune_due(move || hears.store(true, Ordering::Release)));
    change(store);
    rung.load(Ordering::Acquire)
}

/// `ack_archived` woke the daemon, and `ack_exported`, `remove_consumer` and `set_finalized` did not:
/// what they released waited for the next trigger. They ring now, if a hold stopped the last prune.
#[test]
fn a_release_wakes_the_daemon_if_a_hold_stopped_the_last_prune() {
    let releases: [fn(&TestStore); 4] = [
        |store| assert_eq!(store.ack_exported("reader", 14).unwrap(), 14),
        |store| assert!(store.remove_consumer("reader").unwrap()),
        |store| store.set_finalized(15).unwrap(),
        |store| store.set_settings(Settings::default()).unwrap(),
    ];
    for release in releases {
        let store = store_with(due(), explicit());
        append(&store, 10);
        store.set_finalized(12).unwrap();
        store.register_consumer("reader", Strength::Hard).unwrap();
        store.ack_exported("reader", 11).unwrap();
        let stop = store.prune_now(1000).unwrap().stop;
        assert!(matches!(stop, StopReason::Hold { .. }), "{stop:?}");
        // What a consumer acknowledges must be final.
        store.set_finalized(14).unwrap();
        assert!(rings(&store, release));
    }
}

#[test]
fn an_acknowledgement_that_releases_nothing_leaves_the_trigger_to_the_policy() {
    let store = store_with(PrunePolicy { retain_blocks: 5, ..due() }, Settings::default());
    append(&store, 10);
    store.register_consumer("reader", Strength::Hard).unwrap();
    store.ack_exported("reader", 19).unwrap();
    assert_eq!(store.prune_now(1000).unwrap().stop, StopReason::Done);
    append(&store, 1);
    assert!(!rings(&store, |store| assert_eq!(store.ack_exported("reader", 20).unwrap(), 20)));
}
