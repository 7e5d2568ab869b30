//! What an archiver makes of trouble that comes and passes while a part is in the making.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use secateur_archive::{Check, Codec as PartCodec, Grain};
use secateur_evm::Verify;
use secateur_index::archiving::{ArchiveMetrics, Archiving, ArchivingOptions};
use secateur_index::codec::EvmCodec;
use secateur_index::worker::{End, Live, Observer};
use secateur_index::{IndexError, LogFilter};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::archive::Room;
use crate::chain::{CHAIN_ID, History, StoreSource, blocks};
use crate::live::Witness;

/// An archiver that follows a store and never finishes a part.
struct Following {
    source: StoreSource,
    live: Arc<Live>,
    registry: Registry,
    witness: Arc<Witness>,
    stop: watch::Sender<bool>,
    working: JoinHandle<Result<End, IndexError>>,
    _places: (History, Room),
}

impl Following {
    fn start(alarm_after: Duration, pause: Duration) -> Self {
        let (history, room) = (History::new(&blocks(40)), Room::new());
        let (source, witness, live) = (history.source(), Witness::new(), Arc::new(Live::default()));
        let looking: Arc<dyn Observer> = Arc::<Witness>::clone(&witness);
        let mut registry = Registry::default();
        let stage = room.dir.path().join("stage");
        let mut options = ArchivingOptions::new(CHAIN_ID, PartCodec::Evm, stage);
        options.grain = Grain { daily: false, ..Grain::default() };
        options.check = Check::Framing;
        (options.alarm_after, options.pause) = (alarm_after, pause);
        let archiving = Archiving {
            source: Arc::new(source.clone()),
            sink: Arc::new(room.sink("index.sqlite")),
            archive: room.archive.clone(),
            codec: Arc::new(EvmCodec::new(CHAIN_ID, Verify::Off, LogFilter::Off)),
            options,
            metrics: Arc::new(ArchiveMetrics::beside(&mut registry, Some(Arc::clone(&live)))),
            totals: None,
            observer: looking,
        };
        let (stop, stopping) = watch::channel(false);
        let working = tokio::spawn(async move { archiving.run(stopping).await });
        Self { source, live, registry, witness, stop, working, _places: (history, room) }
    }

    /// Waits until the source was asked for some more blocks.
    async fn goes_on(&self) {
        let (until, from) =
            (Instant::now() + Duration::from_mins(1), self.source.pulls.load(Ordering::Relaxed));
        while self.source.pulls.load(Ordering::Relaxed) < from + 3 {
            assert!(Instant::now() < until, "it asks no more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn is_down(&self, is_down: bool) {
        self.source.is_down.store(is_down, Ordering::Relaxed);
    }

    async fn ends(self) {
        self.stop.send_replace(true);
        assert_eq!(self.working.await.unwrap().unwrap(), End::Stopped);
    }
}

// A part takes a day: two short failures, hours apart, were one that had lasted all the while. The alarm was
// raised, the archiver paused, and one with `--once` ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_failures_between_which_blocks_came_are_no_alarm() {
    let alarm_after = Duration::from_secs(4);
    let following = Following::start(alarm_after, Duration::from_hours(1));
    following.goes_on().await;
    following.is_down(true);
    following.witness.sees("Retrying").await;
    let failed = Instant::now();
    following.is_down(false);
    following.goes_on().await;
    tokio::time::sleep_until((failed + alarm_after).into()).await;
    let before = following.witness.count();
    following.is_down(true);
    following.witness.sees_after(before, "Retrying").await;
    assert_eq!(following.witness.all("Alarm"), Vec::<String>::new());
    following.is_down(false);
    following.ends().await;
}

// The gauge stayed at 1 and the event did not come before the next part, or the next failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archiver_recovers_with_its_next_block_and_is_no_reason_any_more() {
    let following = Following::start(Duration::ZERO, Duration::from_millis(10));
    following.goes_on().await;
    let stalled = || {
        let mut text = String::new();
        encode(&mut text, &following.registry).unwrap();
        text.lines().any(|line| line == "secateur_archive_stalled 1")
    };
    following.live.answered(Some(39), Instant::now());
    following.is_down(true);
    following.witness.sees("Retrying").await;
    let health = following.live.health(Instant::now());
    assert!(stalled() && health.paused, "{health:?}");
    assert!(health.reasons[0].starts_with("archiving: paused after failing"), "{health:?}");
    following.is_down(false);
    following.witness.sees("Recovered").await;
    let health = following.live.health(Instant::now());
    assert!(!stalled() && !health.paused, "{health:?}");
    following.ends().await;
}
