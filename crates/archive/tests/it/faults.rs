//! A bucket that times out before or after the write, answers errors, or gives back wrong bytes.

use hyper::Method;
use secateur_archive::{
    Archive, ArchiveError, Archiver, Codec, Credentials, Depth, Retry, S3Settings, Settings,
};

use crate::chain::{self, archive_all, options, settle};
use crate::s3::{Bucket, Fault};
use crate::whole::verify;

#[tokio::test]
async fn a_request_that_is_never_answered_changes_nothing_in_the_end() {
    each_request_once(&[Fault::HangBefore, Fault::HangAfter], chain::impatient()).await;
}

#[tokio::test]
async fn a_request_that_is_refused_changes_nothing_in_the_end() {
    each_request_once(&[409, 412, 500, 503].map(Fault::Answer), chain::quick()).await;
}

#[tokio::test]
async fn a_request_that_is_done_and_refused_changes_nothing_in_the_end() {
    each_request_once(&[409, 412, 500, 503].map(Fault::AnswerAfter), chain::quick()).await;
}

#[tokio::test]
async fn an_answer_with_a_wrong_byte_changes_nothing_in_the_end() {
    each_request_once(&[Fault::Corrupt], chain::quick()).await;
}

/// Every request of a whole run has every fault once, one at a time.
async fn each_request_once(faults: &[Fault], retry: Retry) {
    let blocks = chain::opaque(0, 4, 40);
    let wanted = {
        let bucket = Bucket::start().await;
        let stage = tempfile::tempdir().unwrap();
        let archive = bucket.archive(chain::quick());
        archive_all(&archive, options(stage.path(), Codec::Opaque, 2), &blocks).await.unwrap()
    };
    for &fault in faults {
        for n in 1.. {
            let bucket = Bucket::start().await;
            let stage = tempfile::tempdir().unwrap();
            let archive = bucket.archive(retry);
            let hit = bucket.fault_at(n, fault);
            let options = options(stage.path(), Codec::Opaque, 2);
            let mut parts = archive_all(&archive, options.clone(), &blocks).await;
            let at = hit.lock().unwrap().clone();
            let Some(at) = at else { break };
            bucket.healthy();
            if let Err(error) = &parts {
                // What was corrupted was no object's content but an answer that could not be read,
                // or a listing or a manifest: told, and fine the next time.
                assert_eq!(fault, Fault::Corrupt, "{n} {at}: {error}");
                assert!(verify(&archive, Depth::Full).await.is_clean(), "{n} {at}");
                parts = archive_all(&archive, options, &blocks).await;
                assert!(parts.is_ok(), "{fault:?} at request {n} ({at}): {parts:?}");
            } else {
                assert_eq!(parts.unwrap(), wanted, "{fault:?} at request {n} ({at})");
            }
            let report = verify(&archive, Depth::Full).await;
            assert!(report.is_clean(), "{fault:?} at request {n} ({at}): {report:?}");
            assert_eq!(report.last, Some(2), "{fault:?} at request {n} ({at})");
        }
    }
}

/// A bucket that is down for long: the blocks wait in the stage, nothing is listed, and work goes
/// on when it is back.
#[tokio::test]
async fn a_bucket_that_is_down_lists_nothing_and_work_resumes() {
    for fault in [Fault::Answer(503), Fault::AnswerAfter(500), Fault::Answer(409)] {
        let bucket = Bucket::start().await;
        let archive = bucket.archive(chain::quick());
        let stage = tempfile::tempdir().unwrap();
        let blocks = chain::opaque(0, 4, 40);
        let opened = Archiver::open(archive.clone(), options(stage.path(), Codec::Opaque, 2)).await;
        let mut archiver = opened.unwrap();
        for block in &blocks {
            archiver.push(block).await.unwrap();
        }
        bucket.plan(move |method, _| (*method == Method::PUT).then_some(fault));
        for _ in 0..2 {
            let result = archiver.publish().await;
            match result {
                // The write was done although it was said to have failed, and reads back well.
                Ok(part) => assert_eq!((fault, part.is_some()), (Fault::AnswerAfter(500), true)),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
        assert!(archive.metrics().snapshot().failures > 0);
        bucket.healthy();
        let mut parts = Vec::new();
        settle(&mut archiver, &mut parts).await.unwrap();
        assert_eq!(parts.iter().map(|part| part.last).collect::<Vec<_>>(), [0, 2]);
        assert!(verify(&archive, Depth::Full).await.is_clean());
    }
}

/// Wrong bytes on every read: the part is never listed, however often it is tried.
#[tokio::test]
async fn a_part_that_reads_back_wrong_is_never_listed() {
    let bucket = Bucket::start().await;
    let archive = bucket.archive(chain::quick());
    let stage = tempfile::tempdir().unwrap();
    let options = options(stage.path(), Codec::Opaque, 2);
    let mut archiver = Archiver::open(archive.clone(), options.clone()).await.unwrap();
    for block in &chain::opaque(0, 3, 40) {
        archiver.push(block).await.unwrap();
    }
    bucket.plan(|method, path| {
        (*method == Method::GET && path.contains(".zst")).then_some(Fault::Corrupt)
    });
    let error = archiver.publish().await.unwrap_err();
    assert!(matches!(error, ArchiveError::ReadBack { .. }) && error.is_retryable(), "{error}");
    let error = archiver.publish().await.unwrap_err();
    assert!(matches!(error, ArchiveError::NotWhole { .. }), "{error}");
    bucket.healthy();
    let report = verify(&archive, Depth::Full).await;
    assert_eq!((report.last, report.unlisted.is_some()), (None, true));
    drop(archiver);
    // The next archiver finds the object, reads it rightly, and lists it.
    let mut archiver = Archiver::open(archive.clone(), options).await.unwrap();
    let mut parts = Vec::new();
    settle(&mut archiver, &mut parts).await.unwrap();
    assert_eq!(parts.len(), 2);
    assert!(verify(&archive, Depth::Full).await.is_clean());
}

#[tokio::test]
async fn wrong_credentials_are_not_tried_again_and_not_told() {
    let bucket = Bucket::start().await;
    let path = bucket.dir.path().join("credentials");
    std::fs::write(&path, "aws_access_key_id = tester\naws_secret_access_key = hunter2\n").unwrap();
    let archive = bucket.archive(chain::quick());
    let error = archive.gaps(chain::CHAIN, None).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!format!("{archive:?}").contains("hunter2"));
    assert_eq!(error.exit_code(), 6);
}

/// Neither passes by waiting, and a listing hides both behind an error that says nothing.
#[tokio::test]
async fn wrong_credentials_and_a_missing_bucket_are_told_at_once() {
    let bucket = Bucket::start().await;
    let stage = tempfile::tempdir().unwrap();
    let wrong = bucket.dir.path().join("wrong");
    std::fs::copy(bucket.dir.path().join("credentials"), &wrong).unwrap();
    let right = std::fs::read_to_string(&wrong).unwrap();
    std::fs::write(&wrong, right.replace("= secret", "= wrong")).unwrap();
    let place = |url: &str, credentials: &str| {
        let s3 = S3Settings {
            endpoint: Some(bucket.endpoint.clone()),
            credentials: Credentials::File(bucket.dir.path().join(credentials)),
            ..S3Settings::default()
        };
        Archive::open(&url.parse().unwrap(), &Settings { s3, retry: chain::quick() }).unwrap()
    };
    for (archive, advice) in [
        (place("s3://history/x", "wrong"), "Check the credentials"),
        (place("s3://nobody/x", "credentials"), "Check that the bucket is there"),
    ] {
        let opened = Archiver::open(archive, options(stage.path(), Codec::Opaque, 2)).await;
        let error = opened.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// A bucket of another region answers so; no waiting brings it here.
#[tokio::test]
async fn a_redirect_to_nowhere_is_told_at_once_with_what_to_check() {
    let bucket = Bucket::start().await;
    bucket.plan(|_, _| Some(Fault::Answer(301)));
    let archive = bucket.archive(chain::quick());
    for error in [
        archive.gaps(chain::CHAIN, None).await.unwrap_err(),
        archive.ends(chain::CHAIN).await.unwrap_err(),
        archive.chains().await.unwrap_err(),
    ] {
        assert!(!error.is_retryable(), "{error}");
        assert!(error.to_string().contains("Check the endpoint and the region"), "{error}");
    }
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_told_as_that_and_tried_again() {
    let bucket = Bucket::start().await;
    // A port that was free a moment ago, and is nobody's now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = bucket.settings(chain::quick());
    settings.s3.endpoint = Some(format!("http://{port}"));
    let archive = Archive::open(&"s3://history/x".parse().unwrap(), &settings).unwrap();
    let error = archive.gaps(chain::CHAIN, None).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}
