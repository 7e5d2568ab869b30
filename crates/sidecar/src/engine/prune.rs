//! Pruning: the only place where bytes of decided blobs are cut (I15).
//!
//! A height goes as a whole, in one batch, and only if it is final and older than `retain_blocks`,
//! every blob of it has a record, and each record is good enough for the `trust` that is set.
//! Nothing overrides that, no full disk and no budget. Which heights go, and in which order, is
//! decided by heights and rows alone.

use secateur_core::Height;
use secateur_store::{Arena, Index, Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::facts::{BlobKey, Hold, Plan, PruneReport, Pruned, RecordForm, WaitingHeight};
use super::jobs::remove_job;
use super::lists::{ready, waiting};
use super::marks::Marks;
use super::read::{archive_of, slot_of};
use super::rows::{blob_key, height_key, pruned_body};
use super::{EngineConfig, SidecarStore};
use crate::error::SidecarError;
use crate::types::{BLOB_LEN, Trust};

/// Heights that one batch looks at, at most.
const MAX_LOOKS: usize = 1_024;

/// What decides whether a height may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub trust: Trust,
    retain_blocks: u64,
    finalized: Option<Height>,
}

impl Rule {
    pub(super) fn load(config: &EngineConfig, rows: &impl Rows) -> Result<Self, StoreError> {
        let finalized = Marks::load(rows)?.finalized;
        Ok(Self { trust: config.trust, retain_blocks: config.retain_blocks, finalized })
    }
}

/// The highest height that finality and `retain_blocks` let go.
pub(super) fn limit_of(rule: &Rule) -> Option<Height> {
    rule.finalized?.checked_sub(rule.retain_blocks)
}

/// Why one blob's records keep its height here, if they do.
pub(super) fn hold_of_blob(
    rule: &Rule,
    rows: &impl Rows,
    key: BlobKey,
) -> Result<Option<Hold>, StoreError> {
    let Some(row) = archive_of(rows, key)? else { return Ok(Some(Hold::NotArchived)) };
    let any = |form| row.records.iter().any(|kept| kept.record.form == form);
    // Our own copy was read back and compared by this node's archiver.
    let seen = row.fetched_at.is_some() || any(RecordForm::Own);
    Ok(match rule.trust {
        _ if seen => None,
        Trust::Fetch => Some(Hold::NotFetched),
        Trust::Signature if any(RecordForm::V1) => None,
        Trust::Signature => Some(Hold::UnboundNotice),
    })
}

/// Why a height's bytes must stay, if they must. A row that cannot be read is a reason too, and
/// none to stop at: heights above it are not to blame.
pub(super) fn hold_of(
    rule: &Rule,
    rows: &impl Rows,
    height: Height,
    blob_count: u32,
) -> Result<Option<Hold>, StoreError> {
    match hold_by_rows(rule, rows, height, blob_count) {
        Err(error) if error.is_corruption() => Ok(Some(Hold::Unreadable)),
        answer => answer,
    }
}

fn hold_by_rows(
    rule: &Rule,
    rows: &impl Rows,
    height: Height,
    blob_count: u32,
) -> Result<Option<Hold>, StoreError> {
    if rule.finalized.is_none_or(|finalized| height > finalized) {
        return Ok(Some(Hold::NotFinalized));
    }
    if limit_of(rule).is_none_or(|limit| height > limit) {
        return Ok(Some(Hold::Retained));
    }
    for index in 0..blob_count {
        if let Some(hold) = hold_of_blob(rule, rows, BlobKey { height, index })? {
            return Ok(Some(hold));
        }
    }
    Ok(None)
}

/// Cuts a height's bytes. Whoever calls has asked [`hold_of`]. Returns how many were here, and how
/// many were gone already.
fn cut_height<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    at: WaitingHeight,
    finalized: Height,
    now: u64,
) -> Result<(u32, u32), StoreError> {
    let mut blobs = 0;
    for index in 0..at.blob_count {
        let key = BlobKey { height: at.height, index };
        // A slot that cannot be read is as good as gone; `verify` tells of its region.
        let slot = match slot_of(batch, key) {
            Err(error) if !error.is_corruption() => return Err(error),
            slot => slot.unwrap_or_default(),
        };
        if let Some(slot) = slot
            && batch.cut(&slot)?
        {
            blobs += 1;
        }
        batch.delete(Table::Bytes, &blob_key(key))?;
        batch.delete(Table::Unbound, &blob_key(key))?;
        remove_job(batch, key)?;
    }
    let failures = at.blob_count - blobs;
    batch.delete(Table::Ready, &height_key(at.height))?;
    let pruned = Pruned { finalized, at: now, failures };
    batch.put(Table::Pruned, &height_key(at.height), pruned_body(&pruned))?;
    Marks::change(batch, |marks| {
        marks.pruned += u64::from(at.blob_count);
        marks.failures += u64::from(failures);
    })?;
    Ok((blobs, failures))
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// What a prune would do now, of the lowest `max_heights` heights that are archived. The same
    /// code decides for the real run.
    pub fn plan(&self, max_heights: usize) -> Result<Plan, SidecarError> {
        let view = self.shelf.view()?;
        let rule = Rule::load(&self.config, &view)?;
        let mut plan = Plan { limit: limit_of(&rule), ..Plan::default() };
        let Some(limit) = plan.limit else { return Ok(plan) };
        let unarchived = waiting(&view, 0, 1)?.first().map(|at| at.height);
        plan.held = unarchived.filter(|at| *at <= limit).map(|at| (at, Hold::NotArchived));
        let mut found = ready(&view, 0, max_heights.saturating_add(1))?;
        plan.more = found.len() > max_heights;
        found.truncate(max_heights);
        for at in found {
            if at.height > limit {
                plan.more = false;
                break;
            }
            if let Some(hold) = hold_of(&rule, &view, at.height, at.blob_count)? {
                let lower = plan.held.is_none_or(|(held, _)| at.height < held);
                plan.held = if lower { Some((at.height, hold)) } else { plan.held };
                continue;
            }
            plan.heights += 1;
            plan.blobs += u64::from(at.blob_count);
            plan.first.get_or_insert(at.height);
            plan.last = Some(at.height);
        }
        plan.bytes = plan.blobs * BLOB_LEN as u64;
        Ok(plan)
    }

    /// Prunes one batch of heights below `before`; `more` says that there may be more to do, and then
    /// something went. What is archived, final and good enough is decided here, from the rows,
    /// whatever is asked. With the last batch, what can be freed is.
    pub fn prune_step(&self, before: Height) -> Result<PruneReport, SidecarError> {
        self.prune_step_from(0, before)
    }

    /// The same from a height on: whoever has just seen what holds those below need not look again.
    pub fn prune_step_from(
        &self,
        from: Height,
        before: Height,
    ) -> Result<PruneReport, SidecarError> {
        let mut report = PruneReport::default();
        let mut next = Some(from);
        while let Some(from) = next.filter(|_| report.heights == 0) {
            next = self.prune_next(from, before, &mut report)?;
        }
        self.finish_prune(report, next)
    }

    /// Prunes every height below `before` that may go, batch by batch, and frees what it can.
    /// Whoever writes gets its turn in between.
    pub fn prune_archived_before(&self, before: Height) -> Result<PruneReport, SidecarError> {
        let mut report = PruneReport::default();
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.prune_next(from, before, &mut report)?;
        }
        self.finish_prune(report, next)
    }

    /// One batch from the next height on that may go. What is held before it is only read: it keeps
    /// no writer waiting.
    fn prune_next(
        &self,
        from: Height,
        before: Height,
        report: &mut PruneReport,
    ) -> Result<Option<Height>, SidecarError> {
        match self.pass_held(from, before, report)? {
            Some(first) => self.prune_page(first, before, report),
            None => Ok(None),
        }
    }

    /// The first height from `from` on that nothing holds.
    fn pass_held(
        &self,
        from: Height,
        before: Height,
        report: &mut PruneReport,
    ) -> Result<Option<Height>, SidecarError> {
        let view = self.shelf.view()?;
        let rule = Rule::load(&self.config, &view)?;
        let Some(limit) = limit_of(&rule) else { return Ok(None) };
        let mut next = Some(from);
        while let Some(from) = next {
            let page = ready(&view, from, MAX_LOOKS)?;
            let last = page.last().filter(|_| page.len() == MAX_LOOKS);
            next = last.and_then(|at| at.height.checked_add(1));
            for at in page {
                if at.height > limit || at.height >= before {
                    return Ok(None);
                }
                let Some(hold) = hold_of(&rule, &view, at.height, at.blob_count)? else {
                    return Ok(Some(at.height));
                };
                report.held += 1;
                report.first_held.get_or_insert((at.height, hold));
            }
        }
        Ok(None)
    }

    fn finish_prune(
        &self,
        mut report: PruneReport,
        next: Option<Height>,
    ) -> Result<PruneReport, SidecarError> {
        report.bytes = report.blobs * BLOB_LEN as u64;
        report.more = next.is_some();
        if report.heights > 0 && !report.more {
            self.shelf.settle(self.config.budget_bytes)?;
        }
        Ok(report)
    }

    /// One batch: looks at a bounded number of heights from `from` on, and cuts those that may go
    /// as long as it is not full. Where to go on is the answer, if there is more.
    fn prune_page(
        &self,
        from: Height,
        before: Height,
        report: &mut PruneReport,
    ) -> Result<Option<Height>, SidecarError> {
        let now = self.clock.now_seconds();
        let so_far = report.clone();
        let (page, next) = self.write(|batch| {
            let mut report = so_far;
            let rule = Rule::load(&self.config, batch)?;
            let (Some(limit), Some(finalized)) = (limit_of(&rule), rule.finalized) else {
                return Ok((report, None));
            };
            let mut left = self.config.max_ops;
            let mut is_empty = true;
            for (looks, at) in ready(batch, from, MAX_LOOKS + 1)?.into_iter().enumerate() {
                if at.height > limit || at.height >= before {
                    return Ok((report, None));
                }
                if looks == MAX_LOOKS || (at.blob_count > left && !is_empty) {
                    return Ok((report, Some(at.height)));
                }
                if let Some(hold) = hold_of(&rule, batch, at.height, at.blob_count)? {
                    report.held += 1;
                    report.first_held.get_or_insert((at.height, hold));
                    continue;
                }
                let (blobs, failures) = cut_height(batch, at, finalized, now)?;
                (left, is_empty) = (left.saturating_sub(at.blob_count), false);
                report.heights += 1;
                report.blobs += u64::from(blobs);
                report.failures += u64::from(failures);
                report.first.get_or_insert(at.height);
                report.last = Some(at.height);
            }
            Ok((report, None))
        })?;
        *report = page;
        Ok(next)
    }
}
