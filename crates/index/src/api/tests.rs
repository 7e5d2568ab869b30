//! The API over a real index.

use std::sync::Arc;

use alloy_primitives::{Address, B256, U256};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use prometheus_client::registry::Registry;
use secateur_core::{BlockHash, Cursor, TxId};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::{ApiOptions, router};
use crate::sink::sqlite::SqliteSink;
use crate::sink::{Identity, Sink as _};
use crate::worker::Metrics;
use crate::{Batch, BlockRow, GapRow, LogRow, PartRow, Rows, TxRow};

const BLOCKS: u64 = 25;

pub(super) fn rows(height: u64) -> Rows {
    let byte = u8::try_from(height).unwrap();
    let tx = TxRow {
        hash: TxId([byte; 32]),
        block_number: height,
        from: Some(Address::repeat_byte(1)),
        to: Some(Address::repeat_byte(2)),
        nonce: Some(height),
        value: Some(U256::MAX),
        status: Some(true),
        ..TxRow::default()
    };
    let log = LogRow {
        block_number: height,
        log_index: 0,
        tx_index: 0,
        tx_hash: TxId([byte; 32]),
        address: Address::repeat_byte(3),
        topics: [Some(B256::repeat_byte(4)), None, None, None],
        data: vec![0xab],
    };
    let block = BlockRow {
        number: height,
        hash: Some(BlockHash([byte; 32])),
        parent_hash: None,
        ts: Some(height),
        tx_count: 1,
    };
    Rows { blocks: vec![block], txs: vec![tx], logs: vec![log] }
}

async fn served(logs: &str) -> (TempDir, Router) {
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    let identity = Identity { chain_id: 5, codec: "evm".into(), logs: logs.into() };
    sink.bind(&identity).await.unwrap();
    let gap = GapRow { block_from: 0, block_to: 4, reason: "pruned".into(), noted_at: 1 };
    sink.record_gap(gap, Cursor::at_block(5)).await.unwrap();
    let mut all = Rows::default();
    (5..BLOCKS).for_each(|height| all.append(rows(height)));
    let next = Cursor::at_block(BLOCKS);
    let batch = Batch { rows: all, next, raw_bytes: vec![10], head: Some(30), at: 86_400 };
    sink.commit(batch).await.unwrap();
    let part = PartRow {
        block_from: 0,
        block_to: 9,
        provider: "file:///archive".into(),
        object_key: "chain=5/part".into(),
        codec: "zstd".into(),
        size_bytes: 6,
        sha256: [1; 32],
        parent_hash: BlockHash::default(),
        last_hash: BlockHash([9; 32]),
    };
    sink.add_part(part, 86_400).await.unwrap();
    let mut registry = Registry::default();
    Metrics::new(&mut registry);
    let options = ApiOptions { registry: Some(Arc::new(registry)), worker: None };
    (dir, router(sink.reader(), options))
}

pub(super) async fn get(router: &Router, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8(body.to_vec()).unwrap()));
    (status, value)
}

#[tokio::test]
async fn single_things_are_found_and_what_is_missing_says_why() {
    let (_dir, api) = served("all").await;
    let (status, block) = get(&api, "/v1/blocks/7").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(block["number"], 7);
    let hash = block["hash"].as_str().unwrap();
    assert_eq!(get(&api, &format!("/v1/blocks/{hash}")).await.1, block);
    let (_, tx) = get(&api, &format!("/v1/txs/{}", TxId([7; 32]))).await;
    assert_eq!(tx["value"], U256::MAX.to_string());
    assert_eq!(tx["from"], "0x0101010101010101010101010101010101010101");
    assert_eq!(tx["to"], "0x0202020202020202020202020202020202020202");
    assert_eq!(tx["status"], true);
    assert_eq!(get(&api, "/v1/blocks/7/txs").await.1["items"][0], tx);
    for (path, status, code) in [
        ("/v1/blocks/2", StatusCode::GONE, "not_indexed"),
        ("/v1/blocks/25", StatusCode::NOT_FOUND, "not_found"),
        ("/v1/blocks/nonsense", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/blocks/-1", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/txs/0x12", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/addresses/0x12/txs", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/blocks?limit=0", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/blocks?limit=1001", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/blocks?offset=1", StatusCode::BAD_REQUEST, "bad_request"),
        ("/v1/logs", StatusCode::BAD_REQUEST, "bad_request"),
        ("/nowhere", StatusCode::NOT_FOUND, "not_found"),
    ] {
        let (found, answer) = get(&api, path).await;
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{path}: {answer}");
    }
}

#[tokio::test]
async fn lists_come_page_by_page_without_a_gap_or_a_double() {
    let (_dir, api) = served("all").await;
    let address = "0x0202020202020202020202020202020202020202";
    let log_address = "0x0303030303030303030303030303030303030303";
    for (path, key) in [
        ("/v1/blocks?limit=3&from_block=5".to_owned(), "number"),
        (format!("/v1/addresses/{address}/txs?limit=3&role=to&from_block=5"), "block_number"),
        (format!("/v1/logs?limit=3&address={log_address}&from_block=5"), "block_number"),
    ] {
        let mut heights = Vec::new();
        let mut next = String::new();
        loop {
            let (status, page) = get(&api, &format!("{path}{next}")).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            let items = page["items"].as_array().unwrap();
            heights.extend(items.iter().map(|item| item[key].as_u64().unwrap()));
            match page["next"].as_str() {
                Some(key) => next = format!("&before={key}"),
                None => break,
            }
        }
        assert_eq!(heights, (5..BLOCKS).rev().collect::<Vec<_>>(), "{path}");
    }
}

#[tokio::test]
async fn meta_parts_gaps_days_and_metrics_are_told() {
    let (dir, api) = served("off").await;
    let (_, meta) = get(&api, "/v1/meta").await;
    assert_eq!(meta["chain_id"], 5);
    assert_eq!((&meta["logs"], &meta["logs_since"]), (&"off".into(), &Value::Null));
    assert_eq!(meta["next_block"], BLOCKS);
    assert_eq!(meta["lag_blocks"], 6);
    assert_eq!(get(&api, "/v1/parts").await.1["items"][0]["key"], "chain=5/part");
    assert_eq!(get(&api, "/v1/gaps").await.1["items"][0]["last"], 4);
    let (_, days) = get(&api, "/v1/days").await;
    assert_eq!(days["items"][0]["day"], "1970-01-02");
    assert_eq!(days["items"][0]["blocks_ingested"], BLOCKS - 5);
    let (status, answer) =
        get(&api, "/v1/logs?address=0x0303030303030303030303030303030303030303").await;
    assert_eq!(status, StatusCode::GONE, "{answer}");
    let (_, metrics) = get(&api, "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    for name in [
        "secateur_index_export_lag_blocks",
        "secateur_index_export_lag_seconds",
        "secateur_index_last_export_at",
        "secateur_index_export_rate_blocks_per_min",
        "secateur_index_ingest_blocks_per_min",
        "secateur_index_cursor_lag",
        "secateur_index_db_write_latency_seconds_bucket",
        "secateur_index_db_batch_size",
        "secateur_index_batches_total{cut=\"waited\"} 0",
        "secateur_index_errors_total{class=\"pruned\"} 0",
        "secateur_index_raw_bytes_total",
        "secateur_index_zstd_bytes_total",
        "secateur_index_sink_growth_bytes_today",
    ] {
        assert!(metrics.contains(name), "no {name} in\n{metrics}");
    }
    assert_eq!(get(&api, "/readyz").await.0, StatusCode::OK);
    assert_eq!(get(&api, "/healthz").await.0, StatusCode::OK);
    // From now on all logs, and those of earlier blocks are not here.
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    let identity = Identity { chain_id: 5, codec: "evm".into(), logs: "all".into() };
    sink.bind(&identity).await.unwrap();
    let (_, meta) = get(&api, "/v1/meta").await;
    assert_eq!((&meta["logs"], &meta["logs_since"]), (&"all".into(), &BLOCKS.into()));
}

#[tokio::test]
async fn the_routes_answer_in_the_shapes_of_the_document() {
    let (_dir, api) = served("all").await;
    let (status, document) = get(&api, "/openapi.json").await;
    assert_eq!((status, &document["servers"][0]["url"]), (StatusCode::OK, &"/".into()));
    let address = "0x0202020202020202020202020202020202020202";
    let log_address = "0x0303030303030303030303030303030303030303";
    for path in document["paths"].as_object().unwrap().keys() {
        let (hash, asked) = (TxId([7; 32]).to_string(), path.replace("{block}", "7"));
        let asked = asked.replace("{hash}", &hash).replace("{address}", address);
        // The index has nothing below block 5.
        let query = match path.as_str() {
            "/v1/logs" => format!("?address={log_address}&from_block=5"),
            "/v1/addresses/{address}/txs" => "?from_block=5".to_owned(),
            _ => String::new(),
        };
        let (status, answer) = get(&api, &format!("{asked}{query}")).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        let Some(name) = content["application/json"]["schema"]["$ref"].as_str() else { continue };
        let name = name.rsplit('/').next().unwrap();
        let fits = |name: &str, value: &Value| {
            let wanted = &document["components"]["schemas"][name]["properties"];
            let Some(wanted) = wanted.as_object() else { return };
            let mut wanted: Vec<_> = wanted.keys().collect();
            let mut found: Vec<_> = value.as_object().unwrap().keys().collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted, "{path}: {name}");
        };
        fits(name, &answer);
        let items = answer["items"].as_array().into_iter().flatten();
        items.for_each(|item| fits(name.strip_suffix('s').unwrap(), item));
    }
}

#[tokio::test]
async fn metrics_are_sent_in_the_format_that_is_asked_for() {
    let (_dir, api) = served("off").await;
    for (accept, kind, ends) in [
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", true),
        ("*/*", "text/plain", false),
    ] {
        let request = Request::get("/metrics").header("accept", accept).body(Body::empty());
        let response = api.clone().oneshot(request.unwrap()).await.unwrap();
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with(kind));
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        assert_eq!(body.ends_with(b"# EOF\n"), ends);
    }
}

// It said yes as long as the index could be read, whatever the worker did.
#[tokio::test]
async fn readiness_and_lag_are_those_of_the_worker_at_the_moment_of_the_question() {
    let (dir, _) = served("all").await;
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    let mut registry = Registry::default();
    let worker = Arc::new(Metrics::new(&mut registry));
    worker.resume(&sink.reader(), 1).await.unwrap();
    let options =
        ApiOptions { registry: Some(Arc::new(registry)), worker: Some(Arc::clone(&worker)) };
    let api = router(sink.reader(), options);
    worker.live().silent(&crate::IndexError::Net("connection refused".into()));
    let (status, answer) = get(&api, "/readyz").await;
    assert_eq!((status, &answer["ready"]), (StatusCode::SERVICE_UNAVAILABLE, &false.into()));
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(reason.contains("has not answered since the start"), "{reason}");
    assert!(reason.contains("connection refused"), "{reason}");
    // The source is heard of: the head is where it says, and no batch was written since.
    worker.live().answered(Some(99), std::time::Instant::now());
    let (status, answer) = get(&api, "/readyz").await;
    assert_eq!((status, &answer["reasons"]), (StatusCode::OK, &serde_json::json!([])), "{answer}");
    let (_, meta) = get(&api, "/v1/meta").await;
    assert_eq!((&meta["last_head"], &meta["lag_blocks"]), (&99.into(), &75.into()), "{meta}");
    let (_, metrics) = get(&api, "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "secateur_index_head 99.0",
        "secateur_index_export_lag_blocks 75.0",
        "secateur_index_cursor_lag 75.0",
        "secateur_index_ready 1.0",
        "secateur_index_paused 0.0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}
