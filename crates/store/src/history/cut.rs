//! When cuts are freed: in the batch of whoever writes next, or when a prune rests, or at opening.
//! The steps themselves are `regions::cut`.

use parking_lot::MutexGuard;

use super::lane::Staging;
use super::store::{Control, Store};
use super::txn::Txn;
use crate::StoreError;
use crate::ground::{Arena, Index};
use crate::regions::alloc::Allocate;
use crate::regions::cut::CutAndFree;

impl<A: Arena, I: Index> Store<A, I> {
    /// Frees, in the given batch, what is durably cut and seen by no reader. Returns how many
    /// cuts that were, for when the batch is staged.
    pub(crate) fn settle_into(&self, txn: &mut Txn<'_, I::Snapshot>) -> Result<usize, StoreError> {
        txn.free_durable(&self.cuts.lock(), &self.pins)
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
