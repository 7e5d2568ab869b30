//! What this family counts and shows (`secateur_…`), and what it says in the log while it does so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use secateur_core::format_bytes;
use sha2::{Digest as _, Sha256};

use crate::ValidatorId;
use crate::archiver::{ArchiverObserver, AttemptError};
use crate::book::BookObserver;
use crate::engine::{ArchiveRecord, BlobKey, FetchDue, PruneReport, Summary};
use crate::notice::Rejection;
use crate::pruner::PrunerObserver;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// A number that is not always known: then it has no sample.
#[derive(Debug)]
struct Known {
    name: &'static str,
    help: &'static str,
    now: Mutex<Option<u64>>,
}

impl Known {
    fn new(name: &'static str, help: &'static str) -> Arc<Self> {
        Arc::new(Self { name, help, now: Mutex::default() })
    }

    fn set(&self, now: Option<u64>) {
        *self.now.lock() = now;
    }
}

impl Collector for Known {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = ConstGauge::new(0i64).metric_type();
        let sample = to.encode_descriptor(self.name, self.help, None, kind)?;
        let now = *self.now.lock();
        now.map_or(Ok(()), |now| ConstGauge::new(signed(now)).encode(sample))
    }
}

/// The counters and gauges of a node's blobs.
#[derive(Debug)]
pub struct SidecarMetrics {
    attempts: Family<ResultLabel, Counter>,
    archived: Counter,
    pruned: Counter,
    prune_failures: Counter,
    rejected: Family<ReasonLabel, Counter>,
    early: Counter,
    equivocations: Counter,
    not_there: Counter,
    unreadable: Counter,
    sync_failures: Counter,
    lag: Gauge,
    queue: Gauge,
    archiver_backlog: Arc<Known>,
    pruner_backlog: Arc<Known>,
    used_bytes: Gauge,
    over_budget: Gauge,
    refusals: Seldom,
}

/// How often the log repeats itself.
const ONCE_IN: Duration = Duration::from_mins(1);

/// What was said in the log lately, and how often it was not said again.
#[derive(Debug, Default)]
struct Seldom(Mutex<BTreeMap<&'static str, (Instant, u64)>>);

impl Seldom {
    /// Whether to say it now: how often it was left out since it was said last.
    fn say(&self, what: &'static str, now: Instant) -> Option<u64> {
        let mut said = self.0.lock();
        match said.get_mut(what) {
            Some((last, unsaid)) if now.saturating_duration_since(*last) < ONCE_IN => {
                *unsaid += 1;
                None
            }
            before => {
                let unsaid = before.map_or(0, |(_, unsaid)| *unsaid);
                said.insert(what, (now, 0));
                Some(unsaid)
            }
        }
    }
}

/// A job that failed so often is worth a warning each time.
const WARN_AFTER: u32 = 3;

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Default for SidecarMetrics {
    fn default() -> Self {
        Self {
            attempts: Family::default(),
            archived: Counter::default(),
            pruned: Counter::default(),
            prune_failures: Counter::default(),
            rejected: Family::default(),
            early: Counter::default(),
            equivocations: Counter::default(),
            not_there: Counter::default(),
            unreadable: Counter::default(),
            sync_failures: Counter::default(),
            lag: Gauge::default(),
            queue: Gauge::default(),
            archiver_backlog: Known::new(
                "secateur_archiver_backlog_height",
                "The oldest height that waits to be archived here.",
            ),
            pruner_backlog: Known::new(
                "secateur_blob_pruner_backlog_height",
                "The oldest height that is archived and not pruned.",
            ),
            used_bytes: Gauge::default(),
            over_budget: Gauge::default(),
            refusals: Seldom::default(),
        }
    }
}

impl SidecarMetrics {
    /// Makes them, under their names in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // Every reason is there from the start: a counter that appears late hides its first step.
        for reason in Rejection::LABELS {
            drop(metrics.rejected.get_or_create(&ReasonLabel { reason }));
        }
        for result in ["ok", "err"] {
            drop(metrics.attempts.get_or_create(&ResultLabel { result }));
        }
        registry.register(
            "secateur_blob_archival_attempts",
            "Attempts to archive a blob",
            metrics.attempts.clone(),
        );
        registry.register(
            "secateur_notice_rejected",
            "Notices that were not believed",
            metrics.rejected.clone(),
        );
        let counters = [
            (
                "blob_archived",
                "Blobs that were archived or announced as archived",
                &metrics.archived,
            ),
            ("blob_pruned", "Blobs whose bytes were pruned", &metrics.pruned),
            (
                "notice_equivocations",
                "Notices whose signer had signed another one for the same blob",
                &metrics.equivocations,
            ),
            (
                "blob_copies_not_there",
                "Times that no copy was where notices said (trust = fetch)",
                &metrics.not_there,
            ),
            (
                "blob_locators_unreadable",
                "Times that no locator of a blob could be read here (trust = fetch)",
                &metrics.unreadable,
            ),
            ("notice_early", "Notices that came before they could be judged", &metrics.early),
            (
                "blob_prune_failures",
                "Blobs whose bytes were gone when they were pruned",
                &metrics.prune_failures,
            ),
            ("sync_failures", "Blobs that could not be got from a source", &metrics.sync_failures),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("secateur_{name}"), help, counter.clone());
        }
        let gauges = [
            ("blob_archival_lag_blocks", "Heights since the oldest unarchived one", &metrics.lag),
            ("archiver_queue_len", "Blobs that wait to be archived here", &metrics.queue),
            ("blob_used_bytes", "Bytes of blobs on disk", &metrics.used_bytes),
            ("blob_over_budget", "1 while blobs take more than their budget", &metrics.over_budget),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("secateur_{name}"), help, gauge.clone());
        }
        for known in [&metrics.archiver_backlog, &metrics.pruner_backlog] {
            registry.register_collector(Box::new(Arc::clone(known)));
        }
        metrics
    }

    /// Shows the store as it is.
    pub fn look(&self, summary: &Summary) {
        self.lag.set(signed(summary.archival_lag()));
        self.queue.set(signed(summary.jobs));
        self.archiver_backlog.set(summary.oldest_job);
        self.pruner_backlog.set(summary.pruner_backlog);
        self.used_bytes.set(signed(summary.used_bytes));
        self.over_budget.set(i64::from(summary.over_budget()));
    }

    /// Blobs could not be got from a source.
    pub fn sync_failed(&self) {
        self.sync_failures.inc();
    }
}

/// A locator as the log shows it: it may tell a bucket's name.
fn shown(record: &ArchiveRecord) -> String {
    let locator = record.locators.first().map(|locator| locator.key.as_str()).unwrap_or_default();
    let hash = Sha256::digest(locator);
    alloy_primitives::hex::encode(hash.get(..8).unwrap_or_default())
}

impl ArchiverObserver for SidecarMetrics {
    fn first_record(&self, _: BlobKey) {
        self.archived.inc();
    }

    fn archived(&self, key: BlobKey, record: &ArchiveRecord) {
        self.attempts.get_or_create(&ResultLabel { result: "ok" }).inc();
        let (height, index, locator) = (key.height, key.index, shown(record));
        tracing::info!(height, index, locator, "a blob is archived");
    }

    fn failed(&self, key: BlobKey, error: &AttemptError, attempts: u32, next_due: u64) {
        self.attempts.get_or_create(&ResultLabel { result: "err" }).inc();
        // Each copy that failed was a warning of its own.
        if attempts >= WARN_AFTER {
            let (height, index) = (key.height, key.index);
            tracing::warn!(%error, height, index, attempts, next_due, "a blob is still not archived");
        }
    }
}

impl BookObserver for SidecarMetrics {
    fn first_record(&self, _: BlobKey) {
        self.archived.inc();
    }

    fn recorded(&self, key: BlobKey, record: &ArchiveRecord) {
        let (height, index, locator) = (key.height, key.index, shown(record));
        tracing::info!(height, index, locator, signer = %record.signer, "a blob is archived");
    }

    fn rejected(&self, rejection: &Rejection) {
        self.rejected.get_or_create(&ReasonLabel { reason: rejection.label() }).inc();
        // One that may be right later says nothing bad of anybody.
        if rejection.is_retryable() {
            tracing::info!(%rejection, "a notice came too early, and it must be told again");
        } else {
            // A peer that sends nothing else must not fill the log; the counter has them all.
            if let Some(unsaid) = self.refusals.say(rejection.label(), Instant::now()) {
                tracing::warn!(%rejection, unsaid, "a notice was refused");
            }
        }
    }

    fn equivocated(&self, key: BlobKey, signer: &ValidatorId) {
        self.equivocations.inc();
        let (height, index) = (key.height, key.index);
        if let Some(unsaid) = self.refusals.say("equivocation", Instant::now()) {
            tracing::warn!(height, index, %signer, unsaid,
                "a validator has signed two notices for one blob");
        }
    }

    fn early(&self, why: &Rejection) {
        self.early.inc();
        tracing::debug!(%why, "a notice came too early, and waits here");
    }
}

impl PrunerObserver for SidecarMetrics {
    fn not_there(&self, due: &FetchDue) {
        self.not_there.inc();
        tracing::warn!(
            height = due.meta.height,
            index = due.meta.index,
            "somebody has signed for copies of a blob that are not there; other notices are heard"
        );
    }

    fn unreadable(&self, due: &FetchDue) {
        self.unreadable.inc();
        tracing::warn!(
            height = due.meta.height,
            index = due.meta.index,
            "no locator of a blob can be read here: unknown providers or forms (sidecar.providers); \
             other notices are heard"
        );
    }

    fn pruned(&self, report: &PruneReport) {
        self.pruned.inc_by(report.blobs);
        self.prune_failures.inc_by(report.failures);
        tracing::info!(
            heights = report.heights,
            blobs = report.blobs,
            bytes = format_bytes(report.bytes),
            failures = report.failures,
            "blobs were pruned"
        );
    }

    fn not_fetched(&self, due: &FetchDue) {
        self.sync_failures.inc();
        tracing::warn!(
            height = due.meta.height,
            index = due.meta.index,
            "no copy of a blob could be fetched; its height is not pruned"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_itself_is_said_once_a_minute_with_how_often_it_was_not() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let say = |what, seconds| seldom.say(what, begin + Duration::from_secs(seconds));
        assert_eq!(say("a", 0), Some(0));
        assert_eq!(say("b", 1), Some(0), "another thing is said at once");
        assert_eq!([say("a", 1), say("a", 59)], [None, None]);
        assert_eq!(say("a", 60), Some(2));
        assert_eq!(say("a", 61), None);
    }
}
