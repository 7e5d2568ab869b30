//! The history family on a ground: one [`Store`], its operations a file each.

mod alloc;
mod append;
mod control;
mod cut;
#[cfg(feature = "disk")]
pub(crate) mod daemon;
mod explain;
mod export;
mod hashes;
mod lookup;
mod open;
mod pins;
mod prune;
mod queue;
mod record;
mod repair;
mod rollback;
mod situation;
mod state;
mod status;
mod store;
mod txn;
mod verify;
mod view;

pub use append::Appended;
pub use control::Consumer;
pub use hashes::TxLocation;
pub use lookup::TransactionView;
pub use open::StoreConfig;
#[cfg(feature = "disk")]
pub(crate) use open::arena_is_begun;
pub use prune::{MAX_REPORTS, PruneOutcome, Requester};
pub use queue::{MAX_QUEUED, Queued};
pub use record::{BlobPtr, BlockRecord, JournalEntry, RegionState};
pub use repair::Repair;
pub use state::{ARENA_HEADER_LEN, FORMAT_VERSION, Finality, Header, Layout, Settings};
pub use store::Store;
pub use verify::{Finding, FindingKind, VerifyReport};
