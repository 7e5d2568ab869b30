//! The store itself: what it owns, how a batch is opened and committed, and how it is poisoned.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};
use secateur_core::{BlockHash, Height, PrunePolicy, StopReason};

use super::control::export_head;
use super::lane::{Lane, Staging};
use super::pace::Behind;
use super::queue::Queue;
use super::runs::{HashRoom, RunRecord};
use super::slices::Slices;
use super::state::{Header, Settings, State};
use super::txn::Txn;
use crate::ground::{Arena, Ground, Index};
use crate::regions::buffer::Buffers;
use crate::regions::overlay::{Ahead, Overlay};
use crate::regions::pins::Pins;
use crate::regions::poison::Poison;
use crate::{Clock, Sabotage, StoreError};

/// What the one writer at a time knows: everything as it will be once what is staged is committed.
pub(crate) struct Control {
    pub state: State,
    pub policy: PrunePolicy,
    pub settings: Settings,
    /// Queued transactions and the height that includes them, if one does.
    pub queue: Queue,
    /// How many of them no block includes.
    pub pending: u64,
    /// The sealed runs and tombstones, oldest first.
    pub runs: Arc<Vec<RunRecord>>,
    /// Rows that are staged and not committed yet, and the job up to which it was cleared.
    pub ahead: Arc<Overlay>,
    pub ahead_since: u64,
}

/// What readers ask for without waiting for the writer: the ends as of the last commit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub head: Option<(Height, BlockHash)>,
    pub export_head: Option<Height>,
    pub queued: u64,
}

impl Control {
    pub(crate) fn ends(&self) -> Ends {
        Ends {
            head: self.state.head.map(|tip| (tip.height, tip.hash)),
            export_head: export_head(&self.state, &self.settings),
            queued: self.pending,
        }
    }
}

type Bell = Box<dyn Fn() + Send + Sync>;

/// A chain's history inside a byte budget. Share it by reference: appends and prunes take turns,
/// reads run beside both.
pub struct Store<A, I> {
    pub(crate) arena: A,
    pub(crate) index: I,
    pub(crate) header: Header,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control: Mutex<Control>,
    pub(crate) lane: Lane,
    pub(crate) buffers: Buffers,
    /// Journal entries that are durable and not freed, with the epoch of their cut.
    pub(crate) cuts: Mutex<VecDeque<(u64, u64)>>,
    /// Held while a run is made: one at a time.
    pub(crate) sealing: Mutex<()>,
    /// What the last append needed, if the medium had not so much.
    pub(crate) short_of: Mutex<Option<u64>>,
    /// Why the last attempt to seal failed, if it did.
    pub(crate) seal_trouble: Mutex<Option<String>>,
    ends: RwLock<Ends>,
    pub(crate) pins: Pins,
    pub(crate) hashes: HashRoom,
    pub(crate) sabotage: Sabotage,
    pub(crate) prune_running: AtomicBool,
    pub(crate) blocks_since_tick: AtomicU64,
    /// A tick found somebody else at it.
    pub(crate) tick_missed: AtomicBool,
    /// Whether a hold stopped the last prune. Nothing is known before the first one.
    held: AtomicBool,
    /// How far ticks left retention behind.
    pub(crate) behind: Mutex<Option<Behind>>,
    /// The most that one step does, where there is a limit.
    pub(crate) slices: OnceLock<Slices>,
    poison: Poison,
    bell: RwLock<Option<Bell>>,
}

impl<A: Arena, I: Index> Store<A, I> {
    pub(crate) fn assemble(
        ground: Ground<A, I>,
        header: Header,
        clock: Arc<dyn Clock>,
        control: Control,
        cuts: VecDeque<(u64, u64)>,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            arena: ground.arena,
            index: ground.index,
            header,
            clock,
            ends: RwLock::new(control.ends()),
            control: Mutex::new(control),
            lane: Lane::default(),
            buffers: Buffers::default(),
            cuts: Mutex::new(cuts),
            sealing: Mutex::new(()),
            short_of: Mutex::new(None),
            seal_trouble: Mutex::new(None),
            pins: Pins::default(),
            hashes: HashRoom::default(),
            sabotage,
            prune_running: AtomicBool::new(false),
            blocks_since_tick: AtomicU64::new(0),
            tick_missed: AtomicBool::new(false),
            held: AtomicBool::new(true),
            behind: Mutex::new(None),
            slices: OnceLock::new(),
            poison: Poison::default(),
            bell: RwLock::new(None),
        }
    }

    /// What never changes after creation.
    pub fn header(&self) -> &Header {
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

    /// Takes the store apart without writing anything.
    pub fn into_ground(self) -> Ground<A, I> {
        Ground { arena: self.arena, index: self.index }
    }

    /// Sets who is called when an append makes a prune worth looking at. There is one at a time:
    /// whether it was taken is the answer.
    pub fn on_prune_due(&self, bell: impl Fn() + Send + Sync + 'static) -> bool {
        let mut place = self.bell.write();
        let free = place.is_none();
        if free {
            *place = Some(Box::new(bell));
        }
        free
    }

    /// Lets go of whoever is called.
    pub fn forget_prune_due(&self) {
        *self.bell.write() = None;
    }

    pub(crate) fn ring(&self) {
        if let Some(bell) = self.bell.read().as_ref() {
            bell();
        }
    }

    /// Notes why a prune stopped. The caller has the writer's turn, so that a hold which is
    /// released meanwhile is either seen by the prune or finds this note.
    pub(crate) fn note_stop(&self, stop: &StopReason) {
        self.held.store(matches!(stop, StopReason::Hold { .. }), Ordering::Release);
    }

    /// A hold may have been released: rings if the last prune was stopped by one. Otherwise the
    /// policy's trigger decides, however often consumers acknowledge.
    pub(crate) fn released(&self) {
        if self.held.load(Ordering::Acquire) {
            self.ring();
        }
    }

    /// The writer's turn, refused once an earlier write failed.
    pub(crate) fn writer(&self) -> Result<MutexGuard<'_, Control>, StoreError> {
        let control = self.control.lock();
        self.poison.check().map(|()| control)
    }

    /// Why the store refuses writes, if it does.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.cause()
    }

    /// Marks the store as unusable for writes: what is on the medium is unknown now, and only
    /// reopening finds out. The first cause stays.
    pub(crate) fn poison(&self, error: &StoreError) {
        self.poison.set(error);
    }

    /// The answer to every write after a failure.
    pub(crate) fn refusal(&self) -> StoreError {
        self.poison.refusal()
    }

    pub(crate) fn ends(&self) -> Ends {
        *self.ends.read()
    }

    pub(crate) fn set_ends(&self, ends: Ends) {
        *self.ends.write() = ends;
    }

    /// A batch over everything that is committed or staged.
    pub(crate) fn begin(&self, control: &mut Control) -> Result<Txn<'_, I::Snapshot>, StoreError> {
        // Asked before the snapshot is taken, which then holds at least so much.
        let done = self.lane.done();
        if control.ahead_since < done {
            Arc::make_mut(&mut control.ahead).retain(|_, row| row.job > done);
            control.ahead_since = done;
        }
        let under = Ahead { snapshot: self.index.snapshot()?, staged: Arc::clone(&control.ahead) };
        let runs = Arc::clone(&control.runs);
        let mut txn = Txn::new(under, control.state.clone(), runs, &self.header, self.sabotage);
        txn.marks = control.policy.water_marks();
        Ok(txn)
    }

    /// Commits a batch that has nothing else with it; durable when it returns.
    pub(crate) fn commit(
        &self,
        control: &mut Control,
        txn: Txn<'_, I::Snapshot>,
    ) -> Result<(), StoreError> {
        let ticket = self.stage(control, txn, Staging::default())?;
        self.wait_for(ticket)
    }

    /// Whether the budget is draining, as the writer knows it.
    pub fn is_draining(&self) -> bool {
        self.control.lock().state.pressure.draining
    }

    pub(crate) fn is_pruning(&self) -> bool {
        self.prune_running.load(Ordering::Acquire)
    }
}

impl<A, I> std::fmt::Debug for Store<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("header", &self.header).finish_non_exhaustive()
    }
}
