//! What the read API says of an index in PostgreSQL: each answer is complete, or an error that names
//! what is covered.

use std::ops::Range;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use secateur_core::Cursor;
use secateur_index::GapRow;
use secateur_index::api::{ApiOptions, router};
use secateur_index::postgres::{LeaseQueue, LeasedSink, PostgresSink, RANGE_BLOCKS};
use secateur_index::sink::{Identity, IndexReader as _, Sink as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::chain::{GENESIS, address, batch, connect, fresh, topic};

async fn get(api: &Router, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = api.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn bound(logs: &str) -> (PostgresSink, String, Router) {
    let (sink, url) = fresh().await;
    let identity = Identity { chain_id: 5, codec: "evm".into(), logs: logs.into() };
    sink.bind(&identity).await.unwrap();
    let api = router(sink.clone(), ApiOptions::default());
    (sink, url, api)
}

async fn gap(sink: &PostgresSink, blocks: Range<u64>) {
    let (block_from, block_to) = (blocks.start, blocks.end - 1);
    let gap = GapRow { block_from, block_to, reason: "test".into(), noted_at: 0 };
    sink.record_gap(gap, Cursor::at_block(blocks.end)).await.unwrap();
}

fn lists() -> [String; 3] {
    [
        format!("/v1/addresses/{:#x}/txs?limit=1000", address(3)),
        format!("/v1/logs?address={:#x}&limit=1000", address(3)),
        format!("/v1/logs?topic0={:#x}&limit=1000", topic(1)),
    ]
}

#[track_caller]
fn refused(found: &(StatusCode, Value), covered: &[(u64, u64)]) {
    let wanted: Vec<Value> =
        covered.iter().map(|(from, to)| json!({ "from_block": from, "to_block": to })).collect();
    assert_eq!((found.0, &found.1["covered"]), (StatusCode::GONE, &json!(wanted)), "{}", found.1);
}

#[tokio::test]
async fn what_retention_dropped_is_refused_whoever_dropped_it() {
    let (sink, url, api) = bound("all").await;
    sink.commit(batch(0..40)).await.unwrap();
    gap(&sink, 40..RANGE_BLOCKS).await;
    sink.commit(batch(RANGE_BLOCKS..RANGE_BLOCKS + 40)).await.unwrap();
    let (low, high) = ((0, 39), (RANGE_BLOCKS, RANGE_BLOCKS + 39));
    for list in lists() {
        refused(&get(&api, &list).await, &[high, low]);
        let (status, page) = get(&api, &format!("{list}&to_block=39")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        assert!(!page["items"].as_array().unwrap().is_empty(), "{page}");
    }
    // As pg_cron does it, not the worker.
    let retain = format!("select secateur_retain({})", GENESIS + 12 * 40);
    connect(&url).await.execute(&retain, &[]).await.unwrap();
    assert_eq!(sink.meta().await.unwrap().kept_from, Some(RANGE_BLOCKS));
    for list in lists() {
        refused(&get(&api, &list).await, &[high]);
        refused(&get(&api, &format!("{list}&to_block=39")).await, &[]);
        let (status, page) = get(&api, &format!("{list}&from_block={RANGE_BLOCKS}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let covered = json!({ "from_block": high.0, "to_block": high.1 });
        assert_eq!(page["covered"], covered);
    }
    let unknown = format!("/v1/txs/0x{}", "ee".repeat(32));
    refused(&get(&api, &unknown).await, &[high]);
}

#[tokio::test]
async fn blocks_that_are_filled_below_retention_are_covered_and_those_between_are_a_gap() {
    let (sink, _, api) = bound("all").await;
    sink.commit(batch(0..40)).await.unwrap();
    gap(&sink, 40..RANGE_BLOCKS).await;
    sink.commit(batch(RANGE_BLOCKS..RANGE_BLOCKS + 40)).await.unwrap();
    assert_eq!(sink.retain(GENESIS + 12 * 40, 10).await.unwrap().blocks, 40);
    sink.refill(10, batch(10..20)).await.unwrap();
    assert_eq!(sink.meta().await.unwrap().kept_from, Some(10));
    for list in lists() {
        refused(&get(&api, &list).await, &[(RANGE_BLOCKS, RANGE_BLOCKS + 39), (10, 19)]);
        let (status, page) = get(&api, &format!("{list}&from_block=10&to_block=19")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
    }
}

#[tokio::test]
async fn a_transaction_of_a_whole_index_that_is_not_found_is_nowhere_in_it() {
    let (sink, _, api) = bound("off").await;
    sink.commit(batch(0..40)).await.unwrap();
    let unknown = format!("/v1/txs/0x{}", "ee".repeat(32));
    let (status, answer) = get(&api, &unknown).await;
    assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    assert_eq!(answer["covered"], json!([{ "from_block": 0, "to_block": 39 }]));
}

#[tokio::test]
async fn logs_from_before_they_were_chosen_and_of_others_are_refused() {
    let (sink, _, api) = bound("off").await;
    sink.commit(batch(0..20)).await.unwrap();
    let identity =
        Identity { chain_id: 5, codec: "evm".into(), logs: format!("address={:#x}", address(3)) };
    sink.bind(&identity).await.unwrap();
    sink.commit(batch(20..40)).await.unwrap();
    let list = format!("/v1/logs?address={:#x}", address(3));
    refused(&get(&api, &list).await, &[(20, 39)]);
    assert_eq!(get(&api, &format!("{list}&from_block=20")).await.0, StatusCode::OK);
    let other = format!("/v1/logs?address={:#x}&from_block=20", address(4));
    let (status, answer) = get(&api, &other).await;
    assert_eq!((status, &answer["code"]), (StatusCode::GONE, &json!("not_indexed")), "{answer}");
}

// A shared backfill writes ranges above the cursor before those below them.
#[tokio::test]
async fn rows_above_the_cursor_of_a_shared_backfill_are_in_no_list() {
    let (sink, _, api) = bound("all").await;
    sink.commit(batch(0..10)).await.unwrap();
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(0, 2_000).await.unwrap();
    let (first, second) = (queue.take().await.unwrap(), queue.take().await.unwrap().unwrap());
    assert_eq!(first.unwrap().first, 10);
    let above = LeasedSink::range(&queue, second);
    above.commit(batch(second.first..second.first + 100)).await.unwrap();
    for list in lists().into_iter().chain(["/v1/blocks?limit=1000".to_owned()]) {
        let (status, page) = get(&api, &list).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        assert_eq!(page["covered"], json!({ "from_block": 0, "to_block": 9 }), "{list}");
    }
}
