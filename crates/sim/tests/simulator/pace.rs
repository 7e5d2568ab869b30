//! What a trigger may cost under retention and under a budget, and that retention keeps up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use secateur_core::{BlockHash, PrunePolicy, Strength, Trigger};
use secateur_sim::chain::{self, Shape};
use secateur_sim::script::NOW;
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Finality, Ground, Settings, Store, StoreConfig};

/// Seven operations are a block of [`SHAPE`], so a tick cuts one.
fn one_block_a_tick(retain_blocks: u64) -> PrunePolicy {
    let trigger = Trigger::EveryNBlocks(84);
    PrunePolicy { retain_blocks, max_ops_per_tick: 10, trigger, ..PrunePolicy::default() }
}

/// What one ring of the bell cuts: the blocks of each tick.
fn ring(store: &TestStore) -> Vec<u64> {
    let mut ticks = Vec::new();
    let heard = |outcome: &secateur_store::PruneOutcome| {
        ticks.push(outcome.totals.blocks);
        true
    };
    store.drain(heard).unwrap();
    ticks
}

#[test]
fn under_retention_a_trigger_is_one_tick_however_much_is_due() {
    let store = store_with(one_block_a_tick(100), Settings::default());
    append(&store, 400);
    store.set_pruning_enabled(true).unwrap();
    assert_eq!(ring(&store), [1], "300 blocks are due");
    assert_eq!(ring(&store), [1]);
    let status = store.get_prune_status().unwrap();
    assert_eq!(status.retention_behind_blocks, Some(298));
    assert_eq!(status.pace.blocks_per_tick, Some(1));
    assert_eq!(status.pace.blocks_between_ticks, Some(84));
    assert_eq!(store.prune_plan().unwrap().pace, status.pace);
}

#[test]
fn while_the_budget_drains_one_trigger_goes_to_low_water() {
    let store = store_with(one_block_a_tick(0), Settings::default());
    append(&store, 400);
    let used = store.get_prune_status().unwrap().used_bytes;
    let mut policy = PrunePolicy { target_bytes: used + used / 18, ..one_block_a_tick(0) };
    // What is sealed on the way must not make an emergency of it, whose ticks are larger.
    policy.set("hard_emergency_ratio", "1").unwrap();
    store.set_prune_policy(policy).unwrap();
    store.set_pruning_enabled(true).unwrap();
    assert!(store.get_prune_status().unwrap().pressure.draining);
    let ticks = ring(&store);
    assert!(ticks.len() > 10 && ticks.iter().all(|blocks| *blocks <= 1), "{ticks:?}");
    let status = store.get_prune_status().unwrap();
    assert!(status.used_bytes <= status.low_water_bytes.unwrap() && !status.pressure.draining);
}

/// The bell of a store, and whether it rang.
fn bell(store: &TestStore) -> Arc<AtomicU64> {
    let rung = Arc::new(AtomicU64::new(0));
    let bell = Arc::clone(&rung);
    assert!(store.on_prune_due(move || {
        bell.fetch_add(1, Ordering::Relaxed);
    }));
    rung
}

#[test]
fn every_84_blocks_is_every_84_blocks() {
    let store = store_with(one_block_a_tick(5), Settings::default());
    store.set_pruning_enabled(true).unwrap();
    let rung = bell(&store);
    for appended in 1..=84 * 3 {
        append(&store, 1);
        assert_eq!(rung.load(Ordering::Relaxed), appended / 84, "after {appended} blocks");
        if appended % 84 == 0 {
            assert_eq!(ring(&store), [1]);
        }
    }
}

#[test]
fn an_acknowledgement_wakes_whom_a_hold_has_stopped_and_is_no_trigger_otherwise() {
    let settings =
        Settings { finality: Finality::Instant, archive_hold: true, ..Settings::default() };
    let store = store_with(one_block_a_tick(5), settings);
    store.register_consumer("reader", Strength::Hard).unwrap();
    append(&store, 60);
    store.set_pruning_enabled(true).unwrap();
    assert_eq!(ring(&store), [0], "the archive holds everything");
    let rung = bell(&store);
    store.ack_archived(&part(&store, 10, 29)).unwrap();
    assert_eq!(rung.load(Ordering::Relaxed), 1, "that is what the prune waited for");
    store.ack_exported("reader", 29).unwrap();
    assert_eq!(ring(&store), [1], "and stopped for its operations");
    let before = rung.load(Ordering::Relaxed);
    store.ack_archived(&part(&store, 30, 39)).unwrap();
    assert_eq!(rung.load(Ordering::Relaxed), before, "the next trigger goes on");
}

/// A challenge window that is longer than the retention raised an alarm that never ended.
#[test]
fn retention_that_waits_for_a_challenge_window_is_no_alarm() {
    let settings = Settings { challenge_blocks: 50, ..Settings::default() };
    let store = store_with(one_block_a_tick(5), settings);
    store.set_pruning_enabled(true).unwrap();
    append(&store, 40);
    let status = store.get_prune_status().unwrap();
    assert!(status.need.need_prune && status.need.blocked_by.is_some(), "{status:?}");
    assert_eq!(status.alarms, Vec::<String>::new());
}

#[test]
fn retention_that_falls_behind_for_an_hour_is_an_alarm_until_it_catches_up() {
    let clock = clock();
    let policy = one_block_a_tick(5);
    let store =
        Store::create(ground(), config(policy, Settings::default()), clock.clone()).unwrap();
    store.set_pruning_enabled(true).unwrap();
    append(&store, 10);
    for minute in 1..=60 {
        append(&store, 3);
        ring(&store);
        assert!(!alarm(&store), "before {minute} minutes");
        clock.set(NOW + 60 * minute);
    }
    assert!(alarm(&store));
    while store.prune_now(1_000).unwrap().more() {}
    assert!(!alarm(&store));
}

/// Under an archive hold, all that retention does not keep waits for the next part, and an hour of that
/// was an alarm that asked for larger ticks. What a part lets go at once is caught up with, also over hours.
#[test]
fn what_a_hold_keeps_is_not_retention_that_falls_behind() {
    let clock = clock();
    let settings = Settings { archive_hold: true, ..Settings::default() };
    let store = Store::create(ground(), config(one_block_a_tick(5), settings), clock.clone());
    let store = store.unwrap();
    store.set_pruning_enabled(true).unwrap();
    append(&store, 400);
    for minute in 1..=300 {
        append(&store, 1);
        ring(&store);
        let alarms = store.get_prune_status().unwrap().alarms;
        assert!(!alarms.iter().any(|alarm| alarm.contains("behind")), "{minute}: {alarms:?}");
        let held = alarms.iter().any(|alarm| alarm.contains("the hard hold `archive` stops it"));
        assert_eq!(held, minute < 100, "{minute}: {alarms:?}");
        if minute == 99 {
            store.ack_archived(&part(&store, 10, 409)).unwrap();
        }
        clock.set(NOW + 60 * minute);
    }
}

#[test]
fn the_alarm_of_retention_ends_with_pruning_and_with_the_retention() {
    let alarmed = || {
        let clock = clock();
        let config = config(one_block_a_tick(5), Settings::default());
        let store = Store::create(ground(), config, clock.clone()).unwrap();
        store.set_pruning_enabled(true).unwrap();
        for minute in 0..=61 {
            clock.set(NOW + 60 * minute);
            append(&store, 10);
            ring(&store);
        }
        assert!(alarm(&store));
        store
    };
    let store = alarmed();
    store.set_pruning_enabled(false).unwrap();
    assert!(!alarm(&store), "nothing is pruned by itself");
    store.prune_now(1).unwrap();
    assert!(!alarm(&store));
    let store = alarmed();
    store.set_prune_policy(one_block_a_tick(0)).unwrap();
    assert!(!alarm(&store), "there is no retention");
}

fn alarm(store: &TestStore) -> bool {
    let alarms = store.get_prune_status().unwrap().alarms;
    alarms.iter().any(|alarm| alarm.contains("retention falls behind"))
}

/// 84 blocks of 150 transactions are 37,884 operations: 5,000 of them a tick would be eleven blocks.
#[test]
fn at_the_defaults_retention_keeps_up_with_20_000_blocks_of_150_transactions() {
    const BLOCKS: u64 = 20_000;
    let mut config = StoreConfig::new(7, [3; 16]);
    config.policy.retain_blocks = 1_000;
    config.pruning_enabled = true;
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let store = Store::create(ground, config, clock()).unwrap();
    let rung = Arc::new(AtomicBool::new(false));
    let bell = Arc::clone(&rung);
    assert!(store.on_prune_due(move || bell.store(true, Ordering::Relaxed)));
    let shape = Shape { block_len: 50, transactions: 150, receipt_len: 0 };
    let mut parent = BlockHash::default();
    let mut ticks = 0;
    for first in (0..BLOCKS).step_by(20) {
        let group: Vec<_> = (first..first + 20)
            .map(|height| {
                let block = chain::block(height, parent, shape, 1, 0);
                parent = block.meta.hash;
                block
            })
            .collect();
        store.append_group(&group).unwrap();
        if rung.swap(false, Ordering::Relaxed) {
            store.drain(|_| true).unwrap();
            ticks += 1;
        }
    }
    let status = store.get_prune_status().unwrap();
    let kept = BLOCKS - status.oldest_kept_block.unwrap();
    assert_eq!(status.pace.blocks_per_tick, Some(443));
    assert!(ticks <= BLOCKS / 84 && kept <= 1_084 + 443, "{kept} blocks kept after {ticks} ticks");
    assert!(status.retention_behind_blocks <= Some(100), "{status:?}");
    assert!(status.alarms.is_empty(), "{:?}", status.alarms);
}
