//! Kill −9: a real process on a real directory, killed at seeded moments; what it acknowledged
//! is written down outside of it and checked after each restart.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use secateur_core::{Height, PrunePolicy};
use secateur_store::ground::disk::{DiskStore, FsVolume, RESERVE_BYTES, open_ground};
use secateur_store::{ClassTable, Sabotage, Store, StoreConfig, StoreError, SystemClock};

use crate::chain::{self, Shape};
use crate::rng::Rng;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Blocks to reach.
    pub blocks: u64,
    /// How often to kill on the way.
    pub kills: u64,
    /// The budget.
    pub target_bytes: u64,
}

/// What a run saw.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Kills.
    pub kills: u64,
    /// The highest block that was acknowledged.
    pub acknowledged: Height,
    /// Blocks that the last verification read.
    pub verified: u64,
    /// What the last verification found wrong.
    pub findings: u64,
    /// Promises broken.
    pub lost: u64,
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        format!(
            "kill kills={} acknowledged={} verified={} findings={} lost={}",
            self.kills, self.acknowledged, self.verified, self.findings, self.lost
        )
    }
}

fn shape(height: Height) -> Shape {
    let len = usize::try_from(200 + height * 7919 % 3000).unwrap_or(200);
    Shape { block_len: len, transactions: u32::try_from(height % 3).unwrap_or(0), receipt_len: 60 }
}

fn open(directory: &Path, plan: &Plan) -> Result<DiskStore, StoreError> {
    let ground = open_ground(&FsVolume::open(directory)?, RESERVE_BYTES, Sabotage::None)?;
    if Store::exists(&ground)? {
        return Store::open(ground, Arc::new(SystemClock));
    }
    let policy = PrunePolicy {
        target_bytes: plan.target_bytes,
        max_ops_per_tick: 500,
        ..PrunePolicy::default()
    };
    let config =
        StoreConfig { classes: ClassTable::small(), policy, ..StoreConfig::new(7, [9; 16]) };
    Store::create(ground, config, Arc::new(SystemClock))
}

/// The load, as its own process runs it: appends groups of seeded sizes, ticks, and prints what
/// is durable.
pub fn load(directory: &Path, plan: &Plan) -> Result<(), StoreError> {
    let failed = |source| StoreError::io("printing", source);
    let store = open(directory, plan)?;
    store.set_pruning_enabled(true)?;
    let mut out = std::io::stdout().lock();
    while store.head().is_none_or(|head| head < plan.blocks) {
        let mut height = store.head().map_or(1, |head| head + 1);
        let mut parent = store.head_hash().unwrap_or_default();
        let mut group = Vec::new();
        for _ in 0..=Rng::new(plan.seed, height).below(160) {
            let block = chain::block(height, parent, shape(height), plan.seed, 0);
            (height, parent) = (height + 1, block.meta.hash);
            group.push(block);
        }
        let appended = store.append_group(&group)?;
        store.tick()?;
        let boundary = store.get_prune_status()?.pruned_before_block.unwrap_or(0);
        writeln!(out, "{} {boundary}", appended.head).map_err(failed)?;
        out.flush().map_err(failed)?;
    }
    Ok(())
}

/// Runs the load in child processes of `program`, kills them, and checks.
pub fn run(program: &Path, directory: &Path, plan: &Plan) -> Result<Tally, StoreError> {
    let mut rng = Rng::new(plan.seed, 13);
    let mut tally = Tally::default();
    let mut boundary = 0;
    loop {
        let last = tally.kills == plan.kills;
        // About so many lines pass between kills that the kills spread over the whole run.
        let lines = rng.below(2 * plan.blocks / (plan.kills + 1) / 80 + 1);
        let (head, pruned) = one_life(program, directory, plan, (!last).then_some(lines))?;
        tally.acknowledged = tally.acknowledged.max(head);
        boundary = boundary.max(pruned);
        tally.kills += u64::from(!last);
        check(directory, plan, boundary, &mut tally, &mut rng)?;
        if last {
            // It got where it was to go, so the kills were on the way there.
            tally.lost += u64::from(tally.acknowledged < plan.blocks);
            return Ok(tally);
        }
    }
}

/// One life of the child: until it has printed so many lines, or until it ends by itself.
fn one_life(
    program: &Path,
    directory: &Path,
    plan: &Plan,
    lines: Option<u64>,
) -> Result<(Height, Height), StoreError> {
    let failed = |source| StoreError::io("running the load", source);
    let mut child = Command::new(program)
        .args(["load", "--directory"])
        .arg(directory)
        .args(["--seed", &plan.seed.to_string(), "--blocks", &plan.blocks.to_string()])
        .args(["--target-bytes", &plan.target_bytes.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut told = (0, 0);
    let mut count = 0;
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines() {
            let line = line.map_err(failed)?;
            let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
            if let (Some(head), Some(boundary)) = (numbers.next(), numbers.next()) {
                told = (head, boundary);
            }
            count += 1;
            if lines == Some(count) || lines == Some(0) {
                // Killed while it goes on appending: whatever it prints from now on still counts.
                child.kill().map_err(failed)?;
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    // A child that ends by itself before it was killed has tested nothing.
    let killed = lines.is_some() && status.code().is_none();
    if !killed && !status.success() {
        return Err(failed(std::io::Error::other(format!("it ended with {status}"))));
    }
    Ok(told)
}

/// Everything acknowledged is there or below the boundary, the boundary did not move back, and
/// `verify` has nothing to say.
fn check(
    directory: &Path,
    plan: &Plan,
    boundary: Height,
    tally: &mut Tally,
    rng: &mut Rng,
) -> Result<(), StoreError> {
    let store = open(directory, plan)?;
    let report = store.verify(|_, _| {})?;
    tally.verified = report.blocks;
    tally.findings += report.findings.len() as u64;
    for finding in &report.findings {
        eprintln!("{finding:?}");
    }
    let head = store.head().unwrap_or(0);
    let pruned = store.get_prune_status()?.pruned_before_block.unwrap_or(0);
    tally.lost += u64::from(head < tally.acknowledged) + u64::from(pruned < boundary);
    for _ in 0..300 {
        let height = pruned + 1 + rng.below(head - pruned);
        let Ok(block) = store.get_block(height) else {
            tally.lost += u64::from(head > 0);
            continue;
        };
        let expected = chain::block(height, block.meta.parent_hash, shape(height), plan.seed, 0);
        tally.lost += u64::from(block != expected);
    }
    Ok(())
}
