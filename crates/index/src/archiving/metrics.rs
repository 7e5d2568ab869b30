//! What archiving counts (`secateur_archive_…`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use secateur_archive::MetricsSnapshot;
use secateur_core::Height;

use crate::IndexError;
use crate::worker::Live;

/// Where the archive ends and how far that is behind the head, computed when it is read: an archive that
/// hangs looks for no head, and the worker beside it does. What is not known is no sample.
#[derive(Debug, Default)]
struct Ends {
    known: Mutex<Known>,
    worker: Option<Arc<Live>>,
}

#[derive(Debug, Default)]
struct Known {
    head: Option<Height>,
    /// The last block that is in a listed part.
    verified: Option<Height>,
}

impl Ends {
    fn lag_blocks(&self, now: Instant) -> Option<u64> {
        let known = self.known.lock();
        let seen = self.worker.as_ref().and_then(|worker| worker.head_now(now));
        let head = known.head.max(seen)?;
        let next = known.verified.map_or(0, |verified| verified.saturating_add(1));
        Some(head.saturating_add(1).saturating_sub(next))
    }
}

impl Collector for Ends {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (lag, verified) = (self.lag_blocks(Instant::now()), self.known.lock().verified);
        let mut put = |name: &str, help: &str, number: Option<u64>| {
            let kind = ConstGauge::new(0i64).metric_type();
            let sample = to.encode_descriptor(name, help, None, kind)?;
            number.map_or(Ok(()), |number| ConstGauge::new(signed(number)).encode(sample))
        };
        put(
            "secateur_archive_lag_blocks",
            "Exportable blocks above the last listed part; estimated while the source is silent.",
            lag,
        )?;
        let help = "The last block that was read back and listed.";
        put("secateur_archive_last_verified_height", help, verified)
    }
}

/// The counters of an archiving task.
#[derive(Debug)]
pub struct ArchiveMetrics {
    ends: Arc<Ends>,
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
            ends: Arc::new(Ends { worker, ..Ends::default() }),
            staged: Gauge::default(),
            uploads: Counter::default(),
            uploaded_bytes: Counter::default(),
            failures: Counter::default(),
            parts: Counter::default(),
            stalled: Gauge::default(),
            gaps: Gauge::default(),
            before: Mutex::default(),
        };
        registry.register_collector(Box::new(Arc::clone(&metrics.ends)));
        let gauges = [
            ("gap_blocks", "Blocks below the last listed part that are in none", &metrics.gaps),
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

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    /// A step failed and is tried again; behind the threshold so much later.
    pub(super) fn trouble(&self, error: &IndexError, paused: Option<Duration>, now: Instant) {
        if let Some(worker) = &self.ends.worker {
            worker.archive_failed(error, paused, now);
        }
    }

    /// It works again.
    pub(super) fn passed(&self) {
        self.stalled(false);
        if let Some(worker) = &self.ends.worker {
            worker.archive_passed();
        }
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
        self.take(now);
    }

    /// Where the head is.
    pub(super) fn look(&self, now: &MetricsSnapshot, head: Height) {
        self.take(now);
        self.ends.known.lock().head = Some(head);
    }

    fn take(&self, now: &MetricsSnapshot) {
        let mut before = self.before.lock();
        let grown = |now: u64, before: u64| if now >= before { now - before } else { now };
        self.uploads.inc_by(grown(now.uploads, before.uploads));
        self.uploaded_bytes.inc_by(grown(now.uploaded_bytes, before.uploaded_bytes));
        self.failures.inc_by(grown(now.failures, before.failures));
        self.staged.set(signed(now.staged_bytes));
        if let Some(height) = now.verified_height {
            self.ends.known.lock().verified = Some(height);
        }
        *before = *now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use prometheus_client::encoding::text::encode;

    use super::*;

    fn sample(registry: &Registry, name: &str) -> Option<i64> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")))?;
        Some(line.parse().unwrap())
    }

    // The gauge was set when the archiver looked for the head, which it does between its steps.
    #[test]
    fn the_lag_of_an_archive_that_hangs_grows_with_the_head_that_the_worker_sees() {
        let (mut registry, live) = (Registry::default(), Arc::new(Live::default()));
        let metrics = ArchiveMetrics::beside(&mut registry, Some(Arc::clone(&live)));
        let lag = || sample(&registry, "secateur_archive_lag_blocks");
        assert_eq!(lag(), None, "no head is known");
        let now = MetricsSnapshot { verified_height: Some(63), ..MetricsSnapshot::default() };
        metrics.look(&now, 63);
        assert_eq!(lag(), Some(0));
        live.answered(Some(163), Instant::now());
        assert_eq!(lag(), Some(100));
    }

    #[test]
    fn the_lag_of_an_archive_grows_while_the_source_is_silent() {
        let (mut registry, live) = (Registry::default(), Arc::new(Live::default()));
        let metrics = ArchiveMetrics::beside(&mut registry, Some(Arc::clone(&live)));
        let start = Instant::now();
        for second in 0..=60 {
            live.answered(Some(second * 10), start + Duration::from_secs(second));
        }
        let now = MetricsSnapshot { verified_height: Some(600), ..MetricsSnapshot::default() };
        metrics.look(&now, 600);
        let lag = |second| metrics.ends.lag_blocks(start + Duration::from_secs(second)).unwrap();
        assert_eq!(lag(60), 0);
        assert!((690..=710).contains(&lag(130)), "{}", lag(130));
    }

    // 0 said that block 0 was archived, and an alarm on a height that does not move was wrong.
    #[test]
    fn a_verified_height_that_is_not_known_is_no_sample() {
        let mut registry = Registry::default();
        let metrics = ArchiveMetrics::new(&mut registry);
        let height = || sample(&registry, "secateur_archive_last_verified_height");
        metrics.look(&MetricsSnapshot::default(), 40);
        assert_eq!(height(), None);
        let now = MetricsSnapshot { verified_height: Some(0), ..MetricsSnapshot::default() };
        metrics.look(&now, 40);
        assert_eq!(height(), Some(0));
    }
}
