//! The budget's promise under seeded load: over high water it drains to low water and not
//! further, whatever a tick may cost and however blocks keep coming; then the arena is flat.

use secateur_core::{PrunePolicy, StopReason};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{ClassTable, Ground, Layout, Sabotage, Store, StoreConfig, StoreError};

use crate::chain::{Shape, block};
use crate::model::Violation;
use crate::rng::Rng;
use crate::script::clock;

/// A load on a store with a budget.
#[derive(Debug, Clone)]
pub struct Load {
    /// The seed of sizes.
    pub seed: u64,
    /// The budget.
    pub target_bytes: u64,
    /// Operations of one tick.
    pub max_ops_per_tick: u64,
    /// Blocks in one append.
    pub group: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// How bytes are laid into regions.
    pub layout: Layout,
    /// The bug to plant.
    pub sabotage: Sabotage,
}

/// What a load left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks that were cut.
    pub cut: u64,
    /// How often the budget was drained to low water.
    pub drains: u64,
    /// Where the arena ended when half of the blocks had come.
    pub arena_at_half: u64,
    /// Where it ended in the end.
    pub arena_at_end: u64,
    /// The most that was ever used.
    pub used_max: u64,
}

/// What a packed store's regions hold here.
const STRETCH: u32 = 32 << 10;

type MemoryStore = Store<MemoryArena, MemoryIndex>;

/// A store in memory with a budget, pruning on.
pub fn store(load: &Load) -> Result<MemoryStore, StoreError> {
    let policy = PrunePolicy {
        target_bytes: load.target_bytes,
        max_ops_per_tick: load.max_ops_per_tick,
        ..PrunePolicy::default()
    };
    let classes = match load.layout {
        Layout::PerBlock => ClassTable::small(),
        Layout::Packed => ClassTable::explicit(vec![4096, STRETCH])?,
    };
    let config =
        StoreConfig { classes, layout: load.layout, policy, ..StoreConfig::new(7, [1; 16]) };
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let made = Store::create(ground, config, clock())?;
    let made = Store::open_with(made.into_ground(), clock(), load.sabotage)?;
    made.set_pruning_enabled(true)?;
    Ok(made)
}

/// Appends and ticks in turn, one tick for each append, and checks every stop.
pub fn run(load: &Load) -> Result<Outcome, Violation> {
    let failed = |error: StoreError| Violation::Loss(error.to_string());
    let store = store(load).map_err(failed)?;
    let mut rng = Rng::new(load.seed, 11);
    let mut outcome = Outcome::default();
    let mut parent = secateur_core::BlockHash::default();
    let mut height = 0;
    while height < load.blocks {
        let mut group = Vec::new();
        for _ in 0..load.group {
            let shape = Shape {
                block_len: usize::try_from(500 + rng.below(30_000)).unwrap_or(500),
                transactions: u32::try_from(rng.below(6)).unwrap_or(0),
                receipt_len: 100,
            };
            let next = block(height, parent, shape, load.seed, 0);
            (height, parent) = (height + 1, next.meta.hash);
            group.push(next);
        }
        store.append_group(&group).map_err(failed)?;
        tick(&store, load, &mut outcome)?;
        let status = store.get_prune_status().map_err(failed)?;
        if height <= load.blocks / 2 {
            outcome.arena_at_half = status.arena_bytes;
        }
        outcome.arena_at_end = status.arena_bytes;
    }
    Ok(outcome)
}

/// I6 and the water marks: a tick that ends a drain ends it at low water and not a block further.
fn tick(store: &MemoryStore, load: &Load, outcome: &mut Outcome) -> Result<(), Violation> {
    let failed = |error: StoreError| Violation::Loss(error.to_string());
    let before = store.get_prune_status().map_err(failed)?;
    outcome.used_max = outcome.used_max.max(before.used_bytes);
    let Some(ticked) = store.tick().map_err(failed)? else {
        return Ok(());
    };
    let after = store.get_prune_status().map_err(failed)?;
    outcome.cut += ticked.totals.blocks;
    let (low, target) = (after.low_water_bytes.unwrap_or(0), load.target_bytes);
    if !before.pressure.draining && ticked.totals.blocks > 0 {
        return Err(Violation::Wrong("something was cut below high water".into()));
    }
    if before.pressure.draining && ticked.totals.blocks == 0 {
        return Err(Violation::Wrong("nothing was cut while draining".into()));
    }
    if ticked.stop == StopReason::Done && ticked.totals.blocks > 0 {
        outcome.drains += 1;
        if after.used_bytes > low {
            return Err(Violation::Wrong(format!("stopped at {} over {low}", after.used_bytes)));
        }
        // The last block cut must have been needed: without it, low water was not reached.
        if after.used_bytes + ticked.totals.last_bytes <= low {
            let used = after.used_bytes;
            return Err(Violation::Wrong(format!("pruned to {used}, low water is {low}")));
        }
        if after.need.need_prune {
            return Err(Violation::Wrong("a full prune left need_prune true".into()));
        }
    }
    if after.used_bytes > target {
        return Err(Violation::Wrong(format!("{} are used of {target}", after.used_bytes)));
    }
    Ok(())
}
