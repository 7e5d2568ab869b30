//! Pruning: scheduled by appends, cut into messages, finished after traps and upgrades.

use secateur_canister::{
    Error, InitArgs, KeptBlock, Layout, Plan, PruneOutcome, PruneStatus, StopReason, Strength,
    Trigger,
};
use serde_bytes::{ByteArray, ByteBuf};

use crate::common::*;
use crate::host::Host;

/// Some fifty blocks of 40 KB.
const BUDGET: u64 = 2 << 20;

/// A canister whose blocks are over the budget, with a prune that waits for its timer.
fn due(max_ops: u64) -> Host {
    let mut policy = policy(BUDGET);
    policy.max_ops_per_tick = max_ops;
    let mut host = installed(Some(policy));
    append_up_to(&mut host, 84);
    assert!(host.timer_is_due());
    host
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn the_84th_append_schedules_a_prune_and_does_none_itself() {
    let mut policy = policy(0);
    policy.retain_blocks = 10;
    let mut host = installed(Some(policy));
    append_up_to(&mut host, 83);
    assert!(!host.timer_is_due());
    append_up_to(&mut host, 84);
    assert_eq!(status(&mut host).pruned_before_block, None);
    assert!(host.timer_is_due());
    host.settle();
    assert_eq!(status(&mut host).pruned_before_block, Some(74));
    append_up_to(&mut host, 84 + 83);
    assert!(!host.timer_is_due());
    append_up_to(&mut host, 84 + 84);
    host.settle();
    assert_eq!(status(&mut host).pruned_before_block, Some(84 + 74));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn time_alone_triggers_a_prune_too() {
    let mut policy = policy(0);
    (policy.retain_blocks, policy.trigger) = (2, Trigger::Timer(5000));
    let mut host = installed(Some(policy));
    append_up_to(&mut host, 9);
    assert!(!host.timer_is_due());
    host.advance(5000);
    assert!(host.timer_is_due());
    host.settle();
    assert_eq!(status(&mut host).pruned_before_block, Some(7));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn under_a_budget_stable_memory_stops_growing() {
    let mut host = installed(Some(policy(BUDGET)));
    for height in (84..=840).step_by(84) {
        append_up_to(&mut host, height);
        host.settle();
    }
    let (half, pages) = (status(&mut host), host.image().len());
    assert!(half.used_bytes <= BUDGET, "{half:?}");
    for height in (924..=1680).step_by(84) {
        append_up_to(&mut host, height);
        host.settle();
    }
    let end = status(&mut host);
    assert_eq!(end.arena_bytes, half.arena_bytes);
    assert_eq!(host.image().len(), pages);
    assert!(end.pruned_before_block > Some(1500), "{end:?}");
    assert_eq!(end.failed_steps, 0);
    // So small a budget is less than the pages of the tables, and that is said.
    let [alarm] = end.alarms.as_slice() else { panic!("{:?}", end.alarms) };
    assert!(alarm.contains("arena and index"), "{alarm}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn what_was_cut_says_so_by_number_by_id_and_in_the_export() {
    let mut host = due(5000);
    host.settle();
    let boundary = status(&mut host).pruned_before_block.unwrap();
    let gone = Error::Pruned { pruned_before_block: boundary };
    let block: Result<KeptBlock, Error> = host.query("get_block", (boundary,)).unwrap();
    assert_eq!(block, Err(gone.clone()));
    let id = ByteArray::new(tx_id(boundary, 0).0);
    let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
    assert_eq!(receipt, Err(gone.clone()));
    let cursor = secateur_canister::Cursor { block_number: boundary, segment: 0, byte_offset: 0 };
    let args = (Some(cursor), 1_000_u32);
    let export: Result<secateur_canister::ExportReply, Error> =
        host.query("export_blocks", args).unwrap();
    assert_eq!(export.unwrap_err(), gone);
    let kept: Result<KeptBlock, Error> = host.query("get_block", (boundary + 1,)).unwrap();
    assert_eq!(kept.unwrap().meta, meta(boundary + 1));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_hard_consumer_holds_and_its_acknowledgement_lets_go() {
    let mut host = installed(None);
    let registered: Result<(), Error> =
        host.update(controller(), "register_consumer", ("reader", Strength::Hard)).unwrap();
    registered.unwrap();
    append_up_to(&mut host, 20);
    let mut policy = policy(0);
    policy.retain_blocks = 5;
    let set: Result<(), Error> = host.update(controller(), "set_prune_policy", (policy,)).unwrap();
    set.unwrap();
    host.settle();
    assert_eq!(status(&mut host).pruned_before_block, None);
    let ack: Result<u64, Error> =
        host.update(controller(), "ack_exported", ("reader", 8_u64)).unwrap();
    assert_eq!(ack, Ok(8));
    let plan: Result<Plan, Error> = host.query("prune_plan", ()).unwrap();
    let plan = plan.unwrap();
    assert_eq!((plan.totals.first, plan.totals.last), (Some(1), Some(8)));
    let outcome: Result<PruneOutcome, Error> =
        host.update(controller(), "prune_now", (5_000_u64,)).unwrap();
    let outcome = outcome.unwrap();
    assert_eq!((outcome.totals.blocks, &outcome.stop), (8, &plan.stop));
    assert!(matches!(outcome.stop, StopReason::Hold { .. }), "{outcome:?}");
    let removed: Result<bool, Error> =
        host.update(controller(), "remove_consumer", ("reader",)).unwrap();
    assert_eq!(removed, Ok(true));
    let outcome: Result<PruneOutcome, Error> =
        host.update(controller(), "prune_now", (1_u64,)).unwrap();
    assert_eq!(outcome.unwrap().totals.blocks, 1, "the caller's limit counts");
}

/// What an index had was all that a canister could wait for. With its archive hold on, an index that has
/// everything releases nothing; a part releases its own blocks, one behind a gap none.
#[test]
#[ignore = "needs the wasm: make canister"]
fn the_archive_hold_is_released_by_parts_and_not_by_what_an_index_has() {
    let mut host = installed(None);
    let held: Result<(), Error> = host.update(controller(), "set_archive_hold", (true,)).unwrap();
    held.unwrap();
    let registered: Result<(), Error> =
        host.update(controller(), "register_consumer", ("index", Strength::Hard)).unwrap();
    registered.unwrap();
    append_up_to(&mut host, 20);
    let mut policy = policy(0);
    policy.retain_blocks = 5;
    let set: Result<(), Error> = host.update(controller(), "set_prune_policy", (policy,)).unwrap();
    set.unwrap();
    let ack: Result<u64, Error> =
        host.update(controller(), "ack_exported", ("index", 20_u64)).unwrap();
    assert_eq!(ack, Ok(20));
    let prune = |host: &mut Host| {
        let done: Result<PruneOutcome, Error> =
            host.update(controller(), "prune_now", (20_000_u64,)).unwrap();
        done.unwrap();
        (status(host).pruned_before_block, status(host).archived)
    };
    assert_eq!(prune(&mut host), (None, None), "the index has it all");
    let archive = |host: &mut Host, part| -> Result<Option<u64>, Error> {
        host.update(controller(), "ack_archived", (part,)).unwrap()
    };
    assert_eq!(archive(&mut host, part(9, 12)), Ok(None), "blocks 1 to 8 are in no part");
    assert_eq!(prune(&mut host), (None, None));
    assert_eq!(archive(&mut host, part(1, 8)), Ok(Some(12)));
    assert_eq!(prune(&mut host), (Some(12), Some(12)));
    let mut forged = part(13, 15);
    forged.last_hash = ByteArray::new([6; 32]);
    let refused = archive(&mut host, forged);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(prune(&mut host), (Some(12), Some(12)));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_prune_of_no_operations_is_refused_and_cuts_nothing() {
    let mut host = due(5000);
    let refused: Result<PruneOutcome, Error> =
        host.update(controller(), "prune_now", (0_u64,)).unwrap();
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(status(&mut host).pruned_before_block, None);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_canister_starts_with_pruning_off_whatever_its_policy_says() {
    let mut host = installed_with(&InitArgs {
        policy: Some(policy(BUDGET)),
        chain_id: 7,
        ..InitArgs::default()
    });
    append_up_to(&mut host, 100);
    host.settle();
    let rests = status(&mut host);
    assert_eq!((rests.pruning_enabled, rests.need_prune), (false, true));
    assert_eq!(rests.pruned_before_block, None);
    set_pruning(&mut host, true);
    host.settle();
    assert!(status(&mut host).pruned_before_block.is_some());
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn the_challenge_window_and_the_layout_are_those_of_the_installation() {
    let mut keeps = policy(0);
    keeps.retain_blocks = 10;
    let args = InitArgs {
        policy: Some(keeps),
        pruning_enabled: Some(true),
        layout: Some(Layout::PerBlock),
        challenge_blocks: Some(50),
        consumer_expiry_blocks: Some(5),
        chain_id: 7,
        ..InitArgs::default()
    };
    let mut host = installed_with(&args);
    let soft = ("reader", Strength::Soft);
    let registered: Result<(), Error> =
        host.update(controller(), "register_consumer", soft).unwrap();
    registered.unwrap();
    append_up_to(&mut host, 84);
    host.settle();
    let status = status(&mut host);
    assert_eq!(status.pruned_before_block, Some(84 - 50), "the window outlasts retention");
    let soft = status.holds.iter().find(|hold| hold.name == "export:reader").unwrap();
    assert!(!soft.active, "it acknowledged nothing for more than five blocks");
    assert!(status.used_bytes < 50 * 128 * 1024, "in regions of their own: {status:?}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn the_kill_switch_stops_what_nobody_asked_for() {
    let mut host = installed(Some(policy(BUDGET)));
    set_pruning(&mut host, false);
    append_up_to(&mut host, 100);
    host.settle();
    let stopped = status(&mut host);
    assert_eq!((stopped.pruned_before_block, stopped.need_prune), (None, true));
    set_pruning(&mut host, true);
    host.settle();
    assert!(status(&mut host).used_bytes < BUDGET);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn an_append_that_traps_after_any_of_its_writes_did_not_happen() {
    let mut host = installed(None);
    append_up_to(&mut host, 3);
    let (image, before) = (host.image(), status(&mut host));
    let arg = candid::encode_one(block(4, 9000, 3, 50)).unwrap();
    let mut traps = 0;
    loop {
        host.trap_after_writes(Some(traps));
        if host.update_raw(controller(), "append", &arg).is_ok() {
            break;
        }
        assert_eq!(host.image(), image, "after {traps} writes");
        assert_eq!(status(&mut host), before);
        traps += 1;
    }
    assert!(traps > 10, "{traps}");
    host.trap_after_writes(None);
    append_up_to(&mut host, 10);
    assert_eq!(status(&mut host).head, Some(10));
}

/// A canister that drains, in slices of three blocks, with the first one about to run.
fn sliced() -> Host {
    // A region more, or the run that a drain seals first, is no emergency yet.
    let mut policy = policy(4 * BUDGET);
    (policy.max_ops_per_tick, policy.trigger) = (40, Trigger::EveryNBlocks(84));
    policy.hard_emergency_basis_points = 9_900;
    let mut host = installed(Some(policy));
    set_pruning(&mut host, false);
    let mut height = 0;
    while !status(&mut host).draining {
        height += 1;
        append(&mut host, block(height, 60_000, 4, 50)).unwrap();
        // Full epochs are sealed, and the last one is open.
        host.settle();
    }
    set_pruning(&mut host, true);
    let status = status(&mut host);
    assert!(host.timer_is_due(), "{status:?}");
    assert!(!status.emergency, "{status:?}");
    host
}

/// What a drain of [`sliced`] leaves, and how many slices it takes.
fn drained() -> (PruneStatus, u64) {
    let mut host = sliced();
    let plan: Result<Plan, Error> = host.query("prune_plan", ()).unwrap();
    let mut slices = 0;
    while status(&mut host).draining {
        assert_eq!(host.ring(), []);
        slices += 1;
    }
    host.settle();
    let end = status(&mut host);
    assert_eq!(end.pruned_before_block, plan.unwrap().totals.last, "as it was planned");
    assert!(slices > 2, "{slices}");
    (end, slices)
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_prune_that_traps_anywhere_is_undone_and_the_next_call_finishes_it() {
    let (drained, last) = drained();
    let mut trapped = 0;
    for slices in [0, 1, last - 1] {
        for writes in (0..).step_by(18) {
            let mut host = sliced();
            for _ in 0..slices {
                assert_eq!(host.ring(), []);
            }
            let (image, before) = (host.image(), status(&mut host));
            assert_eq!(before.pruned_before_block, (slices > 0).then_some(3 * slices));
            host.trap_after_writes(Some(writes));
            if host.ring().is_empty() {
                assert!(writes > 9, "slice {slices} ends after {writes} writes");
                break;
            }
            trapped += 1;
            host.trap_after_writes(None);
            assert_eq!(host.image(), image, "slice {slices} after {writes} writes");
            assert_eq!(status(&mut host), before);
            assert!(!host.timer_is_due(), "the timers forgot it");
            // It was to run at once; that it did not is known after some seconds, by any call.
            host.advance(10_000);
            set_pruning(&mut host, true);
            host.settle();
            let end = status(&mut host);
            assert_eq!(end.pruned_before_block, drained.pruned_before_block);
            assert_eq!((end.journal_entries, end.failed_steps), (0, 1), "it was counted");
        }
    }
    assert!(trapped > 10, "{trapped}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_prune_that_trapped_is_finished_by_time_alone() {
    let (drained, _) = drained();
    let mut host = sliced();
    assert_eq!(host.ring(), []);
    host.trap_after_writes(Some(5));
    assert_eq!(host.ring().len(), 1);
    host.trap_after_writes(None);
    assert!(!host.timer_is_due());
    host.advance(600_000);
    host.settle();
    let end = status(&mut host);
    assert_eq!((end.pruned_before_block, end.failed_steps), (drained.pruned_before_block, 1));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn an_upgrade_in_the_middle_of_a_prune_goes_on_and_ends_as_if_there_was_none() {
    let (wanted, last) = drained();
    for slices in [0, 1, 2, last - 1, last] {
        let mut host = sliced();
        for _ in 0..slices {
            assert_eq!(host.ring(), []);
        }
        let middle = status(&mut host);
        assert!(slices == last || middle.draining, "{middle:?}");
        host.upgrade(wasm(), controller()).unwrap();
        assert_eq!(status(&mut host).pruned_before_block, middle.pruned_before_block);
        host.settle();
        let end = status(&mut host);
        assert_eq!(end, PruneStatus { last_prune_at: end.last_prune_at, ..wanted.clone() });
        let next = end.head.unwrap() + 1;
        append(&mut host, block(next, 500, 4, 50)).unwrap();
        let oldest = end.oldest_kept_block.unwrap();
        let kept: Result<KeptBlock, Error> = host.query("get_block", (oldest,)).unwrap();
        assert_eq!(kept.unwrap().meta, meta(oldest));
    }
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn under_retention_a_trigger_is_one_message_and_no_time_is_one() {
    let mut policy = policy(0);
    (policy.retain_blocks, policy.max_ops_per_tick) = (10, 40);
    policy.trigger = Trigger::EveryNBlocks(84);
    let mut host = installed(Some(policy));
    for height in 1..=84 {
        append(&mut host, block(height, 500, 4, 50)).unwrap();
    }
    host.settle();
    let status_now = status(&mut host);
    assert_eq!(status_now.pruned_before_block, Some(3), "74 are due");
    assert_eq!((status_now.blocks_per_tick, status_now.blocks_between_ticks), (Some(3), Some(84)));
    assert_eq!(status_now.retention_behind_blocks, Some(71));
    for _ in 0..3 {
        host.advance(600_000);
        host.settle();
    }
    assert_eq!(status(&mut host).pruned_before_block, Some(3), "the trigger counts blocks");
    for height in 85..=168 {
        append(&mut host, block(height, 500, 4, 50)).unwrap();
    }
    host.settle();
    assert_eq!(status(&mut host).pruned_before_block, Some(6));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn in_an_emergency_messages_are_no_longer_than_they_may_be() {
    let mut host = installed(Some(policy(BUDGET)));
    set_pruning(&mut host, false);
    for height in 1..=6_000 {
        append(&mut host, block(height, 500, 1, 50)).unwrap();
    }
    host.settle();
    assert!(status(&mut host).emergency);
    let plan: Result<Plan, Error> = host.query("prune_plan", ()).unwrap();
    assert!(plan.unwrap().ticks > 1, "more is due than one message may cut");
    host.dearest = (0, String::new());
    set_pruning(&mut host, true);
    let mut boundaries = Vec::new();
    while host.timer_is_due() {
        assert_eq!(host.ring(), []);
        boundaries.push(status(&mut host).pruned_before_block.unwrap_or(0));
    }
    // 20,000 operations are 5,000 blocks of one transaction; the usual 5,000 do not apply.
    let most = boundaries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!((1..=5_000).contains(&most), "{boundaries:?}");
    assert!(host.dearest.0 < crate::host::LIMIT, "{:?}", host.dearest);
    assert!(status(&mut host).used_bytes < BUDGET);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn many_small_runs_are_merged_one_pair_in_a_message() {
    // Epochs of 128 KiB, and nothing is cut.
    let mut host = installed(Some(policy(BUDGET)));
    set_pruning(&mut host, false);
    for height in 1..=70 {
        append(&mut host, block(height, 130_000, 20, 50)).unwrap();
        host.settle();
    }
    host.upgrade(wasm(), controller()).unwrap();
    for height in [1, 2, 35, 64, 70] {
        for index in [0, 19] {
            let id = ByteArray::new(tx_id(height, index).0);
            let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
            assert_eq!(receipt.unwrap(), noise(height ^ u64::from(index), 50), "{height} {index}");
        }
    }
    assert_eq!(status(&mut host).failed_steps, 0);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn blocks_are_cut_also_where_there_is_no_room_to_seal_their_ids() {
    let mut host = installed(Some(policy(BUDGET)));
    set_pruning(&mut host, false);
    for height in 1..=40 {
        append(&mut host, block(height, 130_000, 2_000, 20)).unwrap();
    }
    host.gives_no_more_memory();
    // Epochs of 128 KiB: each of these blocks waits to be sealed, and most of their runs have no room.
    host.settle();
    let before = status(&mut host);
    assert!(before.failed_steps > 0 && before.used_bytes > 2 * BUDGET, "{before:?}");
    set_pruning(&mut host, true);
    host.settle();
    let after = status(&mut host);
    assert!(after.used_bytes < BUDGET && after.pruned_before_block.is_some(), "{after:?}");
    // What was freed has room for what comes, in memory that does not grow.
    for height in 41..=80 {
        append(&mut host, block(height, 130_000, 2_000, 20)).unwrap();
        host.settle();
    }
    assert!(status(&mut host).used_bytes < BUDGET);
    assert_eq!(status(&mut host).failed_steps, before.failed_steps, "and is sealed");
}
