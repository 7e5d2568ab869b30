//! Each answer is complete, or an error that names what is covered.

use axum::Router;
use axum::http::StatusCode;
use secateur_core::{Cursor, TxId};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tests::{get, rows};
use super::{ApiOptions, router};
use crate::sink::sqlite::SqliteSink;
use crate::sink::{Identity, Sink as _};
use crate::{Batch, GapRow, Rows};

const SENDER: &str = "0x0101010101010101010101010101010101010101";
const CONTRACT: &str = "0x0303030303030303030303030303030303030303";
const OTHER: &str = "0x0909090909090909090909090909090909090909";
const TOPIC: &str = "0x0404040404040404040404040404040404040404040404040404040404040404";

/// An index that is made step by step.
struct Made {
    _dir: TempDir,
    sink: SqliteSink,
}

impl Made {
    async fn of(codec: &str, logs: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
        let made = Self { _dir: dir, sink };
        made.bind(codec, logs).await;
        made
    }

    async fn bind(&self, codec: &str, logs: &str) {
        let identity = Identity { chain_id: 5, codec: codec.into(), logs: logs.into() };
        self.sink.bind(&identity).await.unwrap();
    }

    async fn blocks(&self, blocks: std::ops::Range<u64>) {
        let next = Cursor::at_block(blocks.end);
        let raw_bytes = vec![10; usize::try_from(blocks.end - blocks.start).unwrap()];
        let mut all = Rows::default();
        blocks.for_each(|height| all.append(rows(height)));
        let batch = Batch { rows: all, next, raw_bytes, head: Some(200), at: 86_400 };
        self.sink.commit(batch).await.unwrap();
    }

    async fn gap(&self, block_from: u64, block_to: u64) {
        let gap = GapRow { block_from, block_to, reason: "pruned".into(), noted_at: 1 };
        self.sink.record_gap(gap, Cursor::at_block(block_to + 1)).await.unwrap();
    }

    fn api(&self) -> Router {
        router(self.sink.reader(), ApiOptions::default())
    }
}

fn heights(page: &Value) -> Vec<u64> {
    let number = |item: &Value| item["block_number"].as_u64().unwrap();
    page["items"].as_array().unwrap().iter().map(number).collect()
}

#[track_caller]
fn refused(found: (StatusCode, Value), status: StatusCode, covered: &[(u64, u64)]) -> String {
    let (was, answer) = found;
    assert_eq!(was, status, "{answer}");
    let wanted: Vec<Value> =
        covered.iter().map(|(from, to)| json!({ "from_block": from, "to_block": to })).collect();
    assert_eq!(answer["covered"], json!(wanted), "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

/// The lists that a history is asked of.
fn lists() -> [String; 3] {
    [
        format!("/v1/logs?address={CONTRACT}"),
        format!("/v1/logs?topic0={TOPIC}"),
        format!("/v1/addresses/{SENDER}/txs?role=any"),
    ]
}

// 200 and `[]` was the answer to every question about blocks that the index does not have.
#[tokio::test]
async fn past_retention_a_list_is_refused_and_names_what_is_covered() {
    let made = Made::of("evm", "all").await;
    made.blocks(0..50).await;
    // Blocks below 20 go: a block's time is its height here.
    made.sink.retain(20, 1_000).await.unwrap();
    let api = made.api();
    for list in lists() {
        let whole = refused(get(&api, &list).await, StatusCode::GONE, &[(20, 49)]);
        assert!(whole.contains("nothing complete below block 20"), "{whole}");
        refused(get(&api, &format!("{list}&to_block=10")).await, StatusCode::GONE, &[]);
        refused(
            get(&api, &format!("{list}&from_block=10&to_block=30")).await,
            StatusCode::GONE,
            &[(20, 30)],
        );
        // What it says is covered is answered, page by page, to the end.
        let (status, page) = get(&api, &format!("{list}&from_block=20&limit=25")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        assert_eq!(heights(&page), (25..50).rev().collect::<Vec<_>>());
        assert_eq!(page["covered"], json!({ "from_block": 25, "to_block": 49 }));
        let next = page["next"].as_str().unwrap();
        let (status, page) =
            get(&api, &format!("{list}&from_block=20&limit=25&before={next}")).await;
        assert_eq!((status, heights(&page)), (StatusCode::OK, (20..25).rev().collect()));
        assert_eq!(page["next"], Value::Null);
        // A page that is full needs nothing below it; the one behind it does.
        let (status, page) = get(&api, &format!("{list}&limit=30")).await;
        assert_eq!((status, heights(&page).len()), (StatusCode::OK, 30));
        let next = page["next"].as_str().unwrap();
        let behind = get(&api, &format!("{list}&limit=30&before={next}")).await;
        refused(behind, StatusCode::GONE, &[]);
    }
    // An address that has nothing in what is covered may have something below.
    let none = format!("/v1/addresses/{OTHER}/txs");
    refused(get(&api, &none).await, StatusCode::GONE, &[(20, 49)]);
    let (status, page) = get(&api, &format!("{none}?from_block=20")).await;
    assert_eq!((status, &page["items"]), (StatusCode::OK, &json!([])), "{page}");
}

// What retention has left would begin where it did for ever, however much was filled below it.
#[tokio::test]
async fn blocks_that_are_filled_below_retention_are_covered_and_those_between_are_a_gap() {
    let made = Made::of("evm", "all").await;
    made.blocks(0..50).await;
    made.sink.retain(20, 1_000).await.unwrap();
    let mut all = Rows::default();
    (12..15).for_each(|height| all.append(rows(height)));
    let next = Cursor::at_block(15);
    let batch = Batch { rows: all, next, raw_bytes: vec![10; 3], head: None, at: 86_400 };
    made.sink.refill(12, batch).await.unwrap();
    let api = made.api();
    for list in lists() {
        refused(get(&api, &list).await, StatusCode::GONE, &[(20, 49), (12, 14)]);
        let (status, page) = get(&api, &format!("{list}&from_block=12&to_block=14")).await;
        assert_eq!((status, heights(&page)), (StatusCode::OK, (12..15).rev().collect()));
    }
}

// What is too old is left out of a refill and leaves `gaps`: it must not count as covered.
#[tokio::test]
async fn blocks_that_a_refill_leaves_out_because_they_are_too_old_are_not_covered() {
    let made = Made::of("evm", "all").await;
    made.blocks(0..10).await;
    made.gap(10, 29).await;
    made.blocks(30..50).await;
    let mut all = Rows::default();
    (20..30).for_each(|height| all.append(rows(height)));
    let next = Cursor::at_block(30);
    let batch = Batch { rows: all, next, raw_bytes: vec![10; 10], head: None, at: 86_400 };
    made.sink.refill(10, batch).await.unwrap();
    let api = made.api();
    for list in lists() {
        refused(get(&api, &list).await, StatusCode::GONE, &[(20, 49)]);
    }
    // Retention finds them missing, too.
    made.sink.retain(20, 1_000).await.unwrap();
    for list in lists() {
        refused(get(&api, &list).await, StatusCode::GONE, &[(20, 49)]);
        assert_eq!(get(&api, &format!("{list}&from_block=20")).await.0, StatusCode::OK);
    }
}

// Gaps above what was asked for took all the places of those that are looked at.
#[tokio::test]
async fn a_gap_is_found_below_any_number_of_others() {
    let made = Made::of("evm", "all").await;
    made.blocks(0..10).await;
    made.gap(10, 19).await;
    made.blocks(20..30).await;
    for above in (30..160).step_by(2) {
        made.gap(above, above).await;
        made.blocks(above + 1..above + 2).await;
    }
    let api = made.api();
    for list in lists() {
        let asked = format!("{list}&from_block=5&before=28-0");
        let told = refused(get(&api, &asked).await, StatusCode::GONE, &[(20, 27), (5, 9)]);
        assert!(told.contains("blocks 10 to 19 are missing"), "{told}");
        let (status, page) = get(&api, &format!("{list}&from_block=20&before=28-0")).await;
        assert_eq!((status, heights(&page)), (StatusCode::OK, (20..28).rev().collect()));
    }
}

// An index that notes nothing of its beginning was taken to have everything behind what was left out.
#[tokio::test]
async fn a_refill_of_blocks_that_are_all_too_old_promises_nothing_above_them() {
    let made = Made::of("evm", "all").await;
    made.blocks(100..150).await;
    let nothing = |next| {
        let (rows, next) = (Rows::default(), Cursor::at_block(next));
        Batch { rows, next, raw_bytes: Vec::new(), head: None, at: 86_400 }
    };
    made.sink.refill(0, nothing(50)).await.unwrap();
    let api = made.api();
    for list in lists() {
        let asked = format!("{list}&from_block=60&to_block=110");
        refused(get(&api, &asked).await, StatusCode::GONE, &[(100, 110)]);
    }
    // It is raised where that is what is left out.
    made.sink.refill(90, nothing(120)).await.unwrap();
    let list = &lists()[0];
    refused(get(&api, list).await, StatusCode::GONE, &[(120, 149)]);
}

// 404, as if there were no such block.
#[tokio::test]
async fn a_hash_that_an_index_without_hashes_is_asked_for_is_not_said_to_be_absent() {
    let made = Made::of("opaque", "off").await;
    let mut all = Rows::default();
    (0..5).for_each(|height| all.append(rows(height)));
    all.blocks.iter_mut().for_each(|block| block.hash = None);
    let next = Cursor::at_block(5);
    let batch = Batch { rows: all, next, raw_bytes: vec![10; 5], head: None, at: 86_400 };
    made.sink.commit(batch).await.unwrap();
    let path = format!("/v1/blocks/{}", TxId([0xee; 32]));
    let told = refused(get(&made.api(), &path).await, StatusCode::GONE, &[(0, 4)]);
    assert!(told.contains("without their hashes"), "{told}");
}

// 404, as if it had never been.
#[tokio::test]
async fn a_transaction_that_is_not_found_is_nowhere_only_if_nothing_is_missing() {
    let made = Made::of("evm", "off").await;
    made.blocks(0..50).await;
    let (api, gone, never) = (made.api(), TxId([7; 32]), TxId([0xee; 32]));
    let tx = |id: TxId| format!("/v1/txs/{id}");
    assert_eq!(get(&api, &tx(gone)).await.0, StatusCode::OK);
    let told = refused(get(&api, &tx(never)).await, StatusCode::NOT_FOUND, &[(0, 49)]);
    assert!(told.contains("no block up to 49"), "{told}");
    made.sink.retain(20, 1_000).await.unwrap();
    for path in [tx(gone), tx(never), format!("/v1/blocks/{gone}")] {
        let told = refused(get(&api, &path).await, StatusCode::GONE, &[(20, 49)]);
        assert!(told.contains("another one may"), "{told}");
    }
    refused(get(&api, "/v1/blocks/7").await, StatusCode::GONE, &[(20, 49)]);
    refused(get(&api, "/v1/blocks/50").await, StatusCode::NOT_FOUND, &[(20, 49)]);
}

#[tokio::test]
async fn a_list_across_a_gap_is_refused_and_both_sides_are_answered() {
    let made = Made::of("evm", "all").await;
    made.blocks(0..10).await;
    made.gap(10, 19).await;
    made.blocks(20..30).await;
    let api = made.api();
    for list in lists() {
        let told = refused(get(&api, &list).await, StatusCode::GONE, &[(20, 29), (0, 9)]);
        assert!(told.contains("blocks 10 to 19 are missing"), "{told}");
        for (from, to) in [(20, 29), (0, 9), (3, 3)] {
            let (status, page) =
                get(&api, &format!("{list}&from_block={from}&to_block={to}")).await;
            assert_eq!((status, heights(&page)), (StatusCode::OK, (from..=to).rev().collect()));
        }
        // No row of it is in the gap, and one might be.
        refused(
            get(&api, &format!("{list}&from_block=12&to_block=15")).await,
            StatusCode::GONE,
            &[],
        );
        refused(
            get(&api, &format!("{list}&from_block=5&to_block=25&limit=7")).await,
            StatusCode::GONE,
            &[(20, 25), (9, 9)],
        );
        let (status, page) = get(&api, &format!("{list}&to_block=25&limit=6")).await;
        assert_eq!((status, heights(&page)), (StatusCode::OK, (20..26).rev().collect()));
    }
    refused(
        get(&api, &format!("/v1/txs/{}", TxId([0xee; 32]))).await,
        StatusCode::GONE,
        &[(20, 29), (0, 9)],
    );
    // Blocks say themselves which ones they are: a page ends where they stop following on each other,
    // and the next one says why.
    let (status, page) = get(&api, "/v1/blocks").await;
    assert_eq!((status, &page["next"]), (StatusCode::OK, &json!("20")), "{page}");
    assert_eq!(page["items"].as_array().unwrap().len(), 10);
    refused(get(&api, "/v1/blocks?before=20").await, StatusCode::GONE, &[]);
    let (status, page) = get(&api, "/v1/blocks?before=10").await;
    assert_eq!((status, &page["next"]), (StatusCode::OK, &Value::Null), "{page}");
    // The part of a list that a gap or an archive part begins below is in it.
    assert_eq!(get(&api, "/v1/gaps?from=15").await.1["items"][0]["last"], 19);
    assert_eq!(get(&api, "/v1/gaps?from=20").await.1["items"], json!([]));
}

#[tokio::test]
async fn logs_are_answered_only_where_they_are_kept_as_they_are_chosen_now() {
    let made = Made::of("evm", "off").await;
    made.blocks(0..10).await;
    let api = made.api();
    let list = format!("/v1/logs?address={CONTRACT}");
    let (status, answer) = get(&api, &list).await;
    assert_eq!((status, &answer["code"]), (StatusCode::GONE, &json!("not_indexed")));
    made.bind("evm", &format!("address={CONTRACT}")).await;
    made.blocks(10..20).await;
    let told = refused(get(&api, &list).await, StatusCode::GONE, &[(10, 19)]);
    assert!(told.contains("were not kept as they are chosen now"), "{told}");
    refused(get(&api, &format!("{list}&to_block=9")).await, StatusCode::GONE, &[]);
    let (status, page) = get(&api, &format!("{list}&from_block=10")).await;
    assert_eq!((status, heights(&page)), (StatusCode::OK, (10..20).rev().collect()));
    // The transactions of the same blocks are all there.
    let history = format!("/v1/addresses/{SENDER}/txs");
    assert_eq!(get(&api, &history).await.0, StatusCode::OK);
    // Of the same contract the topic is kept too; of others it is not.
    let both = format!("{list}&topic0={TOPIC}&from_block=10");
    assert_eq!(get(&api, &both).await.0, StatusCode::OK);
    for path in [
        format!("/v1/logs?address={OTHER}&from_block=10"),
        format!("/v1/logs?topic0={TOPIC}&from_block=10"),
    ] {
        let (status, answer) = get(&api, &path).await;
        assert_eq!((status, &answer["code"]), (StatusCode::GONE, &json!("not_indexed")));
        assert!(answer["error"].as_str().unwrap().contains(CONTRACT), "{answer}");
    }
}

#[tokio::test]
async fn blocks_that_are_not_indexed_yet_are_refused_and_not_left_out() {
    let made = Made::of("evm", "all").await;
    let api = made.api();
    for list in lists().into_iter().chain(["/v1/blocks".to_owned()]) {
        let told = refused(get(&api, &list).await, StatusCode::NOT_FOUND, &[]);
        assert!(told.contains("nothing is indexed yet"), "{told}");
    }
    made.blocks(0..10).await;
    for list in lists() {
        assert_eq!(get(&api, &list).await.0, StatusCode::OK);
        for asked in ["to_block=10", "from_block=10", "from_block=3&to_block=12"] {
            let asked = format!("{list}&{asked}");
            let told = refused(get(&api, &asked).await, StatusCode::NOT_FOUND, &[(0, 9)]);
            assert!(told.contains("not indexed yet"), "{told}");
        }
        let turned = get(&api, &format!("{list}&from_block=5&to_block=4")).await;
        assert_eq!(turned.0, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn an_index_whose_codec_names_no_senders_has_no_history_of_addresses() {
    let made = Made::of("opaque", "off").await;
    made.blocks(0..10).await;
    let (status, answer) = get(&made.api(), &format!("/v1/addresses/{SENDER}/txs")).await;
    assert_eq!((status, &answer["code"]), (StatusCode::GONE, &json!("not_indexed")));
    assert!(answer["error"].as_str().unwrap().contains("codec opaque"), "{answer}");
}
