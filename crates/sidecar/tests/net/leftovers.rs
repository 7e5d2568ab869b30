//! What is left of things that never come to an end: proposals that nobody decides.

use secateur_sidecar::testdata;

use crate::validators::{Net, Rules, id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_that_nobody_decides_go_with_finality_and_at_a_start() {
    let mut net = Net::start(Rules::of(1), 1).await;
    let rounds = |net: &Net| net.at(0).store().summary().unwrap().rounds;
    for height in 1_000..1_100 {
        let proposal = testdata::proposal(height, 0, &id(0), &[0]);
        net.at(0).service.store_proposal(proposal).await.unwrap();
    }
    net.finalize(999).await;
    assert_eq!(rounds(&net), 100);
    net.finalize(5_000).await;
    assert_eq!(rounds(&net), 0);
    // One that came after that, or before a crash, is gone with the next start.
    let late = testdata::proposal(1_000, 0, &id(0), &[0]);
    net.at(0).service.store_proposal(late).await.unwrap();
    net.end(0, false).await;
    net.restart(0).await;
    net.at(0).until("it is gone", |store| store.summary().unwrap().rounds == 0).await;
    net.verify();
}
