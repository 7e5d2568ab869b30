//! What is seen from outside of a worker that does not get on: lag, rate, readiness, the pause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use secateur_core::Height;
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::sink::{IndexReader as _, Sink as _};
use secateur_index::worker::{End, Event, Health, Metrics, Observer, WorkerOptions};
use secateur_index::{ErrorClass, IndexError};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::chain::{History, StoreSource, blocks, options, run, worker_with};

/// Remembers what happened, and lets a test wait for it.
pub struct Witness {
    events: Mutex<Vec<String>>,
    count: watch::Sender<usize>,
}

impl Witness {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), count: watch::channel(0).0 })
    }

    /// How much has happened.
    pub fn count(&self) -> usize {
        self.events.lock().len()
    }

    pub fn all(&self, wanted: &str) -> Vec<String> {
        let events = self.events.lock();
        events.iter().filter(|event| event.contains(wanted)).cloned().collect()
    }

    pub async fn sees(&self, wanted: &str) -> String {
        self.sees_after(0, wanted).await
    }

    /// The same, behind what has happened before.
    pub async fn sees_after(&self, before: usize, wanted: &str) -> String {
        let mut count = self.count.subscribe();
        let seen = || {
            let events = self.events.lock();
            events.iter().skip(before).find(|event| event.contains(wanted)).cloned()
        };
        let waiting = async {
            loop {
                count.borrow_and_update();
                if let Some(event) = seen() {
                    return event;
                }
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.unwrap_or_else(|_| {
            panic!("no {wanted} in {:?}", self.events.lock());
        })
    }
}

impl Observer for Witness {
    fn event(&self, event: &Event<'_>) {
        self.events.lock().push(format!("{event:?}"));
        self.count.send_modify(|count| *count += 1);
    }
}

/// A worker that follows a store.
struct Following {
    history: History,
    source: StoreSource,
    dir: TempDir,
    metrics: Arc<Metrics>,
    witness: Arc<Witness>,
    stop: watch::Sender<bool>,
    working: JoinHandle<Result<End, IndexError>>,
}

impl Following {
    async fn start(options: WorkerOptions) -> Self {
        let history = History::new(&blocks(60)[..20]);
        let dir = tempfile::tempdir().unwrap();
        let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let (source, witness) = (history.source(), Witness::new());
        let looking: Arc<dyn Observer> = Arc::<Witness>::clone(&witness);
        let options = WorkerOptions { follow: true, ..options };
        let worker = worker_with(source.clone(), sink, options, looking, Arc::clone(&metrics));
        let (stop, stopping) = watch::channel(false);
        let working = tokio::spawn(async move { worker.run(stopping).await });
        witness.sees("CaughtUp { next: 20 }").await;
        Self { history, source, dir, metrics, witness, stop, working }
    }

    /// How it is after a while in which nothing changes.
    fn after(&self, seconds: u64) -> Health {
        self.metrics.live().health(Instant::now() + Duration::from_secs(seconds))
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Health) -> bool) {
        let until = Instant::now() + Duration::from_mins(1);
        while !is_so(&self.metrics.health()) {
            assert!(Instant::now() < until, "not {what}: {:?}", self.metrics.health());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ends(self) {
        self.stop.send_replace(true);
        assert_eq!(self.working.await.unwrap().unwrap(), End::Stopped);
    }
}

// The head was only asked for inside of a session, and a session could not begin while the sink was
// locked; the gauges kept what they had. They are computed when they are read, beside every session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_index_shows_as_a_growing_lag_and_is_not_ready() {
    let following = Following::start(options()).await;
    assert!(following.metrics.health().is_ready(), "{:?}", following.metrics.health());
    let other = rusqlite::Connection::open(following.dir.path().join("index.sqlite")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    following.history.append(&blocks(60)[20..]);
    following.until("40 blocks behind", |health| health.lag_blocks == Some(40)).await;
    let health = following.after(72);
    assert!(health.lag >= Duration::from_secs(72), "{health:?}");
    assert!(health.written_per_second < 0.001 && !health.is_ready(), "{health:?}");
    let reasons = health.reasons.join("; ");
    assert!(reasons.contains("nothing was written for"), "{reasons}");
    assert!(reasons.contains("blocks wait"), "{reasons}");
    other.execute_batch("ROLLBACK").unwrap();
    following.until("all written", |health| health.lag_blocks == Some(0)).await;
    following.until("ready", Health::is_ready).await;
    following.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_source_shows_as_a_growing_lag_no_rate_and_is_not_ready() {
    let following = Following::start(options()).await;
    following.source.is_down.store(true, Ordering::Relaxed);
    following.witness.sees("Retrying").await;
    let health = following.after(75);
    assert!(health.lag >= Duration::from_secs(75), "{health:?}");
    assert!(health.pulled_per_second < 0.001 && health.written_per_second < 0.001, "{health:?}");
    let reasons = health.reasons.join("; ");
    assert!(reasons.contains("connection refused"), "{reasons}");
    assert!(reasons.contains("has not said where its head is"), "{reasons}");
    following.source.is_down.store(false, Ordering::Relaxed);
    following.history.append(&blocks(60)[20..30]);
    following.until("all written", |health| health.lag_blocks == Some(0)).await;
    following.until("ready", Health::is_ready).await;
    following.ends().await;
}

// The threshold raised the alarm and nothing else: the source was asked every 5 s for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_the_retry_threshold_a_worker_alarms_pauses_and_says_so() {
    let day = Duration::from_hours(24);
    let following = Following::start(WorkerOptions {
        alarm_after: Duration::from_millis(500),
        pause: day,
        ..options()
    })
    .await;
    following.source.is_down.store(true, Ordering::Relaxed);
    following.witness.sees("Alarm").await;
    following.witness.sees("wait: 86400s").await;
    let (before, health) =
        (following.source.pulls.load(Ordering::Relaxed), following.metrics.health());
    assert!(health.paused, "{health:?}");
    assert!(health.reasons[0].contains("paused after failing"), "{health:?}");
    assert!(health.reasons[0].contains("tried again every 1 d"), "{health:?}");
    // Longer than two of the waits before the threshold.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(following.source.pulls.load(Ordering::Relaxed), before, "it does not go on asking");
    // Asked to stop, it does not wait for the end of the pause.
    following.ends().await;
}

// Whoever looks for the head paused with the worker: after an outage, readiness lied the other way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_worker_pauses_the_head_is_looked_for_every_few_seconds() {
    let following = Following::start(WorkerOptions {
        alarm_after: Duration::from_millis(100),
        pause: Duration::from_hours(24),
        ..options()
    })
    .await;
    following.source.is_down.store(true, Ordering::Relaxed);
    let silent = |seconds| {
        move |health: &Health| health.head_age.is_some_and(|age| age > Duration::from_secs(seconds))
    };
    following.until("silent for 4 s", silent(4)).await;
    assert!(following.metrics.health().paused);
    following.source.is_down.store(false, Ordering::Relaxed);
    following.until("asked again", |health| !silent(2)(health)).await;
    assert!(following.metrics.health().paused, "the worker still waits");
    following.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_the_retry_threshold_a_worker_that_is_to_end_ends_with_the_error() {
    let history = History::new(&blocks(20));
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    let source = history.source();
    source.is_down.store(true, Ordering::Relaxed);
    let options = WorkerOptions { alarm_after: Duration::from_millis(300), ..options() };
    let error = run(source, sink.clone(), options).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Net);
    let last = sink.reader().meta().await.unwrap().last_error.unwrap();
    assert!(last.contains("connection refused"), "{last}");
}

fn cut(history: &History, limit: Height) {
    let policy =
        secateur_core::PrunePolicy { retain_blocks: 1, ..secateur_core::PrunePolicy::default() };
    history.store.set_prune_policy(policy).unwrap();
    while history.store.prune_blocks(limit, 5_000).unwrap().more() {}
    history.store.settle().unwrap();
}

// Such an index said nothing of the blocks below: they were neither there nor in `gaps`.
#[tokio::test]
async fn a_fresh_index_that_begins_above_block_0_says_so_and_notes_the_gap() {
    let history = History::new(&blocks(60));
    cut(&history, 29);
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    let (metrics, witness) = (Arc::new(Metrics::new(&mut Registry::default())), Witness::new());
    let looking: Arc<dyn Observer> = Arc::<Witness>::clone(&witness);
    let worker = worker_with(history.source(), sink.clone(), options(), looking, metrics);
    let (_stop, stopping) = watch::channel(false);
    assert_eq!(worker.run(stopping).await.unwrap(), End::CaughtUp);
    witness.sees("Begins { first: 30 }").await;
    let gaps = sink.reader().gaps(0, 10).await.unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].block_from, gaps[0].block_to), (0, 29));
    assert!(gaps[0].reason.contains("when the index began"), "{gaps:?}");
    assert_eq!(sink.cursor().await.unwrap().unwrap().block_number, 60);
    // One that begins at block 0 has none.
    let whole = SqliteSink::open(&dir.path().join("whole.sqlite")).unwrap();
    run(History::new(&blocks(10)).source(), whole.clone(), options()).await.unwrap();
    assert_eq!(whole.reader().gaps(0, 10).await.unwrap(), []);
}
