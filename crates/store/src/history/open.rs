//! Creating and opening a store, and the recovery that opening is.

use std::sync::Arc;

use secateur_core::PrunePolicy;

use super::queue::load_queue;
use super::runs::load_runs;
use super::situation::{policy_of, settings_of};
use super::state::{HEADER_KEY, Header, Layout, POLICY_KEY, SETTINGS_KEY, Settings, State};
use super::store::{Control, Store};
use super::txn::Txn;
use crate::class::ClassTable;
use crate::ground::{Arena, Ground, Index, Snapshot, Table};
use crate::regions::cut::journal_entries;
use crate::regions::header::{begin_arena, check_arena_header, check_arena_len, mark_begun};
use crate::regions::overlay::{Ahead, into_changes};
use crate::rows::Rows;
use crate::{Clock, Sabotage, StoreError};

/// What a new store is made with.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The chain whose history this will be.
    pub chain_id: u64,
    /// Random bytes that tell this store from any other.
    pub store_id: [u8; 16],
    /// How bytes are laid into regions.
    pub layout: Layout,
    /// The size classes.
    pub classes: ClassTable,
    /// The policy to begin with.
    pub policy: PrunePolicy,
    /// The kill switch to begin with.
    pub pruning_enabled: bool,
    /// The settings to begin with.
    pub settings: Settings,
}

impl StoreConfig {
    /// Defaults for a chain on disk: packed, standard classes, no budget, instant finality,
    /// and a daemon that rests until it is switched on.
    pub fn new(chain_id: u64, store_id: [u8; 16]) -> Self {
        Self {
            chain_id,
            store_id,
            layout: Layout::Packed,
            classes: ClassTable::standard(),
            policy: PrunePolicy::default(),
            pruning_enabled: false,
            settings: Settings::default(),
        }
    }

    /// Refuses what no store can be made with: a policy that contradicts itself or the classes.
    pub fn check(&self) -> Result<(), StoreError> {
        self.header().check_policy(&self.policy)
    }

    /// The smallest budget that a store of these classes accepts.
    pub fn least_target(&self) -> u64 {
        self.header().least_target()
    }

    fn header(&self) -> Header {
        Header {
            store_id: self.store_id,
            chain_id: self.chain_id,
            layout: self.layout,
            classes: self.classes.clone(),
        }
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Whether the ground holds a store already.
    pub fn exists(ground: &Ground<A, I>) -> Result<bool, StoreError> {
        Ok(ground.index.snapshot()?.get(Table::Meta, HEADER_KEY)?.is_some())
    }

    /// The header of a store that is not opened yet: a look that changes nothing.
    pub fn read_header(ground: &Ground<A, I>) -> Result<Header, StoreError> {
        let body = ground
            .index
            .snapshot()?
            .row(Table::Meta, HEADER_KEY)?
            .ok_or_else(|| StoreError::Foreign("the index has no header of a store".into()))?;
        Header::decode(&body)
    }

    /// Makes a new store on an empty ground. A crash in the middle leaves a ground on which it
    /// can be called again.
    pub fn create(
        ground: Ground<A, I>,
        config: StoreConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        config.check()?;
        let StoreConfig { chain_id, store_id, layout, classes, policy, settings, pruning_enabled } =
            config;
        let header = Header { store_id, chain_id, layout, classes };
        if Self::exists(&ground)? {
            return Err(StoreError::refused("create", "there is a store already"));
        }
        begin_arena(&ground.arena, &header.arena_header())?;
        let state = State { pruning_enabled, ..State::empty(&header.classes) };
        let under = Ahead { snapshot: ground.index.snapshot()?, staged: Arc::default() };
        let mut txn = Txn::new(under, state, Arc::default(), &header, Sabotage::None);
        txn.put(Table::Meta, HEADER_KEY, header.encode());
        txn.put_document(Table::Meta, POLICY_KEY, &policy)?;
        txn.put_document(Table::Meta, SETTINGS_KEY, &settings)?;
        let (changes, ..) = txn.finish();
        ground.index.commit(into_changes(changes))?;
        Self::open(ground, clock)
    }

    /// Opens a store and recovers it: every cut that was not freed is freed now, and that is all.
    /// Recovering twice equals recovering once.
    pub fn open(ground: Ground<A, I>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(ground, clock, Sabotage::None)
    }

    /// Opens with a planted bug. Without the feature `sabotage` no bug is ever armed.
    pub fn open_with(
        ground: Ground<A, I>,
        clock: Arc<dyn Clock>,
        sabotage: Sabotage,
    ) -> Result<Self, StoreError> {
        let snapshot = ground.index.snapshot()?;
        let header = Self::read_header(&ground)?;
        check_arena_header(&ground.arena, &header.arena_header())?;
        let state = State::load(&snapshot)?;
        if state.classes.len() != header.classes.classes().len() {
            return Err(StoreError::corrupt("state", "its classes are not the header's"));
        }
        check_arena_len(&ground.arena, state.arena_end)?;
        let (policy, settings) = (policy_of(&snapshot)?, settings_of(&snapshot)?);
        let queue = load_queue(&snapshot)?;
        let cuts = journal_entries(&snapshot)?;
        let runs = Arc::new(load_runs(&snapshot)?);
        drop(snapshot);
        mark_begun(&ground.arena)?;
        let pending = queue.values().filter(|included| included.is_none()).count() as u64;
        let (ahead, ahead_since) = (Arc::default(), 0);
        let control = Control { state, policy, settings, queue, pending, runs, ahead, ahead_since };
        let store = Self::assemble(ground, header, clock, control, cuts, sabotage);
        if !sabotage.is(Sabotage::SkipRecoveryFree) {
            store.settle()?;
        }
        Ok(store)
    }
}
