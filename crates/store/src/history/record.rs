//! The rows of the history: pointers, block records, allocation entries, journal entries.

use secateur_core::{
    BlockHash, BlockMeta, Candidate, CoreError, Height, MAX_SEGMENT_LEN, Payloads, Reader, Segment,
    Writer,
};

use crate::error::row_error;
use crate::ground::Table;
use crate::rows::Rows;
use crate::{Snapshot, StoreError};

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
    fn write(&self, out: &mut Writer) {
        out.u64(self.offset).u32(self.len).u32(self.class).u32(self.generation);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let ptr = Self {
            offset: from.u64()?,
            len: from.u32()?,
            class: from.u32()?,
            generation: from.u32()?,
        };
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

fn write_ptrs(out: &mut Writer, ptrs: &[BlobPtr]) -> Result<(), StoreError> {
    let count = u16::try_from(ptrs.len())
        .map_err(|_| StoreError::refused("block", "it needs more than 65,535 regions"))?;
    out.u16(count);
    for ptr in ptrs {
        ptr.write(out);
    }
    Ok(())
}

fn read_ptrs(from: &mut Reader<'_>) -> Result<Vec<BlobPtr>, CoreError> {
    let count = from.u16()?;
    (0..count).map(|_| BlobPtr::read(from)).collect()
}

/// What the index knows of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRecord {
    /// What names it.
    pub meta: BlockMeta,
    /// The greatest believable timestamp up to it; searches by time go by this.
    pub max_timestamp: u64,
    /// Its transactions.
    pub tx_count: u32,
    /// The lengths of its payloads.
    pub lens: [u32; 3],
    /// The CRC-32C of each payload.
    pub checksums: [u32; 3],
    /// Where the payloads are, end to end.
    pub extents: Vec<BlobPtr>,
}

impl BlockRecord {
    /// The lengths and checksums of payloads.
    pub(crate) fn measure(payloads: &Payloads) -> ([u32; 3], [u32; 3]) {
        let len = |s| u32::try_from(payloads.segment(s).len()).unwrap_or(u32::MAX);
        let crc = |s| crc32c::crc32c(payloads.segment(s));
        (Segment::ALL.map(len), Segment::ALL.map(crc))
    }

    /// All payload bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.lens.iter().map(|len| u64::from(*len)).sum()
    }

    /// The block as a prune's selection sees it.
    pub(crate) fn candidate(&self) -> Candidate {
        Candidate { height: self.meta.height, tx_count: self.tx_count, bytes: self.region_bytes() }
    }

    /// The bytes of its regions.
    pub fn region_bytes(&self) -> u64 {
        self.extents.iter().map(|ptr| u64::from(ptr.class)).sum()
    }

    /// Where a payload begins among the payloads laid end to end, its length and checksum.
    pub(crate) fn span(&self, segment: Segment) -> (u64, u32, u32) {
        let ([l0, l1, l2], [c0, c1, c2]) = (self.lens, self.checksums);
        match segment {
            Segment::Block => (0, l0, c0),
            Segment::Receipts => (u64::from(l0), l1, c1),
            Segment::TxIndex => (u64::from(l0) + u64::from(l1), l2, c2),
        }
    }

    /// The row's body; the height is its key.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut out = Writer::new();
        out.bytes(&self.meta.hash.0).bytes(&self.meta.parent_hash.0);
        out.u64(self.meta.timestamp).u64(self.max_timestamp).u32(self.tx_count);
        for number in self.lens.iter().chain(&self.checksums) {
            out.u32(*number);
        }
        write_ptrs(&mut out, &self.extents)?;
        Ok(out.finish())
    }

    /// Reads the row of `height`.
    pub fn decode(height: Height, body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("block record", body);
        let (hash, parent_hash) = (BlockHash(from.array()?), BlockHash(from.array()?));
        let (timestamp, max_timestamp) = (from.u64()?, from.u64()?);
        let tx_count = from.u32()?;
        let lens = [from.u32()?, from.u32()?, from.u32()?];
        let checksums = [from.u32()?, from.u32()?, from.u32()?];
        let extents = read_ptrs(&mut from)?;
        let record = Self {
            meta: BlockMeta { height, hash, parent_hash, timestamp },
            max_timestamp,
            tx_count,
            lens,
            checksums,
            extents,
        };
        if let Some(len) = lens.iter().find(|len| **len > MAX_SEGMENT_LEN) {
            return Err(from.error(format!("a payload of {len} bytes is over the limit")));
        }
        let held: u64 = record.extents.iter().map(|ptr| u64::from(ptr.len)).sum();
        if held != record.payload_bytes() {
            return Err(from.error(format!(
                "its regions hold {held} bytes, its payloads have {}",
                record.payload_bytes()
            )));
        }
        from.finish()?;
        Ok(record)
    }

    /// The record of a height that must be there.
    pub(crate) fn load(rows: &impl Snapshot, height: Height) -> Result<Self, StoreError> {
        let key = height.to_be_bytes();
        let body = rows.row(Table::Blocks, &key)?.ok_or_else(|| {
            StoreError::corrupt("blocks", format!("the record of block {height} is missing"))
        })?;
        Self::decode(height, &body).map_err(row_error("blocks"))
    }
}

/// The state of a region. The numbers are on-disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionState {
    /// Referenced by a block.
    Used = 1,
    /// Cut; not to be reused before the cut is durable and no reader can see it.
    Quarantine = 2,
    /// Free for reuse.
    Free = 3,
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

/// A cut that waits to be freed: the pointers that it quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The block that was cut.
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

    fn record() -> BlockRecord {
        BlockRecord {
            meta: BlockMeta {
                height: 9,
                hash: BlockHash([1; 32]),
                parent_hash: BlockHash([2; 32]),
                timestamp: 5,
            },
            max_timestamp: 6,
            tx_count: 3,
            lens: [4096, 3, 0],
            checksums: [1, 2, 3],
            extents: vec![ptr(4096, 4096), ptr(8192, 3)],
        }
    }

    #[test]
    fn a_block_record_reads_back_and_a_shorter_or_longer_one_does_not() {
        let body = record().encode().unwrap();
        assert_eq!(BlockRecord::decode(9, &body).unwrap(), record());
        for cut in 0..body.len() {
            assert!(BlockRecord::decode(9, &body[..cut]).is_err());
        }
        assert!(BlockRecord::decode(9, &[body, vec![0]].concat()).is_err());
    }

    #[test]
    fn a_record_whose_regions_do_not_hold_its_payloads_is_refused() {
        let mut record = record();
        record.lens = [1, 1, 1];
        assert!(BlockRecord::decode(9, &record.encode().unwrap()).is_err());
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
