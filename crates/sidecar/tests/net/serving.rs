//! Serving what real validators hold: until it is pruned, not at all, with locators, or through the
//! archive.

use std::sync::Arc;

use secateur_sidecar::copies::Copies;
use secateur_sidecar::reader::{Reader, ServeArchived};
use secateur_sidecar::{BlobState, SidecarError, testdata};
use secateur_store::ground::disk::{FileArena, FsVolume};

use crate::validators::{Net, Rules, Validator, directory};
use crate::watched::WatchedIndex;

type NetReader = Reader<FileArena<FsVolume>, WatchedIndex>;

fn reader(net: &Net, of: &Validator, serve: ServeArchived, read_through: bool) -> NetReader {
    let copies = Copies::new(&[directory(net.archive())]);
    Reader::new(Arc::clone(of.store()), copies, serve, read_through)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobs_are_served_until_they_are_pruned_and_then_from_a_copy_that_is_right() {
    let net = Net::start(Rules::of(2), 2).await;
    net.decide(1, 0, &[3, 4]).await;
    net.decide(2, 0, &[]).await;
    let node = net.at(1);
    node.until("it is archived", |store| store.summary().unwrap().archived == 2).await;
    assert_eq!(node.states(1), [BlobState::Archived; 2]);
    let serving = reader(&net, node, ServeArchived::UntilPruned, false);
    let refusing = reader(&net, node, ServeArchived::Refuse, false);
    let through = reader(&net, node, ServeArchived::UntilPruned, true);
    let is_right = |blobs: &[secateur_sidecar::engine::StoredBlob]| {
        let bytes: Vec<_> = blobs.iter().map(|one| one.blob.clone()).collect();
        assert_eq!(bytes, [testdata::pooled(3).blob.clone(), testdata::pooled(4).blob.clone()]);
    };
    is_right(&serving.blobs(1).await.unwrap());
    let hashes: Vec<_> = node.status(1).blobs.iter().map(|blob| blob.versioned_hash).collect();
    let by_hash = serving.by_hashes(hashes.clone()).await.unwrap();
    is_right(&by_hash.into_iter().flatten().collect::<Vec<_>>());
    let is_elsewhere = |error: &SidecarError, still_here: bool| match error {
        SidecarError::BlobsPruned { height: 1, blob_count: 2, locators, is_here } => {
            *is_here == still_here
                && locators.len() == 2
                && locators.iter().all(|of| of[0].provider == "disk")
        }
        _ => false,
    };
    assert!(is_elsewhere(&refusing.blobs(1).await.unwrap_err(), true));
    assert!(serving.blobs(2).await.unwrap().is_empty(), "it truly has none");
    let unknown = serving.blobs(3).await.unwrap_err();
    assert!(matches!(unknown, SidecarError::Unknown(3)), "{unknown}");
    net.finalize(1).await;
    node.until_pruned([1]).await;
    assert!(is_elsewhere(&serving.blobs(1).await.unwrap_err(), false));
    assert!(is_elsewhere(&refusing.blobs(1).await.unwrap_err(), false));
    assert_eq!(serving.by_hashes(hashes).await.unwrap(), [None, None]);
    is_right(&through.blobs(1).await.unwrap());
    assert_eq!(through.fetch(1, 1).await.unwrap().blob, testdata::pooled(4).blob);
    // The archive's copy of the second blob is not what it was.
    let locator = node.status(1).blobs[1].records[0].record.locators[0].clone();
    let path = net.archive().join(&locator.key);
    std::fs::write(&path, &testdata::pooled(5).blob).unwrap();
    for wrong in [through.blobs(1).await.map(drop), through.fetch(1, 1).await.map(drop)] {
        let error = wrong.unwrap_err();
        assert!(matches!(error, SidecarError::NoCopy { height: 1, index: 1, .. }), "{error}");
        assert!(error.is_retryable());
    }
    assert_eq!(through.fetch(1, 0).await.unwrap().blob, testdata::pooled(3).blob);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_damaged_here_hold_nothing_up_and_are_served_from_a_copy() {
    let net = Net::start(Rules::of(2), 2).await;
    net.isolate(1, true).await;
    net.decide(1, 0, &[3]).await;
    let node = net.at(1);
    // A bit of the blob is another one now.
    let arena = net.archive().with_file_name("validator1").join("arena");
    let mut bytes = std::fs::read(&arena).unwrap();
    let blob = testdata::pooled(3).blob.clone();
    let at = bytes.windows(64).position(|some| some == &blob[..64]).unwrap() + 32;
    bytes[at] ^= 1;
    std::fs::write(&arena, bytes).unwrap();
    let damaged = node.store().get_blob(1, 0).unwrap_err();
    assert!(damaged.is_damage(), "{damaged}");
    // The hash that was computed when it came is enough to believe who has a right copy.
    net.isolate(1, false).await;
    node.until("it is archived", |store| store.summary().unwrap().archived == 1).await;
    let serving = reader(&net, node, ServeArchived::UntilPruned, false);
    assert!(serving.blobs(1).await.unwrap_err().is_damage());
    let hash = node.status(1).blobs[0].versioned_hash;
    assert_eq!(serving.by_hashes(vec![hash]).await.unwrap(), [None]);
    let through = reader(&net, node, ServeArchived::UntilPruned, true);
    assert_eq!(through.blobs(1).await.unwrap()[0].blob, blob);
    net.finalize(1).await;
    node.until_pruned([1]).await;
    assert_eq!(through.blobs(1).await.unwrap()[0].blob, blob);
}
