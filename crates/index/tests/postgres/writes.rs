//! Batches: all or nothing, once, and never something else in silence.

use secateur_core::{BlockHash, Cursor};
use secateur_index::sink::{Identity, IndexReader as _, Note, Sink as _};
use secateur_index::{ErrorClass, GapRow, IndexError, PartRow, Rows};

use crate::chain::{GENESIS, batch, connect, dump, fresh, number, rows};

#[tokio::test]
async fn what_is_written_reads_back_row_for_row() {
    let (sink, _) = fresh().await;
    sink.commit(batch(0..120)).await.unwrap();
    sink.commit(batch(120..200)).await.unwrap();
    let wanted = rows(0..200);
    let blocks = sink.blocks(None, 1_000).await.unwrap();
    let mut read = Rows { blocks, ..Rows::default() };
    read.blocks.reverse();
    for number in 0..200 {
        read.txs.extend(sink.block_txs(number, 0, 1_000).await.unwrap());
    }
    for which in 0..7 {
        let query = secateur_index::sink::LogQuery {
            address: Some(crate::chain::address(which)),
            ..Default::default()
        };
        read.logs.extend(sink.logs(query, None, 1_000).await.unwrap());
    }
    read.logs.sort_by_key(|log| (log.block_number, log.log_index));
    assert_eq!(read, wanted);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(200)));
    assert_eq!(sink.tip().await.unwrap().as_ref(), wanted.blocks.last());
    let meta = sink.meta().await.unwrap();
    assert_eq!((meta.last_head, meta.last_ingest_at), (Some(1_000_000), Some(GENESIS + 86_400)));
    let day = sink.days(None, 10).await.unwrap()[0];
    assert_eq!((day.blocks_ingested, day.raw_bytes), (200, 200_000));
}

#[tokio::test]
async fn numbers_are_what_their_text_says() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..200)).await.unwrap();
    let client = connect(&url).await;
    let sql = "select value::text, nonce::text from txs where block_number = $1 and tx_index = $2";
    for tx in rows(0..200).txs {
        let place = (i64::try_from(tx.block_number).unwrap(), i32::try_from(tx.tx_index).unwrap());
        let row = client.query_one(sql, &[&place.0, &place.1]).await.unwrap();
        let texts: (Option<String>, Option<String>) = (row.get(0), row.get(1));
        let wanted = (tx.value.map(|v| v.to_string()), tx.nonce.map(|n| n.to_string()));
        assert_eq!(texts, wanted);
    }
}

#[tokio::test]
async fn a_batch_that_comes_twice_changes_nothing() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..50)).await.unwrap();
    let before = dump(&url).await;
    sink.commit(batch(0..50)).await.unwrap();
    sink.commit(batch(20..30)).await.unwrap();
    assert_eq!(dump(&url).await, before);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(50)));
    // One that overlaps adds what is new.
    sink.commit(batch(40..60)).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(60)));
    assert_eq!(sink.days(None, 1).await.unwrap()[0].blocks_ingested, 60);
}

#[tokio::test]
async fn only_a_batch_that_is_there_in_part_goes_through_staging() {
    let staged = "select count(*) from pg_class where relname like 'stage\\_%'";
    let (sink, url) = fresh().await;
    sink.commit(batch(0..50)).await.unwrap();
    sink.commit(batch(50..90)).await.unwrap();
    assert_eq!(number(&url, staged).await, 0, "new rows go straight into their tables");
    sink.commit(batch(70..120)).await.unwrap();
    assert_eq!(number(&url, staged).await, 3);
    // Whatever way each of them took, the result is that of one batch.
    let (alone, alone_url) = fresh().await;
    alone.commit(batch(0..120)).await.unwrap();
    assert_eq!(dump(&url).await, dump(&alone_url).await);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(120)));
    let day = sink.days(None, 1).await.unwrap()[0];
    assert_eq!((day.blocks_ingested, day.raw_bytes), (120, 120_000));
}

#[tokio::test]
async fn rows_of_a_block_without_its_block_are_compared_too() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..50)).await.unwrap();
    // As if a cursor had been set back by hand, and some of the tables emptied.
    let client = connect(&url).await;
    let back = "update meta set value = replace(value, '\"50\"', '\"30\"') where key = 'cursor'; \
        delete from blocks where number >= 30";
    client.batch_execute(back).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(30)));
    let mut other = batch(30..60);
    other.rows.txs[0].nonce = Some(77);
    let before = dump(&url).await;
    let error = sink.commit(other).await.unwrap_err();
    assert!(error.to_string().contains("other txs"), "{error}");
    assert_eq!(dump(&url).await, before);
    sink.commit(batch(30..60)).await.unwrap();
    let (alone, alone_url) = fresh().await;
    alone.commit(batch(0..60)).await.unwrap();
    assert_eq!(dump(&url).await, dump(&alone_url).await);
}

type Change = fn(&mut Rows);

#[tokio::test]
async fn another_block_at_the_same_height_is_an_error_and_changes_nothing() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..50)).await.unwrap();
    let before = dump(&url).await;
    let changes: [(&str, Change); 5] = [
        ("blocks", |rows| rows.blocks[3].hash = Some(BlockHash([7; 32]))),
        ("blocks", |rows| rows.blocks[3].ts = None),
        ("txs", |rows| rows.txs[0].hash.0[0] ^= 1),
        ("txs", |rows| rows.txs[0].value = None),
        ("logs", |rows| rows.logs[0].data.push(1)),
    ];
    for (table, change) in changes {
        let mut other = batch(40..60);
        change(&mut other.rows);
        let error = sink.commit(other).await.unwrap_err();
        assert!(error.to_string().contains(&format!("other {table}")), "{error}");
        assert!(!error.is_retryable());
        assert_eq!(dump(&url).await, before, "{table}");
        assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(50)));
    }
}

#[tokio::test]
async fn rows_cursor_and_counts_are_written_together_or_not_at_all() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    let before = dump(&url).await;
    let client = connect(&url).await;
    // Each of them fails the transaction at another step, the last one at its very end.
    for (table, when) in [
        ("blocks", "before insert on blocks for each row"),
        ("txs", "before insert on txs for each row"),
        ("meta", "before update on meta for each row"),
        ("metrics_daily", "before update on metrics_daily for each row"),
    ] {
        let sql = format!(
            "create function fail() returns trigger language plpgsql as \
             $$ begin raise exception 'no more'; end $$; \
             create trigger fail {when} execute function fail()"
        );
        client.batch_execute(&sql).await.unwrap();
        let error = sink.commit(batch(10..20)).await.unwrap_err();
        assert!(error.to_string().contains("no more"), "{error}");
        assert_eq!(dump(&url).await, before, "{table}");
        assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(10)));
        assert_eq!(sink.days(None, 1).await.unwrap()[0].blocks_ingested, 10);
        client.batch_execute("drop function fail() cascade").await.unwrap();
    }
    sink.commit(batch(10..20)).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(20)));
}

#[tokio::test]
async fn a_batch_that_leaves_blocks_out_is_refused() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    let mut holed = batch(10..20);
    holed.rows.blocks.remove(4);
    let mut short = batch(10..20);
    short.rows.blocks.pop();
    let mut foreign = batch(10..20);
    foreign.rows.txs[0].block_number = 25;
    let mut inside = batch(10..20);
    inside.next.byte_offset = 1;
    for (what, wrong) in [
        ("ahead", batch(11..20)),
        ("holed", holed),
        ("short", short),
        ("foreign", foreign),
        ("inside", inside),
    ] {
        let error = sink.commit(wrong).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::InvalidCursor, "{what}: {error}");
    }
    assert_eq!(number(&url, "select count(*) from blocks").await, 10);
}

#[tokio::test]
async fn a_gap_moves_the_cursor_and_stays_in_the_list() {
    let (sink, _) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    let gap =
        GapRow { block_from: 10, block_to: 499_999, reason: "pruned".into(), noted_at: GENESIS };
    sink.record_gap(gap.clone(), Cursor::at_block(500_000)).await.unwrap();
    assert_eq!(sink.gaps(0, 10).await.unwrap(), [gap]);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(500_000)));
    assert_eq!(sink.tip().await.unwrap(), None);
    sink.commit(batch(500_000..500_003)).await.unwrap();
}

#[tokio::test]
async fn parts_are_noted_once_and_another_one_in_the_same_place_is_refused() {
    let (sink, _) = fresh().await;
    let part = |from: u64, key: &str| PartRow {
        block_from: from,
        block_to: from + 99,
        provider: "fs".into(),
        object_key: key.into(),
        codec: "zstd".into(),
        size_bytes: 500,
        sha256: [1; 32],
        parent_hash: BlockHash([2; 32]),
        last_hash: BlockHash([3; 32]),
    };
    for from in [0, 100, 100, 0] {
        sink.add_part(part(from, "a"), GENESIS).await.unwrap();
    }
    let error = sink.add_part(part(100, "b"), GENESIS).await.unwrap_err();
    assert!(matches!(error, IndexError::Refused(_)), "{error}");
    assert_eq!(sink.parts(0, 10).await.unwrap(), [part(0, "a"), part(100, "a")]);
    assert_eq!(sink.list_parts(1, 10).await.unwrap(), [part(100, "a")]);
    assert_eq!(sink.last_part().await.unwrap(), Some(part(100, "a")));
    assert_eq!(sink.days(None, 1).await.unwrap()[0].compressed_bytes, 1_000);
}

#[tokio::test]
async fn logs_that_are_chosen_later_are_known_since_when() {
    let (sink, _) = fresh().await;
    let bind = |logs: &str| Identity { chain_id: 7, codec: "evm".into(), logs: logs.into() };
    sink.bind(&bind("off")).await.unwrap();
    sink.commit(batch(0..10)).await.unwrap();
    assert_eq!(sink.meta().await.unwrap().logs_since, Some(0));
    for _ in 0..2 {
        sink.bind(&bind("all")).await.unwrap();
        let meta = sink.meta().await.unwrap();
        assert_eq!((meta.logs.as_deref(), meta.logs_since), (Some("all"), Some(10)));
    }
}

#[tokio::test]
async fn errors_are_noted_and_counted() {
    let (sink, _) = fresh().await;
    let error = Some((ErrorClass::Net, "it is \"gone\"".to_owned()));
    sink.note(Note { head: Some(5), error, at: GENESIS }).await.unwrap();
    sink.note(Note { head: Some(6), error: None, at: GENESIS }).await.unwrap();
    let meta = sink.meta().await.unwrap();
    assert_eq!(meta.last_head, Some(6));
    let noted: serde_json::Value = serde_json::from_str(&meta.last_error.unwrap()).unwrap();
    assert_eq!((&noted["class"], &noted["message"]), (&"net".into(), &"it is \"gone\"".into()));
    assert_eq!(sink.days(None, 1).await.unwrap()[0].errors, 1);
}
