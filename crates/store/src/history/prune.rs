//! Prune: one tick cuts the oldest blocks that are due, in one batch, and reports.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use secateur_core::{
    Candidate, Cause, Height, Pressure, Report, Selection, StopReason, Totals, Verdict,
};

use super::lane::{HashChange, Staging};
use super::place::{Place, Stream};
use super::record::{BlockRecord, Walk};
use super::situation::Situation;
use super::state::{State, parse_document};
use super::store::{Control, Store};
use super::txn::Txn;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::regions::alloc::Allocate;
use crate::regions::cut::{Cut, CutAndFree};
use crate::regions::region::JournalEntry;
use crate::rows::Rows;
use crate::{Sabotage, StoreError};

/// Reports that the log keeps.
pub const MAX_REPORTS: u64 = 1024;

/// Who asked for a prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// The prune daemon.
    Daemon,
    /// A person or a program through an interface.
    Operator,
}

impl Requester {
    const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Operator => "operator",
        }
    }
}

/// What one tick did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneOutcome {
    /// The report, if anything was cut; it covers the ticks before that it went on from.
    pub report: Option<Report>,
    /// What this tick alone took.
    pub totals: Totals,
    /// Why it stopped.
    pub stop: StopReason,
}

impl PruneOutcome {
    /// Whether another tick has something to do at once.
    pub fn more(&self) -> bool {
        self.stop == StopReason::MaxOps
    }
}

/// Clears the guard against re-entry however the prune ends.
struct Running<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What the loop over the oldest blocks took.
pub(crate) struct Taken {
    pub totals: Totals,
    pub cause: Option<Cause>,
    pub stop: StopReason,
    pub cut: Cut,
    pub pressure: Pressure,
}

/// A prune whose batch is on its way.
struct Staged {
    outcome: PruneOutcome,
    ticket: u64,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The daemon's step: prunes once if the kill switch is on and something is due. Durable when
    /// it returns.
    pub fn tick(&self) -> Result<Option<PruneOutcome>, StoreError> {
        let Some(staged) = self.stage_tick()? else { return Ok(None) };
        self.wait_for(staged.ticket)?;
        Ok(Some(staged.outcome))
    }

    /// Ticks until nothing is left to do, then frees what was cut. The ticks' batches follow each
    /// other through the lane without waiting, so many of them cost one sync. `heard` hears of
    /// each and says whether to go on.
    pub fn drain(&self, mut heard: impl FnMut(&PruneOutcome) -> bool) -> Result<(), StoreError> {
        loop {
            self.wait_for_room()?;
            let Some(staged) = self.stage_tick()? else { return Ok(()) };
            if !heard(&staged.outcome) || !staged.outcome.more() {
                return if self.settled_along(staged.ticket)? {
                    Ok(())
                } else {
                    self.settle().map(drop)
                };
            }
        }
    }

    fn stage_tick(&self) -> Result<Option<Staged>, StoreError> {
        self.blocks_since_tick.store(0, Ordering::Release);
        if self.is_pruning() {
            // Whoever prunes now rings when it is done.
            return Ok(None);
        }
        let (enabled, max_ops) = {
            let control = self.writer()?;
            let ops = control.policy.max_ops_per_tick;
            (control.state.pruning_enabled, self.tick_ops(control.state.pressure, ops))
        };
        if !enabled {
            return Ok(None);
        }
        self.prune(Height::MAX, max_ops, Requester::Daemon).map(Some)
    }

    /// Prunes once now, whether or not the daemon is on. Policy and holds are obeyed.
    pub fn prune_now(&self, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        self.prune_blocks(Height::MAX, max_ops)
    }

    /// Cuts what is due, oldest first, at most up to `limit` and `max_ops`: one batch, each block
    /// whole. The first block of a call is cut whatever it costs, so that none can stall pruning.
    pub fn prune_blocks(&self, limit: Height, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        let staged = self.prune(limit, max_ops, Requester::Operator)?;
        self.wait_for(staged.ticket)?;
        // The daemon may have found the place taken.
        self.ring();
        Ok(staged.outcome)
    }

    fn prune(&self, limit: Height, max_ops: u64, by: Requester) -> Result<Staged, StoreError> {
        if max_ops == 0 {
            return Err(StoreError::refused("prune", "max_ops is 0"));
        }
        if self.prune_running.swap(true, Ordering::AcqRel) {
            return Err(StoreError::refused("prune", "a prune is running already"));
        }
        let _running = Running(&self.prune_running);
        let height = match self.try_prune(limit, max_ops, by, true)? {
            Attempt::Staged(staged) => return Ok(*staged),
            Attempt::SealFirst(height) => height,
        };
        match self.seal_through(height) {
            // Without room for a run its ids are forgotten: space matters more.
            Ok(()) | Err(StoreError::DiskFull { .. }) => {}
            Err(error) => return Err(error),
        }
        // What came meanwhile waits for the next tick, which seals it first.
        let sealed = self.control.lock().sealed_to().map_or(height, |sealed| sealed.max(height));
        match self.try_prune(limit.min(sealed), max_ops, by, false)? {
            Attempt::Staged(staged) => Ok(*staged),
            Attempt::SealFirst(_) => Err(StoreError::refused("prune", "its ids are not sealed")),
        }
    }

    /// Selects and stages, unless ids must be sealed first so that they are not forgotten.
    fn try_prune(
        &self,
        limit: Height,
        max_ops: u64,
        by: Requester,
        sealed_only: bool,
    ) -> Result<Attempt, StoreError> {
        let mut control = self.writer()?;
        let began = self.clock.now_millis();
        let mut txn = self.begin(&mut control)?;
        let freed = self.settle_into(&mut txn)?;
        let wall = self.clock.now_seconds();
        let situation =
            Situation::gather(&txn, &txn.state, &control.policy, &control.settings, wall)?;
        let used_before = txn.state.used_bytes(&self.header.classes);
        let selection = situation.select(&txn.state, &self.header.classes, max_ops);
        let cap = control.tombstone_cap();
        let taken = self.cut_due(&mut txn, selection, limit, cap, |_| {})?;
        let (Some(first), Some(last), Some(cause)) =
            (taken.totals.first, taken.totals.last, taken.cause)
        else {
            let ticket = if freed > 0 {
                self.stage(&mut control, txn, Staging { freed, ..Staging::default() })?
            } else {
                self.lane.staged()
            };
            let outcome = PruneOutcome { report: None, totals: taken.totals, stop: taken.stop };
            return Ok(Attempt::Staged(Box::new(Staged { outcome, ticket })));
        };
        if sealed_only && control.sealed_to() < Some(last) {
            return Ok(Attempt::SealFirst(last));
        }
        let used_after = txn.state.used_bytes(&self.header.classes);
        let report = write_report(
            &mut txn,
            Report {
                seq: 0,
                at: wall,
                by: by.name().into(),
                cause,
                first,
                last,
                blocks: taken.totals.blocks,
                transactions: taken.totals.transactions,
                ops: taken.totals.ops,
                ticks: 1,
                overruns: u64::from(taken.totals.overrun),
                used_before,
                used_after,
                by_class: taken.cut.by_class(),
                millis: self.clock.now_millis().saturating_sub(began),
                stop: taken.stop.clone(),
            },
        )?;
        let journal = txn.journal(last, &taken.cut)?;
        let hashes = HashChange::Cut(last, Arc::clone(&txn.runs));
        let staging = Staging { freed, journal, hashes, ..Staging::default() };
        let ticket = self.stage_cut(&mut control, txn, staging)?;
        let outcome = PruneOutcome { report: Some(report), totals: taken.totals, stop: taken.stop };
        Ok(Attempt::Staged(Box::new(Staged { outcome, ticket })))
    }

    /// Shows the selection the oldest block again and again until it says stop, and removes what
    /// it takes, in the batch. The plan does the same and drops the batch.
    pub(crate) fn cut_due<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        mut selection: Selection<'_>,
        limit: Height,
        tombstone_cap: u64,
        mut each: impl FnMut(&Candidate),
    ) -> Result<Taken, StoreError> {
        let (mut cause, mut cut) = (None, Cut::default());
        let mut overshoot = self.sabotage.is(Sabotage::PruneBelowLowWater);
        let mut oldest = Oldest::from(txn, &txn.state)?;
        let stop = loop {
            let Some((record, next)) = oldest.pair() else {
                break StopReason::Empty;
            };
            let mut candidate = candidate(record);
            match selection.consider(&candidate) {
                Verdict::Cut(_) if candidate.height > limit => break StopReason::Limit,
                Verdict::Cut(why) => {
                    cause.get_or_insert(why);
                }
                Verdict::Stop(StopReason::Done) if overshoot && cause.is_some() => {
                    overshoot = false;
                }
                Verdict::Stop(stop) => break stop,
            }
            let before = txn.state.used_bytes(&self.header.classes);
            txn.cut_block(record, next, &mut cut)?;
            if let Some(row) = oldest.row_ended() {
                // A row that still holds a kept block stays whole; the boundary masks the rest.
                txn.delete(Table::Blocks, &row.to_be_bytes());
            }
            txn.retire_runs(candidate.height, tombstone_cap, &mut cut)?;
            candidate.bytes = before.saturating_sub(txn.state.used_bytes(&self.header.classes));
            selection.take(&candidate);
            each(&candidate);
            oldest.advance(txn)?;
        };
        let (totals, pressure) = (*selection.totals(), selection.pressure());
        txn.state.pressure = pressure;
        if totals.blocks > 0 {
            txn.state.last_prune_at = Some(self.clock.now_seconds());
            txn.state.counters.overruns += u64::from(totals.overrun);
        }
        Ok(Taken { totals, cause, stop, cut, pressure })
    }

    /// Stages step A; only when it is durable do the readers' epochs and the list of cuts move.
    pub(crate) fn stage_cut(
        &self,
        control: &mut Control,
        txn: Txn<'_, I::Snapshot>,
        staging: Staging,
    ) -> Result<u64, StoreError> {
        if self.sabotage.is(Sabotage::FreeBeforeCut) {
            self.free_before_cut(control, &txn, &staging.journal)?;
        }
        self.stage(control, txn, staging)
    }

    /// The saboteur's order of things: free first, in a batch of its own, then cut.
    fn free_before_cut(
        &self,
        control: &mut Control,
        cut: &Txn<'_, I::Snapshot>,
        journal: &[u64],
    ) -> Result<(), StoreError> {
        let mut txn = self.begin(control)?;
        for seq in journal {
            let body = cut.row(Table::Journal, &seq.to_be_bytes())?.unwrap_or_default();
            let entry = JournalEntry::decode(&body)?;
            for ptr in &entry.regions {
                txn.quarantine(ptr)?;
                txn.free(ptr)?;
            }
        }
        self.commit(control, txn)
    }

    /// The stored reports, oldest first.
    pub fn reports(&self) -> Result<Vec<Report>, StoreError> {
        reports(&self.index.snapshot()?)
    }
}

/// What came of an attempt to prune.
enum Attempt {
    Staged(Box<Staged>),
    /// Ids up to this block must be sealed first.
    SealFirst(Height),
}

/// The oldest kept block and the one above it, moving up.
pub(crate) struct Oldest {
    walk: Walk,
    now: Option<BlockRecord>,
    next: Option<BlockRecord>,
    /// The row that ended with the oldest block, and with the one above it.
    ended: [Option<Height>; 2],
}

impl Oldest {
    /// From the oldest block of a state on.
    pub(crate) fn from(rows: &impl Snapshot, state: &State) -> Result<Self, StoreError> {
        let walk = match (state.oldest_kept(), state.head) {
            (Some(oldest), Some(head)) => Walk::new(oldest, head.height),
            _ => Walk::new(1, 0),
        };
        let mut oldest = Self { walk, now: None, next: None, ended: [None; 2] };
        oldest.advance(rows)?;
        oldest.advance(rows)?;
        Ok(oldest)
    }

    /// The oldest block, and the one above it unless it is the head.
    pub(crate) fn pair(&self) -> Option<(&BlockRecord, Option<&BlockRecord>)> {
        Some((self.now.as_ref()?, self.next.as_ref()))
    }

    /// The row that holds nothing but blocks up to the oldest.
    fn row_ended(&self) -> Option<Height> {
        let [ended, _] = self.ended;
        ended
    }

    pub(crate) fn advance(&mut self, rows: &impl Snapshot) -> Result<(), StoreError> {
        self.now = self.next.take();
        self.next = self.walk.next(rows)?;
        let [_, before] = self.ended;
        self.ended = [before, self.next.as_ref().and_then(|_| self.walk.row_ended())];
        Ok(())
    }
}

/// A block as a prune's selection sees it; what cutting it gives back shows when it is cut.
pub(crate) fn candidate(record: &BlockRecord) -> Candidate {
    Candidate { height: record.meta.height, tx_count: record.tx_count, bytes: 0 }
}

impl<S: Snapshot> Txn<'_, S> {
    /// Step A for the oldest block: its regions go, as far as the next one does not need them,
    /// and the boundary moves over it.
    fn cut_block(
        &mut self,
        record: &BlockRecord,
        next: Option<&BlockRecord>,
        cut: &mut Cut,
    ) -> Result<(), StoreError> {
        match (&record.place, next.map(|next| &next.place)) {
            (Place::Regions(ptrs), _) => self.give_back(ptrs, cut)?,
            (Place::Stream(from), Some(Place::Stream(to))) => {
                let size = self.header.stretch_len();
                self.release_stretches(Stream::History, from / size..to / size, cut)?;
            }
            _ => {}
        }
        self.state.boundary = Some(record.meta.height);
        Ok(())
    }
}

/// Logs a report, or lets it go on from the last one; the log is bounded.
fn write_report<S: Snapshot>(txn: &mut Txn<'_, S>, report: Report) -> Result<Report, StoreError> {
    let last = txn.state.report_next.checked_sub(1);
    let before = match last {
        Some(seq) => load_report(txn, seq)?,
        None => None,
    };
    let report = match before {
        Some(mut before) if before.continues_with(&report) => {
            before.absorb(&report);
            before
        }
        _ => {
            let seq = txn.state.report_next;
            txn.state.report_next += 1;
            if let Some(oldest) = seq.checked_sub(MAX_REPORTS) {
                txn.delete(Table::Reports, &oldest.to_be_bytes());
            }
            Report { seq, ..report }
        }
    };
    txn.put_document(Table::Reports, &report.seq.to_be_bytes(), &report)?;
    Ok(report)
}

pub(crate) fn load_report(rows: &impl Snapshot, seq: u64) -> Result<Option<Report>, StoreError> {
    super::state::load_document(rows, Table::Reports, &seq.to_be_bytes())
}

pub(crate) fn reports(rows: &impl Snapshot) -> Result<Vec<Report>, StoreError> {
    let mut found = Vec::new();
    rows.rows(Table::Reports, &[], |_, body| {
        found.push(parse_document(Table::Reports, body)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
