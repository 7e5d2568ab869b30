//! The saboteurs: each planted bug must be caught by the programme, and the same checks must
//! have nothing to say when no bug is planted.

use secateur_store::{Layout, Sabotage};

use crate::{budget, corrupt, enumerate, quiet_redb_panics, readers};

/// What became of one saboteur.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The bug.
    pub bug: Sabotage,
    /// Which check caught it, and the first thing that it saw.
    pub caught_by: Option<String>,
}

/// Images of one enumeration; the bugs show within the first hundreds.
const IMAGES: u64 = 4_000;
const DISK_IMAGES: u64 = 2_000;

/// Runs the checks against one bug, or against none.
pub fn run(bug: Sabotage, seed: u64) -> Verdict {
    quiet_redb_panics();
    let checks: [fn(Sabotage, u64) -> Option<String>; 5] =
        [by_budget, by_readers, by_crash_on_seams, by_crash_on_disk, by_corruption];
    Verdict { bug, caught_by: checks.into_iter().find_map(|check| check(bug, seed)) }
}

fn crash_plan(bug: Sabotage, seed: u64) -> enumerate::Plan {
    enumerate::Plan {
        seed,
        seam_images: IMAGES,
        disk_images: DISK_IMAGES,
        recovery_images: 0,
        only: None,
        sabotage: bug,
    }
}

fn by_crash(bug: Sabotage, seed: u64, ground: &str) -> Option<String> {
    let tally = enumerate::run(&crash_plan(bug, seed), Some(ground), |_| {});
    let first = tally.first_violations().into_iter().next()?;
    Some(format!("crash enumeration on the {ground}: {first}"))
}

fn by_crash_on_seams(bug: Sabotage, seed: u64) -> Option<String> {
    by_crash(bug, seed, "seams")
}

fn by_crash_on_disk(bug: Sabotage, seed: u64) -> Option<String> {
    by_crash(bug, seed, "disk")
}

fn by_corruption(bug: Sabotage, seed: u64) -> Option<String> {
    let plan = corrupt::Plan { seed, stride: 7, sabotage: bug };
    let tally = match corrupt::run(&plan) {
        Ok(tally) => tally,
        Err(error) => return Some(format!("corruption sweep: {error}")),
    };
    tally.first().into_iter().next().map(|first| format!("corruption sweep: {first}"))
}

/// A block of the reader's check is read in so many pieces.
const READS: u64 = 6;

fn by_readers(bug: Sabotage, _seed: u64) -> Option<String> {
    let layouts = [Layout::PerBlock, Layout::Packed];
    let run = |layout| (0..READS).find_map(|skip| readers::run(skip, layout, bug).err());
    let violation = layouts.into_iter().find_map(run)?;
    Some(format!("a reader during a cut: {violation:?}"))
}

fn by_budget(bug: Sabotage, seed: u64) -> Option<String> {
    let load = budget::Load {
        seed,
        target_bytes: 2 << 20,
        max_ops_per_tick: 1000,
        group: 1,
        blocks: 400,
        layout: Layout::PerBlock,
        sabotage: bug,
    };
    budget::run(&load).err().map(|violation| format!("budget: {violation:?}"))
}
