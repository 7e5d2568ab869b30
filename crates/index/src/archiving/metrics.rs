//! What archiving counts (`secateur_archive_…`).

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use secateur_archive::MetricsSnapshot;
use secateur_core::Height;

use crate::worker::Live;

/// How far the archive is behind the head, computed when it is read: an archive that hangs looks for no
/// head, and the worker beside it does.
#[derive(Debug, Default)]
struct Lag {
    known: Mutex<Known>,
    worker: Option<Arc<Live>>,
}

#[derive(Debug, Default)]
struct Known {
    head: Option<Height>,
    /// The first block that is in no listed part.
    next: Height,
}

impl Lag {
    fn blocks(&self) -> Option<u64> {
        let known = self.known.lock();
        let head = known.head.max(self.worker.as_ref().and_then(|worker| worker.head()))?;
        Some(head.saturating_add(1).saturating_sub(known.next))
    }
}

impl Collector for Lag {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Exportable blocks above the last listed part.";
        let kind = ConstGauge::new(0i64).metric_type();
        let sample = to.encode_descriptor("secateur_archive_lag_blocks", help, None, kind)?;
        self.blocks().map_or(Ok(()), |blocks| ConstGauge::new(signed(blocks)).encode(sample))
    }
}

/// The counters of an archiving task.
#[derive(Debug)]
pub struct ArchiveMetrics {
    verified: Gauge,
    lag: Arc<Lag>,
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
        Self::beside(registry, None)
    }

    /// The same, beside a worker that knows the head of the same source.
    pub fn beside(registry: &mut Registry, worker: Option<Arc<Live>>) -> Self {
        let metrics = Self {
            verified: Gauge::default(),
            lag: Arc::new(Lag { worker, ..Lag::default() }),
            staged: Gauge::default(),
            uploads: Counter::default(),
            uploaded_bytes: Counter::default(),
            failures: Counter::default(),
            parts: Counter::default(),
            stalled: Gauge::default(),
            gaps: Gauge::default(),
            before: Mutex::default(),
        };
        registry.register_collector(Box::new(Arc::clone(&metrics.lag)));
        let gauges = [
            (
                "last_verified_height",
                "The last block that was read back and listed",
                &metrics.verified,
            ),
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
        self.lag.known.lock().head = Some(head);
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
            self.lag.known.lock().next = height.saturating_add(1);
        }
        *before = *now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use prometheus_client::encoding::text::encode;

    use super::*;

    // The gauge was set when the archiver looked for the head, which it does between its steps.
    #[test]
    fn the_lag_of_an_archive_that_hangs_grows_with_the_head_that_the_worker_sees() {
        let (mut registry, live) = (Registry::default(), Arc::new(Live::default()));
        let metrics = ArchiveMetrics::beside(&mut registry, Some(Arc::clone(&live)));
        let lag = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let line = text.lines().find_map(|l| l.strip_prefix("secateur_archive_lag_blocks "));
            line.map(str::to_owned)
        };
        assert_eq!(lag(), None, "no head is known");
        let now = MetricsSnapshot { verified_height: Some(63), ..MetricsSnapshot::default() };
        metrics.look(&now, 63);
        assert_eq!(lag().as_deref(), Some("0"));
        live.answered(Some(163), Instant::now());
        assert_eq!(lag().as_deref(), Some("100"));
    }
}
