//! An emergency is heard: in the log, at `/readyz`, and by those who push blocks, if so configured.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::tempdir;
use tonic::Code;

use crate::grpc::{Clients, append_request, chain, config};
use crate::http_client::get;
use crate::node::Node;

/// Asks until it is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// With the archiver stopped and the disk far over its budget the log had not one warning, and
/// `/readyz` was 200.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emergency_that_a_hold_keeps_is_logged_not_ready_and_refuses_blocks_if_it_may() {
    let place = tempdir().unwrap();
    let (data, log) = (place.path().join("data"), place.path().join("log"));
    let text = "[archive]\nhold = true\n[policy]\ntarget_bytes = \"2MiB\"\n\
                [pruning]\nbackpressure = true\n";
    let words = config(place.path(), text);
    let node = Node::logging(&data, &words, File::create(&log).unwrap());
    let clients = Clients::to(&node, Some(&node.token)).await;
    let ready = get(&node, "/readyz").is(200).json();
    assert_eq!(ready["budget"], "steady");

    let blocks = chain(0..=120, 20_000, 1);
    clients.append(&blocks[..120]).await;
    let next = || append_request(&blocks[120..]);
    let refused = clients.admin.clone().append(next()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(refused.message().contains("nothing was written"), "{refused:?}");
    until("/readyz says so", || get(&node, "/readyz").status == 503);
    let ready = get(&node, "/readyz").is(503).json();
    assert_eq!((&ready["ready"], &ready["budget"]), (&json!(false), &json!("emergency")));
    assert!(ready["reasons"].to_string().contains("emergency"), "{ready}");
    let logged = || std::fs::read_to_string(&log).unwrap();
    until("the log says so", || logged().contains("the budget is in an emergency"));
    let text = logged();
    let line = text.lines().find(|line| line.contains("in an emergency")).unwrap();
    for part in ["WARN", "held_by=\"archive\"", "since=", "secateur index --archive", "of 2.0 MiB"]
    {
        assert!(line.contains(part), "no {part} in {line}");
    }

    clients.policy(&[("target_bytes", "64MiB")]).await;
    clients.admin.clone().append(next()).await.unwrap();
    until("/readyz says so", || get(&node, "/readyz").status == 200);
    until("the log says so", || logged().contains("the budget's emergency is over"));
    drop(clients);
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_backpressure_blocks_are_taken_in_an_emergency_too() {
    let place = tempdir().unwrap();
    let text = "[archive]\nhold = true\n[policy]\ntarget_bytes = \"2MiB\"\n";
    let words = config(place.path(), text);
    let node = Node::start(&place.path().join("data"), &format!("{words} --log error"));
    let clients = Clients::to(&node, Some(&node.token)).await;
    let blocks = chain(0..=120, 20_000, 1);
    clients.append(&blocks[..120]).await;
    assert!(clients.status().await.emergency);
    clients.append(&blocks[120..]).await;
    drop(clients);
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}
