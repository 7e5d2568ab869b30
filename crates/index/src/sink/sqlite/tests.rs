//! The sink against a real file.

use alloy_primitives::{Address, B256, U256};
use rusqlite::Connection;
use secateur_core::{BlockHash, Cursor, TxId};
use tempfile::TempDir;

use super::{SqliteReader, SqliteSink};
use crate::sink::{BlockKey, Identity, LogQuery, Note, Place, Role};
use crate::{
    Batch, BlockRow, ErrorClass, GapRow, IndexReader as _, LogRow, PartRow, Rows, Sink as _, TxRow,
    day_of,
};

const AT: u64 = 1_750_000_000;

fn hash(height: u64) -> BlockHash {
    let mut bytes = [7u8; 32];
    bytes[..8].copy_from_slice(&height.to_be_bytes());
    BlockHash(bytes)
}

/// Two transactions a block, the second a creation, and a log each.
fn rows(height: u64) -> Rows {
    let tx = |index: u32| TxRow {
        hash: TxId([u8::try_from(height * 2 + u64::from(index)).unwrap(); 32]),
        block_number: height,
        tx_index: index,
        from: Some(Address::repeat_byte(1 + u8::try_from(height % 3).unwrap())),
        to: (index == 0).then(|| Address::repeat_byte(9)),
        nonce: Some(if height == 0 { u64::MAX } else { height }),
        value: Some(U256::MAX >> usize::try_from(height % 200).unwrap()),
        gas: Some(u64::MAX / 2 + height),
        status: [Some(true), Some(false), None][usize::try_from(height % 3).unwrap()],
        gas_used: Some(21_000),
        contract_address: (index == 1).then(|| Address::repeat_byte(5)),
    };
    let log = |index: u32| LogRow {
        block_number: height,
        log_index: index,
        tx_index: index,
        tx_hash: TxId([3; 32]),
        address: Address::repeat_byte(20 + u8::try_from(index).unwrap()),
        topics: [Some(B256::repeat_byte(u8::try_from(height % 2).unwrap())), None, None, None],
        data: vec![1; usize::try_from(height).unwrap()],
    };
    Rows {
        blocks: vec![BlockRow {
            number: height,
            hash: Some(hash(height)),
            parent_hash: height.checked_sub(1).map(hash),
            ts: Some(1_000 + height * 10),
            tx_count: 2,
        }],
        txs: vec![tx(0), tx(1)],
        logs: vec![log(0), log(1)],
    }
}

fn batch(heights: std::ops::Range<u64>) -> Batch {
    let mut all = Rows::default();
    let next = Cursor::at_block(heights.end);
    heights.for_each(|height| all.append(rows(height)));
    Batch { rows: all, next, raw_bytes: vec![100], head: Some(99), at: AT }
}

fn new() -> (TempDir, SqliteSink) {
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    (dir, sink)
}

fn identity(chain_id: u64) -> Identity {
    Identity { chain_id, codec: "evm".into(), logs: "off".into() }
}

#[tokio::test]
async fn rows_read_back_as_they_were_written() {
    let (_dir, sink) = new();
    sink.commit(batch(0..30)).await.unwrap();
    let reader = sink.reader();
    for height in 0..30 {
        let wanted = rows(height);
        for key in [BlockKey::Number(height), BlockKey::Hash(hash(height))] {
            assert_eq!(reader.block(key).await.unwrap().as_ref(), wanted.blocks.first());
        }
        assert_eq!(reader.block_txs(height, 0, 10).await.unwrap(), wanted.txs);
        assert_eq!(reader.block_txs(height, 1, 10).await.unwrap(), wanted.txs[1..]);
        for tx in wanted.txs {
            assert_eq!(reader.tx(tx.hash).await.unwrap(), Some(tx));
        }
    }
    assert_eq!(reader.tx(TxId([255; 32])).await.unwrap(), None);
    let query = LogQuery { address: Some(Address::repeat_byte(20)), ..LogQuery::default() };
    let found = reader.logs(query, None, 100).await.unwrap();
    let wanted: Vec<_> = (0..30).rev().map(|height| rows(height).logs[0].clone()).collect();
    assert_eq!(found, wanted);
    let query = LogQuery {
        topic0: Some(B256::repeat_byte(1)),
        from_block: Some(5),
        to_block: Some(9),
        ..query
    };
    let found = reader.logs(query, None, 100).await.unwrap();
    assert_eq!(found.iter().map(|log| log.block_number).collect::<Vec<_>>(), [9, 7, 5]);
}

#[tokio::test]
async fn meta_and_cursor_are_spelled_as_documented() {
    let (dir, sink) = new();
    sink.bind(&identity(7)).await.unwrap();
    sink.commit(batch(0..3)).await.unwrap();
    let note = Note { head: Some(120), error: Some((ErrorClass::Net, "away".into())), at: AT };
    sink.note(note).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(3)));
    assert_eq!(sink.tip().await.unwrap().unwrap().hash, Some(hash(2)));
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    let get = |key: &str| -> String {
        raw.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).unwrap()
    };
    assert_eq!(get("cursor"), r#"{"v":1,"block_number":"3","segment":0,"byte_offset":0}"#);
    assert_eq!(get("schema_version"), "2");
    assert_eq!(get("last_head"), "120");
    assert_eq!(get("last_ingest_at"), AT.to_string());
    assert_eq!(get("last_error"), format!(r#"{{"at":{AT},"class":"net","message":"away"}}"#));
    let days = sink.reader().days(None, 10).await.unwrap();
    assert_eq!(days.len(), 1);
    assert_eq!((days[0].day, days[0].blocks_ingested, days[0].errors), (day_of(AT), 3, 1));
    assert_eq!(days[0].raw_bytes, 100);
    let meta = sink.reader().meta().await.unwrap();
    assert_eq!(meta.chain_id, Some(7));
    assert_eq!(meta.cursor, Some(Cursor::at_block(3)));
}

#[tokio::test]
async fn an_index_of_another_chain_codec_or_version_is_refused() {
    let (dir, sink) = new();
    sink.bind(&identity(7)).await.unwrap();
    sink.bind(&identity(7)).await.unwrap();
    let error = sink.bind(&identity(8)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains("chain_id 7"), "{error}");
    let other = Identity { codec: "opaque".into(), ..identity(7) };
    assert!(sink.bind(&other).await.is_err());
    let path = dir.path().join("index.sqlite");
    let raw = Connection::open(&path).unwrap();
    raw.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'", []).unwrap();
    for error in [SqliteSink::open(&path).unwrap_err(), SqliteReader::open(&path).unwrap_err()] {
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(error.to_string().contains("version 3"), "{error}");
    }
    let foreign = dir.path().join("foreign.sqlite");
    Connection::open(&foreign).unwrap().execute("CREATE TABLE t (x)", []).unwrap();
    assert!(SqliteSink::open(&foreign).is_err());
}

#[tokio::test]
async fn a_batch_that_fails_in_the_middle_leaves_nothing_behind() {
    let (dir, sink) = new();
    sink.commit(batch(0..3)).await.unwrap();
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER injected BEFORE INSERT ON logs WHEN NEW.block_number = 5
         BEGIN SELECT RAISE(FAIL, 'injected'); END;",
    )
    .unwrap();
    let error = sink.commit(batch(3..8)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Sink);
    assert!(!error.is_retryable());
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(3)));
    for table in ["blocks", "txs", "logs"] {
        let column = if table == "blocks" { "number" } else { "block_number" };
        let most: i64 = raw
            .query_row(&format!("SELECT max({column}) FROM {table}"), [], |row| row.get(0))
            .unwrap();
        assert_eq!(most, 2, "{table}");
    }
    let day = sink.reader().days(None, 1).await.unwrap()[0];
    assert_eq!(day.blocks_ingested, 3);
    raw.execute_batch("DROP TRIGGER injected").unwrap();
    sink.commit(batch(3..8)).await.unwrap();
}

/// Ingesting a block twice failed on its key, so a worker that lost an answer could not go on. All rows of a
/// repeated block are replaced, and counted once.
#[tokio::test]
async fn a_block_that_is_ingested_twice_leaves_the_same_rows_as_once() {
    let (dir, sink) = new();
    let (clean_dir, clean) = new();
    clean.commit(batch(0..8)).await.unwrap();
    for again in [0..5, 0..5, 3..8, 1..2, 0..8] {
        sink.commit(batch(again)).await.unwrap();
    }
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(8)));
    let all = |dir: &TempDir| {
        let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
        let mut rows = Vec::new();
        for table in ["blocks", "txs", "logs", "gaps", "meta"] {
            let mut select = raw.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
            let columns = select.column_count();
            let mut found = select.query([]).unwrap();
            while let Some(row) = found.next().unwrap() {
                let row = (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at).unwrap());
                rows.push(row.collect::<Vec<_>>());
            }
        }
        rows
    };
    assert_eq!(all(&dir), all(&clean_dir));
    let day = sink.reader().days(None, 1).await.unwrap()[0];
    assert_eq!(day.blocks_ingested, 8);
    let mut other = batch(3..4);
    other.rows.blocks[0].hash = Some(hash(77));
    let error = sink.commit(other).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    assert_eq!(all(&dir), all(&clean_dir));
}

#[tokio::test]
async fn a_batch_that_begins_above_the_cursor_is_refused() {
    let (_dir, sink) = new();
    sink.commit(batch(0..3)).await.unwrap();
    let error = sink.commit(batch(4..5)).await.unwrap_err();
    assert!(error.to_string().contains("another worker"), "{error}");
}

#[tokio::test]
async fn retention_goes_in_bounded_steps_and_stops_at_the_time() {
    let (dir, sink) = new();
    sink.commit(batch(0..50)).await.unwrap();
    // Blocks 0 to 19 are below it.
    let cutoff = 1_000 + 20 * 10;
    let mut steps = Vec::new();
    loop {
        let step = sink.retain(cutoff, 8).await.unwrap();
        steps.push((step.blocks, step.rows));
        if !step.more {
            break;
        }
    }
    assert_eq!(steps, [(8, 40), (8, 40), (4, 20)]);
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    for (table, column) in [("blocks", "number"), ("txs", "block_number"), ("logs", "block_number")]
    {
        let sql = format!("SELECT min({column}), max({column}) FROM {table}");
        let ends: (i64, i64) =
            raw.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(ends, (20, 49), "{table}");
    }
    // However old it is, the newest block stays, and the cursor stands.
    while sink.retain(u64::MAX, 8).await.unwrap().more {}
    assert_eq!(sink.tip().await.unwrap().unwrap().hash, Some(hash(49)));
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(50)));
}

#[tokio::test]
async fn pages_by_key_meet_without_a_gap_or_a_double() {
    let (_dir, sink) = new();
    sink.commit(batch(0..40)).await.unwrap();
    let reader = sink.reader();
    for (address, role, wanted) in [
        (Address::repeat_byte(9), Role::Any, 40),
        (Address::repeat_byte(9), Role::From, 0),
        (Address::repeat_byte(5), Role::To, 40),
        (Address::repeat_byte(1), Role::From, 28),
        (Address::repeat_byte(1), Role::Any, 28),
    ] {
        for limit in [1, 3, 7, 100] {
            let mut places = Vec::new();
            let mut before = None;
            loop {
                let page = reader.address_txs(address, role, before, limit).await.unwrap();
                assert!(page.len() <= limit);
                let place =
                    |tx: &TxRow| Place { block_number: tx.block_number, index: tx.tx_index };
                places.extend(page.iter().map(place));
                before = page.last().map(place);
                if page.is_empty() {
                    break;
                }
            }
            assert_eq!(places.len(), wanted, "{address} {role:?} {limit}");
            assert!(places.is_sorted_by(|a, b| a > b), "{places:?}");
        }
    }
    let blocks = reader.blocks(Some(10), 3).await.unwrap();
    assert_eq!(blocks.iter().map(|block| block.number).collect::<Vec<_>>(), [9, 8, 7]);
    let newest = reader.blocks(None, 1).await.unwrap();
    assert_eq!(newest[0].number, 39);
}

#[tokio::test]
async fn lookups_go_through_their_indexes() {
    let (dir, sink) = new();
    sink.commit(batch(0..40)).await.unwrap();
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    for sql in [
        "SELECT * FROM txs WHERE hash = x'00' ORDER BY id DESC LIMIT 1",
        "SELECT id FROM txs WHERE \"from\" = x'01' AND id < 9 ORDER BY id DESC LIMIT 3",
        "SELECT id FROM txs WHERE \"to\" = x'01' AND id < 9 ORDER BY id DESC LIMIT 3",
        "SELECT id FROM txs WHERE contract_address = x'01' AND id < 9 ORDER BY id DESC LIMIT 3",
        "SELECT * FROM txs WHERE block_number = 3",
        "SELECT * FROM logs WHERE address = x'01' AND id < 9 ORDER BY id DESC LIMIT 3",
        "SELECT * FROM logs WHERE address = x'01' AND topic0 = x'02' ORDER BY id DESC LIMIT 3",
        "SELECT * FROM blocks WHERE hash = x'01'",
    ] {
        let plan: Vec<String> = raw
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap()
            .query_map([], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let plan = plan.join(" / ");
        assert!(plan.contains("USING") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

#[tokio::test]
async fn parts_and_gaps_are_kept_once() {
    let (_dir, sink) = new();
    let part = PartRow {
        block_from: 10,
        block_to: 19,
        provider: "file:///a".into(),
        object_key: "k".into(),
        codec: "zstd".into(),
        size_bytes: 77,
        sha256: [1; 32],
        parent_hash: hash(9),
        last_hash: hash(19),
    };
    sink.add_part(part.clone(), AT).await.unwrap();
    sink.add_part(part.clone(), AT).await.unwrap();
    let other = PartRow { size_bytes: 78, ..part.clone() };
    assert!(sink.add_part(other, AT).await.is_err());
    assert_eq!(sink.last_part().await.unwrap(), Some(part.clone()));
    assert_eq!(sink.parts(0, 10).await.unwrap(), [part]);
    assert_eq!(sink.parts(11, 10).await.unwrap(), []);
    assert_eq!(sink.reader().days(None, 9).await.unwrap()[0].compressed_bytes, 77);
    let gap = GapRow { block_from: 0, block_to: 4, reason: "pruned".into(), noted_at: AT };
    sink.record_gap(gap.clone(), Cursor::at_block(5)).await.unwrap();
    assert_eq!(sink.reader().gaps(0, 10).await.unwrap(), [gap]);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(5)));
    assert_eq!(sink.tip().await.unwrap(), None);
}

#[tokio::test]
async fn maintenance_empties_the_log_and_counts_the_growth() {
    let (dir, sink) = new();
    sink.commit(batch(0..60)).await.unwrap();
    sink.maintain(AT).await.unwrap();
    let size = sink.size_bytes().await.unwrap();
    let wal = std::fs::metadata(dir.path().join("index.sqlite-wal")).unwrap().len();
    // Only what `maintain` itself wrote after the checkpoint is in it.
    assert!(wal < 32_768, "{wal}");
    let day = sink.reader().days(None, 1).await.unwrap()[0];
    assert!(day.growth_bytes > 0 && u64::try_from(day.growth_bytes).unwrap() <= size);
}

#[tokio::test]
async fn logs_that_are_chosen_later_are_known_since_when() {
    let (_dir, sink) = new();
    let logs = |logs: &str| Identity { logs: logs.into(), ..identity(7) };
    sink.bind(&logs("off")).await.unwrap();
    sink.commit(batch(0..10)).await.unwrap();
    assert_eq!(sink.reader().meta().await.unwrap().logs_since, Some(0));
    for _ in 0..2 {
        sink.bind(&logs("all")).await.unwrap();
        assert_eq!(sink.reader().meta().await.unwrap().logs_since, Some(10));
    }
}

/// `sum(value)` makes floats of decimal text and loses digits without a word.
#[tokio::test]
async fn sums_of_amounts_are_exact_by_the_views_and_failed_transactions_move_nothing() {
    let (dir, sink) = new();
    sink.commit(batch(0..60)).await.unwrap();
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    let moved = |sent: bool, address: Address| {
        let txs = (0..60).flat_map(|height| rows(height).txs);
        let mut limbs = (0i64, U256::ZERO, 0u64);
        for tx in txs {
            let party = if sent { tx.from } else { tx.to };
            if party == Some(address) && tx.status != Some(false) {
                // More than 256 bits: the overflow is counted beside it.
                let (sum, over) = limbs.1.overflowing_add(tx.value.unwrap());
                limbs = (limbs.0 + 1, sum, limbs.2 + u64::from(over));
            }
        }
        limbs
    };
    let mut seen = 0;
    for (view, sent) in [("amounts_sent", true), ("amounts_received", false)] {
        let sql = format!("SELECT address, transactions, total FROM {view}");
        let mut select = raw.prepare(&sql).unwrap();
        let mut found = select.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let address = Address::from_slice(&row.get::<_, Vec<u8>>(0).unwrap());
            let (count, sum, over) = moved(sent, address);
            let total: String = row.get(2).unwrap();
            let wide: alloy_primitives::U512 = alloy_primitives::U512::from(sum)
                + (alloy_primitives::U512::from(over) << 256usize);
            assert_eq!((row.get::<_, i64>(1).unwrap(), total), (count, wide.to_string()));
            assert!(over > 0 || wide < alloy_primitives::U512::from(U256::MAX), "{address}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "a receiver and two senders: every transaction of the third one failed");
    let plan: Vec<String> = raw
        .prepare("EXPLAIN QUERY PLAN SELECT total FROM amounts_sent WHERE address = x'01'")
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(plan.iter().any(|step| step.contains("txs_from (from=?)")), "{plan:?}");
}

/// The query that the page of the schema gives for sums of any choice of transactions.
#[tokio::test]
async fn the_documented_sum_of_a_choice_of_transactions_is_exact() {
    let page = include_str!("../../../../../docs/format/index-schema.md");
    let query = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (dir, sink) = new();
    sink.commit(batch(0..40)).await.unwrap();
    let raw = Connection::open(dir.path().join("index.sqlite")).unwrap();
    let total: String = raw.query_row(query, [], |row| row.get(0)).unwrap();
    let wanted = (10..=29).flat_map(|height| rows(height).txs);
    let wanted = wanted.fold(alloy_primitives::U512::ZERO, |sum, tx| {
        sum + alloy_primitives::U512::from(tx.value.unwrap())
    });
    assert_eq!(total, wanted.to_string());
}

#[tokio::test]
async fn an_index_of_the_first_version_is_brought_up_to_date_and_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.sqlite");
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(include_str!("../../../migrations/sqlite/0001_tables.sql")).unwrap();
    raw.pragma_update(None, "application_id", 0x7365_6374).unwrap();
    raw.execute_batch(
        "INSERT INTO meta VALUES ('schema_version', '1');
         INSERT INTO blocks VALUES (5, NULL, NULL, 7, 0);",
    )
    .unwrap();
    let error = SqliteReader::open(&path).unwrap_err();
    assert!(error.to_string().contains("brings it up to date"), "{error}");
    let sink = SqliteSink::open(&path).unwrap();
    assert_eq!(sink.reader().meta().await.unwrap().schema_version, 2);
    assert!(sink.row_at(5).await.unwrap().is_some());
    raw.query_row("SELECT count(*) FROM amounts_sent", [], |row| row.get::<_, i64>(0)).unwrap();
}
