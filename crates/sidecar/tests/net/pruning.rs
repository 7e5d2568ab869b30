//! The pruner by itself, under `trust = fetch`: copies that never come, or come late, hold their own
//! height and nobody else's. And notices of the older form, through the book and the pruner.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secateur_core::notice::{Notice, NoticeBodyV0};
use secateur_core::{Height, Locator};
use secateur_sidecar::book::{Book, BookObserver};
use secateur_sidecar::compat::AlsoV0;
use secateur_sidecar::copies::Copies;
use secateur_sidecar::engine::{
    ArchiveRecord, BlobKey, FetchDue, Hold, PruneReport, RecordForm, Role,
};
use secateur_sidecar::gossip::{Gossip as _, InProcess, Message, NoticeBook as _, Verdict};
use secateur_sidecar::notice::{Rejection, Signers, Validators, Verifier, sign, sign_v0};
use secateur_sidecar::provider::{BlobTags, Provider, ProviderError};
use secateur_sidecar::pruner::{Pruner, PrunerObserver};
use secateur_sidecar::reader::{Reader, ServeArchived};
use secateur_sidecar::service::Identity;
use secateur_sidecar::{EngineConfig, SidecarError, SidecarStore, Trust, testdata};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Ground, SystemClock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::validators::{CHAIN, PATIENCE, id, key, term};
use crate::wrapped::{Holds, Said};

type Store = SidecarStore<MemoryArena, MemoryIndex>;

/// Copies by their names; some never come.
#[derive(Debug, Default)]
struct Place {
    copies: Mutex<HashMap<String, Bytes>>,
    stuck: Mutex<HashSet<String>>,
    asked: Mutex<Vec<String>>,
    /// How many are asked for now, and the most that ever were.
    now: Mutex<(usize, usize)>,
}

impl Place {
    fn asked(&self, name: &str) -> usize {
        self.asked.lock().iter().filter(|asked| *asked == name).count()
    }
}

impl Provider for Place {
    fn id(&self) -> &'static str {
        "place"
    }

    fn put<'a>(
        &'a self,
        _: &'a BlobTags,
        _: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(pending())
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        _: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        Box::pin(async move {
            self.asked.lock().push(locator.to_owned());
            {
                let mut now = self.now.lock();
                now.0 += 1;
                now.1 = now.1.max(now.0);
            }
            if self.stuck.lock().contains(locator) {
                pending::<()>().await;
            }
            // Others begin before this one ends.
            tokio::task::yield_now().await;
            self.now.lock().0 -= 1;
            if locator.starts_with("odd://") {
                let (what, reason) = ("locator", "it is of another form".to_owned());
                return Err(ProviderError::Invalid { what, reason });
            }
            let (provider, locator) = (self.id().to_owned(), locator.to_owned());
            let found = self.copies.lock().get(&locator).cloned();
            found.ok_or(ProviderError::Missing { provider, locator })
        })
    }

    fn find<'a>(&'a self, _: &'a BlobTags) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        Box::pin(pending())
    }
}

#[derive(Default)]
struct Ears {
    told: watch::Sender<(u64, u64)>,
    /// Heights of which it was said that copies are not there, and that their locators cannot be read.
    absent: Mutex<Vec<Height>>,
    unreadable: Mutex<Vec<Height>>,
}

impl PrunerObserver for Ears {
    fn pruned(&self, report: &PruneReport) {
        self.told.send_modify(|told| told.0 += report.heights);
    }

    fn not_fetched(&self, _: &FetchDue) {
        self.told.send_modify(|told| told.1 += 1);
    }

    fn not_there(&self, due: &FetchDue) {
        self.absent.lock().push(due.meta.height);
    }

    fn unreadable(&self, due: &FetchDue) {
        self.unreadable.lock().push(due.meta.height);
    }
}

impl BookObserver for Ears {
    fn recorded(&self, _: BlobKey, _: &ArchiveRecord) {}
    fn rejected(&self, _: &Rejection) {}
}

struct Rig {
    store: Arc<Store>,
    place: Arc<Place>,
    ears: Arc<Ears>,
    wake: Arc<Notify>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<Result<(), SidecarError>>>,
}

impl Rig {
    fn new(trust: Trust) -> Self {
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        let config = EngineConfig { trust, ..EngineConfig::new(CHAIN, [1; 16]) };
        let store = Arc::new(SidecarStore::open(ground, config, Arc::new(SystemClock)).unwrap());
        let (place, ears) = (Arc::default(), Arc::default());
        let stop = watch::Sender::new(false);
        Self { store, place, ears, wake: Arc::default(), stop, task: None }
    }

    fn copies(&self) -> Copies {
        Copies::new(&[Arc::clone(&self.place) as Arc<dyn Provider>])
    }

    fn start(&mut self) {
        let (ears, wake) = (Arc::clone(&self.ears), Arc::clone(&self.wake));
        let pruner = Pruner::new(Arc::clone(&self.store), self.copies(), ears, wake);
        let stopped = self.stop.subscribe();
        self.task = Some(tokio::spawn(async move { pruner.run(stopped).await }));
    }

    /// A height with one blob, decided.
    fn decide(&self, height: Height) {
        let proposal = testdata::proposal(height, 0, &id(0), &[3]);
        self.store.store_decided(&proposal, Role::Follower).unwrap();
    }

    /// Somebody signs for a copy of it.
    fn record(&self, height: Height, signer: usize, name: &str) {
        self.record_at(height, signer, "place", name);
    }

    fn record_at(&self, height: Height, signer: usize, provider: &str, name: &str) {
        let record = ArchiveRecord {
            signer: id(signer),
            form: RecordForm::V1,
            locators: vec![Locator { provider: provider.into(), key: name.into() }],
            archived_at_height: height,
            archived_at: 5,
            signature: Some([1; 64]),
        };
        let keccak = self.store.blob_meta(height, 0).unwrap().unwrap().keccak;
        self.store.mark_archived(BlobKey { height, index: 0 }, &record, keccak).unwrap();
    }

    fn copy(&self, name: &str) {
        let blob = testdata::pooled(3).blob.clone();
        self.place.copies.lock().insert(name.to_owned(), blob);
    }

    async fn until(&self, is_so: impl FnMut(&(u64, u64)) -> bool) {
        let mut told = self.ears.told.subscribe();
        let waited = tokio::time::timeout(PATIENCE, told.wait_for(is_so)).await;
        assert!(waited.is_ok(), "{:?}", self.ears.told.borrow());
    }

    async fn end(mut self) {
        self.stop.send_replace(true);
        let task = self.task.take().unwrap();
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
        let report = self.store.verify(|_, _| ()).unwrap();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_never_comes_holds_its_own_height_and_no_other() {
    let mut rig = Rig::new(Trust::Fetch);
    for height in 1..=100 {
        rig.decide(height);
        rig.record(height, 0, &height.to_string());
        rig.copy(&height.to_string());
    }
    for stuck in ["1", "2", "50"] {
        rig.place.stuck.lock().insert(stuck.to_owned());
    }
    rig.store.set_finalized(100).unwrap();
    rig.start();
    rig.until(|(pruned, _)| *pruned == 97).await;
    let held = rig.store.waiting_heights(0, 9).unwrap();
    assert_eq!(held.iter().map(|at| at.height).collect::<Vec<_>>(), [1, 2, 50]);
    let most = rig.place.now.lock().1;
    assert!((4..=8).contains(&most), "{most} at once");
    // What comes later is pruned too.
    rig.decide(101);
    rig.record(101, 0, "101");
    rig.copy("101");
    rig.store.set_finalized(101).unwrap();
    rig.wake.notify_one();
    rig.until(|(pruned, _)| *pruned == 98).await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_not_there_is_left_alone_for_a_while_and_a_new_place_is_not() {
    let mut rig = Rig::new(Trust::Fetch);
    for height in 1..=3 {
        rig.decide(height);
        rig.record(height, 0, &height.to_string());
    }
    rig.copy("2");
    rig.store.set_finalized(3).unwrap();
    rig.start();
    rig.until(|told| *told == (1, 2)).await;
    let began = std::time::Instant::now();
    for height in 4..=40 {
        rig.decide(height);
        rig.record(height, 0, "2");
        rig.store.set_finalized(height).unwrap();
        rig.wake.notify_one();
        rig.until(|(pruned, _)| *pruned == height - 2).await;
    }
    if began.elapsed().as_secs() < 4 {
        assert_eq!((rig.place.asked("1"), rig.place.asked("3")), (1, 1), "it was just asked for");
    }
    // Somebody else signs for a copy that is there.
    rig.record(1, 1, "2");
    rig.wake.notify_one();
    rig.until(|(pruned, _)| *pruned == 39).await;
    assert!(rig.store.status(1).unwrap().pruned.is_some());
    assert!(rig.store.status(3).unwrap().pruned.is_none());
    rig.end().await;
}

/// A locator in a form that this node did not know (`load-s3://…`, as Ultramarine writes it), or at a provider that
/// is not configured here, was taken for a copy that is not there: its honest signer was warned of and counted as
/// a liar. It is counted as unreadable now; the height is held, and others are heard, as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_locator_holds_its_height_and_accuses_no_signer() {
    let mut rig = Rig::new(Trust::Fetch);
    for height in 1..=4 {
        rig.decide(height);
    }
    rig.record(1, 0, "odd://1");
    rig.record_at(2, 0, "elsewhere", "2");
    rig.record(3, 0, "absent");
    rig.record(4, 0, "4");
    rig.copy("4");
    rig.store.set_finalized(4).unwrap();
    rig.start();
    rig.until(|told| *told == (1, 3)).await;
    // The last report of a height comes after it was counted as not fetched.
    let all = async {
        while rig.ears.absent.lock().len() + rig.ears.unreadable.lock().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap();
    rig.ears.unreadable.lock().sort_unstable();
    assert_eq!(*rig.ears.absent.lock(), [3], "only what could be read and is not there");
    assert_eq!(*rig.ears.unreadable.lock(), [1, 2]);
    assert!(rig.store.status(1).unwrap().pruned.is_none(), "it is not pruned unseen");
    // A signer that can name a place that is read is heard.
    rig.record(1, 1, "4");
    rig.wake.notify_one();
    rig.until(|(pruned, _)| *pruned == 2).await;
    rig.end().await;
}

/// A notice in the older form, of the proposer.
fn older(store: &Store, height: Height, name: &str) -> Bytes {
    let meta = store.blob_meta(height, 0).unwrap().unwrap();
    let body = NoticeBodyV0 {
        height,
        round: 0,
        blob_index: 0,
        kzg_commitment: meta.commitment.0,
        blob_keccak: meta.keccak.0,
        locator: Locator { provider: "place".into(), key: name.into() },
        archived_by: id(0).as_bytes().to_vec(),
        archived_at: 5,
    };
    Notice::V0(sign_v0(body, &key(0)).unwrap()).encode().unwrap().into()
}

fn verifier(accept_v0: bool) -> Verifier {
    let validators = Validators::new(&[term(0, 0, None)]).unwrap();
    Verifier { chain_id: CHAIN, validators, signers: Signers::ProposerOnly, accept_v0 }
}

/// It binds no chain: it lets nothing go unless the copy was fetched and compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_of_the_older_form_prunes_nothing_by_itself_and_does_after_a_fetch() {
    for trust in [Trust::Signature, Trust::Fetch] {
        let mut rig = Rig::new(trust);
        let book = |accept_v0| {
            let verifier = Arc::new(verifier(accept_v0));
            Book::new(Arc::clone(&rig.store), verifier, None, Arc::clone(&rig.ears) as _)
        };
        rig.decide(1);
        rig.decide(2);
        let notice = older(&rig.store, 1, "1");
        let refused = book(false).take(&notice);
        assert_eq!(refused, Verdict::Refused("v0_disabled".into()), "it is off by default");
        assert_eq!(book(true).take(&notice), Verdict::New);
        assert_eq!(book(true).take(&notice), Verdict::Known);
        rig.record(2, 0, "2");
        rig.store.set_finalized(2).unwrap();
        let hold = rig.store.status(1).unwrap().hold;
        if trust == Trust::Signature {
            assert_eq!(hold, Some(Hold::UnboundNotice));
            rig.copy("1");
            rig.start();
            rig.until(|(pruned, _)| *pruned == 1).await;
            assert_eq!(rig.store.prune_archived_before(Height::MAX).unwrap().heights, 0);
            assert!(rig.store.status(2).unwrap().pruned.is_some());
            assert_eq!(rig.store.get(1).unwrap().len(), 1, "its bytes are here");
        } else {
            assert_eq!(hold, Some(Hold::NotFetched));
            rig.copy("2");
            rig.start();
            rig.until(|told| *told == (1, 1)).await;
            assert!(rig.store.status(1).unwrap().pruned.is_none());
            rig.copy("1");
            rig.until(|(pruned, _)| *pruned == 2).await;
        }
        rig.end().await;
    }
}

#[tokio::test]
async fn what_this_node_signed_is_told_in_the_older_form_too_and_always_in_the_same_bytes() {
    let rig = Rig::new(Trust::Fetch);
    rig.decide(1);
    let (net, said) = (InProcess::new(), Said::new(Holds::Nothing));
    let node = net.join("a", None);
    let identity = Identity { id: id(0), key: Arc::new(key(0)) };
    let gossip = AlsoV0::new(said.tap(Arc::new(node)), identity);
    let meta = rig.store.blob_meta(1, 0).unwrap().unwrap();
    let body = secateur_core::notice::NoticeBody {
        chain_id: CHAIN,
        height: 1,
        round: 0,
        blob_index: 0,
        kzg_commitment: meta.commitment.0,
        blob_keccak: meta.keccak.0,
        locators: ["1", "2"]
            .map(|key| Locator { provider: "place".into(), key: key.into() })
            .into(),
        archived_by: id(0).as_bytes().to_vec(),
        archived_at_height: 1,
    };
    let message = |signer: usize| {
        let body = secateur_core::notice::NoticeBody {
            archived_by: id(signer).as_bytes().to_vec(),
            ..body.clone()
        };
        let notice = Notice::V1(sign(body, 5, &key(signer)).unwrap());
        Message::notice(notice.encode().unwrap()).unwrap()
    };
    for _ in 0..2 {
        gossip.broadcast(message(0)).await.unwrap();
    }
    // Another's is passed on as it is.
    gossip.broadcast(message(1)).await.unwrap();
    let told = said.notices.lock().clone();
    assert_eq!(told.len(), 5);
    assert_eq!(told[0], *message(0).content());
    assert_eq!(told[1], older(&rig.store, 1, "1"), "as anybody would make it of the first locator");
    assert_eq!((&told[2], &told[3]), (&told[0], &told[1]));
    assert_eq!(told[4], *message(1).content());
    let book = Book::new(Arc::clone(&rig.store), Arc::new(verifier(true)), None, rig.ears);
    assert_eq!(book.take(&told[1]), Verdict::New);
}

/// What is here does not wait for a provider that hangs, and one question does not fetch its copies
/// one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_reads_do_not_wait_for_providers_and_copies_are_fetched_beside_one_another() {
    let rig = Rig::new(Trust::Signature);
    for height in 1..=2 {
        let proposal = testdata::proposal(height, 0, &id(0), &[3, 3, 3, 3]);
        rig.store.store_decided(&proposal, Role::Follower).unwrap();
    }
    for index in 0..4 {
        let key = BlobKey { height: 1, index };
        let record = ArchiveRecord {
            signer: id(0),
            form: RecordForm::V1,
            locators: vec![Locator { provider: "place".into(), key: index.to_string() }],
            archived_at_height: 1,
            archived_at: 5,
            signature: Some([1; 64]),
        };
        let keccak = rig.store.blob_meta(1, index).unwrap().unwrap().keccak;
        rig.store.mark_archived(key, &record, keccak).unwrap();
        rig.copy(&index.to_string());
    }
    rig.store.set_finalized(1).unwrap();
    assert_eq!(rig.store.prune_archived_before(2).unwrap().heights, 1);
    let reader = |copies| {
        Arc::new(Reader::new(Arc::clone(&rig.store), copies, ServeArchived::UntilPruned, true))
    };
    assert_eq!(reader(rig.copies()).blobs(1).await.unwrap().len(), 4);
    assert!(rig.place.now.lock().1 > 1, "beside one another");
    rig.place.stuck.lock().insert("0".to_owned());
    let one = reader(rig.copies().bounded(1));
    let asked = rig.place.asked("0");
    let (asks, place) = (Arc::clone(&one), Arc::clone(&rig.place));
    let hangs = tokio::spawn(async move { asks.blobs(1).await.map(drop) });
    let hanging = async {
        while place.asked("0") == asked {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, hanging).await.unwrap();
    let here = tokio::time::timeout(PATIENCE, one.blobs(2)).await.unwrap().unwrap();
    assert_eq!(here.len(), 4);
    hangs.abort();
}
