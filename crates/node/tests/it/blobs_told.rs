//! What is told of blobs that wait: what is missing, who could sign, which command helps.

use tempfile::tempdir;

use crate::blobs_rig::{BlobNode, Validator, parts, proposal, settings};
use crate::http_client::get;
use crate::tool::{Run, run};

/// A command beside a running node.
async fn beside(node: &BlobNode, data: &std::path::Path, words: &str) -> Run {
    assert!(!node.node.http.is_empty());
    let (data, words) = (data.to_path_buf(), words.to_owned());
    tokio::task::spawn_blocking(move || run(&data, &words)).await.unwrap()
}

#[track_caller]
fn says(run: &Run, texts: &[&str]) {
    for text in texts {
        assert!(run.out.contains(text), "no `{text}` in {run:#?}");
    }
}

#[tokio::test]
async fn a_blob_that_nobody_has_signed_for_says_what_is_missing_and_whether_anybody_can_sign() {
    let place = tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let stranger = Validator::new(place.path(), 9);
    let node = BlobNode::start(&data, &settings(place.path(), "", &[&me])).await;
    node.decide(parts(&proposal(1, &stranger.id, &[0]))).await.unwrap();
    node.decide(parts(&proposal(2, &me.id, &[1]))).await.unwrap();
    node.finalize(2).await;
    let nobody = format!("signers    nobody: {} is no validator", stranger.id);
    let held = "held       height 1: not every blob of the height has a verified notice";
    assert_eq!(node.status(1)["no_signer"], true);
    assert_eq!(get(&node.node, "/v1/blobs/2/0").is(200).json()["no_signer"], false);
    let status = format!("`secateur --data {} blob status 1` tells more", data.display());
    let pruned = beside(&node, &data, "blob prune --yes").await.ends(0);
    says(&pruned, &["nothing was pruned", "up to      height 2", held, &status]);
    let above = beside(&node, &data, "blob prune --yes --before 1").await.ends(0);
    assert!(!above.out.contains("held"), "{above:#?}");
    for words in ["blob status 1", "explain blob 1 0"] {
        says(&beside(&node, &data, words).await.ends(0), &[&nobody]);
    }
    let other = beside(&node, &data, "blob status 2").await.ends(0);
    assert!(!other.out.contains("nobody"), "{other:#?}");
    let unsigned = "nobody has signed for a copy of blob 0 of height 1 yet";
    beside(&node, &data, "blob fetch 1 0").await.ends(6).complains(unsigned);
    node.stop().await;
    // The same on the directory; a configuration that names no validator says nothing of them.
    let config = format!("--config {}", data.with_extension("toml").display());
    for words in ["blob status 1", "explain blob 1 0"] {
        says(&run(&data, &format!("{words} {config}")).ends(0), &[&nobody]);
        let bare = run(&data, words).ends(0);
        assert!(!bare.out.contains("signers"), "{bare:#?}");
    }
    run(&data, &format!("blob fetch 1 0 {config}")).ends(6).complains(unsigned);
    let pruned = run(&data, &format!("blob prune --yes {config}")).ends(0);
    says(&pruned, &[held, &format!("blob status 1 {config}` tells more")]);
    // Where any validator may sign after a while, somebody can.
    let any = settings(place.path(), "signers = \"any_validator_after:5\"\n", &[&me]);
    let node = BlobNode::start(&data, &any).await;
    assert_eq!(node.status(1)["no_signer"], false);
    node.stop().await;
}

#[tokio::test]
async fn the_command_that_fetches_a_blob_works_as_it_is_printed() {
    let place = tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let node = BlobNode::start(&data, &settings(place.path(), &me.is_me(), &[&me])).await;
    node.decide(parts(&proposal(1, &me.id, &[0]))).await.unwrap();
    node.finalize(1).await;
    node.until(1, "pruned").await;
    node.stop().await;
    let config = format!("--config {}", data.with_extension("toml").display());
    for words in [format!("explain blob 1 0 {config}"), format!("blob retry 1 {config}")] {
        let told = run(&data, &words).ends(0).out;
        let command = told.split('`').nth(1).unwrap_or_else(|| panic!("{told}"));
        let words = command.strip_prefix(&format!("secateur --data {} ", data.display())).unwrap();
        let words = words.replace("--out ", &format!("--out {}/", place.path().display()));
        let fetched = run(&data, &words).ends(0);
        says(&fetched, &["hashes right"]);
    }
}

/// `blob retry` on a node that signs for nothing said "archived again at once"; on a directory it put jobs into the
/// queue whatever the configuration said. Nothing would ever have taken them out. Both ask now whether this node
/// may sign, before anything is queued.
#[tokio::test]
async fn a_retry_where_nobody_can_sign_is_refused_and_queues_nothing() {
    let place = tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let other = Validator::new(place.path(), 2);
    let node = BlobNode::start(&data, &settings(place.path(), "", &[&me, &other])).await;
    node.decide(parts(&proposal(1, &me.id, &[0]))).await.unwrap();
    let no_name = "no name and no key to sign with; nothing was queued";
    beside(&node, &data, "blob retry 1").await.ends(11).complains(no_name);
    assert!(node.status(1)["blobs"][0]["job"].is_null());
    node.stop().await;
    let config = format!("--config {}", data.with_extension("toml").display());
    for words in [String::new(), config.clone()] {
        let refused = run(&data, &format!("blob retry 1 {words}")).ends(11).complains(no_name);
        assert!(refused.err.contains("sidecar.identity"), "{refused:#?}");
    }
    // A validator that did not propose the height, and may not stand in for the one that did.
    let file = place.path().join("other.toml");
    std::fs::write(&file, settings(place.path(), &other.is_me(), &[&me, &other])).unwrap();
    let words = format!("blob retry 1 --config {}", file.display());
    run(&data, &words).ends(11).complains("lets only the proposer sign");
    let status = run(&data, &format!("blob status 1 {config} --json")).ends(0);
    assert!(
        status.out.contains("\"job\": null") || status.out.contains("\"job\":null"),
        "{status:#?}"
    );
    // The proposer may.
    let file = place.path().join("me.toml");
    std::fs::write(&file, settings(place.path(), &me.is_me(), &[&me, &other])).unwrap();
    let queued = run(&data, &format!("blob retry 1 --config {}", file.display())).ends(0);
    says(&queued, &["1 blob of height 1: archived again as soon as the node runs"]);
}
