//! Cut and free: the two steps by which regions become reusable.
//!
//! *Cut* (step A): references removed, regions quarantined, a journal entry, one batch. *Free*
//! (step B), in a later batch: quarantined regions go to the free list. Only A must be durable
//! before a region is overwritten, so an append may free and reuse in one batch.

use std::collections::BTreeMap;

use parking_lot::MutexGuard;
use secateur_core::ClassBytes;

use super::lane::Staging;
use super::region::{BlobPtr, JournalEntry};
use super::store::{Control, Store};
use super::txn::Txn;
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::rows::unseal;

/// Journal entries that one batch frees at most.
const MAX_FREES: usize = 4096;

/// What a batch has quarantined so far.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub regions: Vec<BlobPtr>,
}

impl Cut {
    pub(crate) fn add(&mut self, region: BlobPtr) {
        self.regions.push(region);
    }

    /// The regions by class, for reports and plans.
    pub(crate) fn by_class(&self) -> Vec<ClassBytes> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for region in &self.regions {
            *counts.entry(region.class).or_insert(0) += 1;
        }
        let line = |(class, regions)| {
            let bytes = u64::from(class) * regions;
            ClassBytes { class, regions, bytes }
        };
        counts.into_iter().map(line).collect()
    }
}

impl<S: Snapshot> Txn<'_, S> {
    /// Step B for one journal entry. An entry that cannot be read stays where it is with its
    /// regions in quarantine: the store still opens, and `verify` reports it.
    pub(crate) fn free_entry(&mut self, seq: u64) -> Result<(), StoreError> {
        let key = seq.to_be_bytes();
        let Some(value) = self.get(Table::Journal, &key)? else {
            return Ok(());
        };
        let read = unseal(Table::Journal, &key, &value)
            .and_then(|body| JournalEntry::decode(body).map_err(row_error("journal")));
        let Ok(entry) = read else { return Ok(()) };
        for ptr in &entry.regions {
            self.free(ptr)?;
        }
        self.delete(Table::Journal, &key);
        Ok(())
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Frees, in the given batch, what is durably cut and seen by no reader. Returns how many
    /// cuts that were, for when the batch is staged.
    pub(crate) fn settle_into(&self, txn: &mut Txn<'_, I::Snapshot>) -> Result<usize, StoreError> {
        let cuts = self.cuts.lock();
        let mut freed = 0;
        for (seq, epoch) in cuts.iter().take(MAX_FREES) {
            if !self.pins.clear_of(*epoch) {
                break;
            }
            txn.free_entry(*seq)?;
            freed += 1;
        }
        Ok(freed)
    }

    /// Frees everything that can be freed now, after what is on its way is durable. Pruning calls
    /// it when it rests, opening calls it as its recovery. Appends get their turn between its
    /// batches. Returns whether nothing is left in quarantine.
    pub fn settle(&self) -> Result<bool, StoreError> {
        self.flush()?;
        loop {
            let mut control = self.writer()?;
            let went_on = self.settle_batch(&mut control)?;
            let settled = self.cuts.lock().is_empty();
            MutexGuard::unlock_fair(control);
            if !went_on {
                return Ok(settled);
            }
        }
    }

    /// One bounded batch of frees, and of space given back. Whether there was anything to do is
    /// the answer.
    pub(crate) fn settle_batch(&self, control: &mut Control) -> Result<bool, StoreError> {
        let mut txn = self.begin(control)?;
        let freed = self.settle_into(&mut txn)?;
        let punched = if self.index.ensure_reserve()? {
            self.punch_over_target(control, &mut txn)?
        } else {
            // The disk is full: whatever is free gives its space back, so that the reserve can.
            txn.punch_free(&self.arena, u64::MAX)?
        };
        if freed == 0 && punched == 0 {
            return Ok(false);
        }
        let ticket = self.stage(control, txn, Staging { freed, ..Staging::default() })?;
        self.wait_for(ticket)?;
        Ok(true)
    }

    /// Free regions of classes that the chain no longer needs are stranded. When arena and index
    /// together would pass the target, their space goes back to the file system. Returns the
    /// bytes given back.
    pub(crate) fn punch_over_target(
        &self,
        control: &Control,
        txn: &mut Txn<'_, I::Snapshot>,
    ) -> Result<u64, StoreError> {
        let target = control.policy.target_bytes;
        if target == 0 {
            return Ok(0);
        }
        // The index lives in the budget too, and what this batch is about to take counts already.
        let taken = self.arena.space()?.given + self.index.bytes()? + txn.fresh_bytes;
        txn.punch_free(&self.arena, taken.saturating_sub(target))
    }
}
