//! Where is this hash? Transaction ids and block hashes → height, in a room of their own.
//!
//! The newest blocks' ids are gathered in memory, in the *open epoch*. A full epoch whose blocks
//! are final is *sealed*: its ids are sorted and written to the arena as a *run*, with a filter
//! that says of nearly every other id that it is not there. When the last block of a run is cut
//! the run goes and its filter stays as a *tombstone*, so that a pruned id answers `Pruned`.
//!
//! A filter only ever shapes an answer; nothing is written or cut because of one.

mod epoch;
pub(crate) mod filter;
pub(crate) mod format;
pub mod formats;
mod merge;
mod record;
mod room;
mod seal;

pub(crate) use epoch::{BlockIds, SealLimits, Segment};
pub use record::{Blob, RunRecord};
pub(crate) use record::{load_runs, searched_from, tombstone_cap};
pub(crate) use room::{HashRoom, LiveRun};
pub(crate) use seal::{OpenIds, SealedAlong, sealed_to};

use secateur_core::Height;

/// Where a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxLocation {
    /// Its block.
    pub height: Height,
    /// Its place in the block.
    pub index: u32,
}
