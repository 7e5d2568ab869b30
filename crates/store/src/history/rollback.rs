//! Rollback: a reorganised chain's unfinalised blocks are cut from the top, in the same way.

use secateur_core::Height;

use super::control::export_head;
use super::lane::{HashChange, Staging};
use super::place::{Place, Stream};
use super::record::{BlockRecord, Group};
use super::state::{Layout, State, Tip};
use super::store::Store;
use super::txn::Txn;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::regions::cut::{Cut, CutAndFree};

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
        let mut txn = self.begin(&mut control)?;
        let freed = self.settle_into(&mut txn)?;
        let left = if empties { None } else { Some(BlockRecord::load(&txn, to)?) };
        let mut cut = Cut::default();
        txn.cut_above(to, head.height, left.as_ref(), &mut cut)?;
        set_head(&mut txn.state, left.as_ref());
        let kept = left.map(|record| record.meta.height);
        control.roll_back_queue(&mut txn, kept);
        let journal = txn.journal(head.height, &cut)?;
        let hashes = HashChange::RollBack(kept);
        let staging = Staging { freed, journal, hashes, ..Staging::default() };
        let ticket = self.stage_cut(&mut control, txn, staging)?;
        drop(control);
        self.wait_for(ticket)?;
        Ok(head.height - to)
    }
}

impl<S: Snapshot> Txn<'_, S> {
    /// Step A for every block above `to`: rows and regions go; a row that also holds kept blocks
    /// is shortened.
    fn cut_above(
        &mut self,
        to: Height,
        head: Height,
        left: Option<&BlockRecord>,
        cut: &mut Cut,
    ) -> Result<(), StoreError> {
        let mut height = to + 1;
        while height <= head {
            let missing = || StoreError::corrupt("blocks", format!("block {height} is missing"));
            let mut group = Group::around(self, height)?.ok_or_else(missing)?;
            let (first, last) = (group.first().unwrap_or(height), group.last());
            let gone = group.records.iter().filter(|record| record.meta.height > to);
            for record in gone.cloned().collect::<Vec<_>>() {
                if let Place::Regions(ptrs) = &record.place {
                    self.give_back(ptrs, cut)?;
                }
            }
            group.records.retain(|record| record.meta.height <= to);
            self.delete(Table::Blocks, &first.to_be_bytes());
            if !group.records.is_empty() {
                self.put(Table::Blocks, &first.to_be_bytes(), group.encode()?);
            }
            height = last.filter(|last| *last >= height).ok_or_else(missing)? + 1;
        }
        if self.header.layout == Layout::Packed {
            let size = self.header.stretch_len();
            let end = match left {
                Some(BlockRecord { place: Place::Stream(at), .. }) => {
                    at + left.map_or(0, BlockRecord::payload_bytes)
                }
                _ => 0,
            };
            let [history, ..] = self.state.streams;
            let above = end.div_ceil(size)..history.div_ceil(size);
            self.release_stretches(Stream::History, above, cut)?;
        }
        Ok(())
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
