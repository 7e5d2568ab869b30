//! One open batch: the rows as they will be after the commit, and the bytes that go with them.
//! Dropping it changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use secateur_core::Height;

use super::lane::Job;
use super::open::{Control, Shelf};
use super::state::{STATE_KEY, ShelfHeader, Slot, State};
use crate::class::{ALIGNMENT, ClassTable};
use crate::ground::{Arena, Index, KeyValue, Snapshot, Table, Visit};
use crate::regions::alloc::{Allocate, Books};
use crate::regions::cut::{Cut, CutAndFree};
use crate::regions::overlay::{Ahead, Overlay, Staged, before_over, get_over, scan_over};
use crate::regions::pins::Pins;
use crate::rows::seal;
use crate::{Sabotage, StoreError};

/// Space that must be left on the medium after bytes were placed, so that the index can go on.
const INDEX_HEADROOM: u64 = 2 * 1024 * 1024;
/// Bytes that are laid end to end for one write, at most.
const MAX_WRITE: usize = 8 * 1024 * 1024;

/// A batch in the making over what is committed and what is staged. Reads see the batch's own
/// changes.
pub struct ShelfBatch<'a, 'b, S> {
    under: Ahead<S>,
    changes: Overlay,
    state: State,
    header: &'a ShelfHeader,
    sabotage: Sabotage,
    cuts: &'a Mutex<VecDeque<(u64, u64)>>,
    pins: &'a Pins,
    fresh_bytes: u64,
    /// How many of the durable cuts it frees; none before it looked.
    freed: Option<usize>,
    placed: Vec<(u64, &'b [u8])>,
    cut: Cut,
}

impl<'b, S: Snapshot> ShelfBatch<'_, 'b, S> {
    /// Sets a row of one of the family's own tables.
    pub fn put(&mut self, table: Table, key: &[u8], body: Vec<u8>) -> Result<(), StoreError> {
        self.check_table(table)?;
        self.set(table, key, body);
        Ok(())
    }

    /// Deletes a row of one of the family's own tables.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.check_table(table)?;
        self.unset(table, key);
        Ok(())
    }

    fn check_table(&self, table: Table) -> Result<(), StoreError> {
        let own = matches!(table, Table::Meta | Table::Alloc | Table::Free | Table::Journal);
        if own || !self.header.family.tables().contains(&table) {
            let reason = format!("the table {} is not the family's", table.name());
            return Err(StoreError::refused("batch", reason));
        }
        Ok(())
    }

    /// A region for bytes, 1 to a whole region of them. They are written and synced before the
    /// batch is committed.
    pub fn place(&mut self, bytes: &'b [u8]) -> Result<Slot, StoreError> {
        let class = self.header.region_len();
        let len = u32::try_from(bytes.len()).ok().filter(|len| (1..=class).contains(len));
        let len = len.ok_or_else(|| {
            let reason = format!("{} bytes do not fit a region of {class}", bytes.len());
            StoreError::refused("placing", reason)
        })?;
        if self.freed.is_none() && !self.sabotage.is(Sabotage::ReuseQuarantined) {
            self.free_cuts()?;
        }
        let region = self.allocate_region(class, len)?;
        self.placed.push((region.offset, bytes));
        Ok(Slot { region, checksum: crc32c::crc32c(bytes) })
    }

    /// Quarantines a region that no row will refer to any more after this batch. False if it is
    /// not the slot's any more: nothing was done then.
    pub fn cut(&mut self, slot: &Slot) -> Result<bool, StoreError> {
        match self.quarantine(&slot.region) {
            Ok(true) => {
                self.cut.add(slot.region);
                Ok(true)
            }
            Ok(false) | Err(StoreError::StaleGeneration { .. } | StoreError::Corrupt { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Frees what is durably cut and seen by no reader.
    pub(super) fn free_cuts(&mut self) -> Result<usize, StoreError> {
        let (cuts, pins) = (self.cuts, self.pins);
        let freed = self.free_durable(&cuts.lock(), pins)?;
        self.freed = Some(freed);
        Ok(freed)
    }

    pub(super) fn fresh_bytes(&self) -> u64 {
        self.fresh_bytes
    }
}

impl<S: Snapshot> Snapshot for ShelfBatch<'_, '_, S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get_over(&self.changes, &self.under, table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        scan_over(&self.changes, &self.under, table, from, visit)
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        before_over(&self.changes, &self.under, table, bound)
    }
}

impl<S: Snapshot> Allocate for ShelfBatch<'_, '_, S> {
    fn set(&mut self, table: Table, key: &[u8], body: Vec<u8>) {
        let value = Some(seal(table, key, body));
        self.changes.insert((table, key.to_vec()), Staged { job: 0, value });
    }

    fn unset(&mut self, table: Table, key: &[u8]) {
        self.changes.insert((table, key.to_vec()), Staged { job: 0, value: None });
    }

    fn classes(&self) -> &ClassTable {
        &self.header.classes
    }

    fn books(&mut self) -> Books<'_> {
        Books {
            arena_end: &mut self.state.arena_end,
            journal_next: &mut self.state.journal_next,
            counts: &mut self.state.count,
            fresh_bytes: &mut self.fresh_bytes,
        }
    }

    fn planted(&self) -> Sabotage {
        self.sabotage
    }
}

impl<A: Arena, I: Index> Shelf<A, I> {
    /// One batch. Durable when it returns; if `change` fails, nothing was changed. What a batch
    /// without changes has seen is durable too.
    pub fn write<'b, T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&mut ShelfBatch<'_, 'b, I::Snapshot>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut control = self.writer()?;
        let mut batch = self.begin(&mut control)?;
        let answer = change(&mut batch)?;
        let number = self.stage(&mut control, batch)?;
        MutexGuard::unlock_fair(control);
        self.wait_for(number)?;
        Ok(answer)
    }

    /// A batch over everything that is committed or staged.
    pub(super) fn begin<'b>(
        &self,
        control: &mut Control,
    ) -> Result<ShelfBatch<'_, 'b, I::Snapshot>, StoreError> {
        // Asked before the snapshot is taken, which then holds at least so much.
        let done = self.lane.done();
        if control.ahead_since < done {
            Arc::make_mut(&mut control.ahead).retain(|_, row| row.job > done);
            control.ahead_since = done;
        }
        let staged = Arc::clone(&control.ahead);
        Ok(ShelfBatch {
            under: Ahead { snapshot: self.index.snapshot()?, staged },
            changes: Overlay::new(),
            state: control.state.clone(),
            header: &self.header,
            sabotage: self.sabotage,
            cuts: &self.cuts,
            pins: &self.pins,
            fresh_bytes: 0,
            freed: None,
            placed: Vec::new(),
            cut: Cut::default(),
        })
    }

    /// Writes a finished batch's bytes and hands its rows to the lane. Returns the number to wait
    /// for.
    pub(super) fn stage(
        &self,
        control: &mut Control,
        mut batch: ShelfBatch<'_, '_, I::Snapshot>,
    ) -> Result<u64, StoreError> {
        let cut = std::mem::take(&mut batch.cut);
        let journal = batch.journal(Height::default(), &cut)?;
        if batch.changes.is_empty() {
            return Ok(control.staged);
        }
        if !batch.placed.is_empty() {
            self.check_headroom(batch.fresh_bytes)?;
            self.arena.grow(batch.state.arena_end)?;
            self.write_out(&mut batch.placed).inspect_err(|error| self.poison(error))?;
        }
        if batch.state != control.state {
            let body = batch.state.encode();
            batch.set(Table::Meta, STATE_KEY, body);
        }
        let ShelfBatch { mut changes, state, under, freed, placed, .. } = batch;
        drop(under);
        let number = control.staged + 1;
        let ahead = Arc::make_mut(&mut control.ahead);
        for (key, row) in &mut changes {
            row.job = number;
            ahead.insert(key.clone(), row.clone());
        }
        (control.state, control.staged) = (state, number);
        self.cuts.lock().drain(..freed.unwrap_or(0));
        let must_sync = !placed.is_empty() && !self.sabotage.is(Sabotage::SkipArenaSync);
        self.lane.push(Job { number, changes, journal, must_sync });
        Ok(number)
    }

    /// Refuses before anything is written when the medium could not take it.
    fn check_headroom(&self, fresh_bytes: u64) -> Result<(), StoreError> {
        let needed = fresh_bytes + INDEX_HEADROOM;
        let available = self.arena.space()?.available;
        if let Some(available) = available.filter(|available| *available < needed) {
            return Err(StoreError::DiskFull { what: "storing", needed, available });
        }
        if !self.index.ensure_reserve()? {
            let what = "the space reserve";
            return Err(StoreError::DiskFull { what, needed: 0, available: 0 });
        }
        Ok(())
    }

    /// Writes bytes into their regions, neighbours in one call.
    fn write_out(&self, placed: &mut [(u64, &[u8])]) -> Result<(), StoreError> {
        placed.sort_unstable_by_key(|(offset, _)| *offset);
        let page = ALIGNMENT as usize;
        let padded = |bytes: &[u8]| bytes.len().next_multiple_of(page);
        let mut rest = &*placed;
        while let Some((offset, first)) = rest.first() {
            let mut len = padded(first);
            let joins = rest.iter().skip(1).take_while(|(next, bytes)| {
                let follows = *next == offset + len as u64 && len + padded(bytes) <= MAX_WRITE;
                len += if follows { padded(bytes) } else { 0 };
                follows
            });
            let count = 1 + joins.count();
            let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            let mut buffer = self.buffers.take(len);
            for (_, bytes) in now {
                buffer.extend(bytes);
                buffer.pad();
            }
            self.arena.write_at(*offset, buffer.as_slice())?;
            self.buffers.give_back(buffer);
            rest = later;
        }
        Ok(())
    }
}
