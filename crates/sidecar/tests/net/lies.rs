//! Permitted signers that sign for copies which are not there, under `trust = fetch`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use secateur_core::Locator;
use secateur_core::notice::{Notice, NoticeBody};
use secateur_sidecar::book::{Book, BookObserver};
use secateur_sidecar::engine::{ArchiveRecord, BlobKey};
use secateur_sidecar::gossip::{Gossip as _, NoticeBook as _, Verdict};
use secateur_sidecar::notice::{Rejection, Signers, sign};
use secateur_sidecar::{BlobState, Trust, ValidatorId};

use crate::validators::{CHAIN, Net, PATIENCE, Rules, Validator, directory, id, key};
use crate::wrapped::{Does, Wrapped};

/// A notice of a validator that names a place where nothing is.
fn lie(of: &Validator, signer: usize, height: u64, place: &str) -> Bytes {
    let meta = of.store().blob_meta(height, 0).unwrap().unwrap();
    let body = NoticeBody {
        chain_id: CHAIN,
        height,
        round: 0,
        blob_index: 0,
        kzg_commitment: meta.commitment.0,
        blob_keccak: meta.keccak.0,
        locators: vec![Locator { provider: "disk".to_owned(), key: place.to_owned() }],
        archived_by: id(signer).as_bytes().to_vec(),
        archived_at_height: height,
    };
    Notice::V1(sign(body, 5, &key(signer)).unwrap()).encode().unwrap().into()
}

/// Does something again and again until a height is pruned.
async fn until_pruned<F: Future>(validator: &Validator, height: u64, mut again: impl FnMut() -> F) {
    let pruned = || validator.status(height).pruned.is_some();
    let done = tokio::time::timeout(PATIENCE, async {
        while !pruned() {
            again().await;
        }
    });
    assert!(done.await.is_ok(), "{:?}", validator.status(height));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_notice_that_comes_first_gives_way_to_the_true_one_of_its_signer() {
    let rules = Rules { trust: Trust::Fetch, rebroadcast_blocks: 1_000_000, ..Rules::of(2) };
    let net = Net::start(rules, 2).await;
    // It is not decided at its proposer yet, who would be done before the liar.
    let proposal = secateur_sidecar::testdata::proposal(1, 0, &id(0), &[0]);
    net.at(1).service.store_decided(vec![proposal.clone()]).await.unwrap();
    assert_eq!(net.at(1).service.book().take(&lie(net.at(1), 0, 1, "nowhere")), Verdict::New);
    net.at(0).service.store_decided(vec![proposal]).await.unwrap();
    net.at(0)
        .until("it was told", |store| {
            let told = store.announcements(BlobKey { height: 0, index: 0 }, 9).unwrap();
            told.first().is_some_and(|one| one.broadcast_at.is_some())
        })
        .await;
    assert_eq!(net.at(1).mesh.counts().later, 1, "a conflict, as long as nobody has looked");
    assert_eq!(net.at(1).status(1).blobs[0].records.len(), 1);
    assert_eq!(net.at(1).prune().heights, 0);
    net.finalize(1).await;
    until_pruned(net.at(1), 1, || net.at(1).mesh.catch_up()).await;
    let blob = &net.at(1).status(1).blobs[0];
    assert!(blob.fetched_at.is_some());
    assert_eq!(blob.records.len(), 2, "the lie stays as evidence");
    assert_eq!(blob.records[0].record.locators[0].key, "nowhere");
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposer_that_only_lies_is_stood_in_for() {
    let dir = tempfile::tempdir().unwrap();
    let liar = Wrapped::new(directory(dir.path().to_owned()), Does::Pretends);
    let rules =
        Rules { trust: Trust::Fetch, signers: Signers::AnyValidatorAfter(2), ..Rules::of(3) };
    let provider_of = move |n, usual| if n == 0 { Arc::clone(&liar) as _ } else { usual };
    let net = Net::with(rules, 3, Arc::new(provider_of), Arc::new(|_, mesh| mesh)).await;
    net.decide(1, 0, &[0]).await;
    for n in [1, 2] {
        net.at(n).until("it is said", |store| store.summary().unwrap().pending == 0).await;
        assert_eq!(net.at(n).states(1), [BlobState::Archived]);
    }
    net.finalize(1).await;
    // The turn of the second, whatever it has heard by then, begins at 5.
    for height in 2..=4 {
        net.decide(height, 0, &[]).await;
    }
    for n in [1, 2] {
        until_pruned(net.at(n), 1, || async {
            net.decide(4, 0, &[]).await;
            net.at(n).mesh.catch_up().await
        })
        .await;
        let signers: Vec<ValidatorId> = net.at(n).status(1).blobs[0]
            .records
            .iter()
            .map(|kept| kept.record.signer.clone())
            .collect();
        assert_eq!(signers, [id(0), id(1)]);
    }
    net.verify();
}

#[derive(Default)]
struct Counting {
    recorded: AtomicU64,
    rejected: AtomicU64,
    equivocated: AtomicU64,
}

impl BookObserver for Counting {
    fn recorded(&self, _: BlobKey, _: &ArchiveRecord) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
    }

    fn rejected(&self, _: &Rejection) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    fn equivocated(&self, _: BlobKey, _: &ValidatorId) {
        self.equivocated.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counting {
    fn counts(&self) -> [u64; 3] {
        [&self.recorded, &self.rejected, &self.equivocated].map(|n| n.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_signs_twice_is_counted_whether_it_is_heard_or_not() {
    for trust in [Trust::Signature, Trust::Fetch] {
        let net = Net::start(Rules { trust, ..Rules::of(2) }, 1).await;
        let proposal = secateur_sidecar::testdata::proposal(1, 0, &id(1), &[0]);
        net.at(0).service.store_decided(vec![proposal]).await.unwrap();
        let (seen, store) = (Arc::new(Counting::default()), net.at(0).store());
        let verifier = Arc::new(net.rules.verifier());
        let book = Book::new(Arc::clone(store), verifier, None, Arc::clone(&seen) as _);
        let blob = BlobKey { height: 1, index: 0 };
        let [first, second] = ["a", "b"].map(|place| lie(net.at(0), 1, 1, place));
        assert_eq!(book.take(&first), Verdict::New);
        let refused = book.take(&second);
        assert_eq!(seen.counts(), [1, 1, 1]);
        if trust == Trust::Signature {
            // The first one stands, for good.
            assert_eq!(refused, Verdict::Refused("conflict".to_owned()));
            assert!(!store.doubt(blob).unwrap());
            assert_eq!(book.take(&second), refused);
            continue;
        }
        assert_eq!(refused, Verdict::Later("conflict".to_owned()));
        assert!(store.doubt(blob).unwrap());
        assert_eq!(book.take(&second), Verdict::New);
        assert_eq!(seen.counts(), [2, 1, 2]);
        assert_eq!(
            [&first, &second].map(|notice| book.take(notice)),
            [Verdict::Known, Verdict::Known]
        );
        let told = book.notices_for(1, 0, 9).unwrap();
        assert_eq!(told, [first, second], "both are passed on");
    }
}
