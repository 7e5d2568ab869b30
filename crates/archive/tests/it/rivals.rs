//! Two archivers with different grains of one archive: one of them lists, whatever the other does.

use std::time::Duration;

use secateur_archive::{Archive, ArchiveError, Archiver, Codec, Depth};
use secateur_core::{Block, Part};
use tempfile::TempDir;

use crate::chain::{self, options};
use crate::s3::Bucket;
use crate::whole::verify;

/// Long enough for whatever the other one is about to do.
const GRACE: Duration = Duration::from_millis(400);

/// An archiver whose first part, of so many blocks, waits.
async fn ready(
    archive: &Archive,
    blocks: &[Block],
    each: u64,
    grace: Duration,
) -> (TempDir, Archiver) {
    let stage = tempfile::tempdir().unwrap();
    let mut options = options(stage.path(), Codec::Opaque, each);
    (options.grain.daily, options.grace) = (false, grace);
    let mut archiver = Archiver::open(archive.clone(), options).await.unwrap();
    for block in blocks {
        if archiver.waiting() > 0 {
            break;
        }
        archiver.push(block).await.unwrap();
    }
    assert_eq!(archiver.waiting(), 1);
    (stage, archiver)
}

/// Lets two archivers publish at the same time; one lists, and the other is told.
async fn race(archive: &Archive, (one, other): (u64, u64)) {
    let blocks = chain::opaque(0, 12, 40);
    let (_stage, mut one) = ready(archive, &blocks, one, GRACE).await;
    let (_stage, mut other) = ready(archive, &blocks, other, GRACE).await;
    let (one, other) = tokio::join!(one.publish(), other.publish());
    let (listed, refused): (Part, ArchiveError) = match (one, other) {
        (Ok(part), Err(error)) | (Err(error), Ok(part)) => (part.unwrap(), error),
        both => panic!("one lists and the other does not: {both:?}"),
    };
    assert!(matches!(refused, ArchiveError::Overlap { .. }), "{refused}");
    assert!(refused.to_string().contains(&listed.locator.key), "{refused}");
    let report = verify(archive, Depth::Full).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.first, report.last), (Some(listed.first), Some(listed.last)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_archivers_with_other_grains_that_list_at_once_one_does_and_the_other_is_told() {
    for _ in 0..3 {
        for grains in [(5, 7), (7, 5)] {
            let place = tempfile::tempdir().unwrap();
            race(&chain::directory(place.path()), grains).await;
            let bucket = Bucket::start().await;
            race(&bucket.archive(chain::quick()), grains).await;
        }
    }
}

#[tokio::test]
async fn an_upload_that_nobody_lists_any_more_is_waited_for_and_passed_over() {
    for (ours, theirs, waits) in [(5, 7, 1), (7, 5, 2)] {
        let place = tempfile::tempdir().unwrap();
        let archive = chain::directory(place.path());
        let blocks = chain::opaque(0, 12, 40);
        let (_stage, mut archiver) = ready(&archive, &blocks, ours, GRACE).await;
        // As one that was killed between its upload and its manifest leaves it.
        let (_stage, mut killed) = ready(&archive, &blocks, theirs, GRACE).await;
        let part = killed.publish().await.unwrap().unwrap();
        let object = place.path().join(&part.locator.key);
        std::fs::remove_file(object.with_extension("json")).unwrap();
        let begun = std::time::Instant::now();
        let part = archiver.publish().await.unwrap().unwrap();
        assert_eq!(part.last, ours - 1);
        assert!(begun.elapsed() >= GRACE * waits, "{:?}", begun.elapsed());
        let report = verify(&archive, Depth::Full).await;
        assert!(report.is_clean() && report.superseded.files == 1, "{report:?}");
        // And what comes behind does not wait for it again.
        archiver.settled(&part).await.unwrap();
        let (next, more) = (archiver.next_height(), ours * 2);
        for block in chain::opaque(next, more - next, 40) {
            archiver.push(&block).await.unwrap();
        }
        let begun = std::time::Instant::now();
        archiver.publish().await.unwrap().unwrap();
        assert!(begun.elapsed() < GRACE, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn archivers_with_the_same_grain_do_not_wait_for_one_another() {
    let place = tempfile::tempdir().unwrap();
    let archive = chain::directory(place.path());
    let blocks = chain::opaque(0, 12, 40);
    let long = Duration::from_mins(10);
    let (_stage, mut one) = ready(&archive, &blocks, 5, long).await;
    let (_stage, mut other) = ready(&archive, &blocks, 5, long).await;
    let (one, other) = tokio::join!(one.publish(), other.publish());
    assert_eq!(one.unwrap(), other.unwrap());
}
