//! Notices that come before their height is decided where they arrive.

use secateur_sidecar::engine::BlobKey;
use secateur_sidecar::gossip::Gossip as _;
use secateur_sidecar::notice::Signers;
use secateur_sidecar::{BlobState, testdata};

use crate::validators::{Net, Rules, id};

/// Nothing is told a second time, and peers were asked when they connected and never again.
fn once(count: usize) -> Rules {
    Rules { rebroadcast_blocks: 1_000_000, ..Rules::of(count) }
}

/// One validator hears of a decision.
async fn decide_at(net: &Net, n: usize, height: u64, proposer: usize, blobs: &[usize]) {
    let service = &net.at(n).service;
    let proposal = testdata::proposal(height, 0, &id(proposer), blobs);
    service.store_proposal(proposal).await.unwrap();
    service.decided(height, 0).await.unwrap();
}

/// Waits until a validator has told everybody, whatever they answered.
async fn told(net: &Net, n: usize, blobs: usize) {
    net.at(n)
        .until("it was told", |store| {
            let all = store.announcements(BlobKey { height: 0, index: 0 }, 100).unwrap();
            all.len() == blobs && all.iter().all(|one| one.broadcast_at.is_some())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_comes_first_counts_when_its_height_is_decided_and_is_not_told_again() {
    let net = Net::start(once(2), 2).await;
    decide_at(&net, 0, 1, 0, &[0, 1]).await;
    told(&net, 0, 2).await;
    assert_eq!(net.at(1).mesh.counts().later, 2, "both came too early");
    decide_at(&net, 1, 1, 0, &[0, 1]).await;
    // With the decision, and not some time after it.
    assert_eq!(net.at(1).states(1), [BlobState::Archived; 2]);
    assert_eq!(net.at(0).mesh.counts().sent, 2);
    net.finalize(1).await;
    net.at(1).until_pruned([1]).await;
    net.verify();
}

/// It is said once to each, while one of them has not seen enough of the chain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stand_ins_notice_that_comes_first_counts_when_the_chain_has_grown() {
    let rules = Rules { signers: Signers::AnyValidatorAfter(2), ..once(3) };
    let mut net = Net::start(rules, 3).await;
    net.end(0, false).await;
    for n in [1, 2] {
        decide_at(&net, n, 1, 0, &[0]).await;
    }
    for height in [2, 3] {
        decide_at(&net, 1, height, 1, &[]).await;
    }
    told(&net, 1, 1).await;
    decide_at(&net, 2, 2, 1, &[]).await;
    assert_eq!(net.at(2).states(1), [BlobState::Pending], "only the proposer may sign yet");
    decide_at(&net, 2, 3, 1, &[]).await;
    assert_eq!(net.at(2).states(1), [BlobState::Archived]);
    assert_eq!(net.at(2).status(1).blobs[0].records[0].record.signer, id(1));
    net.verify();
}
