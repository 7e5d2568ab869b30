//! Blobs' lives with four validators over real sockets: archived by the proposer, announced, pruned
//! by everybody.

use secateur_sidecar::{BlobState, SidecarError};

use crate::validators::{Net, Rules, id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_validators_take_turns_and_all_of_them_archive_and_prune() {
    let net = Net::start(Rules::of(4), 4).await;
    for height in 1..=8 {
        let proposer = usize::try_from(height).unwrap() % 4;
        net.decide(height, proposer, &[proposer, proposer + 4]).await;
    }
    net.decide(9, 1, &[]).await;
    net.finalize(8).await;
    for validator in net.all() {
        validator.until_pruned(1..=8).await;
        for height in 1..=8 {
            let status = validator.status(height);
            let proposer = id(usize::try_from(height).unwrap() % 4);
            assert!(status.blobs.iter().all(|blob| blob.state == BlobState::Pruned));
            let signers =
                |signer| status.blobs.iter().all(|b| b.records[0].record.signer == signer);
            assert!(signers(proposer));
            let gone = validator.store().get(height).unwrap_err();
            assert!(matches!(gone, SidecarError::BlobsPruned { blob_count: 2, .. }), "{gone}");
        }
        assert!(validator.store().get(9).unwrap().is_empty(), "it truly has none");
        validator
            .until("everybody has said yes", |store| store.summary().unwrap().announcements == 0)
            .await;
    }
    net.verify();
}
