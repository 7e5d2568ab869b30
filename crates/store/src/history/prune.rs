//! Prune: one tick cuts the oldest blocks that are due, in one batch, and reports.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use secateur_core::{Cause, Height, Report, Selection, StopReason, Totals, Verdict};

use super::cut::{Released, class_bytes};
use super::record::BlockRecord;
use super::situation::Situation;
use super::state::parse_document;
use super::store::{Control, Store};
use super::txn::Txn;
use crate::ground::{Arena, Index, Snapshot, Table};
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
struct Taken {
    totals: Totals,
    cause: Option<Cause>,
    stop: StopReason,
    released: Released,
    journal: Vec<u64>,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The daemon's step: prunes once if the kill switch is on and something is due.
    pub fn tick(&self) -> Result<Option<PruneOutcome>, StoreError> {
        self.blocks_since_tick.store(0, Ordering::Release);
        let (enabled, max_ops) = {
            let control = self.writer()?;
            let ops = control.policy.max_ops_per_tick;
            (control.state.pruning_enabled, control.state.pressure.tick_ops(ops))
        };
        if !enabled {
            return Ok(None);
        }
        self.prune(Height::MAX, max_ops, Requester::Daemon).map(Some)
    }

    /// Prunes once now, whether or not the daemon is on. Policy and holds are obeyed.
    pub fn prune_now(&self, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        self.prune(Height::MAX, max_ops, Requester::Operator)
    }

    /// Cuts what is due, oldest first, at most up to `limit` and `max_ops`: one batch, each block
    /// whole. The first block of a call is cut whatever it costs, so that none can stall pruning.
    pub fn prune_blocks(&self, limit: Height, max_ops: u64) -> Result<PruneOutcome, StoreError> {
        self.prune(limit, max_ops, Requester::Operator)
    }

    fn prune(
        &self,
        limit: Height,
        max_ops: u64,
        by: Requester,
    ) -> Result<PruneOutcome, StoreError> {
        if max_ops == 0 {
            return Err(StoreError::refused("prune", "max_ops is 0"));
        }
        if self.prune_running.swap(true, Ordering::AcqRel) {
            return Err(StoreError::refused("prune", "a prune is running already"));
        }
        let _running = Running(&self.prune_running);
        let mut control = self.writer()?;
        let began = self.clock.now_millis();
        let mut txn = self.begin(&control)?;
        let freed = self.settle_into(&control, &mut txn)?;
        let wall = self.clock.now_seconds();
        let situation =
            Situation::gather(&txn, &txn.state, &control.policy, &control.settings, wall)?;
        let used_before = txn.state.used_bytes(&self.header.classes);
        let selection = situation.select(&txn.state, &self.header.classes, max_ops);
        let taken = self.cut_due(&mut txn, selection, limit)?;
        let (Some(first), Some(last), Some(cause)) =
            (taken.totals.first, taken.totals.last, taken.cause)
        else {
            if freed > 0 {
                self.commit(&mut control, txn)?;
                control.quarantined.drain(..freed);
            }
            return Ok(PruneOutcome { report: None, totals: taken.totals, stop: taken.stop });
        };
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
                by_class: class_bytes(&taken.released),
                millis: self.clock.now_millis().saturating_sub(began),
                stop: taken.stop.clone(),
            },
        )?;
        self.commit_cut(&mut control, txn, freed, &taken.journal)?;
        self.hashes.cut_block(last);
        Ok(PruneOutcome { report: Some(report), totals: taken.totals, stop: taken.stop })
    }

    /// Shows the selection the oldest block again and again until it says stop.
    fn cut_due(
        &self,
        txn: &mut Txn<'_, I::Snapshot>,
        mut selection: Selection<'_>,
        limit: Height,
    ) -> Result<Taken, StoreError> {
        let (mut cause, mut released, mut journal) = (None, Released::new(), Vec::new());
        let mut overshoot = self.sabotage.is(Sabotage::PruneBelowLowWater);
        let stop = loop {
            let Some(oldest) = txn.state.oldest_kept() else {
                break StopReason::Empty;
            };
            if oldest > limit {
                break StopReason::Limit;
            }
            let record = BlockRecord::load(txn, oldest)?;
            let candidate = record.candidate();
            match selection.consider(&candidate) {
                Verdict::Cut(why) => {
                    cause.get_or_insert(why);
                }
                Verdict::Stop(StopReason::Done) if overshoot && cause.is_some() => {
                    overshoot = false;
                }
                Verdict::Stop(stop) => break stop,
            }
            journal.extend(txn.cut(&record, &mut released)?);
            txn.state.boundary = Some(oldest);
            selection.take(&candidate);
        };
        let totals = *selection.totals();
        txn.state.pressure = selection.pressure();
        if totals.blocks > 0 {
            txn.state.last_prune_at = Some(self.clock.now_seconds());
            txn.state.counters.overruns += u64::from(totals.overrun);
        }
        Ok(Taken { totals, cause, stop, released, journal })
    }

    /// Commits step A; only then do the readers' epochs and the writer's list move on.
    pub(crate) fn commit_cut(
        &self,
        control: &mut Control,
        txn: Txn<'_, I::Snapshot>,
        freed: usize,
        journal: &[u64],
    ) -> Result<(), StoreError> {
        if self.sabotage.is(Sabotage::FreeBeforeCut) {
            self.free_before_cut(control, &txn, journal)?;
        }
        self.commit(control, txn)?;
        control.quarantined.drain(..freed);
        let epoch = self.pins.raise();
        control.quarantined.extend(journal.iter().map(|seq| (*seq, epoch)));
        Ok(())
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
            let entry = super::record::JournalEntry::decode(&body)?;
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
