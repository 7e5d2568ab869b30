//! Every route over real sockets, on a directory with pruned, kept and pending things.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};

use secateur_core::{PruneStatus, Segment, TxId};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::http_client::{Filled, Reply, connect, fill, get, request, send};
use crate::node::Node;
use crate::tool::{ask, open_store};

fn filled() -> (tempfile::TempDir, Filled, Node) {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let filled = fill(&data);
    let node = Node::start(&data, "");
    (place, filled, node)
}

#[test]
fn figures_are_those_that_the_commands_print() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    fill(&data);
    let words = ["status", "plan", "holds", "policy show"];
    let mut printed = words.map(|words| ask(&data, words));
    // What the policy comes to is printed beside it; the status serves it.
    for pace in ["blocks_per_tick", "blocks_between_ticks"] {
        let beside = printed[3].as_object_mut().unwrap().remove(pace).unwrap();
        assert_eq!(beside, printed[0][pace], "{pace}");
    }
    let node = Node::start(&data, "");
    let served = ["status", "plan", "holds", "policy"].map(|path| {
        let reply = get(&node, &format!("/v1/{path}")).is(200);
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        reply.json()
    });
    for ((printed, mut served), what) in printed.into_iter().zip(served).zip(words) {
        // Readers and files of another process are not the same to the byte.
        for moving in ["oldest_pin_age", "index_bytes", "ids", "disk_bytes", "free_bytes", "alarms"]
        {
            if served.get(moving).is_some() {
                served[moving] = printed[moving].clone();
            }
        }
        assert_eq!(served, printed, "{what}");
    }
    let status: PruneStatus =
        serde_json::from_slice(&get(&node, "/v1/status").is(200).body).unwrap();
    assert_eq!(status.head, Some(329));
    node.stop();
}

#[test]
fn a_block_is_found_by_number_by_hash_and_by_name() {
    let (_place, filled, node) = filled();
    let (_, hash) = filled.kept;
    let by_number = get(&node, &format!("/v1/blocks/{}", filled.head)).is(200).json();
    assert_eq!(by_number["hash"], hash.to_string());
    assert_eq!(by_number["height"], filled.head);
    for name in [hash.to_string(), hash.to_string()[2..].to_owned(), "latest".into()] {
        assert_eq!(get(&node, &format!("/v1/blocks/{name}")).is(200).json(), by_number, "{name}");
    }
    assert_eq!(get(&node, "/v1/blocks/finalized").is(200).json(), by_number);
    let status = get(&node, "/v1/status").json();
    let earliest = get(&node, "/v1/blocks/earliest").is(200).json();
    assert_eq!(earliest["height"], status["oldest_kept_block"]);
    for bad in ["x", "-1", "0x12", "1.5", "%ff"] {
        get(&node, &format!("/v1/blocks/{bad}")).refuses(400, "bad_request");
    }
    get(&node, "/v1/blocks/1?pay=block").refuses(400, "bad_request");
    get(&node, "/v1/blocks/1?payload=all").refuses(400, "bad_request");
}

#[test]
fn payloads_come_as_raw_bytes_that_a_client_need_not_fetch_twice() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let filled = fill(&data);
    let payload = |segment| open_store(&data).get_payload(filled.head, segment).unwrap().1;
    let wanted = [
        ("block", payload(Segment::Block)),
        ("receipts", payload(Segment::Receipts)),
        ("tx_index", payload(Segment::TxIndex)),
    ];
    let receipt = open_store(&data).get_receipt(&filled.kept.0).unwrap();
    let node = Node::start(&data, "");
    for (name, bytes) in wanted {
        for block in [filled.head.to_string(), filled.kept.1.to_string()] {
            let path = format!("/v1/blocks/{block}?payload={name}");
            let reply = get(&node, &path).is(200);
            assert!(reply.body == bytes, "{name}");
            assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
            assert_eq!(reply.header("secateur-block-number").unwrap(), filled.head.to_string());
            let known = format!("if-none-match: {}", reply.header("etag").unwrap());
            let again = send(&node.http, &format!("GET {path}"), &[&known], b"").is(304);
            assert!(again.body.is_empty());
            let other = send(&node.http, &format!("GET {path}"), &["if-none-match: \"x\""], b"");
            assert!(other.is(200).body == bytes);
            let mut stream = BufReader::new(connect(&node.http));
            let ask = request(&node.http, &format!("HEAD {path}"), &[], b"");
            stream.get_mut().write_all(&ask).unwrap();
            let head = Reply::head(&mut stream).is(200);
            assert_eq!(head.header("content-length").unwrap(), bytes.len().to_string());
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "a head has no body");
        }
    }
    let tx = filled.kept.0;
    let reply = get(&node, &format!("/v1/receipts/{tx}?payload=receipt")).is(200);
    assert!(reply.body == receipt);
    let meta = get(&node, &format!("/v1/receipts/{tx}")).is(200).json();
    assert_eq!(meta["receipt_bytes"], receipt.len());
    node.stop();
}

#[test]
fn what_is_pruned_pending_or_unknown_says_so() {
    let (_place, filled, node) = filled();
    let status = get(&node, "/v1/status").is(200).json();
    let boundary = status["pruned_before_block"].as_u64().unwrap();
    assert!(boundary > 9, "the first part must be pruned for this test: {boundary}");

    for path in ["/v1/blocks/5", "/v1/blocks/5?payload=receipts"] {
        let body = get(&node, path).refuses(410, "pruned");
        assert_eq!(body["pruned_before_block"], boundary);
        assert_eq!(body["first_available"], boundary + 1);
        assert_eq!(body["locator"], json!({"provider": "file", "key": "parts/0-9.part"}));
    }
    let body = get(&node, "/v1/blocks/10").refuses(410, "pruned");
    assert_eq!(body["locator"], Value::Null, "block 10 is in no part");
    let (tx, hash) = filled.cut;
    for path in [format!("blocks/{hash}"), format!("transactions/{tx}"), format!("receipts/{tx}")] {
        let body = get(&node, &format!("/v1/{path}")).refuses(410, "pruned");
        assert_eq!(body["pruned_before_block"], boundary, "{path}");
    }

    let pending = filled.pending;
    get(&node, &format!("/v1/transactions/{pending}")).refuses(202, "pending");
    get(&node, &format!("/v1/receipts/{pending}?payload=receipt")).refuses(202, "pending");

    let unknown = TxId([9; 32]);
    for path in ["transactions", "receipts", "blocks"] {
        get(&node, &format!("/v1/{path}/{unknown}")).refuses(404, "not_found");
    }
    get(&node, &format!("/v1/blocks/{}", filled.head + 1)).refuses(404, "not_found");
    for path in ["transactions/12", "receipts/zz", "explain/tx/1", "explain/block/x"] {
        get(&node, &format!("/v1/{path}")).refuses(400, "bad_request");
    }

    let (tx, hash) = filled.kept;
    let found = get(&node, &format!("/v1/transactions/{tx}")).is(200).json();
    assert_eq!(found["block_hash"], hash.to_string());
    assert_eq!(found["height"], filled.head);
    let story = |path: String| get(&node, &format!("/v1/explain/{path}")).is(200).json();
    assert_eq!(story("block/5".into())["state"], "pruned");
    assert_eq!(story(format!("block/{}", filled.head))["state"], "kept");
    assert_eq!(story("block/99999".into())["state"], "not_yet");
    assert_eq!(story(format!("tx/{tx}"))["height"], filled.head);
    assert_eq!(story(format!("tx/{}", filled.cut.0))["answer"], "pruned");
    assert_eq!(story(format!("tx/{pending}"))["answer"], "pending");
    assert_eq!(story(format!("tx/{unknown}"))["answer"], "not_found");
}

#[test]
fn reports_and_parts_are_listed_in_pages() {
    let (_place, filled, node) = filled();
    let all = get(&node, "/v1/reports").is(200).json();
    let all = all["reports"].as_array().unwrap();
    assert!(!all.is_empty());
    let seqs: Vec<_> = all.iter().map(|report| report["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a > b), "the newest first: {seqs:?}");
    let one = get(&node, "/v1/reports?limit=1").is(200).json();
    assert_eq!(one["reports"], json!([all[0]]));

    let parts = get(&node, "/v1/parts").is(200).json();
    assert_eq!(parts, json!({"parts": [filled.part], "next": null}));
    assert_eq!(get(&node, "/v1/parts?limit=1").is(200).json()["next"], 10);
    assert_eq!(get(&node, "/v1/parts?from=1").is(200).json()["parts"], json!([]));
    assert_eq!(get(&node, "/v1/parts?limit=0").is(200).json()["parts"], json!([]));
    for bad in ["parts?from=x", "parts?limit=-1", "parts?to=1", "reports?limit=x"] {
        get(&node, &format!("/v1/{bad}")).refuses(400, "bad_request");
    }
}

#[test]
fn a_node_is_alive_and_ready_and_strangers_find_nothing() {
    let place = tempdir().unwrap();
    let node = Node::start(&place.path().join("data"), "");
    assert_eq!(get(&node, "/healthz").is(200).json()["alive"], true);
    let ready = get(&node, "/readyz").is(200).json();
    assert_eq!((&ready["ready"], &ready["following"]), (&json!(true), &json!(false)));
    for path in ["/nothing", "/v1", "/v1/blocks", "/v1/blocks/1/2", "/healthz/"] {
        get(&node, path).refuses(404, "no_route");
    }
    for name in ["latest", "finalized", "earliest", "0"] {
        get(&node, &format!("/v1/blocks/{name}")).refuses(404, "not_found");
    }
    let wrong = send(&node.http, "DELETE /v1/status", &[], b"");
    assert!(wrong.header("allow").unwrap().contains("GET"), "{wrong:?}");
    wrong.refuses(405, "no_method");
    send(&node.http, "OPTIONS /", &["origin: http://evil.example"], b"").refuses(405, "no_method");
    // A notification is answered with nothing, whatever it says.
    let call = br#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    let kind = "content-type: application/json; charset=utf-8";
    let reply = send(&node.http, "POST /", &[kind], call).is(204);
    assert!(reply.body.is_empty());
    for kind in [&[][..], &["content-type: text/plain"], &["content-type: application/jsonp"]] {
        send(&node.http, "POST /", kind, call).refuses(415, "not_json");
    }
    node.stop();
}

/// Whether a value has the shape that the document gives it.
#[track_caller]
pub fn check_shape(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(&reference[1..]).unwrap();
        return check_shape(document, schema, value, at);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        if !value.is_null() {
            check_shape(document, &either[0], value, at);
        }
        return;
    }
    match schema["type"].as_str() {
        Some("integer") => assert!(value.is_u64(), "{at}: {value}"),
        Some("boolean") => assert!(value.is_boolean(), "{at}: {value}"),
        Some("string") => assert!(value.is_string(), "{at}: {value}"),
        Some("array") => {
            for one in value.as_array().unwrap_or_else(|| panic!("{at}: {value}")) {
                check_shape(document, &schema["items"], one, at);
            }
        }
        Some("object") => {
            for name in schema["required"].as_array().unwrap() {
                let name = name.as_str().unwrap();
                let field = value.get(name).unwrap_or_else(|| panic!("{at}.{name} is missing"));
                let schema = &schema["properties"][name];
                check_shape(document, schema, field, &format!("{at}.{name}"));
            }
            // A story has more fields, depending on how it goes.
            let known = schema["properties"].as_object().unwrap().len();
            let found = value.as_object().unwrap().len();
            assert!(known == found || known == 1, "{at} has fields that nobody told of: {value}");
        }
        _ => {}
    }
}

#[test]
fn the_document_names_every_route_and_every_answer_has_the_shape_it_says() {
    let (_place, filled, node) = filled();
    let document = get(&node, "/openapi.json").is(200).json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let known: BTreeSet<_> = paths.keys().map(String::as_str).collect();
    let wanted = [
        "/",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/blocks/{block}",
        "/v1/events",
        "/v1/explain/block/{number}",
        "/v1/explain/tx/{hash}",
        "/v1/holds",
        "/v1/parts",
        "/v1/plan",
        "/v1/policy",
        "/v1/receipts/{hash}",
        "/v1/reports",
        "/v1/status",
        "/v1/transactions/{hash}",
    ];
    assert!(known.is_superset(&BTreeSet::from(wanted)), "{known:?}");
    let mut checked = 0;
    for (path, methods) in paths {
        let content = &methods["get"]["responses"]["200"]["content"]["application/json"];
        // This node keeps no blobs; the tests of those that do look at these.
        if content.is_null() || path.starts_with("/v1/blobs") || path.starts_with("/eth/") {
            continue;
        }
        let asked = path
            .replace("{block}", "latest")
            .replace("{number}", "5")
            .replace("{hash}", &filled.kept.0.to_string());
        let answer = get(&node, &asked).is(200).json();
        check_shape(&document, &content["schema"], &answer, path);
        checked += 1;
    }
    assert!(checked >= 14, "{checked}");
    let gone = &document["paths"]["/v1/blocks/{block}"]["get"]["responses"]["410"]["content"];
    let answer = get(&node, "/v1/blocks/5").is(410).json();
    check_shape(&document, &gone["application/json"]["schema"], &answer, "pruned");
}
