//! What an installation sets and what it leaves out, and steps that fail.

use secateur_canister::{Error, InitArgs, PrunePolicy};
use serde_bytes::{ByteArray, ByteBuf};

use crate::common::*;
use crate::host::Host;

/// Appends blocks of four transactions up to a height, and prunes as their triggers say.
fn pruned_up_to(host: &mut Host, last: u64) {
    let head = status(host).head.unwrap_or(0);
    for height in head + 1..=last {
        append(host, block(height, 500, 4, 50)).unwrap();
        host.settle();
    }
}

fn retaining(retain_blocks: u64) -> PrunePolicy {
    PrunePolicy { retain_blocks, ..policy(0) }
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn without_a_policy_a_message_has_5_000_operations() {
    let mut host = installed_with(&InitArgs { chain_id: 7, ..InitArgs::default() });
    let status = status(&mut host);
    assert_eq!(status.policy.max_ops_per_tick, 5_000);
    assert!(!status.pruning_enabled);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn challenge_seconds_of_the_installation_hold_final_blocks_so_long() {
    let mut host = installed_with(&InitArgs {
        policy: Some(retaining(10)),
        pruning_enabled: Some(true),
        challenge_seconds: Some(50),
        chain_id: 7,
        ..InitArgs::default()
    });
    // A block each second.
    pruned_up_to(&mut host, 84);
    assert_eq!(status(&mut host).pruned_before_block, Some(84 - 50));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn without_tombstone_bytes_pruned_ids_are_forgotten_with_their_run() {
    for (tombstone_bytes, known) in [(None, true), (Some(0), false)] {
        let mut host = installed_with(&InitArgs {
            policy: Some(retaining(10)),
            pruning_enabled: Some(true),
            tombstone_bytes,
            chain_id: 7,
            ..InitArgs::default()
        });
        pruned_up_to(&mut host, 3 * 84);
        let id = ByteArray::new(tx_id(5, 0).0);
        let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
        let pruned = matches!(receipt, Err(Error::Pruned { .. }));
        assert_eq!(pruned, known, "{tombstone_bytes:?}: {receipt:?}");
    }
}

/// Retention that falls behind, what a tick cuts and what prunes cut were in no metric.
#[test]
#[ignore = "needs the wasm: make canister"]
fn metrics_have_the_pace_of_pruning_and_what_was_cut() {
    let mut host = installed(Some(PrunePolicy { max_ops_per_tick: 40, ..retaining(10) }));
    pruned_up_to(&mut host, 84);
    let text: Result<String, Error> = host.query("metrics", ()).unwrap();
    let text = text.unwrap();
    for line in [
        "secateur_canister_retention_behind_blocks 71",
        "secateur_canister_blocks_per_tick 3",
        "secateur_canister_cut_blocks_total 3",
        "secateur_canister_prune_instructions_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("\nsecateur_canister_blocks_between_ticks "), "{text}");
    assert!(text.contains("\nsecateur_canister_cut_bytes_total "), "{text}");
}

/// After a step that failed every call scheduled the next one, which failed as well and cost a message.
#[test]
#[ignore = "needs the wasm: make canister"]
fn a_step_that_fails_is_tried_again_after_a_pause_and_not_by_each_call() {
    let mut host = installed(Some(policy(2 << 20)));
    set_pruning(&mut host, false);
    for height in 1..=40 {
        append(&mut host, block(height, 130_000, 2_000, 20)).unwrap();
    }
    host.gives_no_more_memory();
    // Ids wait to be sealed, and their runs have no room.
    host.settle();
    let failed = status(&mut host).failed_steps;
    assert_eq!(failed, 1);
    for _ in 0..3 {
        let removed: Result<bool, Error> =
            host.update(controller(), "remove_consumer", ("unknown",)).unwrap();
        assert_eq!(removed, Ok(false));
        assert!(!host.timer_is_due());
    }
    for (millis, steps) in [(9_999, 1), (1, 2), (19_999, 2), (1, 3)] {
        host.advance(millis);
        host.settle();
        assert_eq!(status(&mut host).failed_steps, steps, "{millis} ms on");
    }
    set_pruning(&mut host, true);
    host.settle();
    let after = status(&mut host);
    assert!(after.pruned_before_block.is_some(), "what a controller asks for runs at once");
}
