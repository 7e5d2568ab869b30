//! Pages of other origins, answers that are compressed, and what tools think of the pages of metrics.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;
use tempfile::tempdir;

use crate::blobs_rig::{Validator, settings};
use crate::followed::Followed;
use crate::http_client::{fill, get, send, start_with};
use crate::indexed::Bench;
use crate::node::Node;
use crate::tool::Running;
use crate::utxo_rig::Home;

const PREFLIGHT: [&str; 2] = ["origin: https://app.example", "access-control-request-method: POST"];

#[test]
fn pages_of_other_origins_read_answers_only_where_they_are_configured() {
    let place = tempdir().unwrap();
    let closed = Node::start(&place.path().join("closed"), "");
    let origin = ["origin: https://app.example"];
    let reply = send(&closed.http, "GET /v1/node", &origin, b"").is(200);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"));
    send(&closed.http, "OPTIONS /", &PREFLIGHT, b"").is(405);
    closed.stop();
    let config = "[http]\ncors_origins = \"https://app.example\"\n";
    let node = start_with(&place.path().join("open"), config);
    let reply = send(&node.http, "OPTIONS /", &PREFLIGHT, b"").is(204);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(reply.header("access-control-allow-headers").unwrap().contains("authorization"));
    let reply = send(&node.http, "GET /v1/node", &origin, b"").is(200);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(reply.header("cross-origin-resource-policy"), Some("cross-origin"));
    // Refusals can be read too, and others read neither.
    let reply = send(&node.http, "GET /nothing", &origin, b"").is(404);
    assert!(reply.header("access-control-allow-origin").is_some());
    let reply = send(&node.http, "GET /v1/node", &["origin: https://evil.example"], b"").is(200);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    node.stop();
}

#[test]
fn a_client_that_takes_gzip_gets_the_same_answer_in_fewer_bytes() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    fill(&data);
    let node = Node::start(&data, "");
    let plain = get(&node, "/openapi.json").is(200);
    assert_eq!(plain.header("content-encoding"), None);
    let small = send(&node.http, "GET /openapi.json", &["accept-encoding: gzip, br"], b"").is(200);
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert!(small.body.len() * 4 < plain.body.len(), "{} bytes", small.body.len());
    let mut read = Vec::new();
    GzDecoder::new(&small.body[..]).read_to_end(&mut read).unwrap();
    assert_eq!(read, plain.body);
    node.stop();
}

/// Asserts that promtool finds nothing to say about a page.
#[track_caller]
fn is_clean(name: &str, address: &str) {
    let page = send(address, "GET /metrics", &[], b"").is(200);
    assert_eq!(
        page.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8"),
        "{name}"
    );
    let mut judge = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool: run scripts/prepare");
    judge.stdin.take().unwrap().write_all(&page.body).unwrap();
    let judged = judge.wait_with_output().unwrap();
    let said = [judged.stdout, judged.stderr].concat();
    assert!(
        judged.status.success() && said.is_empty(),
        "{name}: {}",
        String::from_utf8_lossy(&said)
    );
    let asked = ["accept: application/openmetrics-text; version=1.0.0"];
    let page = send(address, "GET /metrics", &asked, b"").is(200);
    assert!(
        page.header("content-type").unwrap().starts_with("application/openmetrics-text"),
        "{name}"
    );
    assert!(page.body.ends_with(b"# EOF\n"), "{name}");
}

/// What a page of the configured origin, a page of another one, and a client that takes gzip get.
#[track_caller]
fn serves_browsers(name: &str, address: &str, path: &str) {
    let first = format!("GET {path}");
    let reply = send(address, &first, &["origin: https://app.example"], b"").is(200);
    let allowed = reply.header("access-control-allow-origin");
    assert_eq!(allowed, Some("https://app.example"), "{name}");
    let reply = send(address, &format!("OPTIONS {path}"), &PREFLIGHT, b"").is(204);
    assert!(reply.header("access-control-allow-methods").is_some(), "{name}");
    let plain = send(address, &first, &["origin: https://evil.example"], b"").is(200);
    assert_eq!(plain.header("access-control-allow-origin"), None, "{name}");
    assert_eq!(plain.header("content-encoding"), None, "{name}");
    let small = send(address, &first, &["accept-encoding: gzip"], b"").is(200);
    assert_eq!(small.header("content-encoding"), Some("gzip"), "{name}");
    let mut read = String::new();
    GzDecoder::new(&small.body[..]).read_to_string(&mut read).unwrap();
    assert!(!read.is_empty() && small.body.len() < read.len(), "{name}");
}

/// A worker of a bench that serves its index; and where.
fn indexing(bench: &Bench, name: &str, more: &str) -> (Running, String) {
    let words = bench.words(name, &format!("--http 127.0.0.1:0 {more}"));
    let mut index = Running::start(&bench.data(), &words);
    let line = index.wait_for("listening index");
    let address = line.trim_end().rsplit('=').next().unwrap().to_owned();
    (index, address)
}

#[track_caller]
fn ends(index: Running) {
    index.signal("TERM");
    assert_eq!(index.end().0, 0);
}

#[test]
fn metrics_of_node_index_and_utxo_service_are_clean_and_browsers_read_them() {
    let cors = "[http]\ncors_origins = \"https://app.example\"\n";
    let mut bench = Bench::start(cors, 2);
    bench.grow(20);
    get(&bench.node, "/v1/status").is(200);
    is_clean("node", &bench.node.http);
    serves_browsers("node", &bench.node.http, "/openapi.json");
    let words = format!("--config {}", bench.path("secateur.toml").display());
    let (index, address) = indexing(&bench, "idx", &words);
    is_clean("index", &address);
    serves_browsers("index", &address, "/openapi.json");
    ends(index);
    // The client of the UTXO service wants a runtime around it.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let home = Home::new(&format!("\n{cors}"));
    let served = home.serve("");
    is_clean("utxo", &served.http);
    serves_browsers("utxo", &served.http, "/metrics");
    served.stop();
}

/// Only what every node has was judged.
#[test]
fn metrics_of_blobs_a_followed_chain_and_an_archive_are_clean_too() {
    let mut bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 2);
    let last = bench.grow(20).pop().unwrap().meta;
    let archive = format!("--archive {} --part-blocks 4", bench.archive());
    let (index, address) = indexing(&bench, "idx", &archive);
    is_clean("index with an archive", &address);
    ends(index);
    let place = tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let blobs = settings(place.path(), &me.is_me(), &[&me]).replace("id = 7\n", "id = 1337\n");
    let words = crate::grpc::config(place.path(), &blobs);
    let data = place.path().join("data");
    let mut node = Followed::with(&data, &format!("http://{}", bench.node.http), &words, &[]);
    node.reaches(last.height, &last.hash.to_string());
    let (http, _) = node.addresses(&data);
    is_clean("node with blobs that follows", &http);
    let page = send(&http, "GET /metrics", &[], b"").is(200);
    let page = String::from_utf8(page.body).unwrap();
    for name in ["secateur_follow_source_head", "secateur_sync_"] {
        assert!(page.lines().any(|line| line.starts_with(name)), "no {name} in {page}");
    }
    node.stop();
}
