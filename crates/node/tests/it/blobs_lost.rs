//! A data directory that has only blobs, and one whose blobs or history were removed.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::tempdir;

use crate::blobs_rig::{BlobNode, Validator, parts, proposal, settings};
use crate::demo_blobs::validator;
use crate::tool::{Run, ask, files, run};

#[test]
fn a_directory_with_blobs_and_no_history_is_verified_and_shown() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    // The blobs of height 94 are not final yet, so their bytes are here.
    run(&data, "demo --blocks 96 --json").ends(0);
    let second = validator(&data, 2);
    let before = files(&second.join("sidecars"));
    let verified = ask(&second, "verify");
    assert_eq!((&verified["clean"], &verified["sidecars"]["blobs"]), (&json!(true), &json!(2)));
    assert!(verified.get("blocks").is_none(), "{verified:#}");
    let told = run(&second, "verify").ends(0).out;
    assert!(told.starts_with("read       2 blobs, ") && told.contains("nothing wrong"), "{told}");
    assert_eq!(ask(&second, "status")["sidecars"], ask(&second, "blob status"));
    let told = run(&second, "status").ends(0).out;
    assert!(told.contains("chain 1337   blobs and no history"), "{told}");
    assert!(told.ends_with(&run(&second, "blob status").ends(0).out), "{told}");
    assert!(files(&second.join("sidecars")).keys().eq(before.keys()), "nothing is made");
    // Whoever asks for a history is told that there is none.
    run(&second, "plan").ends(9).complains("no history");
    // Damage is found as anywhere else: of every region, since the two blobs may be in any of them.
    let arena = second.join("sidecars/arena");
    let mut bytes = fs::read(&arena).unwrap();
    bytes[4096..].fill(7);
    fs::write(&arena, bytes).unwrap();
    run(&second, "verify --repair --yes").ends(9).complains("restore");
    // Without either there is nothing to be shown.
    fs::remove_dir_all(second.join("sidecars")).unwrap();
    fs::remove_file(second.join("made.toml")).unwrap();
    for words in ["verify", "status"] {
        run(&second, words).ends(9).complains("no history");
    }
}

/// Whatever is asked, that something is gone is told, and nothing is made in its place.
fn is_lost(place: &Path, data: &Path, all: &[&str], text: &str) {
    let before = files(data);
    for words in all {
        run(data, words).ends(9).complains(text).complains("made.toml");
    }
    node(place, data).ends(9).complains(text).complains("nothing was changed");
    let after = files(data);
    let changed = |name: &&std::path::PathBuf| !name.ends_with("LOCK");
    assert!(after.keys().filter(changed).eq(before.keys().filter(changed)), "{after:?}");
}

/// A node that is expected not to start.
fn node(place: &Path, data: &Path) -> Run {
    let file = place.join("data.toml");
    run(data, &format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --config {}", file.display()))
}

#[tokio::test]
async fn blobs_that_were_removed_are_missed_and_no_empty_store_takes_their_place() {
    let place = tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let text = settings(place.path(), &me.is_me(), &[&me]);
    let start = async || BlobNode::start(&data, &text).await;
    let first = start().await;
    first.decide(parts(&proposal(1, &me.id, &[0]))).await.unwrap();
    first.until(1, "archived").await;
    first.stop().await;
    let (sidecars, aside) = (data.join("sidecars"), place.path().join("aside"));
    // A directory of before there was such a file works, and gets it.
    fs::remove_file(data.join("made.toml")).unwrap();
    ask(&data, "blob status");
    assert!(!data.join("made.toml").exists(), "only who may make a store notes it");
    start().await.stop().await;
    assert!(fs::read_to_string(data.join("made.toml")).unwrap().contains("sidecars"));
    fs::rename(&sidecars, &aside).unwrap();
    let all = ["verify", "blob status", "blob fetch 1 0", "explain blob 1 0"];
    is_lost(place.path(), &data, &all, "there are no blobs");
    // The same where the directory is there and empty.
    fs::create_dir(&sidecars).unwrap();
    is_lost(place.path(), &data, &all, "there are no blobs");
    fs::remove_dir_all(&sidecars).unwrap();
    // What is put back is what it was.
    fs::rename(&aside, &sidecars).unwrap();
    let again = start().await;
    assert_eq!(again.status(1)["blobs"][0]["state"], "archived");
    again.stop().await;
    // Whoever means it begins anew.
    fs::remove_dir_all(&sidecars).unwrap();
    let noted = fs::read_to_string(data.join("made.toml")).unwrap();
    fs::write(data.join("made.toml"), noted.replace(", \"sidecars\"", "")).unwrap();
    let anew = start().await;
    assert_eq!(anew.summary()["heights"], 0);
    anew.stop().await;
}

#[tokio::test]
async fn a_history_that_was_removed_is_missed_although_the_blobs_are_there() {
    let place = tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    BlobNode::start(&data, &settings(place.path(), "", &[&me])).await.stop().await;
    fs::remove_dir_all(data.join("history")).unwrap();
    is_lost(place.path(), &data, &["verify", "status", "plan"], "there is no history");
    ask(&data, "blob status");
}
