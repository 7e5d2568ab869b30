//! What a reader holds: a pin, a snapshot, and the reading of slots.

use super::open::Shelf;
use super::state::Slot;
use crate::ground::{Arena, Index, KeyValue, Snapshot, Table, Visit};
use crate::regions::pins::Pin;
use crate::regions::region::check_region;
use crate::{Sabotage, StoreError};

/// A consistent look at a shelf. The pin comes before the snapshot, so whatever the snapshot shows
/// cannot be overwritten while the view lives. Rows are read through [`Rows`](crate::Rows).
pub struct ShelfView<'a, A, S> {
    _pin: Pin<'a>,
    arena: &'a A,
    snapshot: S,
    sabotage: Sabotage,
}

impl<A: Arena, I: Index> Shelf<A, I> {
    /// A look at what is committed.
    pub fn view(&self) -> Result<ShelfView<'_, A, I::Snapshot>, StoreError> {
        let pin = self.pins.pin();
        let snapshot = self.index.snapshot()?;
        Ok(ShelfView { _pin: pin, arena: &self.arena, snapshot, sabotage: self.sabotage })
    }
}

impl<A: Arena, S: Snapshot> ShelfView<'_, A, S> {
    /// The bytes of a slot, as they were written, or an error.
    pub fn read(&self, slot: &Slot) -> Result<Vec<u8>, StoreError> {
        check_region(&self.snapshot, &slot.region)?;
        let mut bytes = vec![0u8; slot.region.len as usize];
        self.arena.read_at(slot.region.offset, &mut bytes)?;
        let whole = crc32c::crc32c(&bytes) == slot.checksum;
        if !whole && !self.sabotage.is(Sabotage::IgnoreChecksum) {
            let detail = format!("the bytes at {} do not match their checksum", slot.region.offset);
            return Err(StoreError::corrupt("arena", detail));
        }
        Ok(bytes)
    }
}

impl<A, S> std::fmt::Debug for ShelfView<'_, A, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShelfView")
    }
}

impl<A, S: Snapshot> Snapshot for ShelfView<'_, A, S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.snapshot.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.snapshot.scan(table, from, visit)
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        self.snapshot.before(table, bound)
    }
}
