//! For what a validator signs, with which key, and how often it says so.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use secateur_core::Height;
use secateur_sidecar::announcer::Announcer;
use secateur_sidecar::book::Book;
use secateur_sidecar::engine::{ArchiveRecord, BlobKey, RecordForm, Role, Unpermitted};
use secateur_sidecar::gossip::{Handoff, NoticeBook as _};
use secateur_sidecar::metrics::SidecarMetrics;
use secateur_sidecar::notice::{Signers, ValidatorTerm};
use secateur_sidecar::{BlobState, EngineConfig, SidecarError, SidecarStore, testdata};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Ground, SystemClock};
use tokio::sync::Notify;

use crate::validators::{CHAIN, Net, Rules, Store, id, key, term};

fn held(store: &Store, height: Height) -> Option<Unpermitted> {
    store.status(height).unwrap().blobs[0].job.and_then(|job| job.held)
}

fn notices(net: &Net, height: Height) -> Vec<bytes::Bytes> {
    net.at(1).service.book().notices_for(height, 0, 9).unwrap()
}

/// Its first term ends with height 2; the next one has another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_signs_for_its_own_term_only_and_what_was_signed_stays_the_same_bytes() {
    let mut rules = Rules::of(1);
    let next =
        ValidatorTerm { public_key: key(7).public_key(), from_height: 3, ..term(1, 3, None) };
    rules.terms.extend([term(1, 0, Some(2)), next]);
    let mut net = Net::start(rules, 2).await;
    for height in [1, 3] {
        net.decide(height, 1, &[0]).await;
    }
    net.finalize(3).await;
    for validator in net.all() {
        validator.until_pruned([1]).await;
    }
    net.at(1).until("3 waits", |store| held(store, 3) == Some(Unpermitted::OtherKey)).await;
    assert!(net.all().all(|one| one.prune().heights == 0 && one.states(3) == [BlobState::Pending]));
    let before = notices(&net, 1);
    assert_eq!((before.len(), notices(&net, 3).len()), (1, 0));
    // The new key comes, and the old one with a height that it did not sign for is gone.
    net.end(1, true).await;
    net.rules.keys[1] = 7;
    net.restart(1).await;
    net.decide(2, 1, &[1]).await;
    for validator in net.all() {
        validator.until_pruned([3]).await;
    }
    net.at(1).until("2 waits", |store| held(store, 2) == Some(Unpermitted::OtherKey)).await;
    assert_eq!(notices(&net, 1), before, "not signed anew");
    assert_eq!(net.at(0).states(2), [BlobState::Pending]);
    // The operator puts the old key back for it.
    net.end(1, true).await;
    net.rules.keys[1] = 1;
    net.restart(1).await;
    net.at(1).service.retry(2).await.unwrap();
    for validator in net.all() {
        validator.until_pruned([2]).await;
    }
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_archives_or_signs_or_prunes_what_it_may_not_sign_for_however_it_is_asked() {
    for (signers, why) in [
        (Signers::ProposerOnly, Unpermitted::NotProposer),
        (Signers::AnyValidatorAfter(9), Unpermitted::NotYet),
    ] {
        let mut net = Net::start(Rules { signers, ..Rules::of(2) }, 2).await;
        net.end(0, true).await;
        net.decide(1, 0, &[0]).await;
        net.finalize(1).await;
        let refused = net.at(1).service.retry(1).await.unwrap_err();
        let right = matches!(&refused, SidecarError::MayNotSign { height: 1, why: said, .. } if *said == why);
        assert!(right, "{refused}");
        assert_eq!(refused.is_retryable(), why == Unpermitted::NotYet);
        assert!(net.at(1).status(1).blobs[0].job.is_none(), "nothing is queued");
        // A command on the directory knows nothing of that: the node does.
        net.at(1).store().enqueue(1, 0).unwrap();
        net.decide(2, 1, &[]).await;
        net.at(1).until("it waits", |store| held(store, 1) == Some(why)).await;
        assert_eq!(net.at(1).states(1), [BlobState::Pending]);
        assert_eq!(net.at(1).prune().heights, 0);
        assert!(!net.archive().exists() || std::fs::read_dir(net.archive()).unwrap().count() == 0);
        net.verify();
    }
}

/// The first heights are none of its business for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_validator_stands_in_behind_any_number_of_heights_that_it_may_not_sign_for() {
    let mut rules = Rules { signers: Signers::AnyValidatorAfter(1), ..Rules::of(1) };
    rules.terms.push(term(1, 71, None));
    let mut net = Net::start(rules, 2).await;
    net.end(0, true).await;
    for height in 1..=71 {
        net.decide(height, 0, &[0]).await;
    }
    for height in 72..=76 {
        net.decide(height, 1, &[]).await;
    }
    net.finalize(76).await;
    net.at(1).until_pruned([71]).await;
    assert_eq!(net.at(1).states(70), [BlobState::Pending]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_proposal_of_any_height_makes_nobody_stand_in() {
    let mut net =
        Net::start(Rules { signers: Signers::AnyValidatorAfter(3), ..Rules::of(2) }, 2).await;
    net.end(0, true).await;
    net.decide(1, 0, &[0]).await;
    let mut bad = testdata::proposal(Height::MAX, 0, &id(0), &[1]);
    bad.sidecars[0].index = 5;
    let good = testdata::proposal(2, 0, &id(1), &[]);
    let answers = net.at(1).service.store_decided(vec![bad, good]).await.unwrap();
    assert!(matches!(answers.as_slice(), [Err(SidecarError::WrongIndex { .. }), Ok(_)]));
    assert!(net.at(1).status(1).blobs[0].job.is_none());
    net.verify();
}

/// Where nobody answers, a notice is told a few times and then no more.
#[tokio::test]
async fn what_nobody_confirms_is_told_eight_times() {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let config = EngineConfig::new(CHAIN, [1; 16]);
    let store = Arc::new(SidecarStore::open(ground, config, Arc::new(SystemClock)).unwrap());
    let metrics = Arc::new(SidecarMetrics::new(&mut Registry::default()));
    let verifier = Arc::new(Rules::of(1).verifier());
    let signing = Some(Arc::new(key(0)));
    let book = Arc::new(Book::new(Arc::clone(&store), verifier, signing, metrics));
    let (handoff, mut outgoing) = Handoff::new(None);
    let announcer = Announcer::new(
        Arc::clone(&store),
        Arc::clone(&book),
        Arc::new(handoff),
        2,
        Arc::new(Notify::new()),
    );
    let decide = |height, blobs: &[usize]| {
        store.store_decided(&testdata::proposal(height, 0, &id(0), blobs), Role::Follower).unwrap()
    };
    decide(1, &[0]);
    let record = ArchiveRecord {
        signer: id(0),
        form: RecordForm::Own,
        locators: vec![secateur_core::Locator { provider: "disk".into(), key: "a".into() }],
        archived_at_height: 1,
        archived_at: 5,
        signature: None,
    };
    let marked = book.record_own(&[(BlobKey { height: 1, index: 0 }, record)]).unwrap();
    assert!(marked[0].is_ok(), "{marked:?}");
    let mut told = Vec::new();
    for height in 2..40 {
        assert!(!announcer.turn().await.unwrap());
        assert!(!announcer.turn().await.unwrap(), "nothing more at this height");
        decide(height, &[]);
    }
    drop(announcer);
    while let Some(bytes) = outgoing.next().await {
        told.push(bytes);
    }
    assert_eq!(told.len(), 8);
    assert!(told.iter().all(|bytes| *bytes == told[0]));
    assert_eq!(store.summary().unwrap().announcements, 0);
}
