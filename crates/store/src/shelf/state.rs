//! A shelf's header and state, one row each, and the slot: how a row refers to bytes.

use secateur_core::{CoreError, Reader, Writer};

use crate::StoreError;
use crate::class::ClassTable;
use crate::error::row_error;
use crate::ground::{Family, Snapshot, Table};
use crate::regions::alloc::ClassCount;
use crate::regions::header::{ARENA_HEADER_LEN, arena_header};
use crate::regions::region::BlobPtr;
use crate::rows::Rows;

/// The newest format version that this code reads and writes.
pub const SHELF_VERSION: u32 = 1;

const HEADER_MAGIC: [u8; 8] = *b"SECSHELF";
pub(super) const HEADER_KEY: &[u8] = b"header";
pub(super) const STATE_KEY: &[u8] = b"state";
/// No count that a shelf keeps ever comes near this.
const MAX_COUNT: u64 = 1 << 62;

/// What never changes after creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfHeader {
    /// Whose shelf it is.
    pub family: Family,
    /// Tells two shelves apart; the arena carries it too.
    pub store_id: [u8; 16],
    /// The chain.
    pub chain_id: u64,
    /// The one size of its regions, as a table of classes.
    pub classes: ClassTable,
}

impl ShelfHeader {
    /// The size of a region.
    pub fn region_len(&self) -> u32 {
        self.classes.largest()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&HEADER_MAGIC).u32(SHELF_VERSION).u8(family_number(self.family));
        out.bytes(&self.store_id).u64(self.chain_id).u32(self.region_len());
        out.finish()
    }

    /// Reads the header row; another family's and a newer format's are errors of their own.
    pub(super) fn decode(family: Family, body: &[u8]) -> Result<Self, StoreError> {
        let mut from = Reader::new("shelf header", body);
        let bad = row_error("header");
        if from.array::<8>().map_err(&bad)? != HEADER_MAGIC {
            return Err(StoreError::Foreign("the index is not that of a shelf".into()));
        }
        let found = from.u32().map_err(&bad)?;
        if found > SHELF_VERSION {
            return Err(StoreError::NewerFormat { found, known: SHELF_VERSION });
        }
        if found != SHELF_VERSION {
            let detail = format!("format version {found} was never released");
            return Err(StoreError::corrupt("header", detail));
        }
        if from.u8().map_err(&bad)? != family_number(family) {
            return Err(StoreError::Foreign("the shelf is another family's".into()));
        }
        let mut read = || Ok((from.array()?, from.u64()?, from.u32()?));
        let (store_id, chain_id, region_len) = read().map_err(&bad)?;
        from.finish().map_err(&bad)?;
        let classes = ClassTable::explicit(vec![region_len])
            .map_err(|error| StoreError::corrupt("header", error.to_string()))?;
        Ok(Self { family, store_id, chain_id, classes })
    }

    pub(super) fn arena_header(&self) -> Vec<u8> {
        arena_header(self.family, SHELF_VERSION, &self.store_id)
    }
}

/// The family's number on disk.
const fn family_number(family: Family) -> u8 {
    match family {
        Family::History => 0,
        Family::Sidecar => 1,
    }
}

/// Everything about regions that changes and fits in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub arena_end: u64,
    pub journal_next: u64,
    /// Of the one class.
    pub count: [ClassCount; 1],
}

impl State {
    pub(super) fn empty() -> Self {
        let count = [ClassCount::default()];
        Self { arena_end: ARENA_HEADER_LEN, journal_next: 0, count }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let [count] = self.count;
        let mut out = Writer::new();
        out.u64(self.arena_end).u64(self.journal_next);
        out.u64(count.used).u64(count.quarantine).u64(count.free).u64(count.punched);
        out.finish()
    }

    fn decode(body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("shelf state", body);
        let (arena_end, journal_next) = (from.u64()?, from.u64()?);
        let (used, quarantine) = (from.u64()?, from.u64()?);
        let count = ClassCount { used, quarantine, free: from.u64()?, punched: from.u64()? };
        let counts = [journal_next, used, quarantine, count.free, count.punched];
        if arena_end < ARENA_HEADER_LEN || counts.iter().any(|count| *count >= MAX_COUNT) {
            return Err(from.error("no operation leads to it".into()));
        }
        from.finish()?;
        Ok(Self { arena_end, journal_next, count: [count] })
    }

    pub(super) fn load(rows: &impl Snapshot) -> Result<Self, StoreError> {
        let body = rows
            .row(Table::Meta, STATE_KEY)?
            .ok_or_else(|| StoreError::corrupt("meta", "the state row is missing"))?;
        Self::decode(&body).map_err(row_error("state"))
    }
}

/// Where bytes are, and what they must be. 24 bytes in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The region.
    pub region: BlobPtr,
    /// The CRC-32C of the bytes.
    pub checksum: u32,
}

impl Slot {
    /// Writes it into a row's body.
    pub fn write(&self, out: &mut Writer) {
        self.region.write(out);
        out.u32(self.checksum);
    }

    /// Reads it from a row's body.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        Ok(Self { region: BlobPtr::read(from)?, checksum: from.u32()? })
    }
}
