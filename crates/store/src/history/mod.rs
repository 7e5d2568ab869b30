//! The history family on a ground: one [`Store`], its operations a file each.

mod append;
mod control;
mod cut;
#[cfg(feature = "disk")]
pub(crate) mod daemon;
mod explain;
mod export;
mod headroom;
mod lane;
mod lookup;
mod open;
mod pace;
mod parts;
mod place;
mod prune;
mod queue;
mod record;
mod repair;
mod rollback;
pub(crate) mod runs;
mod situation;
mod slices;
mod stages;
mod state;
mod status;
mod store;
mod streams;
mod survey;
mod tick;
mod trace;
mod txn;
mod verify;
mod view;
#[cfg(feature = "disk")]
pub(crate) mod workers;

pub use append::Appended;
pub use control::Consumer;
pub use lane::Ticket;
pub use lookup::{Heights, TransactionView};
pub use open::StoreConfig;
pub use parts::MAX_PARTS;
pub use place::Place;
pub use prune::{MAX_REPORTS, PruneOutcome, Requester};
pub use queue::{MAX_QUEUED, Queued};
pub use record::{BlockRecord, Group, MAX_GROUP};
pub use repair::Repair;
pub use runs::{Blob, RunRecord, TxLocation};
pub use slices::Slices;
pub use state::{FORMAT_VERSION, Finality, Header, Layout, Settings};
pub use store::Store;
pub use verify::VerifyReport;
pub use view::Consecutive;
