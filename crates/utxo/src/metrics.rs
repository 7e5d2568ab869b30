//! What the pruner counts (`secateur_pruner_…`, `secateur_utxo_…`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::pruner::{Done, Outcome, Skip};
use crate::store::{Counts, Kept, Room};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Every way in which a run ends.
const OUTCOMES: [&str; 4] = ["completed", "failed", "timed_out", "cancelled"];

/// A phase by the name that its metrics have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timed {
    PreserveParents,
    Delete,
}

impl Timed {
    const fn label(self) -> Operation {
        Operation {
            operation: match self {
                Self::PreserveParents => "preserve_parents",
                Self::Delete => "dah_pruner",
            },
        }
    }
}

/// Why a notification of a chain is passed over. The names are labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// It has no height.
    NoHeight,
    /// What it has for a height is none.
    NotAHeight,
    /// It is about a block, and names none.
    NotAHash,
    /// It is past the chain's own top.
    BeyondTheHead,
    /// A persister goes back.
    Backwards,
    /// It is further than a chain goes at once.
    TooFar,
}

impl Unheard {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoHeight => "no_height",
            Self::NotAHeight => "not_a_height",
            Self::NotAHash => "not_a_hash",
            Self::BeyondTheHead => "beyond_the_head",
            Self::Backwards => "backwards",
            Self::TooFar => "too_far",
        }
    }
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

/// The numbers of a UTXO pruner.
#[derive(Debug)]
pub struct Metrics {
    duration: Family<Operation, Histogram, fn() -> Histogram>,
    errors: Family<Operation, Counter>,
    runs: Family<OutcomeLabel, Counter>,
    skipped: Family<Reason, Counter>,
    kept: Family<Reason, Counter>,
    processed: Counter,
    replaced: Counter,
    batch: Histogram,
    past_due: Gauge,
    unmined: Gauge,
    preserved: Gauge,
    cut: Gauge,
    size: Gauge,
    room: Gauge,
    lag: Arc<Known>,
    completed: Arc<Known>,
    stale: Gauge,
    files_deleted: Counter,
    files_missing: Counter,
    unheard: Family<Reason, Counter>,
    heard: Gauge,
    unfed: Gauge,
    lost: Counter,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            duration: Family::new_with_constructor(seconds),
            errors: Family::default(),
            runs: Family::default(),
            skipped: Family::default(),
            kept: Family::default(),
            processed: Counter::default(),
            replaced: Counter::default(),
            batch: seconds(),
            past_due: Gauge::default(),
            unmined: Gauge::default(),
            preserved: Gauge::default(),
            cut: Gauge::default(),
            size: Gauge::default(),
            room: Gauge::default(),
            lag: Known::new(
                "secateur_pruner_lag_blocks",
                "Blocks between the head and what is processed.",
            ),
            completed: Known::new(
                "secateur_pruner_last_completed_height",
                "The last height processed.",
            ),
            stale: Gauge::default(),
            files_deleted: Counter::default(),
            files_missing: Counter::default(),
            unheard: Family::default(),
            heard: Gauge::default(),
            unfed: Gauge::default(),
            lost: Counter::default(),
        }
    }
}

impl Metrics {
    /// Makes them, under their names in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let gauges = [
            ("utxo_past_due_records", "Records past their delete-at-height", &metrics.past_due),
            ("utxo_unmined_records", "Records in no block", &metrics.unmined),
            ("utxo_preserved_records", "Records that are preserved", &metrics.preserved),
            ("utxo_cut_records", "Records that are cut and not yet removed", &metrics.cut),
            ("utxo_size_bytes", "What the database takes", &metrics.size),
            (
                "utxo_store_full",
                "1 while the database is near its limit, 2 while it takes no writes",
                &metrics.room,
            ),
            ("pruner_persister_stale", "1 while a persister is far behind", &metrics.stale),
            ("utxo_chain_connected", "1 while the chain is heard", &metrics.heard),
            ("utxo_unfed", "1 while a followed chain feeds no record", &metrics.unfed),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("secateur_{name}"), help, gauge.clone());
        }
        for known in [&metrics.lag, &metrics.completed] {
            registry.register_collector(Box::new(Arc::clone(known)));
        }
        let counters = [
            ("pruner_processed", "Records that were pruned", &metrics.processed),
            ("pruner_replaced", "Heights that a later one replaced", &metrics.replaced),
            ("utxo_files_deleted", "External files that were deleted", &metrics.files_deleted),
            ("utxo_files_not_found", "External files that were not there", &metrics.files_missing),
            ("utxo_chain_losses", "Connections to the chain that broke", &metrics.lost),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("secateur_{name}"), help, counter.clone());
        }
        let help = "How long a phase took";
        registry.register("secateur_pruner_duration_seconds", help, metrics.duration.clone());
        let help = "How long a chunk took";
        let name = "secateur_utxo_cleanup_batch_duration_seconds";
        registry.register(name, help, metrics.batch.clone());
        let help = "Phases that failed";
        registry.register("secateur_pruner_errors", help, metrics.errors.clone());
        for outcome in OUTCOMES {
            drop(metrics.runs.get_or_create(&OutcomeLabel { outcome }));
        }
        let help = "Runs that ended, by how they did";
        registry.register("secateur_pruner_runs", help, metrics.runs.clone());
        let help = "Runs that did not begin, and records that were due and stay";
        registry.register("secateur_pruner_skipped", help, metrics.skipped.clone());
        let help = "Records that were due and stay";
        registry.register("secateur_utxo_kept_records", help, metrics.kept.clone());
        let help = "Notifications of the chain that were passed over";
        registry.register("secateur_utxo_chain_unheard", help, metrics.unheard.clone());
        metrics
    }

    pub(crate) fn unheard(&self, why: Unheard) {
        self.unheard.get_or_create(&Reason { reason: why.name() }).inc();
    }

    pub(crate) fn ran(&self, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Completed => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::TimedOut => "timed_out",
            Outcome::Cancelled => "cancelled",
        };
        self.runs.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(crate) fn unfed(&self, is_unfed: bool) {
        self.unfed.set(i64::from(is_unfed));
    }

    pub(crate) fn chain_heard(&self) {
        self.heard.set(1);
    }

    pub(crate) fn chain_lost(&self) {
        self.heard.set(0);
        self.lost.inc();
    }

    pub(crate) fn took(&self, what: Timed, time: Duration) {
        self.duration.get_or_create(&what.label()).observe(time.as_secs_f64());
    }

    pub(crate) fn failed(&self, what: Timed) {
        self.errors.get_or_create(&what.label()).inc();
    }

    pub(crate) fn skipped(&self, why: Skip) {
        self.skipped.get_or_create(&Reason { reason: why.name() }).inc();
    }

    pub(crate) fn replaced(&self) {
        self.replaced.inc();
    }

    pub(crate) fn chunk(&self, time: Duration) {
        self.batch.observe(time.as_secs_f64());
    }

    pub(crate) fn kept(&self, why: Kept, records: u64) {
        self.kept.get_or_create(&Reason { reason: why.name() }).inc_by(records);
    }

    pub(crate) fn done(&self, done: &Done) {
        self.processed.inc_by(done.deleted);
        self.files_deleted.inc_by(done.files_deleted);
        self.files_missing.inc_by(done.files_missing);
        done.kept.iter().for_each(|(why, records)| self.kept(*why, *records));
    }

    pub(crate) fn counts(&self, counts: &Counts) {
        self.past_due.set(signed(counts.past_due()));
        self.unmined.set(signed(counts.unmined));
        self.preserved.set(signed(counts.preserved));
        self.cut.set(signed(counts.cut));
        self.size.set(signed(counts.size_bytes));
    }

    pub(crate) fn room(&self, room: &Room) {
        self.room.set(match room {
            Room::Enough => 0,
            Room::Low(_) => 1,
            Room::Full(_) => 2,
        });
    }

    pub(crate) fn chain(&self, lag: Option<u64>, completed: Option<u64>, stale: bool) {
        self.lag.set(lag);
        self.completed.set(completed);
        self.stale.set(i64::from(stale));
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_height_that_is_not_known_has_no_sample() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let samples = || {
            let mut page = String::new();
            encode(&mut page, &registry).unwrap();
            let names = ["secateur_pruner_lag_blocks ", "secateur_pruner_last_completed_height "];
            let is_sample = |line: &&str| names.iter().any(|name| line.starts_with(name));
            page.lines().filter(is_sample).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(samples(), Vec::<String>::new());
        metrics.chain(Some(3), Some(0), false);
        let samples_then =
            ["secateur_pruner_lag_blocks 3", "secateur_pruner_last_completed_height 0"];
        assert_eq!(samples(), samples_then);
        metrics.chain(None, None, false);
        assert_eq!(samples(), Vec::<String>::new());
    }
}
