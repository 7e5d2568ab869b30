//! Block records: what the index knows of blocks. Blocks that were appended together share rows
//! of up to [`MAX_GROUP`] records, so that a group costs few rows and cutting it costs fewer.

use std::ops::ControlFlow;

use secateur_core::{
    BlockHash, BlockMeta, CoreError, Height, MAX_SEGMENT_LEN, Payloads, Reader, Segment, Writer,
};

use super::place::{Place, read_position};
use crate::error::row_error;
use crate::ground::Table;
use crate::regions::region::{read_ptrs, write_ptrs};
use crate::rows::{u64_key, unseal};
use crate::{Snapshot, StoreError};

/// Records that one row holds at most: together they fill a page of the index.
pub const MAX_GROUP: usize = 32;

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
    pub place: Place,
}

impl BlockRecord {
    /// The lengths and checksums of payloads.
    pub(crate) fn measure(payloads: &Payloads) -> ([u32; 3], [u32; 3]) {
        let len = |s| u32::try_from(payloads.segment(s).len()).unwrap_or(u32::MAX);
        let crc = |s| crc32c::crc32c(payloads.segment(s));
        (Segment::ALL.map(len), Segment::ALL.map(crc))
    }

    /// The length and checksum of a payload.
    pub fn measured(&self, segment: Segment) -> (u32, u32) {
        let (_, len, checksum) = self.span(segment);
        (len, checksum)
    }

    /// All payload bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.lens.iter().map(|len| u64::from(*len)).sum()
    }

    /// What the block takes of the budget: its own regions, or its share of a stream.
    pub fn region_bytes(&self) -> u64 {
        match &self.place {
            Place::Regions(ptrs) => ptrs.iter().map(|ptr| u64::from(ptr.class)).sum(),
            Place::Stream(_) => self.payload_bytes(),
        }
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

    /// The record of a height that must be there.
    pub(crate) fn load(rows: &impl Snapshot, height: Height) -> Result<Self, StoreError> {
        let mut records = Self::load_from(rows, height)?;
        Ok(records.swap_remove(0))
    }

    /// The record of a block that must be there, and those after it in the same row.
    pub(crate) fn load_from(rows: &impl Snapshot, height: Height) -> Result<Vec<Self>, StoreError> {
        let missing =
            || StoreError::corrupt("blocks", format!("the record of block {height} is missing"));
        let mut records = Group::around(rows, height)?.ok_or_else(missing)?.records;
        let at = records.iter().position(|r| r.meta.height == height).ok_or_else(missing)?;
        records.drain(..at);
        Ok(records)
    }
}

/// Records of consecutive blocks in one row; its key is the first height.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The records, lowest first; never empty.
    pub records: Vec<BlockRecord>,
}

impl Group {
    /// The row's body. In the packed layout the blocks lie end to end, so one position says where
    /// all of them are.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let first = self.records.first();
        let first = first.ok_or_else(|| StoreError::refused("group", "it has no block"))?;
        let mut out = Writer::new();
        out.u16(u16::try_from(self.records.len()).unwrap_or(u16::MAX));
        out.bytes(&first.meta.parent_hash.0);
        match &first.place {
            Place::Regions(_) => out.u8(0),
            Place::Stream(position) => out.u8(1).u64(*position),
        };
        for record in &self.records {
            out.bytes(&record.meta.hash.0);
            out.u64(record.meta.timestamp).u64(record.max_timestamp).u32(record.tx_count);
            for number in record.lens.iter().chain(&record.checksums) {
                out.u32(*number);
            }
            if let Place::Regions(ptrs) = &record.place {
                write_ptrs(&mut out, ptrs)?;
            }
        }
        Ok(out.finish())
    }

    /// Reads the row that begins with the block `first`.
    pub fn decode(first: Height, body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("block records", body);
        let count = from.u16()?;
        if count == 0 || usize::from(count) > MAX_GROUP {
            return Err(from.error(format!("{count} records in one row")));
        }
        if first > Height::MAX - u64::from(count) {
            return Err(from.error("heights beyond the last".into()));
        }
        let mut parent_hash = BlockHash(from.array()?);
        let mut position = match from.u8()? {
            0 => None,
            1 => Some(read_position(&mut from)?),
            other => return Err(from.error(format!("{other} is not a kind of place"))),
        };
        let mut records = Vec::with_capacity(usize::from(count));
        for height in first..first + u64::from(count) {
            let hash = BlockHash(from.array()?);
            let (timestamp, max_timestamp, tx_count) = (from.u64()?, from.u64()?, from.u32()?);
            let lens = [from.u32()?, from.u32()?, from.u32()?];
            let checksums = [from.u32()?, from.u32()?, from.u32()?];
            let place = match position {
                Some(position) => Place::Stream(position),
                None => Place::Regions(read_ptrs(&mut from)?),
            };
            let meta = BlockMeta { height, hash, parent_hash, timestamp };
            let record = BlockRecord { meta, max_timestamp, tx_count, lens, checksums, place };
            check(&record, &from)?;
            position = position.map(|position| position + record.payload_bytes());
            parent_hash = hash;
            records.push(record);
        }
        from.finish()?;
        Ok(Self { records })
    }

    fn read(key: &[u8], value: &[u8]) -> Result<Self, StoreError> {
        let first = u64_key(Table::Blocks, key)?;
        let body = unseal(Table::Blocks, key, value)?;
        Self::decode(first, body).map_err(row_error("blocks"))
    }

    /// The row that a height would be in: the last that begins at or below it.
    pub(crate) fn around(rows: &impl Snapshot, height: Height) -> Result<Option<Self>, StoreError> {
        let above = height.saturating_add(1).to_be_bytes();
        let row = rows.before(Table::Blocks, &above)?;
        row.map(|(key, value)| Self::read(&key, &value)).transpose()
    }

    /// The first height of the row.
    pub(crate) fn first(&self) -> Option<Height> {
        self.records.first().map(|record| record.meta.height)
    }

    /// The last height of the row.
    pub(crate) fn last(&self) -> Option<Height> {
        self.records.last().map(|record| record.meta.height)
    }
}

fn check(record: &BlockRecord, from: &Reader<'_>) -> Result<(), CoreError> {
    if let Some(len) = record.lens.iter().find(|len| **len > MAX_SEGMENT_LEN) {
        return Err(from.error(format!("a payload of {len} bytes is over the limit")));
    }
    if !record.place.holds(record.payload_bytes()) {
        return Err(from.error(format!(
            "the regions do not hold the {} bytes of its payloads",
            record.payload_bytes()
        )));
    }
    Ok(())
}

/// A walk over kept blocks, upward, that reads each row once.
#[derive(Debug)]
pub(crate) struct Walk {
    next: Height,
    last: Height,
    /// The first height of the row that the walk is in.
    row: Height,
    group: std::vec::IntoIter<BlockRecord>,
}

impl Walk {
    /// From `first` up to `last`, both included.
    pub(crate) fn new(first: Height, last: Height) -> Self {
        Self { next: first, last, row: first, group: Vec::new().into_iter() }
    }

    /// The first height of the row that the last record came from, if that was the end of it.
    pub(crate) fn row_ended(&self) -> Option<Height> {
        self.group.as_slice().is_empty().then_some(self.row)
    }

    /// The next record; every height in the range must be there.
    pub(crate) fn next(&mut self, rows: &impl Snapshot) -> Result<Option<BlockRecord>, StoreError> {
        if self.next > self.last {
            return Ok(None);
        }
        let height = self.next;
        let found = loop {
            match self.group.next() {
                Some(record) if record.meta.height < height => {}
                Some(record) => break Some(record),
                None => {
                    let group = Group::around(rows, height)?;
                    let Some(group) = group.filter(|group| group.last() >= Some(height)) else {
                        break None;
                    };
                    self.row = group.first().unwrap_or(height);
                    self.group = group.records.into_iter();
                }
            }
        };
        let found = found.filter(|record| record.meta.height == height).ok_or_else(|| {
            StoreError::corrupt("blocks", format!("the record of block {height} is missing"))
        })?;
        self.next += 1;
        Ok(Some(found))
    }
}

/// Visits the rows of the table of blocks: each row's key, and the records or what is wrong.
pub(crate) fn visit_groups(
    rows: &impl Snapshot,
    mut visit: impl FnMut(&[u8], Result<Group, StoreError>),
) -> Result<(), StoreError> {
    rows.scan(Table::Blocks, &[], &mut |key, value| {
        visit(key, Group::read(key, value));
        Ok(ControlFlow::Continue(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::region::BlobPtr;

    fn ptr(offset: u64, len: u32) -> BlobPtr {
        BlobPtr { offset, len, class: 4096, generation: 7 }
    }

    fn record(height: Height, place: Place) -> BlockRecord {
        let hash = |height: u64| BlockHash([u8::try_from(height).unwrap(); 32]);
        BlockRecord {
            meta: BlockMeta {
                height,
                hash: hash(height),
                parent_hash: hash(height - 1),
                timestamp: 5,
            },
            max_timestamp: 6,
            tx_count: 3,
            lens: [4096, 3, 0],
            checksums: [1, 2, 3],
            place,
        }
    }

    fn groups() -> [Group; 2] {
        let own = |height| record(height, Place::Regions(vec![ptr(4096, 4096), ptr(8192, 3)]));
        let packed = |height: u64| record(height, Place::Stream(100 + 4099 * (height - 9)));
        [own as fn(u64) -> BlockRecord, packed]
            .map(|make| Group { records: (9..12).map(make).collect() })
    }

    #[test]
    fn a_row_of_records_reads_back_and_a_shorter_or_longer_one_does_not() {
        for group in groups() {
            let body = group.encode().unwrap();
            assert_eq!(Group::decode(9, &body).unwrap(), group);
            for cut in 0..body.len() {
                assert!(Group::decode(9, &body[..cut]).is_err());
            }
            assert!(Group::decode(9, &[body, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn a_record_whose_regions_do_not_hold_its_payloads_is_refused() {
        let [mut group, _] = groups();
        group.records[1].lens = [1, 1, 1];
        assert!(Group::decode(9, &group.encode().unwrap()).is_err());
    }

    #[test]
    fn rows_of_no_or_too_many_records_are_refused() {
        let [_, group] = groups();
        let mut body = group.encode().unwrap();
        for count in [0u8, 33, 255] {
            body[1] = count;
            assert!(Group::decode(9, &body).is_err(), "{count}");
        }
    }
}
