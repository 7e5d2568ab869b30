//! What an archiver counts, for whoever exposes it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one archiver. Reading them is free.
#[derive(Debug, Default)]
pub struct Metrics {
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    failures: AtomicU64,
    staged_bytes: AtomicU64,
    verified_height: AtomicU64,
    read_bytes: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricsSnapshot {
    /// Parts that were uploaded (not those that were there already).
    pub uploads: u64,
    /// Their bytes.
    pub uploaded_bytes: u64,
    /// Requests, or whole steps, that failed and were tried again or given up.
    pub failures: u64,
    /// Bytes in the stage: of parts in the making, and of those that wait.
    pub staged_bytes: u64,
    /// The last height that was read back and listed; `None` before the first.
    pub verified_height: Option<u64>,
    /// Bytes that were read from the storage.
    pub read_bytes: u64,
}

impl Metrics {
    /// The counters now.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MetricsSnapshot {
            uploads: get(&self.uploads),
            uploaded_bytes: get(&self.uploaded_bytes),
            failures: get(&self.failures),
            staged_bytes: get(&self.staged_bytes),
            // Kept one too high, so that zero can mean none.
            verified_height: get(&self.verified_height).checked_sub(1),
            read_bytes: get(&self.read_bytes),
        }
    }

    pub(crate) fn uploaded(&self, bytes: u64) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn staged(&self, bytes: u64) {
        self.staged_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn verified(&self, height: u64) {
        self.verified_height.fetch_max(height.saturating_add(1), Ordering::Relaxed);
    }
}
