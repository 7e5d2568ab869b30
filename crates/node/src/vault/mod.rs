//! The node's own way to its archive: its check of acknowledged parts, and lookups of pruned blocks
//! that are answered from the parts.
//!
//! What lives here: one open archive with the bounds under which a node uses it. What deliberately
//! does not: parts and their format (`secateur-archive`), and the table of parts, which is the
//! store's. Everything here blocks; it is called where blocking is allowed.

mod ack;
mod frames;
mod read;

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_archive::{Archive, ArchiveError};

use crate::config::{ArchivePlace, Config};
use crate::service::ApiError;
use frames::Frames;

pub(crate) use read::Archived;

/// An archive, as a node uses it.
#[derive(Debug)]
pub(crate) struct Vault {
    archive: Archive,
    verify_acks: bool,
    read_through: bool,
    /// Lookups that ask the archive at this moment, and how many may.
    reading: AtomicUsize,
    most_reading: usize,
    /// How long one lookup may take.
    patience: Duration,
    frames: Mutex<Frames>,
}

impl Vault {
    /// Opens the archive that the configuration names, if it names one.
    pub(crate) fn open(config: &Config) -> Result<Option<Self>, anyhow::Error> {
        let archive = &config.archive;
        let Some(ArchivePlace { url, settings }) = &archive.place else { return Ok(None) };
        Ok(Some(Self {
            archive: Archive::create(url, settings)?,
            verify_acks: archive.verify_acks,
            read_through: archive.read_through,
            reading: AtomicUsize::new(0),
            most_reading: archive.concurrency,
            patience: config.limits.timeout,
            frames: Mutex::default(),
        }))
    }

    /// Whether lookups of pruned blocks are answered.
    pub(crate) fn reads_through(&self) -> bool {
        self.read_through
    }

    /// Runs a request to the archive to its end, on a thread that may block.
    fn wait<T>(future: impl Future<Output = T>) -> Result<T, ApiError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| ApiError::Internal(error.to_string()))?;
        Ok(runtime.block_on(future))
    }
}

/// What an archive that fails means for whoever asked.
fn failed(error: &ArchiveError) -> ApiError {
    tracing::warn!(%error, "the archive failed");
    ApiError::Archive(error.to_string())
}
