//! What a worker counts (`secateur_index_…`).

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use secateur_core::Height;

use super::live::{Health, Live};
use super::unix_now;
use crate::{ErrorClass, IndexError, IndexReader, day_of};

/// Seconds that writes are sorted by.
const BUCKETS: [f64; 12] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCut {
    cut: &'static str,
}

/// Why a batch was written when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// It had the rows, or the bytes, that a batch may have.
    Full,
    /// Its bytes were in the way of what came next.
    Room,
    /// Nothing came for a while.
    Waited,
    /// Nothing more was there.
    Tip,
    /// The session ended.
    End,
}

impl Cut {
    const ALL: [Self; 5] = [Self::Full, Self::Room, Self::Waited, Self::Tip, Self::End];

    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Room => "room",
            Self::Waited => "waited",
            Self::Tip => "tip",
            Self::End => "end",
        }
    }
}

/// The counters of a worker.
#[derive(Debug)]
pub struct Metrics {
    /// What is computed when it is read.
    pub(super) live: Arc<Live>,
    pub(super) last_export_at: Gauge,
    pub(super) cursor: Gauge,
    pub(super) write_latency: Histogram,
    pub(super) batch_size: Gauge,
    batches: Family<OfCut, Counter>,
    errors: Family<OfClass, Counter>,
    raw_bytes: Counter,
    zstd_bytes: Counter,
    sink_bytes: Gauge,
    today: Today,
}

/// What the day brought so far.
#[derive(Debug, Default)]
struct Today {
    day: Mutex<u32>,
    raw_bytes: Gauge,
    zstd_bytes: Gauge,
    sink_growth_bytes: Gauge<i64, AtomicI64>,
}

impl Metrics {
    /// Makes them, under their names in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            live: Arc::default(),
            last_export_at: Gauge::default(),
            cursor: Gauge::default(),
            write_latency: Histogram::new(BUCKETS),
            batch_size: Gauge::default(),
            batches: Family::default(),
            errors: Family::default(),
            raw_bytes: Counter::default(),
            zstd_bytes: Counter::default(),
            sink_bytes: Gauge::default(),
            today: Today::default(),
        };
        for class in ErrorClass::ALL {
            drop(metrics.errors.get_or_create(&OfClass { class: class.name() }));
        }
        for cut in Cut::ALL {
            drop(metrics.batches.get_or_create(&OfCut { cut: cut.name() }));
        }
        registry.register_collector(Box::new(Computed(Arc::clone(&metrics.live))));
        metrics.register_source(registry);
        metrics.register_sink(registry);
        metrics
    }

    fn register_source(&self, to: &mut Registry) {
        let name = |name: &str| format!("secateur_index_{name}");
        to.register(
            name("last_export_at"),
            "When a block was last pulled, in seconds since 1970",
            self.last_export_at.clone(),
        );
        to.register(name("errors"), "What went wrong, by class", self.errors.clone());
    }

    fn register_sink(&self, to: &mut Registry) {
        let name = |name: &str| format!("secateur_index_{name}");
        to.register(name("cursor"), "The first block that is not written", self.cursor.clone());
        to.register(
            name("db_write_latency_seconds"),
            "How long a batch took to be written",
            self.write_latency.clone(),
        );
        to.register(name("db_batch_size"), "Rows of the last batch", self.batch_size.clone());
        to.register(
            name("batches"),
            "Batches by why they were written: full, room, waited, tip, end",
            self.batches.clone(),
        );
        to.register(name("raw_bytes"), "Payload bytes written", self.raw_bytes.clone());
        to.register(name("zstd_bytes"), "Bytes of parts written", self.zstd_bytes.clone());
        to.register(name("sink_bytes"), "Bytes that the index takes", self.sink_bytes.clone());
        to.register(
            name("raw_bytes_today"),
            "Payload bytes written today (UTC)",
            self.today.raw_bytes.clone(),
        );
        to.register(
            name("zstd_bytes_today"),
            "Bytes of parts written today (UTC)",
            self.today.zstd_bytes.clone(),
        );
        to.register(
            name("sink_growth_bytes_today"),
            "By how much the index grew today (UTC)",
            self.today.sink_growth_bytes.clone(),
        );
    }

    /// How the worker is doing now, and what it knows of the head.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// How the worker is doing now.
    pub fn health(&self) -> Health {
        self.live.health(Instant::now())
    }

    pub(crate) fn error(&self, class: ErrorClass) {
        self.errors.get_or_create(&OfClass { class: class.name() }).inc();
    }

    pub(super) fn wrote(&self, cut: Cut, took: Duration, rows: usize, raw_bytes: u64, at: u64) {
        self.batches.get_or_create(&OfCut { cut: cut.name() }).inc();
        self.write_latency.observe(took.as_secs_f64());
        self.batch_size.set(i64::try_from(rows).unwrap_or(i64::MAX));
        self.raw_bytes.inc_by(raw_bytes);
        self.turn(at);
        self.today.raw_bytes.inc_by(signed(raw_bytes));
    }

    pub(crate) fn archived(&self, bytes: u64, at: u64) {
        self.zstd_bytes.inc_by(bytes);
        self.turn(at);
        self.today.zstd_bytes.inc_by(signed(bytes));
    }

    pub(super) fn sized(&self, bytes: u64, at: u64) {
        let before = self.sink_bytes.set(signed(bytes));
        self.turn(at);
        if before > 0 {
            self.today.sink_growth_bytes.inc_by(signed(bytes).saturating_sub(before));
        }
    }

    /// Takes over what an index says of itself, so that a worker with nothing to do tells the truth.
    pub async fn resume(&self, index: &impl IndexReader, bytes: u64) -> Result<(), IndexError> {
        let (meta, at) = (index.meta().await?, unix_now());
        let today = index.days(None, 1).await?.into_iter().find(|row| row.day == day_of(at));
        let next = meta.cursor.map_or(0, |cursor| cursor.block_number);
        self.cursor.set(signed(next));
        let ago = meta.last_ingest_at.map(|then| Duration::from_secs(at.saturating_sub(then)));
        let written_at = ago.and_then(|ago| Instant::now().checked_sub(ago));
        self.live.resume(next, meta.last_head, written_at);
        self.last_export_at.set(meta.last_ingest_at.map_or(0, signed));
        self.sink_bytes.set(signed(bytes));
        self.turn(at);
        if let Some(today) = today {
            self.today.raw_bytes.set(signed(today.raw_bytes));
            self.today.zstd_bytes.set(signed(today.compressed_bytes));
            self.today.sink_growth_bytes.set(today.growth_bytes);
        }
        Ok(())
    }

    /// Where the index goes on, as seen from outside the workers that share it.
    pub fn reached(&self, next: Height) {
        self.cursor.set(signed(next));
        self.live.reached(next, Instant::now());
    }

    /// A new day begins at zero.
    fn turn(&self, at: u64) {
        let mut day = self.today.day.lock();
        if *day != day_of(at) {
            *day = day_of(at);
            self.today.raw_bytes.set(0);
            self.today.zstd_bytes.set(0);
            self.today.sink_growth_bytes.set(0);
        }
    }
}

/// The gauges that are computed when they are read. What is not known is no sample.
#[derive(Debug)]
struct Computed(Arc<Live>);

impl Collector for Computed {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let health = self.0.health(Instant::now());
        let mut put = |name: &str, help: &str, value: Option<f64>| {
            let name = format!("secateur_index_{name}");
            let gauge = value.map(ConstGauge::new);
            let kind = ConstGauge::new(0.0f64).metric_type();
            let sample = to.encode_descriptor(&name, help, None, kind)?;
            gauge.map_or(Ok(()), |gauge| gauge.encode(sample))
        };
        #[expect(clippy::cast_precision_loss, reason = "heights are far below 2^53")]
        let number = |number: Option<u64>| number.map(|number| number as f64);
        let lag = number(health.lag_blocks);
        let flag = |flag: bool| Some(f64::from(u8::from(flag)));
        put("head", "The newest exportable block, as it was last known.", number(health.head))?;
        put(
            "head_age_seconds",
            "Seconds since the source last said where its head is.",
            health.head_age.map(|age| age.as_secs_f64()),
        )?;
        put(
            "export_lag_blocks",
            "Exportable blocks that are not in the index; estimated while the source is silent.",
            lag,
        )?;
        put("cursor_lag", "The same number: exportable blocks that are not written.", lag)?;
        put(
            "export_lag_seconds",
            "Seconds since everything exportable was known to be written; 0 at the tip.",
            Some(health.lag.as_secs_f64()),
        )?;
        put(
            "export_rate_blocks_per_min",
            "Blocks pulled a minute, lately.",
            Some(health.pulled_per_second * 60.0),
        )?;
        put(
            "ingest_blocks_per_min",
            "Blocks written a minute, lately.",
            Some(health.written_per_second * 60.0),
        )?;
        put(
            "source_down",
            "1 while the source has not said where its head is for 30 s.",
            flag(health.source_down),
        )?;
        put("paused", "1 while attempts pause behind the retry threshold.", flag(health.paused))?;
        put("ready", "1 if nothing speaks against it; /readyz says what.", flag(health.is_ready()))
    }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
