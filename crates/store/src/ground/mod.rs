//! The ground: where bytes live. An *arena* of regions and an ordered *index*, each a small
//! fallible seam with a barrier.
//!
//! The families know only these traits. `memory` keeps everything in memory (models, tests and
//! the base of the canister's ground); `disk` is files and redb; `stable` is the stable memory of a
//! canister.

mod memory;

#[cfg(feature = "disk")]
pub mod disk;
#[cfg(feature = "stable")]
pub mod stable;

pub use memory::{MemoryArena, MemoryIndex, MemorySnapshot};

use std::ops::ControlFlow;

use crate::StoreError;

/// What the medium has given and can still give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that the medium has really given the arena.
    pub given: u64,
    /// Bytes that it can still give; none when there is no way to know.
    pub available: Option<u64>,
    /// All that it has, for whatever; none when there is no way to know.
    pub total: Option<u64>,
}

/// Bytes at offsets. Nothing written is durable before [`Arena::sync`] returns.
pub trait Arena: Send + Sync + 'static {
    /// The arena's length.
    fn len(&self) -> Result<u64, StoreError>;
    /// Whether the arena has no bytes at all.
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }
    /// Fills `out` from `offset`; reading past the end is an error.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;
    /// Writes all of `bytes` at `offset`, inside the arena's length.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;
    /// Makes the arena at least `len` bytes long.
    fn grow(&self, len: u64) -> Result<(), StoreError>;
    /// The barrier: everything written before is durable when this returns.
    fn sync(&self) -> Result<(), StoreError>;
    /// Says that a range's content is no longer needed; the medium may take its space back.
    /// Returns whether it did.
    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError>;
    /// What the medium has given and can still give.
    fn space(&self) -> Result<Space, StoreError>;
}

/// The index's tables. The numbers are on-disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Header, state, policy, settings: one row each.
    Meta = 0,
    /// First height → the records of consecutive blocks that were appended together.
    Blocks = 1,
    /// (class, offset) → generation and state.
    Alloc = 2,
    /// (class, offset) of free regions.
    Free = 3,
    /// Sequence number → pointers of a cut that waits to be freed.
    Journal = 4,
    /// Name → export consumer.
    Consumers = 5,
    /// Transaction id → queued transaction.
    Queue = 6,
    /// Sequence number → report.
    Reports = 7,
    /// (stream, number) → the region behind that stretch of a packed stream.
    Streams = 8,
    /// Number → a sealed run of ids, or what is left of it.
    Runs = 9,
    /// First height → an archive part.
    Parts = 10,
    /// Height → what was decided there.
    Heights = 11,
    /// (height, index) → what is known of a blob for ever.
    Blobs = 12,
    /// (height, index) → where a blob's bytes are, while they are here.
    Bytes = 13,
    /// (height, round) → a proposal that is not decided.
    Rounds = 14,
    /// (height, index) → who signed for which copies of a blob.
    Archive = 15,
    /// Height → a height with blobs that nobody has signed for.
    Waiting = 16,
    /// Height → a height whose blobs are all archived and still here.
    Ready = 17,
    /// Height → when its blobs' bytes went.
    Pruned = 18,
    /// (versioned hash, height, index) of a decided blob.
    Hashes = 19,
    /// (height, index) → a job of the archiver.
    Jobs = 20,
    /// (due time, height, index) of such a job.
    Due = 21,
    /// (height, index) → an own notice that is not acknowledged.
    Announcements = 22,
    /// The markers and counters of the sidecars: one row.
    Marks = 23,
    /// (next height, height, index) of an own notice that is to be told then.
    Telling = 24,
    /// (height, index) of a blob that is here and has only notices that bind no chain.
    Unbound = 25,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 26] = [
        Self::Meta,
        Self::Blocks,
        Self::Alloc,
        Self::Free,
        Self::Journal,
        Self::Consumers,
        Self::Queue,
        Self::Reports,
        Self::Streams,
        Self::Runs,
        Self::Parts,
        Self::Heights,
        Self::Blobs,
        Self::Bytes,
        Self::Rounds,
        Self::Archive,
        Self::Waiting,
        Self::Ready,
        Self::Pruned,
        Self::Hashes,
        Self::Jobs,
        Self::Due,
        Self::Announcements,
        Self::Marks,
        Self::Telling,
        Self::Unbound,
    ];

    /// The table's name in the index and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Blocks => "blocks",
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Journal => "journal",
            Self::Consumers => "consumers",
            Self::Queue => "queue",
            Self::Reports => "reports",
            Self::Streams => "streams",
            Self::Runs => "runs",
            Self::Parts => "parts",
            Self::Heights => "heights",
            Self::Blobs => "blobs",
            Self::Bytes => "bytes",
            Self::Rounds => "rounds",
            Self::Archive => "archive",
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Pruned => "pruned",
            Self::Hashes => "hashes",
            Self::Jobs => "jobs",
            Self::Due => "due",
            Self::Announcements => "announcements",
            Self::Marks => "marks",
            Self::Telling => "telling",
            Self::Unbound => "unbound",
        }
    }
}

/// Whose data a ground holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Blocks, receipts, transaction index.
    History,
    /// Blob sidecars.
    Sidecar,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::History => "a chain's history",
            Self::Sidecar => "blob sidecars",
        })
    }
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 2] = [Self::History, Self::Sidecar];

    /// The tables that its index has.
    pub const fn tables(self) -> &'static [Table] {
        match self {
            Self::History => &[
                Table::Meta,
                Table::Blocks,
                Table::Alloc,
                Table::Free,
                Table::Journal,
                Table::Consumers,
                Table::Queue,
                Table::Reports,
                Table::Streams,
                Table::Runs,
                Table::Parts,
            ],
            Self::Sidecar => &[
                Table::Meta,
                Table::Alloc,
                Table::Free,
                Table::Journal,
                Table::Heights,
                Table::Blobs,
                Table::Bytes,
                Table::Rounds,
                Table::Archive,
                Table::Waiting,
                Table::Ready,
                Table::Pruned,
                Table::Hashes,
                Table::Jobs,
                Table::Due,
                Table::Announcements,
                Table::Marks,
                Table::Telling,
                Table::Unbound,
            ],
        }
    }

    /// The first bytes of its arena.
    pub(crate) const fn arena_word(self) -> &'static [u8; 8] {
        match self {
            Self::History => b"SECARENA",
            Self::Sidecar => b"SECBLOBS",
        }
    }

    /// Whether its index grows as long as the chain does. Opening such an index must not read all
    /// of it, not even after a crash.
    pub const fn grows_for_ever(self) -> bool {
        match self {
            Self::History => false,
            Self::Sidecar => true,
        }
    }
}

/// One change: set a row, or (without a value) delete it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: Table,
    /// The row's key.
    pub key: Vec<u8>,
    /// Its new value; none deletes the row.
    pub value: Option<Vec<u8>>,
}

/// Called for each row of a scan in key order; `Break` ends it.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// A row: its key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// An unchanging view of the index.
pub trait Snapshot {
    /// The value of one row.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Visits the rows whose key is `from` or greater, in key order.
    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError>;
    /// The last row whose key is smaller than `bound`.
    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError>;
}

impl<S: Snapshot + ?Sized> Snapshot for &S {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        (**self).scan(table, from, visit)
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        (**self).before(table, bound)
    }
}

/// Ordered tables of small rows with atomic batches.
pub trait Index: Send + Sync + 'static {
    /// What a reader sees.
    type Snapshot: Snapshot;
    /// The view after the last commit.
    fn snapshot(&self) -> Result<Self::Snapshot, StoreError>;
    /// Applies all changes or none, and is durable when it returns.
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError>;
    /// What the index takes on its medium.
    fn bytes(&self) -> Result<u64, StoreError>;
    /// Puts the space reserve back if it was used; returns whether it stands.
    fn ensure_reserve(&self) -> Result<bool, StoreError>;
    /// The medium's own check of the index's structure: what is wrong, in words. It changes
    /// nothing.
    fn check(&self) -> Result<Vec<String>, StoreError>;
}

/// One arena and one index: a family's place to live.
#[derive(Debug)]
pub struct Ground<A, I> {
    /// Where payload bytes live.
    pub arena: A,
    /// Where small rows live.
    pub index: I,
}
