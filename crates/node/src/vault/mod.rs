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
use tokio::time::Instant;

use crate::config::{ArchivePlace, Config};
use crate::service::ApiError;
use frames::Frames;

pub(crate) use read::Archived;

/// The same trouble is logged again after so long.
const TELL_EVERY: Duration = Duration::from_mins(1);

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
    /// When its silence was logged last, and when another failure was.
    silence_told: Seldom,
    failure_told: Seldom,
}

/// Something that is logged at most once a minute, however many requests meet it.
#[derive(Debug, Default)]
struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it is to be logged now.
    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= TELL_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
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
            silence_told: Seldom::default(),
            failure_told: Seldom::default(),
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

    /// What an archive that fails means for whoever asked.
    fn failed(&self, error: &ArchiveError) -> ApiError {
        if self.failure_told.is_due(Instant::now()) {
            tracing::warn!(%error, "the archive failed");
        } else {
            tracing::debug!(%error, "the archive failed");
        }
        ApiError::Archive(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of 1,000 lookups in an archive that hangs was 1,000 lines.
    #[test]
    fn trouble_with_the_archive_is_logged_once_a_minute() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        let due: Vec<u64> = (0..=120)
            .filter(|seconds| seldom.is_due(start + Duration::from_secs(*seconds)))
            .collect();
        assert_eq!(due, [0, 60, 120]);
    }
}
