//! UTXO records, and the pruner that removes the spent ones.
//!
//! What lives here: the words of the family ([`Record`], [`NewTx`]), the delete-at-height rule
//! ([`Rules`]), the seam to a database ([`UtxoStore`]) with its backends, external files, the events
//! that set a prune off, and the two-phase [`Pruner`]. What deliberately does not: the gRPC server and
//! the commands, which are the node's; and consensus, which is the chain's: nobody here checks a script.
//!
//! A record goes only when it is past its delete-at-height, not preserved, and spent by no live
//! unmined transaction; that is looked at in the step that deletes it.

#[cfg(feature = "aerospike")]
mod aerospike;
mod codec;
mod error;
mod events;
mod files;
mod metrics;
mod postgres;
mod pruner;
mod row;
mod rule;
mod service;
mod slate;
mod sqlite;
mod store;
pub mod teranode;
mod types;

// What every backend promises, for the one whose order of writes is tried in memory.
#[cfg(all(test, feature = "aerospike"))]
extern crate self as secateur_utxo;
#[cfg(all(test, feature = "aerospike"))]
#[path = "../tests/conformance/mod.rs"]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod conformance;
#[cfg(all(test, feature = "aerospike"))]
#[path = "../tests/histories/mod.rs"]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod histories;

#[cfg(feature = "aerospike")]
pub use aerospike::AerospikeStore;
pub use error::UtxoError;
pub use events::{Event, Heard, StalePersister, TriggerMode, Watch};
pub use files::{ExternalFiles, Removed};
pub use metrics::Metrics;
pub use postgres::PostgresStore;
pub use pruner::{
    Assembly, AssemblyState, Done, Job, Outcome, Phase, Plan, Progress, Pruner, SafeMode, Settings,
    Skip, Trigger,
};
pub use rule::{Facts, Rules};
pub use service::{Following, Service, Standing, Status, Subscribed};
pub use sqlite::SqliteStore;
pub use store::{
    Counts, Created, Doomed, Fate, Kept, Page, Preserved, Room, RoomLook, Sweep, Unmined, UtxoStore,
};
pub use types::{
    BlockId, BlockRef, Body, FileKind, MAX_BODY, MAX_CREATED_INPUTS, MAX_CREATED_OUTPUTS,
    MAX_PLACES, NewTx, OutPoint, Record, Slot, TxId, check_places,
};
