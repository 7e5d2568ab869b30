//! The ground and the history on it.
//!
//! What lives here: the two seams ([`Arena`], [`Index`]) with their disk and memory grounds;
//! [`Store`], the history: append, read, cut, free, roll back, export, recover, verify; and
//! [`Shelf`], the ground that other families put their things on. Everything is synchronous. What deliberately does not live here: async, network, and any opinion about what
//! is inside a block.
//!
//! Without the feature `disk` the crate names no file system, no thread and no clock.

mod class;
mod clock;
mod error;
pub mod ground;
mod history;
mod regions;
mod rows;
mod sabotage;
mod shelf;

pub use class::{ALIGNMENT, ClassTable, MAX_CLASSES};
pub use clock::Clock;
#[cfg(feature = "disk")]
pub use clock::SystemClock;
pub use error::StoreError;
pub use ground::{Arena, Change, Family, Ground, Index, Snapshot, Space, Table};
#[cfg(feature = "disk")]
pub use history::daemon::Daemon;
#[doc(hidden)]
pub use history::runs::formats;
#[cfg(feature = "disk")]
pub use history::workers::Workers;
pub use history::{
    Appended, Blob, BlockRecord, Consecutive, Consumer, FORMAT_VERSION, Finality, Group, Header,
    Heights, Layout, MAX_GROUP, MAX_PARTS, MAX_QUEUED, MAX_REPORTS, Place, PruneOutcome, Queued,
    Repair, Requester, RunRecord, Settings, Slices, Store, StoreConfig, Ticket, TransactionView,
    TxLocation, VerifyReport,
};
pub use regions::finding::{Finding, FindingKind, Findings};
pub use regions::header::ARENA_HEADER_LEN;
pub use regions::region::{BlobPtr, JournalEntry, RegionState};
pub use rows::Rows;
pub use sabotage::Sabotage;
pub use shelf::{
    Claims, SHELF_VERSION, Shelf, ShelfBatch, ShelfConfig, ShelfHeader, ShelfReport, ShelfUsage,
    ShelfView, Slot,
};

/// A store's id made of bytes that no other store is made of, where there is no randomness to be had.
pub fn store_id_of(seed: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(seed).to_be_bytes()
}

/// The CRC-32C of a payload, as a [`BlockRecord`] has it.
pub fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}
