//! The archiver is dropped at every step, and a new one goes on: the same parts in the end.

use secateur_archive::{ArchiveError, Archiver, Codec, Depth};
use secateur_core::Part;

use crate::chain::{self, archive_all, options, settle};
use crate::s3::{Bucket, Fault};
use crate::whole::verify;

/// Dropped at the `n`th request, before and after it was done; this stands for a process that dies
/// there. Finished parts wait in the stage.
#[tokio::test]
async fn dropped_at_any_request_a_new_archiver_ends_with_the_same_parts() {
    let blocks = chain::opaque(0, 5, 40);
    let wanted = {
        let dir = tempfile::tempdir().unwrap();
        let stage = tempfile::tempdir().unwrap();
        let archive = chain::directory(dir.path());
        archive_all(&archive, options(stage.path(), Codec::Opaque, 2), &blocks).await.unwrap()
    };
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for n in 1.. {
            let bucket = Bucket::start().await;
            let archive = bucket.archive(secateur_archive::Retry::default());
            let stage = tempfile::tempdir().unwrap();
            let options = options(stage.path(), Codec::Opaque, 2);
            let hit = bucket.fault_at(n, fault);
            tokio::select! {
                () = bucket.hanging.notified() => {}
                done = archive_all(&archive, options.clone(), &blocks) => { done.unwrap(); }
            }
            let at = hit.lock().unwrap().clone();
            bucket.healthy();
            let report = verify(&archive, Depth::Full).await;
            assert!(report.is_clean(), "{fault:?} at request {n} ({at:?}): {report:?}");
            archive_all(&archive, options, &blocks).await.unwrap();
            let names = names(&archive).await;
            assert_eq!(names, keys(&wanted), "{fault:?} at request {n} ({at:?})");
            assert!(verify(&archive, Depth::Full).await.is_clean());
            if at.is_none() {
                break;
            }
        }
    }
}

/// Dropped after every single block, with what is in the stage as it is.
#[tokio::test]
async fn dropped_after_any_block_a_new_archiver_ends_with_the_same_parts() {
    let blocks = chain::evm(40);
    let (mut wanted, mut seen) = (Vec::new(), Vec::new());
    for drop_every in [None, Some(1), Some(3), Some(7)] {
        let dir = tempfile::tempdir().unwrap();
        let stage = tempfile::tempdir().unwrap();
        let archive = chain::directory(dir.path());
        let options = options(stage.path(), Codec::Evm, 5);
        seen.clear();
        let mut archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
        for turn in 1u64.. {
            let Some(block) = blocks.get(usize::try_from(archiver.next_height()).unwrap()) else {
                break;
            };
            archiver.push(block).await.unwrap();
            if drop_every.is_some_and(|every| turn % every == 0 && turn < 40) {
                drop(archiver);
                archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
            }
            // With a drop after every block no part of several blocks would ever be finished.
            if drop_every != Some(1) || turn > 40 {
                settle(&mut archiver, &mut seen).await.unwrap();
            }
        }
        settle(&mut archiver, &mut seen).await.unwrap();
        drop(archiver);
        assert!(verify(&archive, Depth::Full).await.is_clean());
        let names = names(&archive).await;
        if drop_every.is_none() {
            wanted = names;
        } else {
            assert_eq!(names, wanted, "dropped every {drop_every:?} blocks");
        }
    }
}

/// What a stage may hold when a process died: half a file, a damaged one, one of an older time.
#[tokio::test]
async fn a_stage_with_anything_in_it_is_cleared_up() {
    let dir = tempfile::tempdir().unwrap();
    let stage = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let options = options(stage.path(), Codec::Opaque, 2);
    let blocks = chain::opaque(0, 8, 40);
    let mut archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
    for block in &blocks[..6] {
        archiver.push(block).await.unwrap();
    }
    drop(archiver);
    let mut files: Vec<_> = std::fs::read_dir(stage.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "part"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 3);
    let mut bytes = std::fs::read(&files[1]).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&files[1], bytes).unwrap();
    std::fs::write(stage.path().join("00000000000000000009.unfinished"), "half").unwrap();

    // The first one is fine; the second is damaged, so the third does not follow.
    let mut archiver = Archiver::open(archive.clone(), options).await.unwrap();
    assert_eq!((archiver.next_height(), archiver.waiting()), (1, 1));
    let mut parts = Vec::new();
    for block in &blocks[1..] {
        archiver.push(block).await.unwrap();
        settle(&mut archiver, &mut parts).await.unwrap();
    }
    assert!(verify(&archive, Depth::Full).await.is_clean());
    let left = std::fs::read_dir(stage.path()).unwrap().count();
    // The lock, and the part in the making.
    assert_eq!(left, 2);
}

fn keys(parts: &[Part]) -> Vec<String> {
    parts.iter().map(|part| part.locator.key.clone()).collect()
}

async fn names(archive: &secateur_archive::Archive) -> Vec<String> {
    use futures_util::TryStreamExt;
    let parts = archive.parts(chain::CHAIN, 0);
    parts.map_ok(|manifest| manifest.key().object()).try_collect().await.unwrap()
}

/// Two archivers that cut otherwise: the slower one is told so, and goes on behind the other's parts
/// when it starts again, however far those are by then.
#[tokio::test]
async fn a_staged_part_that_another_grain_overtook_is_told_as_that_and_then_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = chain::directory(dir.path());
    let blocks = chain::opaque(0, 11, 40);
    let slow = options(one.path(), Codec::Opaque, 3);
    let mut archiver = Archiver::open(archive.clone(), slow.clone()).await.unwrap();
    for block in &blocks[..4] {
        archiver.push(block).await.unwrap();
    }
    assert_eq!(archiver.waiting(), 2);
    archive_all(&archive, options(other.path(), Codec::Opaque, 2), &blocks).await.unwrap();
    let wanted = names(&archive).await;
    settle(&mut archiver, &mut Vec::new()).await.unwrap_err();
    let error = archiver.publish().await.unwrap_err();
    assert!(matches!(error, ArchiveError::Overlap { .. }), "{error}");
    let told = error.to_string();
    assert!(!error.is_retryable() && told.contains("the same grain"), "{told}");
    assert!(!told.contains("remove"), "the listed part is right: {told}");
    drop(archiver);
    let archiver = Archiver::open(archive.clone(), slow).await.unwrap();
    assert_eq!((archiver.next_height(), archiver.waiting()), (11, 0));
    assert_eq!(names(&archive).await, wanted);
}
