//! What the `OpenAPI` documents say of errors and parameters, against what is answered.

use serde_json::Value;
use tempfile::tempdir;

use crate::blobs_rig::{BlobNode, Validator, settings};
use crate::http_client::send;
use crate::indexed::Bench;
use crate::tool::Running;

/// Whether a value has a shape of a document.
fn fits(document: &Value, schema: &Value, value: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(document, document.pointer(&reference[1..]).unwrap(), value);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|schema| fits(document, schema, value));
    }
    match schema["type"].as_str() {
        Some("object") => {
            let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
            let fields = schema["properties"].as_object().into_iter().flatten();
            value.is_object()
                && schema["required"].as_array().into_iter().flatten().all(has)
                && fields
                    .filter_map(|(name, schema)| Some((schema, value.get(name)?)))
                    .all(|(schema, value)| fits(document, schema, value))
        }
        Some("array") => {
            let items = value.as_array();
            items.is_some_and(|items| {
                items.iter().all(|item| fits(document, &schema["items"], item))
            })
        }
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => panic!("a shape of type {other}"),
        None => true,
    }
}

/// Asserts that an error has a status and the shape that the document gives it under a path.
#[track_caller]
fn refuses(document: &Value, address: &str, path: &str, asked: &str, status: u16) {
    let found = send(address, &format!("GET {asked}"), &[], b"").is(status).json();
    let answers = &document["paths"][path]["get"]["responses"];
    let schema = &answers[status.to_string()]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{path} has no {status}: {answers}");
    assert!(fits(document, schema, &found), "{asked}: {found} is not {schema}");
}

fn document_of(address: &str) -> Value {
    send(address, "GET /openapi.json", &[], b"").is(200).json()
}

#[tokio::test]
async fn errors_of_the_beacon_routes_have_the_shapes_of_the_document() {
    let place = tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let text = settings(place.path(), &me.is_me(), &[&me]);
    let node = BlobNode::start(&place.path().join("data"), &text).await;
    let http = &node.node.http;
    let document = document_of(http);
    for (path, asked, status) in [
        ("blobs", "7", 404),
        ("blobs", "genesis", 404),
        ("blobs", "current", 400),
        ("blobs", "1?indices=0", 400),
        ("blobs", "1?versioned_hashes=0x01", 400),
        ("blob_sidecars", "7", 404),
        ("blob_sidecars", "1?indices=x", 400),
    ] {
        let route = format!("/eth/v1/beacon/{path}/");
        refuses(&document, http, &format!("{route}{{block_id}}"), &(route + asked), status);
    }
    // Such an error is none of those of the other routes.
    let found = send(http, "GET /eth/v1/beacon/blobs/7", &[], b"").json();
    let other = &document["components"]["schemas"]["Error"];
    assert!(!fits(&document, other, &found), "{found}");
    node.stop().await;
}

#[test]
fn the_document_of_an_index_has_bounds_for_parameters_and_the_shape_of_its_errors() {
    let mut bench = Bench::start("", 2);
    bench.grow(4);
    let words = bench.words("idx", "--http 127.0.0.1:0");
    let mut index = Running::start(&bench.data(), &words);
    let line = index.wait_for("listening index");
    let address = line.trim_end().rsplit('=').next().unwrap().to_owned();
    let document = document_of(&address);
    let mut parameters = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for parameter in methods["get"]["parameters"].as_array().unwrap() {
            let schema = &parameter["schema"];
            let is_bounded = match schema["type"].as_str() {
                Some("integer") => schema["minimum"].is_u64() && schema["maximum"].is_u64(),
                _ => schema["pattern"].is_string() || schema["enum"].is_array(),
            };
            assert!(is_bounded, "{path}: {parameter}");
            parameters += 1;
        }
    }
    assert!(parameters > 5, "{parameters}");
    let unknown = format!("/v1/txs/0x{}", "07".repeat(32));
    for (path, asked, status) in [
        ("/v1/blocks/{block}", "/v1/blocks/x", 400),
        ("/v1/txs/{hash}", "/v1/txs/0x01", 400),
        ("/v1/txs/{hash}", unknown.as_str(), 404),
        ("/v1/logs", "/v1/logs?limit=x", 400),
        ("/v1/addresses/{address}/txs", "/v1/addresses/0x01/txs", 400),
    ] {
        refuses(&document, &address, path, asked, status);
    }
    index.signal("TERM");
    assert_eq!(index.end().0, 0);
}
