//! The archiver by itself: what is put once stays put once, a slow provider holds nobody up, and no
//! single job ends the rest. The clock is turned by hand, so a wait of a minute takes none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_sidecar::archiver::{
    Archiver, ArchiverObserver, ArchiverOptions, AttemptError, Wakes,
};
use secateur_sidecar::book::{Book, BookObserver};
use secateur_sidecar::engine::{ArchiveRecord, BlobKey, Role};
use secateur_sidecar::notice::Rejection;
use secateur_sidecar::provider::{
    Access, BlobTags, LoadS3, LoadS3Options, Provider, ProviderError,
};
use secateur_sidecar::{EngineConfig, SidecarError, SidecarStore, testdata};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Clock, Ground, StoreError, SystemClock};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::agent::{Agent, Mood};
use crate::load_s3::options;
use crate::validators::{CHAIN, PATIENCE, Rules, id, key};
use crate::wrapped::{Does, Wrapped, reached};

type Store = SidecarStore<MemoryArena, MemoryIndex>;

/// A clock that somebody turns.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What became of an attempt.
#[derive(Debug)]
enum Event {
    Archived(Height, Vec<String>),
    Failed(String),
}

struct Ears(mpsc::UnboundedSender<Event>);

impl ArchiverObserver for Ears {
    fn archived(&self, key: BlobKey, record: &ArchiveRecord) {
        let names = record.locators.iter().map(|locator| locator.provider.clone()).collect();
        self.0.send(Event::Archived(key.height, names)).unwrap();
    }

    fn failed(&self, _: BlobKey, error: &AttemptError, _: u32, _: u64) {
        self.0.send(Event::Failed(error.to_string())).unwrap();
    }
}

/// Nobody hears of notices.
struct Deaf;

impl BookObserver for Deaf {
    fn recorded(&self, _: BlobKey, _: &ArchiveRecord) {}
    fn rejected(&self, _: &Rejection) {}
}

/// An archiver at work.
struct Rig {
    store: Arc<Store>,
    clock: Arc<HandClock>,
    wakes: Wakes,
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<Result<(), SidecarError>>,
    stop: watch::Sender<bool>,
}

fn store() -> Arc<Store> {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let config = EngineConfig::new(CHAIN, [1; 16]);
    Arc::new(SidecarStore::open(ground, config, Arc::new(SystemClock)).unwrap())
}

impl Rig {
    fn start(store: Arc<Store>, providers: Vec<Arc<dyn Provider>>, copies: usize) -> Self {
        let clock = Arc::new(HandClock(AtomicU64::new(SystemClock.now_millis())));
        Self::with(store, providers, copies, Arc::clone(&clock) as _, clock)
    }

    fn with(
        store: Arc<Store>,
        providers: Vec<Arc<dyn Provider>>,
        min_copies: usize,
        runs: Arc<dyn Clock>,
        clock: Arc<HandClock>,
    ) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let (wakes, usual) = (Wakes::default(), ArchiverOptions::new(CHAIN, id(0)));
        let how = ArchiverOptions { min_copies, grace: Duration::from_millis(200), ..usual };
        let ears = Arc::new(Ears(told));
        let verifier = Arc::new(Rules::of(1).verifier());
        let book = Book::new(Arc::clone(&store), verifier, Some(Arc::new(key(0))), Arc::new(Deaf));
        let archiver =
            Archiver::new(Arc::new(book), providers, how, runs, ears, wakes.clone()).unwrap();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move { archiver.run(stopped).await });
        Self { store, clock, wakes, events, task, stop }
    }

    fn decide(&self, height: Height) {
        let proposal = testdata::proposal(height, 0, &id(0), &[usize::try_from(height).unwrap()]);
        self.store.store_decided(&proposal, Role::Proposer).unwrap();
        self.wakes.own.notify_one();
    }

    /// A minute passes: whatever waited is due.
    fn pass(&self) {
        self.clock.0.fetch_add(60_000, Ordering::Relaxed);
        self.wakes.own.notify_one();
    }

    async fn event(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
    }

    async fn fails(&mut self) -> String {
        match self.event().await {
            Event::Failed(error) => error,
            other @ Event::Archived(..) => panic!("{other:?}"),
        }
    }

    async fn archives(&mut self) -> (Height, Vec<String>) {
        match self.event().await {
            Event::Archived(height, names) => (height, names),
            other @ Event::Failed(..) => panic!("{other:?}"),
        }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// An agent that knows us, and a rig that archives to it.
async fn agent() -> (Agent, Rig, TempDir) {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let provider = LoadS3::new(&options(&agent, &dir)).unwrap();
    let rig = Rig::start(store(), vec![Arc::new(provider)], 1);
    (agent, rig, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_gateway_does_not_show_yet_is_waited_for_and_not_sent_again() {
    let (agent, mut rig, _dir) = agent().await;
    agent.set(Mood::Late);
    rig.decide(1);
    for _ in 0..4 {
        let error = rig.fails().await;
        assert!(error.contains("has nothing under item_0"), "{error}");
        rig.pass();
    }
    agent.set(Mood::Good);
    rig.pass();
    while let Event::Failed(..) = rig.event().await {}
    assert_eq!(agent.items().len(), 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nobody_can_say_what_is_there_a_blob_is_not_sent_again() {
    let (agent, mut rig, _dir) = agent().await;
    // It is uploaded, and the answer makes no sense.
    agent.set(Mood::Say(""));
    rig.decide(1);
    rig.fails().await;
    agent.set(Mood::NoIndex);
    for _ in 0..3 {
        rig.pass();
        let error = rig.fails().await;
        assert!(error.contains("failed to query tags"), "{error}");
    }
    agent.set(Mood::Good);
    rig.pass();
    rig.archives().await;
    assert_eq!(agent.items().len(), 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_or_a_retry_an_upload_is_looked_for_before_it_is_sent_again() {
    let (agent, rig, dir) = agent().await;
    agent.set(Mood::LoseReply);
    rig.decide(1);
    let uploaded = async {
        while agent.items().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, uploaded).await.unwrap();
    rig.task.abort();
    agent.set(Mood::Good);
    let provider = LoadS3::new(&options(&agent, &dir)).unwrap();
    let mut rig = Rig::start(rig.store, vec![Arc::new(provider)], 1);
    rig.archives().await;
    assert_eq!(agent.items().len(), 1, "after a crash");
    // A first attempt asks nothing: nothing can be there.
    agent.requests();
    agent.set(Mood::Say(""));
    rig.decide(2);
    rig.fails().await;
    assert!(agent.requests().iter().all(|seen| seen.path == "/upload"));
    agent.set(Mood::Good);
    rig.store.enqueue(2, 0).unwrap();
    rig.wakes.own.notify_one();
    rig.archives().await;
    assert_eq!(agent.items().len(), 2, "after a retry");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_item_that_is_not_readable_yet_is_remembered_by_its_id() {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let access = Access::Private { bucket: "validators".into(), folder: None };
    let provider = LoadS3::new(&LoadS3Options { access, ..options(&agent, &dir) }).unwrap();
    let mut rig = Rig::start(store(), vec![Arc::new(provider)], 1);
    agent.set(Mood::Late);
    rig.decide(1);
    for _ in 0..3 {
        rig.fails().await;
        rig.pass();
    }
    agent.set(Mood::Good);
    rig.pass();
    while let Event::Failed(..) = rig.event().await {}
    assert_eq!(agent.items().len(), 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_never_comes_is_given_up_after_an_hour_and_sent_again() {
    let (agent, mut rig, _dir) = agent().await;
    agent.set(Mood::Late);
    rig.decide(1);
    rig.fails().await;
    rig.store.job_failed(BlobKey { height: 1, index: 0 }, 0, 62).unwrap();
    rig.wakes.own.notify_one();
    rig.fails().await;
    assert_eq!(agent.items().len(), 1);
    rig.pass();
    rig.fails().await;
    assert_eq!(agent.items().len(), 2);
    rig.pass();
    rig.fails().await;
    assert_eq!(agent.items().len(), 2, "and then for another hour it is waited for");
    rig.end().await;
}

/// A provider in memory, with names of its own.
#[derive(Debug)]
struct Memory {
    id: &'static str,
    name: fn(&BlobTags) -> String,
    objects: Mutex<HashMap<String, Bytes>>,
}

fn plain(tags: &BlobTags) -> String {
    format!("{}-{}", tags.height, tags.blob_index)
}

fn memory(id: &'static str, name: fn(&BlobTags) -> String) -> Arc<dyn Provider> {
    Arc::new(Memory { id, name, objects: Mutex::default() })
}

impl Provider for Memory {
    fn id(&self) -> &str {
        self.id
    }

    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        let key = (self.name)(tags);
        self.objects.lock().insert(key.clone(), blob);
        Box::pin(async { Ok(key) })
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        _: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        let found = self.objects.lock().get(locator).cloned();
        let (provider, locator) = (self.id.to_owned(), locator.to_owned());
        Box::pin(async { found.ok_or(ProviderError::Missing { provider, locator }) })
    }

    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        let key = (self.name)(tags);
        let found = self.objects.lock().contains_key(&key);
        Box::pin(async move { Ok(found.then_some(key)) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enough_copies_do_not_wait_for_a_provider_that_is_stuck() {
    let stuck = Wrapped::new(memory("b", plain), Does::StuckAt(1));
    let providers = vec![memory("a", plain), Arc::clone(&stuck) as _, memory("c", plain)];
    let mut rig = Rig::start(store(), providers, 2);
    rig.decide(1);
    assert_eq!(rig.archives().await, (1, vec!["a".to_owned(), "c".to_owned()]));
    rig.decide(2);
    let all = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(rig.archives().await, (2, all), "in the order of the providers");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_under_way_does_not_put_off_another_ones_next_attempt() {
    let provider = Wrapped::new(memory("a", plain), Does::StuckAt(1));
    let hand = Arc::new(HandClock::default());
    let providers = vec![Arc::clone(&provider) as Arc<dyn Provider>];
    let mut rig = Rig::with(store(), providers, 1, Arc::new(SystemClock), hand);
    rig.decide(1);
    tokio::time::timeout(PATIENCE, provider.begun(1)).await.unwrap();
    provider.set(Does::Down);
    rig.decide(2);
    rig.fails().await;
    let failed = Instant::now();
    provider.set(Does::Right);
    assert_eq!(rig.archives().await.0, 2);
    // A second, and not until the queue is looked at anyway.
    assert!(failed.elapsed() < Duration::from_secs(4), "{:?}", failed.elapsed());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_no_notice_can_say_is_refused_and_the_rest_goes_on() {
    let odd = |tags: &BlobTags| match tags.height {
        1 => "x".repeat(1_025),
        _ => plain(tags),
    };
    let mut rig = Rig::start(store(), vec![memory("a", odd)], 1);
    rig.decide(1);
    let error = rig.fails().await;
    assert!(error.contains("record is refused"), "{error}");
    assert!(rig.store.records(1, 0).unwrap().is_empty());
    rig.decide(2);
    assert_eq!(rig.archives().await.0, 2);
    rig.pass();
    rig.fails().await;
    assert_eq!(rig.store.summary().unwrap().jobs, 1, "it is still to be archived");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_go_on_while_the_records_of_others_wait_for_the_store() {
    let store = store();
    for height in 1..=40 {
        let which = usize::try_from(height).unwrap() % testdata::POOL;
        let proposal = testdata::proposal(height, 0, &id(0), &[which]);
        store.store_decided(&proposal, Role::Proposer).unwrap();
    }
    // Somebody else's batch is open: no record becomes durable.
    let (opened, is_open) = oneshot::channel();
    let (close, closed) = std::sync::mpsc::channel::<()>();
    let writer = Arc::clone(&store);
    let writer = std::thread::spawn(move || {
        writer.shelf().write(|_| {
            opened.send(()).unwrap();
            closed.recv().unwrap();
            Ok::<_, StoreError>(())
        })
    });
    is_open.await.unwrap();
    let provider = Wrapped::new(memory("a", plain), Does::Right);
    let mut rig = Rig::start(store, vec![Arc::clone(&provider) as _], 1);
    // Eight at once, and none of them is written down.
    reached(&provider.puts, 24).await;
    assert_eq!(rig.store.summary().unwrap().archived, 0);
    close.send(()).unwrap();
    for _ in 1..=40 {
        rig.archives().await;
    }
    writer.join().unwrap().unwrap();
    assert_eq!(*provider.puts.borrow(), 40, "each was put once");
    rig.end().await;
}
