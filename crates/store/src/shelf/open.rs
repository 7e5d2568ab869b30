//! The shelf itself: how it is made and opened, what its one writer knows, and how it is poisoned.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::lane::Lane;
use super::state::{HEADER_KEY, STATE_KEY, ShelfHeader, State};
use crate::class::ClassTable;
use crate::ground::{Arena, Change, Family, Ground, Index, Snapshot, Table};
use crate::regions::buffer::Buffers;
use crate::regions::cut::journal_entries;
use crate::regions::header::{begin_arena, check_arena_header, check_arena_len, mark_begun};
use crate::regions::overlay::Overlay;
use crate::regions::pins::Pins;
use crate::regions::poison::Poison;
use crate::rows::{Rows, seal};
use crate::{Sabotage, StoreError};

/// What a new shelf is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShelfConfig {
    /// Whose shelf it will be.
    pub family: Family,
    /// The chain.
    pub chain_id: u64,
    /// Random bytes that tell this shelf from any other.
    pub store_id: [u8; 16],
    /// The size of its regions: a multiple of 4 KiB.
    pub region_len: u32,
}

/// What the one writer at a time knows: everything as it will be once what is staged is committed.
pub(super) struct Control {
    pub state: State,
    /// Rows that are staged and not committed yet, and the batch up to which it was cleared.
    pub ahead: Arc<Overlay>,
    pub ahead_since: u64,
    /// The number of the newest batch that was staged.
    pub staged: u64,
}

/// What a shelf takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ShelfUsage {
    /// The size of a region.
    pub region_len: u32,
    /// Regions in use.
    pub used: u64,
    /// Regions that are cut and not freed.
    pub quarantined: u64,
    /// Regions that are free.
    pub free: u64,
    /// Where the arena's regions end.
    pub arena_end: u64,
    /// Bytes that the medium has given the arena.
    pub arena_bytes: u64,
    /// Bytes that the index takes.
    pub index_bytes: u64,
    /// Bytes that the medium can still give, where that is known.
    pub available: Option<u64>,
}

impl ShelfUsage {
    /// Bytes of regions that are in use or quarantined.
    pub fn kept_bytes(&self) -> u64 {
        self.used.saturating_add(self.quarantined).saturating_mul(u64::from(self.region_len))
    }
}

/// Equal regions and rows about them. Share it by reference: batches take turns, readers run
/// beside them.
pub struct Shelf<A, I> {
    pub(super) arena: A,
    pub(super) index: I,
    pub(super) header: ShelfHeader,
    pub(super) control: Mutex<Control>,
    pub(super) lane: Lane,
    pub(super) buffers: Buffers,
    /// Journal entries that are durable and not freed, with the epoch of their cut.
    pub(super) cuts: Mutex<VecDeque<(u64, u64)>>,
    pub(super) pins: Pins,
    pub(super) sabotage: Sabotage,
    poison: Poison,
}

impl<A: Arena, I: Index> Shelf<A, I> {
    /// Whether the ground holds anything already.
    pub fn exists(ground: &Ground<A, I>) -> Result<bool, StoreError> {
        Ok(ground.index.snapshot()?.get(Table::Meta, HEADER_KEY)?.is_some())
    }

    /// The header of a shelf that is not opened yet: a look that changes nothing.
    pub fn read_header(ground: &Ground<A, I>, family: Family) -> Result<ShelfHeader, StoreError> {
        let body = ground
            .index
            .snapshot()?
            .row(Table::Meta, HEADER_KEY)?
            .ok_or_else(|| StoreError::Foreign("the index has no header of a shelf".into()))?;
        ShelfHeader::decode(family, &body)
    }

    /// Makes a new shelf on an empty ground. A crash in the middle leaves a ground on which it can
    /// be called again.
    pub fn create(ground: Ground<A, I>, config: ShelfConfig) -> Result<Self, StoreError> {
        let ShelfConfig { family, chain_id, store_id, region_len } = config;
        let classes = ClassTable::explicit(vec![region_len])?;
        let header = ShelfHeader { family, store_id, chain_id, classes };
        if Self::exists(&ground)? {
            return Err(StoreError::refused("create", "there is a store already"));
        }
        begin_arena(&ground.arena, &header.arena_header())?;
        let row = |key: &[u8], body: Vec<u8>| Change {
            table: Table::Meta,
            key: key.to_vec(),
            value: Some(seal(Table::Meta, key, body)),
        };
        let state = State::empty();
        let rows = vec![row(HEADER_KEY, header.encode()), row(STATE_KEY, state.encode())];
        ground.index.commit(rows)?;
        Self::open(ground, family)
    }

    /// Opens a shelf and recovers it: every cut that was not freed is freed now, and that is all.
    /// Recovering twice equals recovering once. What it reads does not grow with what is stored.
    pub fn open(ground: Ground<A, I>, family: Family) -> Result<Self, StoreError> {
        Self::open_with(ground, family, Sabotage::None)
    }

    /// Opens with a planted bug. Without the feature `sabotage` no bug is ever armed.
    pub fn open_with(
        ground: Ground<A, I>,
        family: Family,
        sabotage: Sabotage,
    ) -> Result<Self, StoreError> {
        let header = Self::read_header(&ground, family)?;
        check_arena_header(&ground.arena, &header.arena_header())?;
        let snapshot = ground.index.snapshot()?;
        let state = State::load(&snapshot)?;
        check_arena_len(&ground.arena, state.arena_end)?;
        let cuts = journal_entries(&snapshot)?;
        drop(snapshot);
        mark_begun(&ground.arena)?;
        let control = Control { state, ahead: Arc::default(), ahead_since: 0, staged: 0 };
        let shelf = Self {
            arena: ground.arena,
            index: ground.index,
            header,
            control: Mutex::new(control),
            lane: Lane::default(),
            buffers: Buffers::default(),
            cuts: Mutex::new(cuts),
            pins: Pins::default(),
            sabotage,
            poison: Poison::default(),
        };
        if !sabotage.is(Sabotage::SkipRecoveryFree) {
            shelf.settle(0)?;
        }
        Ok(shelf)
    }

    /// What never changes after creation.
    pub fn header(&self) -> &ShelfHeader {
        &self.header
    }

    /// The ground's index, for checks from outside.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// The ground's arena, for checks from outside.
    pub fn arena(&self) -> &A {
        &self.arena
    }

    /// Takes the shelf apart without writing anything.
    pub fn into_ground(self) -> Ground<A, I> {
        Ground { arena: self.arena, index: self.index }
    }

    /// What it takes, as of the last commit.
    pub fn usage(&self) -> Result<ShelfUsage, StoreError> {
        let state = State::load(&self.index.snapshot()?)?;
        let space = self.arena.space()?;
        let [count] = state.count;
        Ok(ShelfUsage {
            region_len: self.header.region_len(),
            used: count.used,
            quarantined: count.quarantine,
            free: count.free,
            arena_end: state.arena_end,
            arena_bytes: space.given,
            index_bytes: self.index.bytes()?,
            available: space.available,
        })
    }

    /// The writer's turn, refused once an earlier write failed.
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Control>, StoreError> {
        let control = self.control.lock();
        self.poison.check().map(|()| control)
    }

    /// Why the shelf refuses writes, if it does.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.cause()
    }

    /// Marks the shelf as unusable for writes: what is on the medium is unknown now, and only
    /// reopening finds out. The first cause stays.
    pub(super) fn poison(&self, error: &StoreError) {
        self.poison.set(error);
    }

    /// The answer to every write after a failure.
    pub(super) fn refusal(&self) -> StoreError {
        self.poison.refusal()
    }
}

impl<A, I> std::fmt::Debug for Shelf<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("header", &self.header).finish_non_exhaustive()
    }
}
