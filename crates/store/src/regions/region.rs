//! Regions: the pointer to one, its row in the allocation table, and the journal entry of those
//! that a cut has quarantined.

use secateur_core::{CoreError, Height, Reader, Writer};

use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};

/// Where bytes are in the arena: a region and how much of it is used. 20 bytes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlobPtr {
    /// Where the region begins.
    pub offset: u64,
    /// How many of its bytes are payload.
    pub len: u32,
    /// The region's size.
    pub class: u32,
    /// The region's generation when the bytes were written.
    pub generation: u32,
}

impl BlobPtr {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.offset).u32(self.len).u32(self.class).u32(self.generation);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let ptr = Self {
            offset: from.u64()?,
            len: from.u32()?,
            class: from.u32()?,
            generation: from.u32()?,
        };
        if ptr.offset.checked_add(u64::from(ptr.class)).is_none() {
            return Err(from.error(format!("a region at {}", ptr.offset)));
        }
        if ptr.len > ptr.class {
            return Err(from.error(format!("{} bytes in a region of {}", ptr.len, ptr.class)));
        }
        Ok(ptr)
    }

    /// The region's key in the allocation table and the free list.
    pub(crate) fn key(&self) -> Vec<u8> {
        region_key(self.class, self.offset)
    }
}

/// The key of a region: class, then offset.
pub(crate) fn region_key(class: u32, offset: u64) -> Vec<u8> {
    let mut key = Writer::new();
    key.u32(class).u64(offset);
    key.finish()
}

/// Reads a region's key.
pub(crate) fn read_region_key(table: Table, key: &[u8]) -> Result<(u32, u64), StoreError> {
    let mut reader = Reader::new("region key", key);
    let mut read = || Ok((reader.u32()?, reader.u64()?));
    let region = read().map_err(row_error(table.name()))?;
    reader.finish().map_err(row_error(table.name()))?;
    Ok(region)
}

pub(crate) fn write_ptrs(out: &mut Writer, ptrs: &[BlobPtr]) -> Result<(), StoreError> {
    let count = u16::try_from(ptrs.len())
        .map_err(|_| StoreError::refused("pointers", "more than 65,535 regions in one row"))?;
    out.u16(count);
    for ptr in ptrs {
        ptr.write(out);
    }
    Ok(())
}

pub(crate) fn read_ptrs(from: &mut Reader<'_>) -> Result<Vec<BlobPtr>, CoreError> {
    let count = from.u16()?;
    (0..count).map(|_| BlobPtr::read(from)).collect()
}

/// The state of a region. The numbers are on-disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionState {
    /// Referenced by a block, a stream, a run, a filter or a blob.
    Used = 1,
    /// Cut; not to be reused before the cut is durable and no reader can see it.
    Quarantine = 2,
    /// Free for reuse.
    Free = 3,
}

impl std::fmt::Display for RegionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Used => "used",
            Self::Quarantine => "quarantined",
            Self::Free => "free",
        })
    }
}

/// A row of the allocation table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllocEntry {
    pub generation: u32,
    pub state: RegionState,
}

impl AllocEntry {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u32(self.generation).u8(self.state as u8);
        out.finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("allocation entry", body);
        let generation = from.u32()?;
        let state = match from.u8()? {
            1 => RegionState::Used,
            2 => RegionState::Quarantine,
            3 => RegionState::Free,
            other => return Err(from.error(format!("{other} is not a region's state"))),
        };
        from.finish()?;
        Ok(Self { generation, state })
    }

    /// Reads a row's stored value. Whatever cannot be read is quarantined, never free (I9):
    /// generation 0 matches no pointer, so nothing can free or reuse it but a repair.
    pub(crate) fn from_value(key: &[u8], value: &[u8]) -> (Self, bool) {
        let read = crate::rows::unseal(Table::Alloc, key, value)
            .and_then(|body| Self::decode(body).map_err(row_error("alloc")));
        let unreadable = Self { generation: 0, state: RegionState::Quarantine };
        (read.as_ref().copied().unwrap_or(unreadable), read.is_ok())
    }
}

/// I7, as defence: the region is still the one that a pointer means.
pub(crate) fn check_region(rows: &impl Snapshot, ptr: &BlobPtr) -> Result<(), StoreError> {
    let (key, offset) = (ptr.key(), ptr.offset);
    let Some(value) = rows.get(Table::Alloc, &key)? else {
        return Err(StoreError::corrupt("alloc", format!("region {offset} is missing")));
    };
    match AllocEntry::from_value(&key, &value) {
        // An unreadable row is the allocator's trouble; the payload's checksum still judges.
        (_, false) => Ok(()),
        (entry, _) if entry.generation != ptr.generation => Err(StoreError::StaleGeneration {
            offset,
            found: entry.generation,
            wanted: ptr.generation,
        }),
        (entry, _) if entry.state != RegionState::Used => {
            Err(StoreError::corrupt("alloc", format!("region {offset} is not in use")))
        }
        _ => Ok(()),
    }
}

/// A cut that waits to be freed: the pointers that it quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The newest height that was cut.
    pub height: Height,
    /// What it quarantined.
    pub regions: Vec<BlobPtr>,
}

impl JournalEntry {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut out = Writer::new();
        out.u64(self.height);
        write_ptrs(&mut out, &self.regions)?;
        Ok(out.finish())
    }

    /// Reads a journal row.
    pub fn decode(body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("journal entry", body);
        let entry = Self { height: from.u64()?, regions: read_ptrs(&mut from)? };
        from.finish()?;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptr(offset: u64, len: u32) -> BlobPtr {
        BlobPtr { offset, len, class: 4096, generation: 7 }
    }

    #[test]
    fn a_pointer_is_20_bytes_big_endian() {
        let mut out = Writer::new();
        BlobPtr { offset: 1, len: 2, class: 3, generation: 4 }.write(&mut out);
        assert_eq!(out.finish(), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
    }

    /// I9.
    #[test]
    fn an_unreadable_allocation_state_reads_as_quarantine() {
        let key = region_key(4096, 4096);
        let good = AllocEntry { generation: 3, state: RegionState::Free }.encode();
        let sealed = crate::rows::seal(Table::Alloc, &key, good);
        assert!(AllocEntry::from_value(&key, &sealed).1);
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            let (entry, readable) = AllocEntry::from_value(&key, &bad);
            assert!(!readable && entry.state == RegionState::Quarantine, "byte {at}");
        }
        for state in [0u8, 4, 255] {
            let unknown = crate::rows::seal(Table::Alloc, &key, vec![0, 0, 0, 3, state]);
            assert_eq!(AllocEntry::from_value(&key, &unknown).0.state, RegionState::Quarantine);
        }
    }

    #[test]
    fn a_journal_entry_reads_back() {
        let entry = JournalEntry { height: 3, regions: vec![ptr(0, 0), ptr(4096, 9)] };
        assert_eq!(JournalEntry::decode(&entry.encode().unwrap()).unwrap(), entry);
    }
}
