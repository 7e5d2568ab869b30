//! Prune: one tick cuts the oldest blocks that are due, in one batch, and reports.

use std::ops::ControlFlow;
use std::sync::Arc;

use secateur_core::{
    Candidate, Cause, Height, Pressure, Report, Selection, StopReason, Totals, Verdict,
};

use super::control::export_head;
use super::lane::{HashChange, Staging};
use super::place::{Place, Stream};
use super::record::{BlockRecord, Walk};
use super::runs::{OpenIds, SealedAlong, sealed_to};
use super::situation::Situation;
use super::state::{State, parse_document};
use super::store::{Control, Store};
use super::tick::Turn;
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
    /// Milliseconds that this tick alone spent on selecting and cutting.
    pub millis: u64,
    /// How hard the budget presses after it.
    pub pressure: Pressure,
}

impl PruneOutcome {
    /// Whether another tick would have something to do at once.
    pub fn more(&self) -> bool {
        self.stop == StopReason::MaxOps
    }

    /// Whether it is to be followed by another tick at once: only a budget that drains is. Retention
    /// waits for the next trigger.
    pub fn drains_on(&self) -> bool {
        self.more() && self.pressure.draining
    }
}

/// What the loop over the oldest blocks took.
pub(crate) struct Taken {
    pub totals: Totals,
    pub cause: Option<Cause>,
    pub stop: StopReason,
    pub cut: Cut,
    pub pressure: Pressure,
    pub sealed: SealedAlong,
}

/// What a cut goes by besides its selection.
pub(crate) struct Terms {
    /// Nothing above this block is cut.
    pub limit: Height,
    /// What tombstones may take.
    pub tombstone_cap: u64,
    /// The newest final block, up to which ids can be sealed; none where they are not to be.
    pub newest_final: Option<Height>,
    /// Where ids are that no run holds.
    pub open_ids: OpenIds,
}

/// A prune that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub limit: Height,
    pub max_ops: u64,
    pub by: Requester,
    /// Whether it may be the first cut of this store.
    pub may_be_first: bool,
}

/// A prune whose batch is on its way.
pub(super) struct Staged {
    pub outcome: PruneOutcome,
    pub ticket: u64,
    /// It would be the first cut of this store, which it may not be: nothing was cut.
    pub unannounced: bool,
}

impl Staged {
    fn of(report: Option<Report>, taken: &Taken, millis: u64, ticket: u64) -> Self {
        let Taken { totals, ref stop, pressure, .. } = *taken;
        let outcome = PruneOutcome { report, totals, stop: stop.clone(), millis, pressure };
        Self { outcome, ticket, unannounced: false }
    }

    fn unannounced(taken: &Taken) -> Self {
        Self { unannounced: true, ..Self::of(None, taken, 0, 0) }
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Prunes once now, whether or not the daemon is on. Policy and holds are obeyed.
    pub fn prune_now(&self, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        self.prune_blocks(Height::MAX, max_ops)
    }

    /// Cuts what is due, oldest first, at most up to `limit` and `max_ops`: one batch, each block
    /// whole. The first block of a call is cut whatever it costs, so that none can stall pruning.
    pub fn prune_blocks(&self, limit: Height, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        let Some(turn) = self.turn() else {
            return Err(StoreError::refused("prune", "a prune is running already"));
        };
        let by = Requester::Operator;
        let staged = self.prune(&turn, Request { limit, max_ops, by, may_be_first: true })?;
        drop(turn);
        self.wait_for(staged.ticket)?;
        Ok(staged.outcome)
    }

    /// Prunes in the turn that the caller has.
    pub(super) fn prune(&self, _: &Turn<'_, A, I>, request: Request) -> Result<Staged, StoreError> {
        if request.max_ops == 0 {
            return Err(StoreError::refused("prune", "max_ops is 0"));
        }
        match self.try_prune(request, true) {
            // Without room for a run its ids are forgotten: space matters more.
            Err(StoreError::DiskFull { .. }) => self.try_prune(request, false),
            pruned => pruned,
        }
    }

    /// Selects, seals along what must not be forgotten, and stages: all of it in one batch, so that
    /// a plan that does the same and drops its batch has seen what a prune does.
    fn try_prune(&self, request: Request, seals: bool) -> Result<Staged, StoreError> {
        let mut control = self.writer()?;
        let began = self.clock.now_millis();
        let mut txn = self.begin(&mut control)?;
        let freed = self.settle_into(&mut txn)?;
        let wall = self.clock.now_seconds();
        let situation =
            Situation::gather(&txn, &txn.state, &control.policy, &control.settings, wall)?;
        let used_before = txn.state.used_bytes(&self.header.classes);
        let selection = situation.select(&txn.state, &self.header.classes, request.max_ops);
        let first_cut = txn.state.boundary.is_none();
        let terms = Terms {
            limit: request.limit,
            tombstone_cap: control.tombstone_cap(),
            newest_final: export_head(&control.state, &control.settings).filter(|_| seals),
            open_ids: OpenIds::Live,
        };
        let read_ids = || {
            self.build_hashes_for(&control)?;
            // Ids come into memory with the commit of their blocks.
            self.flush()
        };
        let mut taken = self.cut_due(&mut txn, selection, &terms, read_ids, |_| {})?;
        if first_cut && !request.may_be_first && taken.totals.blocks > 0 {
            // The batch is dropped with all that it did.
            return Ok(Staged::unannounced(&taken));
        }
        self.note_stop(&taken.stop);
        self.note_behind(&txn.state, &situation, false);
        let (Some(first), Some(last), Some(cause)) =
            (taken.totals.first, taken.totals.last, taken.cause)
        else {
            let ticket = if freed > 0 {
                self.stage(&mut control, txn, Staging { freed, ..Staging::default() })?
            } else {
                self.lane.staged()
            };
            let millis = self.clock.now_millis().saturating_sub(began);
            return Ok(Staged::of(None, &taken, millis, ticket));
        };
        let SealedAlong { runs, writes } = std::mem::take(&mut taken.sealed);
        if !writes.is_empty() {
            self.check_headroom("sealing ids", txn.fresh_bytes)?;
            self.arena.grow(txn.state.arena_end)?;
        }
        let used_after = txn.state.used_bytes(&self.header.classes);
        let millis = self.clock.now_millis().saturating_sub(began);
        let report = write_report(
            &mut txn,
            Report {
                seq: 0,
                at: wall,
                by: request.by.name().into(),
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
                millis,
                stop: taken.stop.clone(),
            },
        )?;
        let journal = txn.journal(last, &taken.cut)?;
        let hashes = HashChange::Cut(last, Arc::clone(&txn.runs), runs);
        let staging = Staging { writes, freed, journal, hashes };
        let ticket = self.stage_cut(&mut control, txn, staging)?;
        Ok(Staged::of(Some(report), &taken, millis, ticket))
    }

    /// Shows the selection the oldest block again and again until it says stop, and removes what
    /// it takes, in the batch. The plan does the same and drops the batch.
    ///
    /// A block whose ids are in no run is sealed first, in the same batch. `read_ids` makes sure
    /// that they are in memory.
    pub(crate) fn cut_due<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        mut selection: Selection<'_>,
        terms: &Terms,
        read_ids: impl Fn() -> Result<(), StoreError>,
        mut each: impl FnMut(&Candidate),
    ) -> Result<Taken, StoreError> {
        let (mut cause, mut cut) = (None, Cut::default());
        let (mut along, mut sealed) = (SealedAlong::default(), sealed_to(&txn.runs));
        let mut overshoot = self.sabotage.is(Sabotage::PruneBelowLowWater);
        let mut oldest = Oldest::from(txn, &txn.state)?;
        let stop = loop {
            let Some((record, next)) = oldest.pair() else {
                break StopReason::Empty;
            };
            let mut candidate = candidate(record);
            match selection.consider(&candidate) {
                Verdict::Cut(_) if candidate.height > terms.limit => break StopReason::Limit,
                Verdict::Cut(why) => {
                    cause.get_or_insert(why);
                }
                Verdict::Stop(StopReason::Done) if overshoot && cause.is_some() => {
                    overshoot = false;
                }
                Verdict::Stop(stop) => break stop,
            }
            if sealed < Some(candidate.height) && terms.newest_final.is_some() {
                read_ids()?;
                self.seal_along(txn, candidate.height, terms, &mut along)?;
                // Where they cannot be sealed they are forgotten.
                sealed = sealed.max(sealed_to(&txn.runs)).max(Some(candidate.height));
                selection.observe(txn.state.used_bytes(&self.header.classes));
            }
            let before = txn.state.used_bytes(&self.header.classes);
            txn.cut_block(record, next, &mut cut)?;
            if let Some(row) = oldest.row_ended() {
                // A row that still holds a kept block stays whole; the boundary masks the rest.
                txn.delete(Table::Blocks, &row.to_be_bytes());
            }
            txn.retire_runs(candidate.height, terms.tombstone_cap, &mut cut)?;
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
        Ok(Taken { totals, cause, stop, cut, pressure, sealed: along })
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
