//! From blocks to parts and back, in a directory and in a bucket.

use futures_util::TryStreamExt;
use secateur_archive::{
    Archive, ArchiveError, Archiver, Check, Codec, Depth, Manifest, VerifyOptions, VerifyReport,
};
use secateur_core::Part;

use crate::chain::{self, CHAIN, archive_all, options, settle};
use crate::s3::Bucket;

pub async fn verify(archive: &Archive, depth: Depth) -> VerifyReport {
    let options = VerifyOptions { depth, upto: None };
    archive.verify(CHAIN, options, |_| {}).await.unwrap()
}

async fn goes_there_and_back(archive: &Archive) -> Vec<Part> {
    let stage = tempfile::tempdir().unwrap();
    let blocks = chain::evm(60);
    let parts = archive_all(archive, options(stage.path(), Codec::Evm, 25), &blocks).await.unwrap();
    // A block every two hours, from 22:13 on: one in the first day, then twelve a day.
    assert_eq!(parts.iter().map(|part| part.first).collect::<Vec<_>>(), [0, 1, 13, 25, 37]);
    let listed: Vec<Manifest> = archive.parts(CHAIN, 0).try_collect().await.unwrap();
    let seen: Vec<Part> = listed.iter().map(|m| m.part(archive.provider())).collect();
    assert_eq!(seen, parts);
    for part in &parts {
        let manifest = archive.read_back(part, Check::Full).await.unwrap();
        assert_eq!(manifest.part(archive.provider()), *part);
        for height in part.first..=part.last {
            let block = archive.fetch_block(part, height, Check::Full).await.unwrap();
            assert_eq!(block, blocks[usize::try_from(height).unwrap()]);
        }
    }
    for depth in [Depth::Quick, Depth::Hashes, Depth::Full] {
        let report = verify(archive, depth).await;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((report.first, report.last), (Some(0), Some(48)));
    }
    assert_eq!(archive.ends(CHAIN).await.unwrap(), Some((0, 48)));
    assert_eq!(archive.ends(CHAIN + 1).await.unwrap(), None);
    assert_eq!(archive.find(CHAIN, 30).await.unwrap().unwrap().first, 25);
    assert_eq!(archive.find(CHAIN, 49).await.unwrap(), None);
    assert_eq!(archive.gaps(CHAIN, Some(60)).await.unwrap(), [49..=60]);
    assert_eq!(archive.chains().await.unwrap(), [CHAIN]);
    let from: Vec<Manifest> = archive.parts(CHAIN, 24).try_collect().await.unwrap();
    assert_eq!(from.len(), 3);
    parts
}

#[tokio::test]
async fn blocks_come_back_from_a_directory_as_they_went() {
    let dir = tempfile::tempdir().unwrap();
    goes_there_and_back(&chain::directory(dir.path())).await;
}

#[tokio::test]
async fn blocks_come_back_from_a_bucket_as_they_went_and_both_places_have_the_same_parts() {
    let bucket = Bucket::start().await;
    let in_bucket = goes_there_and_back(&bucket.archive(chain::quick())).await;
    let dir = tempfile::tempdir().unwrap();
    let in_directory = goes_there_and_back(&chain::directory(dir.path())).await;
    let names = |parts: &[Part]| -> Vec<(String, String)> {
        parts.iter().map(|p| (p.locator.key.clone(), p.sha256.clone())).collect()
    };
    assert_eq!(names(&in_bucket), names(&in_directory));
    assert_eq!(in_bucket[0].locator.provider, "s3://history/chains/test");
}

#[tokio::test]
async fn a_part_of_many_pieces_goes_up_in_many_pieces() {
    let bucket = Bucket::start().await;
    let archive = bucket.archive(secateur_archive::Retry::default());
    let stage = tempfile::tempdir().unwrap();
    let blocks = chain::opaque(0, 11, 2_000_000);
    let parts =
        archive_all(&archive, options(stage.path(), Codec::Opaque, 10), &blocks).await.unwrap();
    // Ten blocks, but only one of them is in the first day.
    assert_eq!(parts.len(), 2);
    assert!(parts[1].size > 16 << 20);
    assert!(verify(&archive, Depth::Full).await.is_clean());
    assert_eq!(archive.metrics().snapshot().uploads, 2);
}

#[tokio::test]
async fn what_is_there_already_is_compared_and_not_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let blocks = chain::opaque(0, 20, 50);
    let stage = tempfile::tempdir().unwrap();
    let first =
        archive_all(&archive, options(stage.path(), Codec::Opaque, 5), &blocks).await.unwrap();
    let uploads = archive.metrics().snapshot().uploads;
    // A writer that knows nothing of the parts, because the manifests are not there yet.
    for part in &first {
        let manifest = dir.path().join(part.locator.key.replace(".zst", ".json"));
        std::fs::remove_file(manifest).unwrap();
    }
    let other = tempfile::tempdir().unwrap();
    let again =
        archive_all(&archive, options(other.path(), Codec::Opaque, 5), &blocks).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(archive.metrics().snapshot().uploads, uploads);
}

#[tokio::test]
async fn another_object_under_a_parts_name_is_told_and_neither_overwritten_nor_listed() {
    let dir = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let blocks = chain::opaque(0, 20, 50);
    let stage = tempfile::tempdir().unwrap();
    let parts =
        archive_all(&archive, options(stage.path(), Codec::Opaque, 5), &blocks).await.unwrap();
    let object = dir.path().join(&parts[1].locator.key);
    let manifest = dir.path().join(parts[1].locator.key.replace(".zst", ".json"));
    std::fs::remove_file(&manifest).unwrap();
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[300] ^= 1;
    std::fs::write(&object, &bytes).unwrap();

    let stage = tempfile::tempdir().unwrap();
    let options = options(stage.path(), Codec::Opaque, 5);
    let error = archive_all(&archive, options.clone(), &blocks).await.unwrap_err();
    assert!(matches!(&error, ArchiveError::NotWhole { .. }), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(std::fs::read(&object).unwrap(), bytes);
    assert!(!manifest.exists());
    // Somebody removes the wrong object; the archiver goes on with what it has in its stage.
    std::fs::remove_file(&object).unwrap();
    let again = archive_all(&archive, options, &blocks).await.unwrap();
    assert_eq!(again[..], parts[1..2]);
    assert!(verify(&archive, Depth::Full).await.is_clean());
}

#[tokio::test]
async fn a_block_that_does_not_follow_or_is_not_what_it_says_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let stage = tempfile::tempdir().unwrap();
    let mut archiver =
        Archiver::open(archive.clone(), options(stage.path(), Codec::Evm, 3)).await.unwrap();
    let blocks = chain::evm(4);
    archiver.push(&blocks[0]).await.unwrap();
    assert!(matches!(
        archiver.push(&blocks[2]).await.unwrap_err(),
        ArchiveError::OutOfOrder { expected: 1, got: 2 }
    ));
    let mut wrong = blocks[1].clone();
    wrong.meta.parent_hash.0[0] ^= 1;
    assert!(matches!(
        archiver.push(&wrong).await.unwrap_err(),
        ArchiveError::WrongParent { height: 1, .. }
    ));
    let mut wrong = blocks[1].clone();
    wrong.meta.timestamp += 1;
    assert!(matches!(
        archiver.push(&wrong).await.unwrap_err(),
        ArchiveError::Block { height: 1, .. }
    ));
    for block in &blocks[1..] {
        archiver.push(block).await.unwrap();
    }
    let mut parts = Vec::new();
    settle(&mut archiver, &mut parts).await.unwrap();
    assert_eq!(parts.len(), 2);
    assert!(verify(&archive, Depth::Full).await.is_clean());
}

#[tokio::test]
async fn a_stage_belongs_to_one_archiver_and_takes_no_more_than_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let stage = tempfile::tempdir().unwrap();
    let mut options = options(stage.path(), Codec::Opaque, 1);
    options.max_waiting = 2;
    let mut archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
    let locked = Archiver::open(archive.clone(), options.clone()).await.unwrap_err();
    assert!(matches!(locked, ArchiveError::Locked { .. }));
    assert_eq!(locked.exit_code(), 10);
    let blocks = chain::opaque(0, 4, 10);
    archiver.push(&blocks[0]).await.unwrap();
    archiver.push(&blocks[1]).await.unwrap();
    let full = archiver.push(&blocks[2]).await.unwrap_err();
    assert!(matches!(full, ArchiveError::StageFull { parts: 2 }) && full.is_retryable());
    assert!(archiver.metrics().snapshot().staged_bytes > 0);
    let part = archiver.publish().await.unwrap().unwrap();
    assert_eq!(archiver.publish().await.unwrap().unwrap(), part);
    archiver.settled(&part).await.unwrap();
    archiver.settled(&part).await.unwrap();
    archiver.push(&blocks[2]).await.unwrap();
    assert_eq!(archiver.metrics().snapshot().verified_height, Some(0));
}

#[tokio::test]
async fn after_a_rebase_the_archive_goes_on_at_the_new_height_and_tells_the_gap() {
    let dir = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let stage = tempfile::tempdir().unwrap();
    let mut options = options(stage.path(), Codec::Opaque, 5);
    archive_all(&archive, options.clone(), &chain::opaque(0, 11, 10)).await.unwrap();
    assert_eq!(archive.gaps(CHAIN, None).await.unwrap(), []);
    options.first = 100;
    let blocks = chain::opaque(100, 10, 10);
    let parts = archive_all(&archive, options.clone(), &blocks).await.unwrap();
    assert_eq!(archive.gaps(CHAIN, None).await.unwrap(), [11..=99]);
    assert_eq!(verify(&archive, Depth::Full).await.found, 1);
    // Opened again it goes on at the same place, also by what can be had alone.
    let next = parts.last().unwrap().last + 1;
    for (first, oldest) in [(100, 0), (0, 100), (0, 12)] {
        (options.first, options.oldest) = (first, oldest);
        let archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
        assert_eq!(archiver.next_height(), next);
    }
    // Whoever has the blocks fills the gap, whatever grain is set now.
    (options.oldest, options.grain.max_blocks) = (11, Some(1));
    let blocks = chain::opaque(0, 101, 10);
    let mut archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
    for block in &blocks[11..100] {
        assert!(!archiver.is_filled());
        archiver.push(block).await.unwrap();
        settle(&mut archiver, &mut Vec::new()).await.unwrap();
    }
    let error = archiver.push(&blocks[100]).await.unwrap_err().to_string();
    assert!(error.contains("its gap is filled"), "{error}");
    assert_eq!(archive.gaps(CHAIN, None).await.unwrap(), []);
    assert!(verify(&archive, Depth::Full).await.is_clean());
    drop(archiver);
    let archiver = Archiver::open(archive, options).await.unwrap();
    assert_eq!(archiver.next_height(), next);
}
