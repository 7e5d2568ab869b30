//! The allocation table: regions go Used → Quarantine → Free and back to Used with a larger
//! generation. Nothing here touches the arena's bytes, and nothing knows what is in them: a batch
//! of any family that keeps the books can do all of it.

use std::ops::ControlFlow;

use super::region::{AllocEntry, BlobPtr, RegionState, read_region_key, region_key};
use crate::class::ClassTable;
use crate::ground::{Arena, Snapshot, Table};
use crate::rows::unseal;
use crate::{Sabotage, StoreError};

/// Regions that one batch gives back at most: a hole costs a call, and the writer's turn is held.
const MAX_PUNCHES: u64 = 256;

/// The generation of a region's first use.
const FIRST_GENERATION: u32 = 1;
/// What the free list says of a region's space.
const RESIDENT: u8 = 0;
const PUNCHED: u8 = 1;

/// How many regions of a class are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClassCount {
    pub used: u64,
    pub quarantine: u64,
    pub free: u64,
    /// Free regions whose space was given back to the file system.
    pub punched: u64,
}

impl std::fmt::Display for ClassCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { used, quarantine, free, punched } = self;
        write!(f, "{used} used, {quarantine} quarantined, {free} free ({punched} given back)")
    }
}

/// The part of a family's state that is about regions.
pub(crate) struct Books<'a> {
    /// Where the next new region begins.
    pub arena_end: &'a mut u64,
    /// The number of the next journal entry.
    pub journal_next: &'a mut u64,
    /// One for each class, in the table's order.
    pub counts: &'a mut [ClassCount],
    /// Bytes of regions allocated in this batch that the medium has yet to give.
    pub fresh_bytes: &'a mut u64,
}

/// An open batch that keeps the books of an arena's regions.
pub(crate) trait Allocate: Snapshot {
    /// Sets a row; its value is sealed by the batch.
    fn set(&mut self, table: Table, key: &[u8], body: Vec<u8>);
    /// Deletes a row.
    fn unset(&mut self, table: Table, key: &[u8]);
    /// The size classes.
    fn classes(&self) -> &ClassTable;
    /// The books.
    fn books(&mut self) -> Books<'_>;
    /// The planted bug, if there is one.
    fn planted(&self) -> Sabotage;
    /// How many more regions to take for the free list, now that one at `offset` was taken.
    fn spares(&self, _class: u32, _offset: u64) -> u64 {
        0
    }

    /// Regions for `len` bytes: the free one at the smallest offset, else a new one at the end.
    fn allocate(&mut self, len: u64) -> Result<Vec<BlobPtr>, StoreError> {
        let parts: Vec<(u32, u32)> = self.classes().split(len).collect();
        parts.into_iter().map(|(class, part)| self.allocate_region(class, part)).collect()
    }

    /// One region of a class, for `len` bytes.
    fn allocate_region(&mut self, class: u32, len: u32) -> Result<BlobPtr, StoreError> {
        let (offset, generation) = match self.take_free(class)? {
            Some((offset, generation)) => (offset, generation),
            None => (self.take_new(class)?, FIRST_GENERATION),
        };
        self.count(class)?.used += 1;
        let entry = AllocEntry { generation, state: RegionState::Used };
        self.set(Table::Alloc, &region_key(class, offset), entry.encode());
        Ok(BlobPtr { offset, len, class, generation })
    }

    /// A region at the arena's end, and as many spare ones as the family wants.
    fn take_new(&mut self, class: u32) -> Result<u64, StoreError> {
        let offset = self.extend(class)?;
        for _ in 0..self.spares(class, offset) {
            let spare = region_key(class, self.extend(class)?);
            let (generation, state) = (FIRST_GENERATION - 1, RegionState::Free);
            self.set(Table::Alloc, &spare, AllocEntry { generation, state }.encode());
            self.set(Table::Free, &spare, free_row(false));
            self.count(class)?.free += 1;
        }
        Ok(offset)
    }

    /// Makes the arena longer by one region.
    fn extend(&mut self, class: u32) -> Result<u64, StoreError> {
        let books = self.books();
        let offset = *books.arena_end;
        *books.arena_end = offset
            .checked_add(u64::from(class))
            .ok_or_else(|| StoreError::refused("block", "the arena's offsets are used up"))?;
        *books.fresh_bytes += u64::from(class);
        Ok(offset)
    }

    /// Takes the first free region of a class and returns its offset and next generation. A
    /// free-list row that the allocation table does not confirm is passed over: `verify` reports
    /// it, and handing it out could overwrite a block.
    fn take_free(&mut self, class: u32) -> Result<Option<(u64, u32)>, StoreError> {
        if self.planted().is(Sabotage::ReuseQuarantined)
            && let Some(found) = self.find_quarantined(class)?
        {
            self.count(class)?.quarantine -= 1;
            return Ok(Some(found));
        }
        let mut found = None;
        self.scan(Table::Free, &region_key(class, 0), &mut |key, value| {
            let (at, offset) = read_region_key(Table::Free, key)?;
            if at != class {
                return Ok(ControlFlow::Break(()));
            }
            let mark = unseal(Table::Free, key, value).and_then(is_punched);
            let entry = self.region(class, offset)?;
            if let (Ok(punched), Some(AllocEntry { generation, state: RegionState::Free })) =
                (mark, entry)
            {
                found = Some((offset, generation, punched));
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Some((offset, generation, punched)) = found else {
            return Ok(None);
        };
        self.unset(Table::Free, &region_key(class, offset));
        let count = self.count(class)?;
        count.free = count.free.saturating_sub(1);
        if punched {
            count.punched = count.punched.saturating_sub(1);
            *self.books().fresh_bytes += u64::from(class);
        }
        if self.planted().is(Sabotage::KeepGeneration) {
            return Ok(Some((offset, generation)));
        }
        // I7: a reused region has a larger generation.
        let generation = generation.checked_add(1).ok_or_else(|| {
            StoreError::corrupt("alloc", format!("region {offset} has used up its generations"))
        })?;
        Ok(Some((offset, generation)))
    }

    /// Only the saboteur looks here.
    fn find_quarantined(&self, class: u32) -> Result<Option<(u64, u32)>, StoreError> {
        let mut found = None;
        self.scan(Table::Alloc, &region_key(class, 0), &mut |key, value| {
            let (at, offset) = read_region_key(Table::Alloc, key)?;
            let (entry, _) = AllocEntry::from_value(key, value);
            if at == class && entry.state == RegionState::Quarantine {
                found = Some((offset, entry.generation + 1));
            }
            let go_on = at == class && found.is_none();
            Ok(if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(found)
    }

    /// The allocation entry of a region; an unreadable one is quarantined (I9).
    fn region(&self, class: u32, offset: u64) -> Result<Option<AllocEntry>, StoreError> {
        let key = region_key(class, offset);
        Ok(self.get(Table::Alloc, &key)?.map(|value| AllocEntry::from_value(&key, &value).0))
    }

    /// Used → Quarantine. On a region that is already quarantined or free nothing happens and
    /// the answer is false; a stale pointer is an error.
    fn quarantine(&mut self, ptr: &BlobPtr) -> Result<bool, StoreError> {
        let Some(entry) = self.region(ptr.class, ptr.offset)? else {
            return Err(StoreError::corrupt(
                "alloc",
                format!("the region at {} is not in the table", ptr.offset),
            ));
        };
        if entry.state != RegionState::Used {
            return Ok(false);
        }
        if entry.generation != ptr.generation {
            let (offset, found, wanted) = (ptr.offset, entry.generation, ptr.generation);
            return Err(StoreError::StaleGeneration { offset, found, wanted });
        }
        let count = self.count(ptr.class)?;
        count.used = count.used.saturating_sub(1);
        count.quarantine += 1;
        let entry = AllocEntry { state: RegionState::Quarantine, ..entry };
        self.set(Table::Alloc, &ptr.key(), entry.encode());
        Ok(true)
    }

    /// Quarantine → Free. Only the very region that the pointer means is freed: the answer is
    /// false for any other, so running it twice equals running it once.
    fn free(&mut self, ptr: &BlobPtr) -> Result<bool, StoreError> {
        let wanted = AllocEntry { generation: ptr.generation, state: RegionState::Quarantine };
        if self.region(ptr.class, ptr.offset)? != Some(wanted) {
            return Ok(false);
        }
        let count = self.count(ptr.class)?;
        count.quarantine = count.quarantine.saturating_sub(1);
        count.free += 1;
        let entry = AllocEntry { state: RegionState::Free, ..wanted };
        self.set(Table::Alloc, &ptr.key(), entry.encode());
        self.set(Table::Free, &ptr.key(), free_row(false));
        Ok(true)
    }

    /// Gives about `wanted` bytes of free regions back to the file system, at most
    /// [`MAX_PUNCHES`] regions of them, and returns how many bytes it gave. Their cuts are
    /// durable, so their content is needed by nobody; the mark is committed after the fact,
    /// because a wrong mark may only ever cost a second look.
    fn punch_free(&mut self, arena: &impl Arena, wanted: u64) -> Result<u64, StoreError> {
        let (mut given, mut left) = (0u64, MAX_PUNCHES);
        let classes: Vec<u32> = self.classes().classes().to_vec();
        for class in classes.into_iter().rev() {
            let size = u64::from(class);
            let count = *self.count(class)?;
            let resident = count.free.saturating_sub(count.punched);
            let most = wanted.saturating_sub(given).div_ceil(size).min(resident).min(left);
            if most == 0 {
                continue;
            }
            let offsets = self.resident_free(class, most)?;
            for (start, len) in runs(&offsets, size) {
                if !arena.release(start, len)? {
                    return Ok(given);
                }
                for offset in (start..start + len).step_by(class as usize) {
                    self.set(Table::Free, &region_key(class, offset), free_row(true));
                    self.count(class)?.punched += 1;
                }
                given += len;
                left -= len / size;
            }
        }
        Ok(given)
    }

    /// Free regions of a class whose space was not given back.
    fn resident_free(&self, class: u32, most: u64) -> Result<Vec<u64>, StoreError> {
        let mut found = Vec::new();
        self.scan(Table::Free, &region_key(class, 0), &mut |key, value| {
            let (at, offset) = read_region_key(Table::Free, key)?;
            if at != class || found.len() as u64 >= most {
                return Ok(ControlFlow::Break(()));
            }
            if matches!(unseal(Table::Free, key, value).and_then(is_punched), Ok(false)) {
                found.push(offset);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// The count of a class.
    fn count(&mut self, class: u32) -> Result<&mut ClassCount, StoreError> {
        let at = self.classes().position(class);
        at.and_then(|at| self.books().counts.get_mut(at))
            .ok_or_else(|| StoreError::corrupt("alloc", format!("{class} is not a size class")))
    }
}

/// Joins regions of one size that lie end to end: (start, length) of each run.
fn runs(offsets: &[u64], size: u64) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for offset in offsets {
        match joined.last_mut() {
            Some((start, len)) if *start + *len == *offset => *len += size,
            _ => joined.push((*offset, size)),
        }
    }
    joined
}

/// The mark of a free-list row whose region is resident; `verify` and `repair` speak it too.
pub(crate) fn free_row(punched: bool) -> Vec<u8> {
    vec![if punched { PUNCHED } else { RESIDENT }]
}

/// Whether a free-list row marks its region as given back; an unknown mark is an error.
pub(crate) fn is_punched(body: &[u8]) -> Result<bool, StoreError> {
    match body {
        [RESIDENT] => Ok(false),
        [PUNCHED] => Ok(true),
        _ => Err(StoreError::corrupt("free", "a row has an unknown mark")),
    }
}
