//! load-s3-agent's provider against an agent that follows its contract, and against one that does
//! not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use alloy_primitives::keccak256;
use secateur_sidecar::BLOB_LEN;
use secateur_sidecar::provider::{
    Access, BlobTags, LoadS3, LoadS3Options, Provider as _, ProviderError,
};
use tempfile::TempDir;

use crate::agent::{Agent, Item, KEY, Mood};
use crate::blob::{blob, tags};

pub fn token(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("token");
    fs::write(&path, format!("# the agent's key\n{KEY}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

pub fn options(agent: &Agent, dir: &TempDir) -> LoadS3Options {
    LoadS3Options {
        token_file: Some(token(dir)),
        // A busy machine is not a fault.
        timeout: Duration::from_secs(30),
        ..LoadS3Options::new("load", &agent.url, &agent.url)
    }
}

async fn start() -> (Agent, LoadS3, TempDir) {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let provider = LoadS3::new(&options(&agent, &dir)).unwrap();
    (agent, provider, dir)
}

/// The same, with little patience, for what is never answered.
async fn start_impatient() -> (Agent, LoadS3, TempDir) {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let timeout = Duration::from_millis(500);
    let provider = LoadS3::new(&LoadS3Options { timeout, ..options(&agent, &dir) }).unwrap();
    (agent, provider, dir)
}

#[tokio::test]
async fn a_public_blob_is_put_with_its_tags_found_by_them_and_read_back() {
    let (agent, provider, _dir) = start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    assert_eq!(provider.find(&tags).await.unwrap(), None);
    let locator = provider.put(&tags, blob.clone()).await.unwrap();
    let items = agent.items();
    assert_eq!((items.len(), &items[0].id, &items[0].bytes), (1, &locator, &blob));
    let tag = |key: &str| {
        let mut values = items[0].tags.iter().filter(|(name, _)| name == key);
        values.next().unwrap().1.clone()
    };
    assert_eq!(tag("height"), "42");
    assert_eq!(tag("round"), "1");
    assert_eq!(tag("blob_index"), "3");
    assert_eq!(tag("kzg_commitment"), format!("0x{}", "c0".repeat(48)));
    assert_eq!(tag("versioned_hash"), format!("0x{}", "01".repeat(32)));
    assert_eq!(tag("proposer"), format!("0x{}", "09".repeat(20)));
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), blob);
    assert_eq!(provider.find(&tags).await.unwrap(), Some(locator.clone()));
    // The same blob of another chain or height is another item.
    for other in [BlobTags { chain_id: 8, ..tags.clone() }, BlobTags { height: 41, ..tags }] {
        assert_eq!(provider.find(&other).await.unwrap(), None);
    }
    let error = provider.get(&locator, BLOB_LEN - 1).await.unwrap_err();
    assert!(matches!(error, ProviderError::TooLong { .. }) && !error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_private_blob_goes_to_its_bucket_and_the_gateway_never_sees_the_key() {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let gateway = Agent::start().await;
    let access = Access::Private { bucket: "validators".into(), folder: Some("chain-7".into()) };
    let options =
        LoadS3Options { access, gateway: format!("{}/", gateway.url), ..options(&agent, &dir) };
    let provider = LoadS3::new(&options).unwrap();
    let blob = blob(1);
    let tags = tags(&blob);
    let locator = provider.put(&tags, blob.clone()).await.unwrap();
    let upload = agent.requests().pop().unwrap();
    assert_eq!(upload.path, "/upload/private");
    let header = |name: &str| upload.headers.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("x-bucket-name"), "validators");
    assert_eq!(header("x-folder-name"), "chain-7");
    let name = header("x-dataitem-name");
    assert!(name.starts_with("chain-7-blob-height-00000000000000000042-0003-"), "{name}");
    gateway.state.lock().unwrap().items = agent.items();
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), blob);
    let resolve = gateway.requests().pop().unwrap();
    assert_eq!(resolve.path, format!("/resolve/{locator}"));
    assert!(resolve.headers.get("authorization").is_none());
    // The agent indexes no tags of private items.
    assert_eq!(provider.find(&tags).await.unwrap(), None);
    let text = format!("{provider:?} {options:?}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn an_upload_whose_answer_is_lost_is_found_and_not_sent_again() {
    let (agent, provider, _dir) = start_impatient().await;
    let blob = blob(1);
    let tags = tags(&blob);
    agent.set(Mood::LoseReply);
    let error = provider.put(&tags, blob.clone()).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unreachable { .. }) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("0.5 s"), "{error}");
    agent.set(Mood::Good);
    let locator = provider.find(&tags).await.unwrap().unwrap();
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), blob);
    assert_eq!(agent.items().len(), 1);
}

#[tokio::test]
async fn nothing_that_never_answers_is_waited_for_for_ever() {
    let (agent, provider, _dir) = start_impatient().await;
    let blob = blob(1);
    agent.set(Mood::Hang);
    let error = provider.put(&tags(&blob), blob.clone()).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unreachable { .. }), "{error}");
    let error = provider.get("abc", BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unreachable { .. }), "{error}");
    let error = provider.find(&tags(&blob)).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unreachable { .. }), "{error}");
    let url = agent.url.clone();
    drop(agent);
    // Nobody listens at all.
    let nobody = LoadS3::new(&LoadS3Options::new("load", &url, &url)).unwrap();
    let error = nobody.get("abc", BLOB_LEN).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_not_a_clear_success_is_a_failure() {
    let (agent, provider, _dir) = start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    for said in [
        "",
        "<html><body>502 Bad Gateway</body></html>",
        r#"{"success": false, "dataitem_id": "abc"}"#,
        r#"{"success": true}"#,
        r#"{"success": true, "dataitem_id": "../../secret"}"#,
        r#"{"dataitem_id": "abc"}"#,
        "[]",
    ] {
        agent.set(Mood::Say(said));
        let error = provider.put(&tags, blob.clone()).await.unwrap_err();
        assert!(matches!(error, ProviderError::BadReply { .. }), "{said:?}: {error}");
        assert!(error.is_retryable(), "{error}");
    }
    agent.set(Mood::Endless);
    let error = provider.put(&tags, blob.clone()).await.unwrap_err();
    assert!(matches!(error, ProviderError::BadReply { .. }), "{error}");
    // Each of them was an upload that may have been done, and it was: it is found.
    agent.set(Mood::Good);
    assert!(provider.find(&tags).await.unwrap().is_some());
}

#[tokio::test]
async fn an_error_is_told_in_short_and_only_a_passing_one_is_tried_again() {
    let (agent, provider, dir) = start().await;
    let blob = blob(1);
    for (status, body, retryable, told) in [
        (500, r#"{"error":"failed to store file"}"#, true, "failed to store file"),
        (503, "<html>", true, "not its JSON"),
        (429, r#"{"error":"slow\ndown"}"#, true, "slow down"),
        (413, r#"{"error":"file size exceeds limit"}"#, false, "exceeds"),
        (400, "", false, "nothing"),
        (307, "", false, "nothing"),
    ] {
        agent.set(Mood::Status(status, body));
        let error = provider.put(&tags(&blob), blob.clone()).await.unwrap_err();
        assert_eq!(error.is_retryable(), retryable, "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
    agent.set(Mood::Good);
    let options = LoadS3Options { token_file: None, ..options(&agent, &dir) };
    let keyless = LoadS3::new(&options).unwrap();
    let error = keyless.put(&tags(&blob), blob).await.unwrap_err();
    assert!(error.to_string().contains("401: invalid API key"), "{error}");
    assert!(!error.is_retryable() && agent.items().is_empty());
}

#[tokio::test]
async fn what_the_gateway_gives_is_bounded_and_redirects_stay_with_it() {
    let (agent, provider, _dir) = start().await;
    let other = Agent::start().await;
    let blob = blob(1);
    let locator = provider.put(&tags(&blob), blob.clone()).await.unwrap();
    other.state.lock().unwrap().items = agent.items();
    agent.set(Mood::Endless);
    let error = provider.get(&locator, BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::TooLong { .. }), "{error}");
    agent.set(Mood::AroundTheCorner);
    assert_eq!(provider.get(&locator, BLOB_LEN).await.unwrap(), blob);
    agent.set(Mood::Elsewhere(other.url.clone()));
    let error = provider.get(&locator, BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Refused { status: 302, .. }), "{error}");
    assert!(other.requests().is_empty(), "it went there");
    // A gateway that is its own redirect is not followed for ever.
    agent.set(Mood::Elsewhere(agent.url.clone()));
    let error = provider.get(&locator, BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Refused { .. }), "{error}");
    agent.set(Mood::Good);
    agent.requests();
    for locator in ["", "..", "a/b", "a?b", "a#b", "a%2fb", "ä", &"a".repeat(129)] {
        let error = provider.get(locator, BLOB_LEN).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error}");
    }
    assert!(agent.requests().is_empty(), "something was sent");
    let error = provider.get("absent", BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Missing { .. }) && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_locator_as_ultramarine_writes_it_is_read_like_the_bare_id() {
    let (agent, provider, _dir) = start().await;
    let blob = blob(1);
    let id = provider.put(&tags(&blob), blob.clone()).await.unwrap();
    agent.requests();
    assert_eq!(provider.get(&format!("load-s3://{id}"), BLOB_LEN).await.unwrap(), blob);
    let resolve = agent.requests().remove(0);
    assert_eq!(resolve.path, format!("/resolve/{id}"));
    let error = provider.get("load-s3://absent", BLOB_LEN).await.unwrap_err();
    assert!(matches!(error, ProviderError::Missing { .. }), "{error}");
    agent.requests();
    for locator in [
        "load-s3://",
        "load-s3:///x",
        "load-s3://a/b",
        "LOAD-S3://a",
        "s3://a",
        "load-s3://load-s3://a",
    ] {
        let error = provider.get(locator, BLOB_LEN).await.unwrap_err();
        assert!(matches!(error, ProviderError::Invalid { .. }), "{error}");
    }
    assert!(agent.requests().is_empty(), "something was sent");
}

#[tokio::test]
async fn an_item_with_our_tags_and_other_bytes_is_not_ours() {
    let (agent, provider, _dir) = start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    agent.set(Mood::WrongBytes);
    let wrong = provider.put(&tags, blob.clone()).await.unwrap();
    // The provider is not believed: who reads back compares.
    agent.set(Mood::Good);
    let back = provider.get(&wrong, BLOB_LEN).await.unwrap();
    assert_ne!(keccak256(&back).0, tags.blob_keccak.0);
    assert_eq!(provider.find(&tags).await.unwrap(), None);
    let right = provider.put(&tags, blob.clone()).await.unwrap();
    assert_eq!(provider.find(&tags).await.unwrap(), Some(right.clone()));
    // Two that are right: either will do, and it is always the same one.
    provider.put(&tags, blob.clone()).await.unwrap();
    assert_eq!(provider.find(&tags).await.unwrap(), Some(right));
}

#[tokio::test]
async fn an_item_is_found_on_a_later_page_and_the_search_ends() {
    let (agent, provider, _dir) = start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    let ours = provider.put(&tags, blob).await.unwrap();
    let ours = { agent.items().into_iter().find(|item| item.id == ours).unwrap() };
    let decoys = |count: usize| {
        (0..count).map(|n| Item {
            id: format!("decoy-{n}"),
            bytes: vec![0; BLOB_LEN].into(),
            tags: ours.tags.clone(),
        })
    };
    agent.state.lock().unwrap().items = decoys(40).chain([ours.clone()]).collect();
    assert_eq!(provider.find(&tags).await.unwrap(), Some(ours.id.clone()));
    agent.state.lock().unwrap().items = decoys(1_000).chain([ours.clone()]).collect();
    agent.requests();
    assert_eq!(provider.find(&tags).await.unwrap(), None);
    let asked = agent.requests();
    let queries = asked.iter().filter(|seen| seen.path == "/tags/query").count();
    assert_eq!((queries, asked.len()), (4, 104));
}

#[tokio::test]
async fn an_item_that_cannot_be_read_now_may_be_ours_and_is_not_sent_again() {
    let (agent, provider, dir) = start().await;
    let gateway = Agent::start().await;
    let blob = blob(1);
    let tags = tags(&blob);
    provider.put(&tags, blob).await.unwrap();
    let options = LoadS3Options { gateway: gateway.url.clone(), ..options(&agent, &dir) };
    let provider = LoadS3::new(&options).unwrap();
    gateway.set(Mood::Status(503, ""));
    let error = provider.find(&tags).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    // What the agent lists and the gateway does not show may be shown later,
    gateway.set(Mood::Late);
    let error = provider.find(&tags).await.unwrap_err();
    assert!(matches!(error, ProviderError::Missing { .. }) && error.is_retryable(), "{error}");
    // and what it has taken away is not ours any more.
    gateway.set(Mood::Status(410, ""));
    assert_eq!(provider.find(&tags).await.unwrap(), None);
    agent.set(Mood::Status(500, r#"{"error":"failed to query tags"}"#));
    assert!(provider.find(&tags).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn settings_that_would_give_the_key_away_are_refused() {
    let (agent, dir) = (Agent::start().await, tempfile::tempdir().unwrap());
    let good = options(&agent, &dir);
    for bad in [
        LoadS3Options { agent: "http://agent.example".into(), ..good.clone() },
        LoadS3Options { gateway: "http://gateway.example".into(), ..good.clone() },
        LoadS3Options { agent: "https://x:hunter2@agent.example".into(), ..good.clone() },
        LoadS3Options { id: "a b".into(), ..good.clone() },
        LoadS3Options { token_file: Some(dir.path().join("none")), ..good.clone() },
        LoadS3Options {
            access: Access::Private { bucket: "a\r\nx: y".into(), folder: None },
            ..good.clone()
        },
    ] {
        let error = LoadS3::new(&bad).unwrap_err();
        assert!(!error.is_retryable() && !error.to_string().contains("hunter2"), "{error}");
    }
    fs::set_permissions(good.token_file.as_ref().unwrap(), fs::Permissions::from_mode(0o644))
        .unwrap();
    let error = LoadS3::new(&good).unwrap_err().to_string();
    assert!(error.contains("chmod 600") && !error.contains("hunter2"), "{error}");
}
