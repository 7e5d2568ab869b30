//! Blobs of four validators, simulated: the small form of `secateur-sim sidecar`.

use secateur_sidecar::Sabotage;
use secateur_sim::sidecar::{Plan, run, run_seed};

/// The seeds that every bug must be caught by, and that are clean without one.
const SEEDS: u64 = 24;

/// I14 to I17, I19.
#[test]
fn no_blob_is_pruned_without_a_copy_whoever_crashes_or_lies() {
    let tally = run(&Plan { seed: 1, seeds: SEEDS, bug: Sabotage::None });
    assert!(tally.violations().is_empty(), "{:#?}", tally.violations());
    // It was not idle: crashes of many kinds came, and lies were refused for many reasons.
    assert!(tally.steps() >= 8 && tally.reasons() >= 8, "{}", tally.line());
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [1, 2, 7] {
        let first = run_seed(seed, Sabotage::None).unwrap();
        assert_eq!(first, run_seed(seed, Sabotage::None).unwrap(), "seed {seed}");
        assert!(first.events > 100 && first.crashes + first.lies > 0, "{first:?}");
    }
}

fn is_caught(bug: Sabotage) {
    let tally = run(&Plan { seed: 1, seeds: SEEDS, bug });
    let caught = tally.violations();
    assert!(!caught.is_empty(), "{bug:?} is not caught: {}", tally.line());
    println!("{bug:?}: {}", caught[0]);
}

#[test]
fn pruning_before_the_copy_was_read_back_is_caught() {
    is_caught(Sabotage::PruneBeforeReadBack);
}

#[test]
fn believing_any_signer_is_caught() {
    is_caught(Sabotage::AcceptAnySigner);
}

#[test]
fn learning_a_hash_from_a_notice_is_caught() {
    is_caught(Sabotage::LearnHash);
}

#[test]
fn signing_before_the_record_is_durable_is_caught() {
    is_caught(Sabotage::SignBeforeDurable);
}
