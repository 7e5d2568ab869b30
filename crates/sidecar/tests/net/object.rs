//! Blobs as objects in a directory and in a real S3 server that fails.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use secateur_archive::{ArchiveUrl, Retry, Settings};
use secateur_sidecar::BLOB_LEN;
use secateur_sidecar::provider::{BlobTags, ObjectName, ObjectProvider, Provider, ProviderError};

use crate::blob::{blob, tags};
use crate::s3::{Bucket, Fault};

fn quick() -> Retry {
    Retry {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        max_pause: Duration::from_millis(4),
        // A busy machine is not a fault.
        request_timeout: Duration::from_secs(30),
    }
}

fn directory(path: &std::path::Path) -> ObjectProvider {
    let settings = Settings { retry: quick(), ..Settings::default() };
    ObjectProvider::open("disk", &ArchiveUrl::Directory(path.to_owned()), &settings).unwrap()
}

fn bucket(bucket: &Bucket, retry: Retry) -> ObjectProvider {
    let url: ArchiveUrl = "s3://history/blobs".parse().unwrap();
    ObjectProvider::open("bucket", &url, &bucket.settings(retry)).unwrap()
}

/// The life of a blob at a provider whose answers are believed.
async fn round_trip(provider: &dyn Provider) {
    let (first, second) = (blob(1), blob(2));
    let first_tags = tags(&first);
    let second_tags = BlobTags { blob_index: 4, ..tags(&second) };
    assert_eq!(provider.find(&first_tags).await.unwrap(), None);
    let locator = provider.put(&first_tags, first.clone()).await.unwrap();
    assert_eq!(locator, ObjectName::of(&first_tags).to_string());
    // As often as one likes, and the second one no longer with a look before.
    assert_eq!(provider.put(&first_tags, first.clone()).await.unwrap(), locator);
    let other = provider.put(&second_tags, second.clone()).await.unwrap();
    assert_eq!(provider.put(&second_tags, second.clone()).await.unwrap(), other);
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), first);
    assert_eq!(provider.get(&other, usize::MAX).await.unwrap(), second);
    assert_eq!(provider.find(&first_tags).await.unwrap(), Some(locator.clone()));
    let error = provider.get(&locator, BLOB_LEN - 1).await.unwrap_err();
    assert!(matches!(error, ProviderError::TooLong { .. }) && !error.is_retryable(), "{error}");
    let absent = ObjectName::of(&BlobTags { height: 43, ..first_tags }).to_string();
    let error = provider.get(&absent, BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Missing { .. }), "{error}");
    for locator in ["", "..", "/etc/passwd", "chain=7/manifest.json", &format!("{locator}/")] {
        let error = provider.get(locator, BLOB_LEN).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_blob_is_put_found_and_read_back_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let provider = directory(&dir.path().join("made"));
    assert_eq!(provider.id(), "disk");
    round_trip(&provider).await;
    // Another process sees the same.
    let again = directory(&dir.path().join("made"));
    assert!(again.find(&tags(&blob(1))).await.unwrap().is_some());
}

#[tokio::test]
async fn a_directory_that_was_moved_or_replaced_is_neither_made_anew_nor_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("blobs"), dir.path().join("away"));
    let provider = directory(&here);
    let locator = provider.put(&tags(&blob(1)), blob(1)).await.unwrap();
    let refuses = async |what: &str| {
        let put = provider.put(&tags(&blob(2)), blob(2)).await.unwrap_err();
        let get = provider.get(&locator, BLOB_LEN).await.unwrap_err();
        let find = provider.find(&tags(&blob(1))).await.unwrap_err();
        for error in [put, get, find] {
            assert!(matches!(error, ProviderError::Replaced { .. }), "{error}");
            assert!(error.is_retryable() && error.to_string().contains(what), "{error}");
        }
    };
    fs::rename(&here, &away).unwrap();
    refuses("No such file or directory").await;
    assert!(!here.exists());
    fs::create_dir(&here).unwrap();
    refuses("another one is there").await;
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
    // It is back, as it was.
    fs::remove_dir(&here).unwrap();
    fs::rename(&away, &here).unwrap();
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), blob(1));
    provider.put(&tags(&blob(2)), blob(2)).await.unwrap();
}

#[tokio::test]
async fn a_blob_is_put_found_and_read_back_in_a_bucket() {
    let server = Bucket::start().await;
    round_trip(&bucket(&server, quick())).await;
}

#[tokio::test]
async fn other_bytes_under_a_blobs_name_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Bucket::start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    let key = ObjectName::of(&tags).to_string();
    let places: [(Box<dyn Provider>, _); 2] = [
        (Box::new(directory(dir.path())), dir.path().join(&key)),
        (
            Box::new(bucket(&server, quick())),
            server.dir.path().join("data/history/blobs").join(&key),
        ),
    ];
    for (provider, file) in places {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut wrong = blob.to_vec();
        wrong[5] ^= 1;
        for content in [wrong.clone(), wrong[1..].to_vec(), [&wrong[..], b"x"].concat()] {
            fs::write(&file, &content).unwrap();
            let error = provider.put(&tags, blob.clone()).await.unwrap_err();
            assert!(matches!(error, ProviderError::Conflict { .. }), "{error}");
            assert!(!error.is_retryable());
            assert_eq!(fs::read(&file).unwrap(), content);
            // Something of another size is not taken for the blob.
            let found = provider.find(&tags).await.unwrap();
            assert_eq!(found.is_some(), content.len() == BLOB_LEN);
        }
        fs::remove_file(&file).unwrap();
        provider.put(&tags, blob.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn a_service_that_ignores_conditions_overwrites_nothing_all_the_same() {
    let server = Bucket::start().await;
    let puts = Arc::new(Mutex::new(0));
    let (count, data) = (Arc::clone(&puts), server.dir.path().join("data"));
    server.plan(move |method, path| {
        if *method == Method::PUT {
            *count.lock().unwrap() += 1;
            // What is there is gone before the server sees the condition that nothing is.
            let file = data.join(path.trim_start_matches('/').replace("%3D", "="));
            fs::remove_file(file).unwrap_or_default();
        }
        None
    });
    let provider = bucket(&server, quick());
    let first = blob(1);
    provider.put(&tags(&first), first.clone()).await.unwrap();
    assert_eq!(*puts.lock().unwrap(), 2, "the second one shows that conditions are ignored");
    let second = blob(2);
    let second_tags = BlobTags { blob_index: 4, ..tags(&second) };
    let key = ObjectName::of(&second_tags).to_string();
    let file = server.dir.path().join("data/history/blobs").join(&key);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "another's").unwrap();
    let error = provider.put(&second_tags, second).await.unwrap_err();
    assert!(matches!(error, ProviderError::Conflict { .. }), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"another's");
    assert_eq!(*puts.lock().unwrap(), 2);
}

/// Every request of a put and a read back has every fault once, one at a time.
#[tokio::test]
async fn a_request_that_fails_in_any_way_leaves_the_blob_in_the_end() {
    let impatient = Retry { attempts: 10, request_timeout: Duration::from_millis(400), ..quick() };
    let answers = [409, 412, 500, 503];
    let faults = [Fault::HangBefore, Fault::HangAfter].map(|fault| (fault, impatient)).into_iter();
    let faults = faults
        .chain(answers.map(|status| (Fault::Answer(status), quick())))
        .chain(answers.map(|status| (Fault::AnswerAfter(status), quick())));
    let blob = blob(1);
    let tags = tags(&blob);
    for (fault, retry) in faults {
        for n in 1.. {
            let server = Bucket::start().await;
            let provider = bucket(&server, retry);
            let hit = server.fault_at(n, fault);
            let ended = archive(&provider, &tags, &blob).await;
            let at = hit.lock().unwrap().clone();
            let Some(at) = at else { break };
            if let Err(error) = ended {
                // What the archiver does: another time, and it is fine.
                assert!(error.is_retryable(), "{fault:?} at request {n} ({at}): {error}");
                archive(&provider, &tags, &blob).await.unwrap();
            }
            let file = server.dir.path().join("data/history/blobs");
            let file = file.join(ObjectName::of(&tags).to_string());
            assert_eq!(fs::read(file).unwrap(), blob, "{fault:?} at request {n} ({at})");
        }
    }
}

async fn archive(
    provider: &ObjectProvider,
    tags: &BlobTags,
    blob: &Bytes,
) -> Result<(), ProviderError> {
    let locator = match provider.find(tags).await? {
        Some(locator) => locator,
        None => provider.put(tags, blob.clone()).await?,
    };
    let back = provider.get(&locator, BLOB_LEN).await?;
    assert_eq!(back, blob);
    Ok(())
}

#[tokio::test]
async fn wrong_credentials_are_not_tried_again_and_not_told() {
    let server = Bucket::start().await;
    let path = server.dir.path().join("credentials");
    fs::write(&path, "aws_access_key_id = tester\naws_secret_access_key = hunter2\n").unwrap();
    let provider = bucket(&server, quick());
    let blob = blob(1);
    let error = provider.put(&tags(&blob), blob).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    let text = format!("{error} {error:?} {provider:?}");
    assert!(!text.contains("hunter2"), "{text}");
}
