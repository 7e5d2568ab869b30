//! What decides about a node's blobs: how they are served, how many copies are wanted, who may sign,
//! what holds them when no node runs, and what is counted of it. And `verify`, which reads them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use secateur_core::Locator;
use secateur_core::notice::NoticeBody;
use secateur_proto::sidecar::v1 as pb;
use secateur_sidecar::gossip::Message;
use secateur_sidecar::notice::sign;
use secateur_sidecar::testdata;
use serde_json::json;

use crate::blobs_rig::{BlobNode, CHAIN, Validator, details, parts, proposal, settings};
use crate::http_client::get;
use crate::tool::{ask, run};

/// A second place for copies.
fn another(place: &Path, name: &str) -> String {
    let path = place.join(name);
    format!(
        "[[sidecar.providers]]\nkind = \"fs\"\nname = \"{name}\"\npath = \"{}\"\n",
        path.display()
    )
}

#[tokio::test]
async fn what_is_archived_is_not_served_where_the_configuration_says_so() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let keys = format!("{}serve_archived = \"refuse\"\n", me.is_me());
    let node =
        BlobNode::start(&place.path().join("data"), &settings(place.path(), &keys, &[&me])).await;
    node.decide(parts(&proposal(1, &me.id, &[0, 1]))).await.unwrap();
    node.until(1, "archived").await;
    let refused = details(&node.blobs(1).await.unwrap_err());
    assert_eq!((refused.label.as_str(), refused.blob_count), ("pruned", 2));
    assert_eq!(refused.locators[1].locators[0].provider, "local");
    let told = |height: u64| {
        let answer = get(&node.node, &format!("/eth/v1/beacon/blobs/{height}")).is(410).json();
        answer["message"].as_str().unwrap().to_owned()
    };
    let why = "archived, and not served any more (`sidecar.serve_archived = refuse`)";
    assert!(told(1).starts_with(&format!("the 2 blobs of height 1 are {why}")), "{}", told(1));
    assert_eq!(node.status(1)["hold"], "not_finalized", "the bytes are here all the same");
    node.decide(parts(&proposal(2, &me.id, &[2]))).await.unwrap();
    node.until(2, "archived").await;
    assert!(told(2).starts_with(&format!("the blob of height 2 is {why}")), "{}", told(2));
    node.finalize(2).await;
    node.until(2, "pruned").await;
    assert_eq!(told(2), "the blob of height 2 is pruned; its records say where it is");
    node.stop().await;
}

/// A number is told after what it counts has happened.
async fn becomes(node: &BlobNode, name: &str, is_right: impl Fn(f64) -> bool) {
    let ends = std::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let found = node.metric(&format!("secateur_{name}"));
        if is_right(found) {
            return;
        }
        assert!(std::time::Instant::now() < ends, "{name} stays {found}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn two_copies_are_made_where_two_are_wanted_and_every_number_is_told_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let keys = format!("{}min_copies = 2\n", me.is_me());
    let text = settings(place.path(), &keys, &[&me]) + &another(place.path(), "second");
    let node = BlobNode::start(&place.path().join("data"), &text).await;
    let is_absent = |name: &str| node.sample(&format!("secateur_{name}")).unwrap_err();
    is_absent("archiver_backlog_height");
    // The second place is taken away: one copy is not enough.
    let (second, aside) = (place.path().join("second"), place.path().join("aside"));
    std::fs::rename(&second, &aside).unwrap();
    std::fs::write(&second, "a file").unwrap();
    node.decide(parts(&proposal(7, &me.id, &[0, 1]))).await.unwrap();
    node.decide(parts(&proposal(9, &me.id, &[]))).await.unwrap();
    becomes(&node, "blob_archival_attempts_total{result=\"err\"}", |found| found >= 2.0).await;
    let is = |name: &str, wanted: f64| {
        let found = node.metric(&format!("secateur_{name}"));
        assert!((found - wanted).abs() < 0.1, "{name} is {found} and not {wanted}");
    };
    is("archiver_queue_len", 2.0);
    is("archiver_backlog_height", 7.0);
    is("blob_archival_lag_blocks", 3.0);
    is("blob_archived_total", 0.0);
    is_absent("blob_pruner_backlog_height");
    std::fs::remove_file(&second).unwrap();
    std::fs::rename(&aside, &second).unwrap();
    let status = node.until(7, "archived").await;
    for blob in status["blobs"].as_array().unwrap() {
        let at: Vec<_> = blob["records"][0]["locators"].as_array().unwrap().iter().collect();
        assert_eq!((&at[0]["provider"], &at[1]["provider"]), (&json!("local"), &json!("second")));
        for (place_of, at) in ["copies", "second"].iter().zip(at) {
            let key = at["key"].as_str().unwrap();
            assert!(place.path().join(place_of).join(key).is_file(), "{key}");
        }
    }
    becomes(&node, "blob_archival_attempts_total{result=\"ok\"}", |found| found >= 2.0).await;
    is("blob_archival_attempts_total{result=\"ok\"}", 2.0);
    is("blob_archived_total", 2.0);
    is("archiver_queue_len", 0.0);
    is_absent("archiver_backlog_height");
    is("blob_archival_lag_blocks", 0.0);
    is("blob_prune_failures_total", 0.0);
    node.finalize(9).await;
    node.until(7, "pruned").await;
    becomes(&node, "blob_pruned_total", |found| found >= 2.0).await;
    is_absent("blob_pruner_backlog_height");
    node.stop().await;
}

/// A notice of a validator for the first blob of a height.
fn notice(of: &Validator, height: u64, blob: usize, provider: &str, key: &str) -> bytes::Bytes {
    let body = NoticeBody {
        chain_id: CHAIN,
        height,
        round: 0,
        blob_index: 0,
        kzg_commitment: testdata::pooled(blob).commitment.0,
        blob_keccak: alloy_primitives::keccak256(&testdata::pooled(blob).blob).0,
        locators: vec![Locator { provider: provider.into(), key: key.into() }],
        archived_by: of.id.as_bytes().to_vec(),
        archived_at_height: height,
    };
    let notice = sign(body, 5, &of.key).unwrap().encode().unwrap();
    Message::notice(notice).unwrap().encode()
}

async fn publish(node: &BlobNode, message: bytes::Bytes) -> (pb::Verdict, String) {
    let request = pb::PublishRequest { messages: vec![message] };
    let answer = node.gossip.clone().publish(request).await.unwrap().into_inner();
    (answer.acked[0].verdict(), answer.acked[0].reason.clone())
}

#[tokio::test]
async fn another_validator_may_sign_after_so_many_blocks_and_stands_in_by_itself() {
    let place = tempfile::tempdir().unwrap();
    let (me, dead, third) = (
        Validator::new(place.path(), 2),
        Validator::new(place.path(), 1),
        Validator::new(place.path(), 3),
    );
    let keys = format!("{}signers = \"any_validator_after:3\"\n", me.is_me());
    let all = [&me, &dead, &third];
    let node =
        BlobNode::start(&place.path().join("data"), &settings(place.path(), &keys, &all)).await;
    node.decide(parts(&proposal(1, &dead.id, &[0]))).await.unwrap();
    for height in 2..=3 {
        node.decide(parts(&proposal(height, &dead.id, &[]))).await.unwrap();
    }
    assert_eq!(node.summary()["jobs"], 0);
    node.decide(parts(&proposal(4, &dead.id, &[]))).await.unwrap();
    let status = node.until(1, "archived").await;
    assert_eq!(status["blobs"][0]["records"][0]["signer"], json!(me.id));
    becomes(&node, "blob_archived_total", |found| found >= 1.0).await;
    // Another one's locators are added, and the blob is not counted again.
    let (verdict, reason) = publish(&node, notice(&third, 1, 0, "local", "x")).await;
    assert_eq!(verdict, pb::Verdict::New, "{reason}");
    assert_eq!(node.status(1)["blobs"][0]["records"].as_array().unwrap().len(), 2);
    assert!((node.metric("secateur_blob_archived_total") - 1.0).abs() < 0.1);
    node.finalize(1).await;
    node.until(1, "pruned").await;
    node.stop().await;
}

#[tokio::test]
async fn what_is_here_is_served_while_a_provider_hangs() {
    let place = tempfile::tempdir().unwrap();
    let other = Validator::new(place.path(), 1);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let (asked, hangs) = std::sync::mpsc::channel();
    // A gateway that takes a question and never answers.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut socket in server.incoming().flatten() {
            let mut some = [0; 16];
            drop(socket.read(&mut some));
            if asked.send(()).is_err() {
                return;
            }
            open.push(socket);
        }
    });
    let text = settings(place.path(), "read_through = true\nat_once = 1\n", &[&other])
        + &format!(
            "[[sidecar.providers]]\nkind = \"load-s3-agent\"\nname = \"hangs\"\nagent = \"{url}\"\n\
             gateway = \"{url}\"\n"
        );
    let node = BlobNode::start(&place.path().join("data"), &text).await;
    node.decide(parts(&proposal(1, &other.id, &[0]))).await.unwrap();
    node.decide(parts(&proposal(2, &other.id, &[1]))).await.unwrap();
    assert_eq!(publish(&node, notice(&other, 1, 0, "hangs", "x")).await.0, pb::Verdict::New);
    node.finalize(1).await;
    node.until(1, "pruned").await;
    let mut waits = std::net::TcpStream::connect(&node.node.http).unwrap();
    let question =
        format!("GET /eth/v1/beacon/blobs/1 HTTP/1.1\r\nhost: {}\r\n\r\n", node.node.http);
    waits.write_all(question.as_bytes()).unwrap();
    let patience = std::time::Duration::from_mins(1);
    tokio::task::spawn_blocking(move || hangs.recv_timeout(patience).unwrap()).await.unwrap();
    let began = std::time::Instant::now();
    let here = get(&node.node, "/eth/v1/beacon/blobs/2").is(200).json();
    assert_eq!(here["data"].as_array().unwrap().len(), 1);
    assert!(began.elapsed().as_secs() < 20, "it waited for the provider");
    drop(waits);
    node.stop().await;
}

/// A directory with an archived, final height that its node held by `retain_blocks`.
async fn held(place: &Path, me: &Validator) -> std::path::PathBuf {
    let data = place.join("data");
    let keys = format!("{}retain_blocks = 100\n", me.is_me());
    let node = BlobNode::start(&data, &settings(place, &keys, &[me])).await;
    node.decide(parts(&proposal(1, &me.id, &[0, 1]))).await.unwrap();
    node.until(1, "archived").await;
    node.finalize(50).await;
    assert_eq!(node.status(1)["hold"], "retained");
    node.stop().await;
    data
}

#[tokio::test]
async fn a_prune_of_a_stopped_nodes_directory_is_never_laxer_than_the_node() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let data = held(place.path(), &me).await;
    let lax = place.path().join("lax.toml");
    std::fs::write(&lax, settings(place.path(), "", &[&me])).unwrap();
    for words in [
        "blob prune --yes --json".to_owned(),
        format!("blob --config {} prune --yes --json", lax.display()),
    ] {
        let done = run(&data, &words).ends(0).json();
        assert_eq!(done["blobs"], 0, "{words}: {done}");
    }
    assert_eq!(ask(&data, "blob status 1")["hold"], "retained");
    // Nothing says what it was held by.
    std::fs::remove_file(data.join("sidecars/rules.toml")).unwrap();
    for words in ["blob plan", "blob prune --yes", "blob prune --dry-run"] {
        run(&data, words).ends(11).complains("--config");
    }
    ask(&data, "blob status 1");
    let words = format!("blob --config {} prune --yes --json", lax.display());
    assert_eq!(run(&data, &words).ends(0).json()["blobs"], 2, "now somebody says so");
}

#[tokio::test]
async fn verify_reads_the_blobs_of_a_directory_and_of_a_running_node_and_finds_damage() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let data = held(place.path(), &me).await;
    let clean = ask(&data, "verify");
    assert_eq!((&clean["clean"], &clean["sidecars"]["blobs"]), (&json!(true), &json!(2)));
    assert_eq!(clean["sidecars"]["bytes"], 2 * 131_072);
    assert!(run(&data, "verify").ends(0).out.contains("2 blobs, "));
    // A byte of the first blob, wherever it lies.
    let arena = data.join("sidecars/arena");
    let bytes = std::fs::read(&arena).unwrap();
    let blob = &testdata::pooled(0).blob;
    let at = bytes.windows(64).position(|window| window == &blob[..64]).unwrap() + 17;
    let file = std::fs::File::options().write(true).open(&arena).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    let found = run(&data, "verify --json").ends(9).json();
    assert_eq!((&found["clean"], &found["findings"]), (&json!(false), &json!([])));
    let finding = &found["sidecars"]["findings"][0];
    assert_eq!((&finding["invariant"], &finding["kind"]), (&json!(14), &json!("payload")));
    assert!(finding["detail"].as_str().unwrap().contains("blob 1/0"), "{finding}");
    let told = run(&data, "verify").ends(9).complains("restore");
    assert!(told.out.contains("invariant 14"), "{told:#?}");
    run(&data, "verify --repair --yes").ends(9).complains("nothing can be derived");
    let keys = format!("{}retain_blocks = 100\n", me.is_me());
    let node = BlobNode::start(&data, &settings(place.path(), &keys, &[&me])).await;
    let at = data.clone();
    let live = tokio::task::spawn_blocking(move || run(&at, "verify --json").ends(9).json());
    assert_eq!(live.await.unwrap()["sidecars"]["findings"], found["sidecars"]["findings"]);
    node.stop().await;
}
