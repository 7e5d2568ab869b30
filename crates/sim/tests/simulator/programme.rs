//! The long programmes in small: that each runs, finds nothing in the product, and can fail.

use secateur_sim::{corrupt, enumerate, faults, readers, saboteurs};
use secateur_store::{Layout, Sabotage};

#[test]
fn crashes_on_both_grounds_and_in_recovery_lose_leak_and_falsify_nothing() {
    let plan = enumerate::Plan {
        seed: 1000,
        seam_images: 4_000,
        disk_images: 600,
        recovery_images: 600,
        only: None,
        sabotage: Sabotage::None,
    };
    let tally = enumerate::run(&plan, None, |_| {});
    assert_eq!(tally.violations(), 0, "{:#?}", tally.first_violations());
    assert!(tally.images() >= 4_600 && tally.recovery_images() >= 600, "{}", tally.line());
}

#[test]
fn damage_is_detected_or_changes_no_answer() {
    let plan = corrupt::Plan { seed: 5, stride: 101, sabotage: Sabotage::None };
    let tally = corrupt::run(&plan).unwrap();
    assert_eq!(tally.wrong(), 0, "{:#?}", tally.first());
    assert!(tally.detected() > 100, "{}", tally.line());
}

#[test]
fn failing_calls_lose_nothing() {
    let tally = faults::run(500, 2);
    assert!(tally.first().is_empty(), "{:#?}", tally.first());
    assert!(tally.failed.into_inner() > 100);
}

#[test]
fn a_reader_in_the_middle_of_a_cut_block_gets_the_right_bytes_or_pruned() {
    for skip in 0..8 {
        for layout in [Layout::PerBlock, Layout::Packed] {
            let read = readers::run(skip, layout, Sabotage::None);
            read.unwrap_or_else(|v| panic!("read {skip}: {v:?}"));
        }
    }
}

#[test]
fn a_planted_bug_is_caught() {
    for bug in [Sabotage::SkipArenaSync, Sabotage::ReuseQuarantined, Sabotage::PruneBelowLowWater] {
        assert!(saboteurs::run(bug, 1).caught_by.is_some(), "{bug:?}");
    }
}
