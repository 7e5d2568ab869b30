//! The running node: one store, everything that serves it, and their common end.
//!
//! What lives here: what the interfaces share ([`Node`]), how they are started and stopped
//! together ([`Service`]), and the one error that each of them translates ([`ApiError`]). What
//! deliberately does not: any interface's own words; those are in `grpc`, `http` and `rpc`.

mod beyond;
mod error;
mod node_file;
mod pressure;
mod reading;
mod room;
mod source_now;
mod start;

use std::path::PathBuf;
use std::sync::Arc;

use secateur_sidecar::SidecarError;
use secateur_store::ground::disk::DiskStore;
use tokio::sync::watch;

pub(crate) use beyond::{Sought, locator};
pub(crate) use error::ApiError;
pub(crate) use node_file::NodeFile;
pub(crate) use pressure::{LastPressing, Pressing};
pub(crate) use reading::{Due, Reading, due, until};
pub(crate) use room::{Room, Rooms};
pub(crate) use source_now::SourceNow;
pub(crate) use start::{AnyPort, Observer, Options, Service, listen};

use crate::blobs::{Blobs, DiskSidecars};
use crate::config::{Chain, Limits};
use crate::follow::Standing;
use crate::http::metrics::Metrics;
use crate::rpc::Cache;
use crate::vault::Vault;

/// What every interface of a running node shares.
#[derive(Debug)]
pub(crate) struct Node {
    /// The history.
    pub(crate) store: Arc<DiskStore>,
    /// The data directory.
    pub(crate) path: PathBuf,
    /// What is known of the chain beyond its blocks.
    pub(crate) chain: Chain,
    /// The named limits.
    pub(crate) limits: Limits,
    /// Where the follower stands; it stays as it began where nothing is followed.
    pub(crate) standing: watch::Receiver<Standing>,
    /// The same of the follower of blobs.
    pub(crate) beacon: watch::Receiver<Standing>,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// What JSON-RPC remembers between calls.
    pub(crate) rpc: Cache,
    /// The archive, where one is configured.
    pub(crate) vault: Option<Vault>,
    /// Blob sidecars, where they are kept.
    pub(crate) blobs: Option<Arc<Blobs>>,
    /// The bounded way to the store.
    pub(crate) reading: Reading,
    /// The memory of answers that are under way.
    pub(crate) rooms: Rooms,
    /// How the budget stands.
    pub(crate) pressing: LastPressing,
    /// Whether pushed blocks are refused while it is in an emergency.
    pub(crate) backpressure: bool,
    /// Turns true when the node is to stop: whoever waits for long must look at it.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Node {
    /// The chain's number.
    pub(crate) fn chain_id(&self) -> u64 {
        self.store.header().chain_id
    }

    /// Asks the store, outside the threads that serve sockets. At most `limits.concurrency` ask at
    /// once, `limits.waiting` wait, and nobody longer than `limits.timeout`.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&DiskStore) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(&self.store);
        self.reading.run(move || question(&store)).await
    }

    /// The blobs, or that there are none.
    pub(crate) fn blobs(&self) -> Result<&Arc<Blobs>, ApiError> {
        self.blobs.as_ref().ok_or(ApiError::NoBlobs)
    }

    /// Asks the store of blobs, in the same way.
    pub(crate) async fn ask_blobs<T: Send + 'static>(
        &self,
        question: impl FnOnce(&DiskSidecars) -> Result<T, SidecarError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(self.blobs()?.store());
        self.reading.run(move || Ok(question(&store)?)).await
    }

    /// The same, for questions that may go beyond the store.
    pub(crate) async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let node = Arc::clone(self);
        self.reading.run(move || question(&node)).await
    }
}
