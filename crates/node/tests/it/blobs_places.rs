//! Where copies of blobs are: a bucket, an agent; what a node does whose copies are not right
//! (`trust = "fetch"`); and peers over TLS.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use secateur_proto::sidecar::v1::sidecar_client::SidecarClient;
use secateur_sidecar::testdata;
use serde_json::{Value, json};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::agent::{Agent, KEY, Mood};
use crate::blobs_rig::{
    BlobNode, PATIENCE, Validator, parts, proposal, settings, settings_with, write_private,
};
use crate::grpc::Bearer;
use crate::node::Node;
use crate::s3::{Bucket, Fault};
use crate::tool::{ask, files, run};

/// A bucket as a place for copies.
pub fn in_bucket(bucket: &Bucket) -> String {
    format!(
        "[[sidecar.providers]]\nkind = \"s3\"\nname = \"bucket\"\nurl = \"s3://history/blobs\"\n\
         endpoint = \"{}\"\nregion = \"garage\"\ncredentials = \"{}\"\n",
        bucket.endpoint,
        bucket.dir.path().join("credentials").display()
    )
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < ends, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a node serves of height 1, which has the first two blobs of the pool.
async fn serves_both(node: &BlobNode) {
    let served = node.blobs(1).await.unwrap();
    let bytes: Vec<_> = served.iter().map(|blob| blob.blob.clone()).collect();
    assert_eq!(bytes, [0, 1].map(|which| testdata::pooled(which).blob.clone()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_copies_are_in_a_bucket_archives_prunes_and_serves_from_there() {
    let (place, bucket) = (tempfile::tempdir().unwrap(), Bucket::start().await);
    let me = Validator::new(place.path(), 1);
    // What comes back is wrong: nothing counts as archived.
    bucket.plan(|method, _| (method == "GET").then_some(Fault::Corrupt));
    let keys = format!("{}read_through = true\n", me.is_me());
    let text = settings_with(&keys, &[&me], &in_bucket(&bucket));
    let node = BlobNode::start(&place.path().join("data"), &text).await;
    node.decide(parts(&proposal(1, &me.id, &[0, 1]))).await.unwrap();
    node.finalize(1).await;
    let failed = "secateur_blob_archival_attempts_total{result=\"err\"}";
    until("both attempts failed", || node.metric(failed) >= 2.0).await;
    assert_eq!(node.status(1)["hold"], "not_archived");
    bucket.healthy();
    let status = node.until(1, "pruned").await;
    let locator = &status["blobs"][1]["records"][0]["locators"][0];
    assert_eq!(locator["provider"], "bucket", "{status}");
    let objects = files(&bucket.dir.path().join("data/history/blobs"));
    let object = objects.iter().find(|(name, _)| name.ends_with(locator["key"].as_str().unwrap()));
    assert_eq!(object.unwrap().1[..], testdata::pooled(1).blob[..], "{locator}");
    serves_both(&node).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_copies_are_with_an_agent_finds_an_upload_whose_answer_was_lost() {
    let (place, agent) = (tempfile::tempdir().unwrap(), Agent::start().await);
    let me = Validator::new(place.path(), 1);
    let key = place.path().join("agent.key");
    write_private(&key, KEY);
    let places = format!(
        "[[sidecar.providers]]\nkind = \"load-s3-agent\"\nname = \"load\"\nagent = \"{0}\"\n\
         gateway = \"{0}\"\ntoken_file = \"{1}\"\ntimeout_seconds = 2\n",
        agent.url,
        key.display()
    );
    let keys = format!("{}read_through = true\n", me.is_me());
    agent.set(Mood::LoseReply);
    let node =
        BlobNode::start(&place.path().join("data"), &settings_with(&keys, &[&me], &places)).await;
    node.decide(parts(&proposal(1, &me.id, &[0, 1]))).await.unwrap();
    until("both are with the agent", || agent.items().len() == 2).await;
    assert_eq!(node.status(1)["blobs"][0]["state"], "pending");
    agent.set(Mood::Good);
    node.until(1, "archived").await;
    node.finalize(1).await;
    let status = node.until(1, "pruned").await;
    let locator = &status["blobs"][0]["records"][0]["locators"][0];
    let items = agent.items();
    assert_eq!(items.len(), 2, "nothing was sent twice");
    let item = items.iter().find(|item| locator["key"] == item.id.as_str()).unwrap();
    assert_eq!(item.bytes, testdata::pooled(0).blob);
    assert!(item.tags.contains(&("height".to_owned(), "1".to_owned())), "{:?}", item.tags);
    serves_both(&node).await;
    node.stop().await;
}

/// The copy that a status names, in the directory of copies.
fn copy_of(place: &Path, status: &Value) -> std::path::PathBuf {
    let key = status["blobs"][0]["records"][0]["locators"][0]["key"].as_str().unwrap();
    place.join("copies").join(key)
}

#[tokio::test]
async fn under_fetch_a_copy_that_was_changed_holds_its_height_and_a_true_one_lets_it_go() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (Validator::new(place.path(), 1), Validator::new(place.path(), 2));
    let fetches = format!("{}trust = \"fetch\"\nask_seconds = 1\n", b.is_me());
    let fetches = settings(place.path(), &fetches, &[&a, &b]);
    let follower = BlobNode::start(&place.path().join("b"), &fetches).await;
    let peer =
        format!("[[sidecar.peers]]\nname = \"b\"\nurl = \"http://{}\"\n", follower.node.grpc);
    let proposes = settings(place.path(), &a.is_me(), &[&a, &b]) + &peer;
    let proposer = BlobNode::start(&place.path().join("a"), &proposes).await;
    for height in [1, 2] {
        let which = usize::try_from(height).unwrap();
        let told = parts(&proposal(height, &a.id, &[which]));
        for node in [&proposer, &follower] {
            node.decide(told.clone()).await.unwrap();
        }
        follower.until(height, "archived").await;
    }
    let copy = copy_of(place.path(), &follower.status(1));
    let right = std::fs::read(&copy).unwrap();
    let mut wrong = right.clone();
    wrong[77] ^= 1;
    std::fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&copy, &wrong).unwrap();
    follower.finalize(2).await;
    let held = follower.until(2, "pruned").await;
    assert!(held["blobs"][0]["fetched_at"].is_number(), "{held}");
    until("it was looked for", || follower.metric("secateur_blob_copies_not_there_total") >= 1.0)
        .await;
    let status = follower.status(1);
    assert_eq!(
        (&status["blobs"][0]["state"], &status["hold"]),
        (&json!("archived"), &json!("not_fetched"))
    );
    assert_eq!(follower.blobs(1).await.unwrap()[0].blob, testdata::pooled(1).blob);
    std::fs::write(&copy, &right).unwrap();
    follower.until(1, "pruned").await;
    proposer.stop().await;
    follower.stop().await;
}

/// A node that serves TLS only, and what asks it.
struct Encrypted {
    node: Node,
    blobs: SidecarClient<crate::grpc::Secured>,
}

impl Encrypted {
    async fn start(data: &Path, text: &str, cert: &str) -> Self {
        let file = data.with_extension("toml");
        std::fs::write(&file, text).unwrap();
        let node = Node::start(data, &format!("--config {}", file.display()));
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(cert));
        let endpoint = Endpoint::from_shared(format!("https://{}", node.grpc)).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
        let secured = InterceptedService::new(channel, Bearer::showing(&node.token));
        Self { blobs: SidecarClient::new(secured), node }
    }
}

/// A certificate for this machine, and its key, as files.
fn certificate(place: &Path, name: &str) -> (String, String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (place.join(format!("{name}.pem")), place.join(format!("{name}.key")));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    write_private(&key, &made.signing_key.serialize_pem());
    (made.cert.pem(), cert.display().to_string(), key.display().to_string())
}

#[tokio::test]
async fn peers_over_tls_are_heard_with_the_right_certificate_and_with_no_other() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (Validator::new(place.path(), 1), Validator::new(place.path(), 2));
    let (pem, cert, key) = certificate(place.path(), "right");
    let (_, other, _) = certificate(place.path(), "wrong");
    let token = place.path().join("token");
    write_private(&token, &"t".repeat(64));
    let token = format!("token_file = \"{}\"\n", token.display());
    let follows = settings(place.path(), &format!("{}{token}", b.is_me()), &[&a, &b]);
    let follows = format!("{follows}[tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n");
    let data = place.path().join("b");
    let mut follower = Encrypted::start(&data, &follows, &pem).await;
    let told = parts(&proposal(1, &a.id, &[0]));
    let stream = tokio_stream::iter(told.clone());
    follower.blobs.store_decided(stream).await.unwrap();
    let grpc = &follower.node.grpc;
    // Without TLS; with TLS and a certificate that is not the peer's; with the peer's own.
    let ways = [("http", &cert, false), ("https", &other, false), ("https", &cert, true)];
    for (turn, (scheme, ca, heard)) in (2..).zip(ways) {
        let keys = format!("{}{token}ca_file = \"{ca}\"\nrebroadcast_blocks = 1\n", a.is_me());
        let peer = format!("[[sidecar.peers]]\nname = \"b\"\nurl = \"{scheme}://{grpc}\"\n");
        let text = settings(place.path(), &keys, &[&a, &b]) + &peer;
        let proposer = BlobNode::start(&place.path().join("a"), &text).await;
        proposer.decide(told.clone()).await.unwrap();
        proposer.until(1, "archived").await;
        // A block later it is told again.
        proposer.decide(parts(&proposal(turn, &a.id, &[]))).await.unwrap();
        if heard {
            until("it is answered", || proposer.summary()["announcements"] == 0).await;
        } else {
            let unanswered = "secateur_gossip_unanswered_total";
            until("nobody answers", || proposer.metric(unanswered) >= 1.0).await;
            assert_eq!(proposer.summary()["announcements"], 1, "{scheme}");
        }
        let peers = json!([{ "name": "b", "connected": heard }]);
        assert_eq!(proposer.summary()["peers"], peers, "{scheme} {ca}");
        proposer.stop().await;
    }
    let Encrypted { node, .. } = follower;
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
    let config = data.with_extension("toml");
    let status = ask(&data, &format!("blob status 1 --config {}", config.display()));
    let record = &status["blobs"][0]["records"][0];
    assert_eq!((&record["signer"], &record["form"]), (&json!(a.id), &json!("v1")), "{status:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_failed_is_tried_again_when_somebody_asks_for_it() {
    let (place, bucket) = (tempfile::tempdir().unwrap(), Bucket::start().await);
    let me = Validator::new(place.path(), 1);
    let data = place.path().join("data");
    let text = settings_with(&me.is_me(), &[&me], &in_bucket(&bucket));
    bucket.plan(|_, _| Some(Fault::Answer(403)));
    let node = BlobNode::start(&data, &text).await;
    node.decide(parts(&proposal(1, &me.id, &[0, 1]))).await.unwrap();
    let attempts = |status: &Value| status["blobs"][0]["job"]["attempts"].as_u64();
    until("it failed twice", || attempts(&node.status(1)) >= Some(2)).await;
    node.stop().await;
    // On the directory: the job is due, and that it was tried is all that is left of its past.
    let config = format!("--config {}", data.with_extension("toml").display());
    let before = ask(&data, &format!("blob status 1 {config}"));
    assert!(attempts(&before) >= Some(2), "{before:#}");
    assert_eq!(ask(&data, &format!("blob retry 1 {config}"))["blobs"], 2);
    let after = ask(&data, &format!("blob status 1 {config}"));
    assert_eq!(attempts(&after), Some(1), "{after:#}");
    let due = |status: &Value| status["blobs"][0]["job"]["due"].as_u64().unwrap();
    assert!(due(&after) <= due(&before), "{before:#}\n{after:#}");
    // Through the node, as soon as the bucket is right again.
    let node = BlobNode::start(&data, &text).await;
    // Both have failed once more, and wait now: what archives them is the asking.
    let failed = |blob: &Value| blob["job"]["attempts"].as_u64() >= Some(2);
    let both = |status: &Value| status["blobs"].as_array().unwrap().iter().all(failed);
    until("they failed again", || both(&node.status(1))).await;
    bucket.healthy();
    let (words, at) = (format!("blob retry 1 {config}"), data.clone());
    let said = tokio::task::spawn_blocking(move || ask(&at, &words)).await.unwrap();
    assert_eq!(said["blobs"], 2);
    node.until(1, "archived").await;
    node.stop().await;
    let words = format!("blob retry 1 {config}");
    assert_eq!(ask(&data, &words)["blobs"], 0);
}

#[tokio::test]
async fn a_plan_says_what_a_prune_then_takes_and_nothing_goes_without_a_yes() {
    let place = tempfile::tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let keeps = format!("{}retain_blocks = 100\n", me.is_me());
    let node = BlobNode::start(&data, &settings(place.path(), &keeps, &[&me])).await;
    for (height, blobs) in [(1, &[0, 1][..]), (2, &[2]), (3, &[3])] {
        node.decide(parts(&proposal(height, &me.id, blobs))).await.unwrap();
        node.until(height, "archived").await;
    }
    node.finalize(2).await;
    node.stop().await;
    let keeping = format!("--config {}", data.with_extension("toml").display());
    assert_eq!(ask(&data, &format!("blob plan {keeping}"))["heights"], 0);
    assert_eq!(ask(&data, &format!("blob prune --yes {keeping}"))["blobs"], 0);
    let file = place.path().join("now.toml");
    std::fs::write(&file, settings(place.path(), &me.is_me(), &[&me])).unwrap();
    let now = format!("--config {}", file.display());
    // What the node held is held, until nobody knows of it any more.
    assert_eq!(ask(&data, &format!("blob plan {now}"))["heights"], 0);
    std::fs::remove_file(data.join("sidecars/rules.toml")).unwrap();
    let plan = ask(&data, &format!("blob plan {now}"));
    assert_eq!(
        (&plan["heights"], &plan["blobs"], &plan["first"], &plan["last"]),
        (&json!(2), &json!(3), &json!(1), &json!(2)),
        "{plan:#}"
    );
    let said = run(&data, &format!("blob plan {now}")).ends(0);
    assert!(said.out.contains("3 blobs of 2 heights, 1 to 2"), "{said:?}");
    let asked = run(&data, &format!("blob prune {now}"));
    assert!(asked.code != 0 && asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(ask(&data, &format!("blob plan {now}")), plan, "nothing went");
    assert_eq!(ask(&data, &format!("blob prune --dry-run {now}")), plan);
    let first = ask(&data, &format!("blob prune --before 2 --yes {now}"));
    assert_eq!((&first["blobs"], &first["last"]), (&json!(2), &json!(1)), "{first:#}");
    let states = |height: u64| {
        let status = ask(&data, &format!("blob status {height} {now}"));
        status["blobs"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!([1, 2, 3].map(states), ["pruned", "archived", "archived"]);
    let said = run(&data, &format!("blob prune --yes {now}")).ends(0);
    assert!(said.out.contains("1 blob of 1 height pruned"), "{said:?}");
    assert_eq!([1, 2, 3].map(states), ["pruned", "pruned", "archived"]);
    assert_eq!(ask(&data, &format!("blob plan {now}"))["blobs"], 0);
}
