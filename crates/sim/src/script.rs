//! Workloads: sequences of operations on a store, with the models that a crash in each of them
//! may leave.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use secateur_core::{Block, BlockHash, Height, PrunePolicy};
use secateur_store::{
    ClassTable, Finality, Layout, Place, Sabotage, Settings, Store, StoreConfig, StoreError,
};

use crate::chain::{Shape, block};
use crate::clock::SimClock;
use crate::grounds::GroundKind;
use crate::model::{Model, Violation};
use crate::world::{Point, World};

/// One operation of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Append one block that fits one region.
    AppendSmall,
    /// Append a group of blocks, one of them over several regions.
    AppendMany,
    /// Hand two groups in before the first is durable.
    AppendAhead,
    /// Make the older blocks final and prune.
    Cut,
    /// Free what was cut.
    Free,
    /// Make the older blocks final and seal their ids.
    Seal,
    /// Roll the newest block back.
    Rollback,
    /// Close the store and open it again.
    Reopen,
}

impl Op {
    /// Every operation.
    pub const ALL: [Self; 8] = [
        Self::AppendSmall,
        Self::AppendMany,
        Self::AppendAhead,
        Self::Cut,
        Self::Free,
        Self::Seal,
        Self::Rollback,
        Self::Reopen,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::AppendSmall => "append-small",
            Self::AppendMany => "append-many",
            Self::AppendAhead => "append-ahead",
            Self::Cut => "cut",
            Self::Free => "free",
            Self::Seal => "seal",
            Self::Rollback => "rollback",
            Self::Reopen => "reopen",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|op| op.name() == text);
        known.ok_or_else(|| format!("`{text}` is no operation"))
    }
}

/// Every sequence of one, two and three operations.
pub fn sequences() -> Vec<Vec<Op>> {
    let mut all: Vec<Vec<Op>> = vec![vec![]];
    let mut longest = all.clone();
    for _ in 0..3 {
        longest = longest
            .iter()
            .flat_map(|ops| Op::ALL.map(|op| [ops.as_slice(), &[op]].concat()))
            .collect();
        all.extend(longest.iter().cloned());
    }
    all.retain(|ops| !ops.is_empty());
    all
}

/// The wall clock of every workload.
pub const NOW: u64 = 1_800_000_000;

/// A clock that shows [`NOW`].
pub fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::at(NOW))
}

/// The layout that a seed stands for: both take turns.
pub const fn layout_of(seed: u64) -> Layout {
    if seed.is_multiple_of(2) { Layout::PerBlock } else { Layout::Packed }
}

/// The settings of every workload: tiny regions and epochs, so that images are small and reuse
/// is frequent.
pub fn config(layout: Layout) -> Result<StoreConfig, StoreError> {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    Ok(StoreConfig {
        classes: ClassTable::explicit(vec![4096, 8192])?,
        policy,
        settings: Settings {
            finality: Finality::Explicit,
            epoch_ids: EPOCH_IDS,
            max_runs: MAX_RUNS,
            ..Settings::default()
        },
        layout,
        ..StoreConfig::new(7, [42; 16])
    })
}

/// What a workload left: the crash points, and for each step the models that may be found.
#[derive(Debug)]
pub struct Traced {
    /// The points.
    pub points: Vec<Point>,
    /// By step.
    pub allowed: Vec<Vec<Model>>,
}

/// A workload in progress.
pub struct Runner<G: GroundKind> {
    /// The volume.
    pub world: World,
    /// What the store must hold now.
    pub model: Model,
    store: Option<Store<G::Arena, G::Index>>,
    seed: u64,
    salt: u64,
    sabotage: Sabotage,
    generations: HashMap<u64, (u32, BlockHash)>,
}

impl<G: GroundKind> Runner<G> {
    /// A store with a little history: three blocks, one of them cut and freed.
    pub fn new(seed: u64, sabotage: Sabotage) -> Result<Self, StoreError> {
        let world = World::default();
        let ground = G::open(&world, Sabotage::None)?;
        drop(Store::create(ground, config(layout_of(seed))?, clock())?);
        let mut runner = Self {
            world,
            model: Model::default(),
            store: None,
            seed,
            salt: 0,
            sabotage,
            generations: HashMap::new(),
        };
        runner.open()?;
        runner.append(&[SMALL, MEDIUM, SMALL]).map_err(|e| broken(&e))?;
        runner.cut(2).map_err(|e| broken(&e))?;
        runner.free()?;
        Ok(runner)
    }

    /// The store, which is open between operations.
    pub fn store(&self) -> Result<&Store<G::Arena, G::Index>, StoreError> {
        self.store.as_ref().ok_or_else(|| StoreError::Poisoned("the store is closed".into()))
    }

    /// Closes the store.
    pub fn close(&mut self) {
        self.store = None;
    }

    /// Opens the store again.
    pub fn open(&mut self) -> Result<(), StoreError> {
        let ground = G::open(&self.world, self.sabotage)?;
        self.store = Some(Store::open_with(ground, clock(), self.sabotage)?);
        Ok(())
    }

    /// Does one operation and keeps the model in step. Returns the states between its beginning
    /// and its end that a crash may find.
    pub fn run(&mut self, op: Op) -> Result<Vec<Model>, Violation> {
        self.salt += 1;
        if op == Op::AppendAhead {
            return self.append_ahead();
        }
        match op {
            Op::AppendSmall => self.append(&[SMALL]),
            Op::AppendMany | Op::AppendAhead => self.append(&[SMALL, LARGE, EMPTY, MEDIUM]),
            Op::Cut => self.cut(9),
            Op::Free => self.free().map_err(lost),
            Op::Rollback => self.roll_back(),
            Op::Reopen => {
                self.close();
                self.open().map_err(lost)
            }
            Op::Seal => self.seal(),
        }?;
        Ok(Vec::new())
    }

    fn append(&mut self, shapes: &[Shape]) -> Result<(), Violation> {
        let blocks = self.next_blocks(shapes);
        self.store().and_then(|store| store.append_group(&blocks)).map_err(lost)?;
        self.model.append(&blocks);
        self.check_generations(&blocks)
    }

    /// Two groups on their way at once: the second is written before the first is committed.
    fn append_ahead(&mut self) -> Result<Vec<Model>, Violation> {
        let blocks = self.next_blocks(&[MEDIUM, SMALL, SMALL]);
        let (first, second) = blocks.split_at(2);
        let mut between = self.model.clone();
        between.append(first);
        let submitted = self.store().and_then(|store| {
            let tickets = (store.submit(first)?, store.submit(second)?);
            store.wait(tickets.1)?;
            store.wait(tickets.0)
        });
        submitted.map_err(lost)?;
        self.model.append(&blocks);
        self.check_generations(&blocks)?;
        Ok(vec![between])
    }

    fn next_blocks(&self, shapes: &[Shape]) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut height = self.model.head_height().map_or(FIRST, |head| head + 1);
        let mut parent = self.model.head_hash();
        for shape in shapes {
            let next = block(height, parent, *shape, self.seed, self.salt);
            (height, parent) = (height + 1, next.meta.hash);
            blocks.push(next);
        }
        blocks
    }

    /// I7: a region that holds something else than before has a larger generation.
    fn check_generations(&mut self, blocks: &[Block]) -> Result<(), Violation> {
        let size = self.store().map_err(lost)?.header().stretch_len();
        for block in blocks {
            let height = block.meta.height;
            let (record, pieces) = self
                .store()
                .and_then(|store| Ok((store.get_record(height)?, store.get_pieces(height)?)))
                .map_err(lost)?;
            for ((_, region), nth) in pieces.into_iter().zip(0u64..) {
                let holds = match record.place {
                    Place::Regions(_) => block.meta.hash,
                    Place::Stream(position) => stretch_name(position / size + nth),
                };
                let before = self.generations.insert(region.offset, (region.generation, holds));
                if let Some((generation, held)) = before
                    && held != holds
                    && generation >= region.generation
                {
                    let at = region.offset;
                    return Err(Violation::Wrong(format!("region {at} kept its generation")));
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, max_ops: u64) -> Result<(), Violation> {
        self.finalize()?;
        let cut = self.store().and_then(|store| store.prune_now(max_ops));
        if let Some(last) = cut.map_err(lost)?.totals.last {
            self.model.cut(last);
        }
        Ok(())
    }

    /// Makes all but the newest block final.
    fn finalize(&mut self) -> Result<(), Violation> {
        let below = self.model.head_height().and_then(|head| head.checked_sub(1));
        match below.filter(|height| self.model.blocks.contains_key(height)) {
            Some(height) => self.store().and_then(|s| s.set_finalized(height)).map_err(lost),
            None => Ok(()),
        }
    }

    fn seal(&mut self) -> Result<(), Violation> {
        self.finalize()?;
        self.store().and_then(Store::seal).map(drop).map_err(lost)
    }

    fn free(&mut self) -> Result<(), StoreError> {
        self.store()?.settle().map(drop)
    }

    fn roll_back(&mut self) -> Result<(), Violation> {
        let Some(to) = self.model.head_height().and_then(|head| head.checked_sub(1)) else {
            return Ok(());
        };
        match self.store().and_then(|store| store.rollback(to)) {
            Ok(_) => {
                self.model.roll_back(to);
                Ok(())
            }
            Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(lost(error)),
        }
    }

    /// Runs a whole sequence under trace.
    pub fn trace(mut self, ops: &[Op]) -> Result<Traced, Violation> {
        let mut allowed = Vec::with_capacity(ops.len());
        self.world.trace();
        for (step, op) in ops.iter().enumerate() {
            self.world.set_step(step);
            let before = self.model.clone();
            let between = self.run(*op)?;
            allowed.push([vec![before], between, vec![self.model.clone()]].concat());
        }
        Ok(Traced { points: self.world.take_trace(), allowed })
    }
}

/// A stretch of a stream, as something that a region can hold.
fn stretch_name(number: u64) -> BlockHash {
    let mut name = [0u8; 32];
    for (to, from) in name.iter_mut().zip(number.to_be_bytes()) {
        *to = from;
    }
    BlockHash(name)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn lost(error: StoreError) -> Violation {
    Violation::Loss(format!("an operation failed: {error}"))
}

fn broken(violation: &Violation) -> StoreError {
    StoreError::Poisoned(format!("{violation:?}"))
}

/// Ids that fill an epoch.
const EPOCH_IDS: u64 = 6;
/// Live runs at most, so that they are merged soon.
const MAX_RUNS: u64 = 2;
const FIRST: Height = 5;
const SMALL: Shape = Shape { block_len: 900, transactions: 1, receipt_len: 40 };
const MEDIUM: Shape = Shape { block_len: 5000, transactions: 2, receipt_len: 300 };
const LARGE: Shape = Shape { block_len: 12_000, transactions: 3, receipt_len: 700 };
const EMPTY: Shape = Shape { block_len: 0, transactions: 0, receipt_len: 0 };
