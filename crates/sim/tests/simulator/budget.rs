//! Water marks, ticks, retention, and the budget under load.

use crate::common::*;
use secateur_core::{Cause, PrunePolicy, StopReason};
use secateur_sim::budget::{self, Load};
use secateur_sim::chain::Shape;
use secateur_sim::script::NOW;
use secateur_store::{Sabotage, Settings, StoreError};

const DAY: u64 = 86_400;

#[test]
fn going_over_high_water_prunes_to_low_water_at_any_ops_and_any_pace() {
    for max_ops_per_tick in [1, 7, 1000, 1_000_000] {
        for group in [1, 8, 32] {
            let load = Load {
                seed: max_ops_per_tick + group,
                target_bytes: 4 << 20,
                max_ops_per_tick,
                group,
                blocks: 1500,
                layout: layout(),
                sabotage: Sabotage::None,
            };
            let outcome = budget::run(&load).unwrap_or_else(|v| panic!("{load:?}: {v:?}"));
            assert!(outcome.drains > 0, "{load:?} {outcome:?}");
            assert!(outcome.cut > 1000, "{load:?} {outcome:?}");
        }
    }
}

/// I8.
#[test]
fn under_a_fixed_budget_and_steady_load_the_arena_stops_growing() {
    let policy = PrunePolicy { target_bytes: 2 << 20, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    store.set_pruning_enabled(true).unwrap();
    let mut ends = Vec::new();
    for _ in 0..40 {
        for _ in 0..100 {
            append(&store, 1);
            store.tick().unwrap();
        }
        ends.push(store.get_prune_status().unwrap().arena_bytes);
    }
    assert!(ends[39] <= 2 << 20, "the whole arena fits the budget: {}", ends[39]);
    assert!(ends[16..].iter().all(|end| *end == ends[16]), "{ends:?}");
}

#[test]
fn a_block_with_more_operations_than_a_tick_is_still_pruned() {
    let policy = PrunePolicy { retain_blocks: 1, max_ops_per_tick: 2, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append_shaped(&store, 4, Shape { block_len: 10, transactions: 50, receipt_len: 10 });
    for cut in 10..13 {
        let outcome = store.prune_now(2).unwrap();
        assert_eq!((outcome.totals.blocks, outcome.totals.last), (1, Some(cut)));
        assert!(outcome.totals.overrun);
    }
    assert_eq!(store.prune_now(2).unwrap().stop, StopReason::Done);
    assert_eq!(store.get_prune_status().unwrap().overruns, 3);
}

#[test]
fn a_tick_takes_whole_blocks_that_fit_and_the_next_goes_on() {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 10);
    let outcome = store.prune_now(15).unwrap();
    assert_eq!(outcome.totals.blocks, 2, "7 operations each");
    assert!(outcome.more());
    while store.prune_now(15).unwrap().more() {}
    let reports = store.reports().unwrap();
    assert_eq!(reports.len(), 1, "ticks that go on from one another share a report");
    assert_eq!((reports[0].first, reports[0].last, reports[0].ticks), (10, 18, 5));
}

#[test]
fn max_ops_of_zero_is_an_error() {
    assert!(matches!(store().prune_now(0), Err(StoreError::Refused { .. })));
}

#[test]
fn retention_by_blocks_keeps_exactly_that_many_and_is_then_satisfied() {
    let policy = PrunePolicy { retain_blocks: 4, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 20);
    assert!(store.need_prune().unwrap().need_prune);
    let plan = store.prune_plan().unwrap();
    let outcome = store.prune_now(1_000_000).unwrap();
    assert_eq!(plan.totals, outcome.totals, "the plan is what the run does");
    assert_eq!(plan.stop, outcome.stop);
    let status = store.get_prune_status().unwrap();
    assert_eq!(status.oldest_kept_block, Some(26));
    assert!(!status.need.need_prune);
}

#[test]
fn retention_by_days_goes_by_the_chain_and_the_more_aggressive_term_wins() {
    let policy = PrunePolicy { retain_days: 1, retain_blocks: 5000, ..PrunePolicy::default() };
    let store = store_with(policy.clone(), Settings::default());
    let mut block = next_block(&store, SHAPE);
    for height in 0..10 {
        block.meta.timestamp = NOW - 5 * DAY + height * DAY / 2;
        store.append(&block).unwrap();
        block = next_block(&store, SHAPE);
    }
    store.prune_now(1_000_000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().oldest_kept_block, Some(17), "a day is 2 blocks");
    store.set_prune_policy(PrunePolicy { retain_blocks: 2, ..policy }).unwrap();
    store.prune_now(1_000_000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().oldest_kept_block, Some(18));
}

#[test]
fn one_block_with_a_timestamp_in_the_far_future_prunes_nothing() {
    let policy = PrunePolicy { retain_days: 1, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    let append_at = |timestamp| {
        let mut block = next_block(&store, SHAPE);
        block.meta.timestamp = timestamp;
        store.append(&block).unwrap();
    };
    for _ in 0..5 {
        append_at(NOW - 100);
    }
    append_at(NOW + 1000 * DAY);
    assert!(!store.need_prune().unwrap().need_prune);
    assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0);
    assert_eq!(store.get_prune_status().unwrap().implausible_timestamps, 1);
}

/// The chain is years behind the wall clock, as while it syncs, or right at it.
#[test]
fn a_bogus_head_prunes_nothing_wherever_the_chain_stands() {
    for behind in [3 * 365 * DAY, 29 * DAY] {
        let policy = PrunePolicy { retain_days: 30, ..PrunePolicy::default() };
        let store = store_with(policy, Settings::default());
        for at in 0..100 {
            let mut block = next_block(&store, SHAPE);
            block.meta.timestamp = NOW - behind + at * 12;
            store.append(&block).unwrap();
        }
        for timestamp in [u64::MAX, NOW + 2000, NOW + 1000] {
            let mut block = next_block(&store, SHAPE);
            block.meta.timestamp = timestamp;
            store.append(&block).unwrap();
            assert_eq!(store.prune_plan().unwrap().totals.blocks, 0, "{behind} {timestamp}");
        }
    }
}

#[test]
fn a_limit_that_is_reached_is_not_called_done() {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 10);
    let outcome = store.prune_blocks(12, 1000).unwrap();
    assert_eq!((outcome.totals.blocks, outcome.stop), (3, StopReason::Limit));
}

#[test]
fn a_bogus_timestamp_does_not_stop_retention_for_ever() {
    let policy = PrunePolicy { retain_days: 1, ..PrunePolicy::default() };
    let clock = clock();
    let config = config(policy, Settings::default());
    let store = secateur_store::Store::create(ground(), config, clock.clone()).unwrap();
    let append_at = |timestamp| {
        let mut block = next_block(&store, SHAPE);
        block.meta.timestamp = timestamp;
        store.append(&block).unwrap();
    };
    append_at(NOW);
    append_at(NOW + 1000 * DAY);
    append_at(NOW + 12);
    clock.set(NOW + 3 * DAY);
    append_at(NOW + 3 * DAY);
    store.prune_now(1000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().oldest_kept_block, Some(13));
}

#[test]
fn a_wall_clock_behind_the_chain_prunes_nothing_now_or_later() {
    let policy = PrunePolicy { retain_days: 1, ..PrunePolicy::default() };
    let clock = std::sync::Arc::new(secateur_sim::SimClock::at(1000));
    let config = config(policy, Settings::default());
    let store = secateur_store::Store::create(ground(), config, clock.clone()).unwrap();
    for second in 0..5 {
        let mut block = next_block(&store, SHAPE);
        block.meta.timestamp = NOW + second;
        store.append(&block).unwrap();
    }
    assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0);
    clock.set(NOW + 5);
    assert_eq!(store.prune_now(1000).unwrap().totals.blocks, 0, "they are young all the same");
}

#[test]
fn the_kill_switch_stops_the_daemon_but_not_the_operator() {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 5);
    assert_eq!(store.tick().unwrap(), None, "pruning is off by default");
    let status = store.get_prune_status().unwrap();
    assert!(status.need.need_prune && status.alarms.iter().any(|a| a.contains("pruning is off")));
    assert_eq!(store.prune_now(7).unwrap().totals.blocks, 1);
    store.set_pruning_enabled(true).unwrap();
    assert_eq!(store.tick().unwrap().unwrap().totals.blocks, 3);
    assert_eq!(store.reports().unwrap().last().unwrap().by, "daemon");
}

#[test]
fn an_invalid_policy_is_refused_and_nothing_changes() {
    let store = store();
    let before = rows(&store);
    let bad = PrunePolicy { target_bytes: 10, ..PrunePolicy::default() };
    assert!(matches!(store.set_prune_policy(bad), Err(StoreError::Invalid(_))));
    assert_eq!((rows(&store), store.policy()), (before, PrunePolicy::default()));
}

#[test]
fn lowering_the_target_starts_a_drain_at_once() {
    let store = store();
    append(&store, 100);
    assert!(!store.need_prune().unwrap().need_prune);
    let target_bytes = store.get_prune_status().unwrap().used_bytes / 2;
    store.set_prune_policy(PrunePolicy { target_bytes, ..PrunePolicy::default() }).unwrap();
    let need = store.need_prune().unwrap();
    assert_eq!(need.cause, Some(Cause::Emergency));
    store.prune_now(1_000_000).unwrap();
    let status = store.get_prune_status().unwrap();
    assert!(status.used_bytes <= status.low_water_bytes.unwrap() && !status.need.need_prune);
}

#[test]
fn the_report_log_is_bounded() {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    for _ in 0..secateur_store::MAX_REPORTS + 20 {
        append_shaped(&store, 1, Shape { block_len: 1, transactions: 0, receipt_len: 0 });
        store.prune_now(100).unwrap();
    }
    let reports = store.reports().unwrap();
    assert_eq!(reports.len() as u64, secateur_store::MAX_REPORTS);
    assert_eq!(reports[0].seq, 19);
}
