//! Rollback: a reorganised chain's unfinalised blocks are cut from the top, in the same way.

use secateur_core::Height;

use super::control::export_head;
use super::cut::Released;
use super::record::BlockRecord;
use super::state::{State, Tip};
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

impl<A: Arena, I: Index> Store<A, I> {
    /// Removes every block above `to`, in one batch. Final blocks are never removed. `to` may be
    /// the height below the first block while nothing is final: the store is empty again then.
    /// Returns how many blocks were removed.
    pub fn rollback(&self, to: Height) -> Result<u64, StoreError> {
        let mut control = self.writer()?;
        let refuse = |reason: String| Err(StoreError::refused("rollback", reason));
        let (Some(head), Some(oldest)) = (control.state.head, control.state.oldest_kept()) else {
            return refuse("the store is empty".into());
        };
        if to >= head.height {
            return Ok(0);
        }
        if let Some(newest_final) = export_head(&control.state, &control.settings)
            && to < newest_final
        {
            return refuse(format!("block {newest_final} is final"));
        }
        let empties = to.checked_add(1) == Some(oldest) && control.state.boundary.is_none();
        if to < oldest && !empties {
            return refuse(format!("the oldest block here is {oldest}"));
        }
        let mut txn = self.begin(&control)?;
        let freed = self.settle_into(&control, &mut txn)?;
        let (mut released, mut journal) = (Released::new(), Vec::new());
        for height in (to + 1..=head.height).rev() {
            let record = BlockRecord::load(&txn, height)?;
            journal.extend(txn.cut(&record, &mut released)?);
        }
        let left = if empties { None } else { Some(BlockRecord::load(&txn, to)?) };
        set_head(&mut txn.state, left.as_ref());
        let kept = left.map(|record| record.meta.height);
        control.roll_back_queue(&mut txn, kept);
        self.commit_cut(&mut control, txn, freed, &journal)?;
        self.hashes.roll_back(kept);
        Ok(head.height - to)
    }
}

fn set_head(state: &mut State, record: Option<&BlockRecord>) {
    state.head = record.map(|record| Tip {
        height: record.meta.height,
        hash: record.meta.hash,
        timestamp: record.meta.timestamp,
        max_timestamp: record.max_timestamp,
    });
    if record.is_none() {
        state.first = None;
    }
}
