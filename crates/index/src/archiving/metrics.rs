//! What archiving counts (`secateur_archive_…`).

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use secateur_archive::MetricsSnapshot;
use secateur_core::Height;

/// The counters of an archiving task.
#[derive(Debug)]
pub struct ArchiveMetrics {
    verified: Gauge,
    lag: Gauge,
    staged: Gauge,
    uploads: Counter,
    uploaded_bytes: Counter,
    failures: Counter,
    parts: Counter,
    stalled: Gauge,
    gaps: Gauge,
    /// What the archiver said last: it counts from zero each time it is opened.
    before: Mutex<MetricsSnapshot>,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl ArchiveMetrics {
    /// Makes them, under their names in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            verified: Gauge::default(),
            lag: Gauge::default(),
            staged: Gauge::default(),
            uploads: Counter::default(),
            uploaded_bytes: Counter::default(),
            failures: Counter::default(),
            parts: Counter::default(),
            stalled: Gauge::default(),
            gaps: Gauge::default(),
            before: Mutex::default(),
        };
        let gauges = [
            (
                "last_verified_height",
                "The last block that was read back and listed",
                &metrics.verified,
            ),
            ("lag_blocks", "Exportable blocks above the last listed part", &metrics.lag),
            ("gap_blocks", "Blocks below it that are in no listed part", &metrics.gaps),
            ("staged_bytes", "Bytes of parts that are not settled", &metrics.staged),
            (
                "stalled",
                "1 while archiving has failed for longer than the alarm allows",
                &metrics.stalled,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("secateur_archive_{name}"), help, gauge.clone());
        }
        let counters = [
            ("uploads", "Parts that were uploaded", &metrics.uploads),
            ("uploaded_bytes", "Their bytes", &metrics.uploaded_bytes),
            ("failures", "Steps that failed", &metrics.failures),
            ("parts", "Parts that were settled", &metrics.parts),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("secateur_archive_{name}"), help, counter.clone());
        }
        metrics
    }

    pub(super) fn parts(&self) -> u64 {
        self.parts.get()
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn stalled(&self, stalled: bool) {
        self.stalled.set(i64::from(stalled));
    }

    /// How many blocks are missing below the last listed one.
    pub(super) fn gaps(&self, blocks: u64) {
        self.gaps.set(signed(blocks));
    }

    /// A part was settled.
    pub(super) fn wrote(&self, now: &MetricsSnapshot) {
        self.parts.inc();
        self.stalled(false);
        self.take(now);
    }

    /// Where the head is.
    pub(super) fn look(&self, now: &MetricsSnapshot, head: Height) {
        self.take(now);
        let behind = now.verified_height.map_or(0, |height| height.saturating_add(1));
        self.lag.set(signed(head.saturating_add(1).saturating_sub(behind)));
    }

    fn take(&self, now: &MetricsSnapshot) {
        let mut before = self.before.lock();
        let grown = |now: u64, before: u64| if now >= before { now - before } else { now };
        self.uploads.inc_by(grown(now.uploads, before.uploads));
        self.uploaded_bytes.inc_by(grown(now.uploaded_bytes, before.uploaded_bytes));
        self.failures.inc_by(grown(now.failures, before.failures));
        self.staged.set(signed(now.staged_bytes));
        if let Some(height) = now.verified_height {
            self.verified.set(signed(height));
        }
        *before = *now;
    }
}
