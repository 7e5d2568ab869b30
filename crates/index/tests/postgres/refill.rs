//! Blocks below the cursor that are written again, and sums and truths as the schema's page says them.

use alloy_primitives::U256;
use secateur_core::{BlockHash, Cursor};
use secateur_index::postgres::{LeaseQueue, LeasedSink, RANGE_BLOCKS};
use secateur_index::sink::{Identity, IndexReader as _, Sink as _};
use secateur_index::{Batch, ErrorClass, GapRow, Rows};

use crate::chain::{batch, connect, dump, fresh, number, rows};

fn gap(block_from: u64, block_to: u64) -> GapRow {
    GapRow { block_from, block_to, reason: "cut".into(), noted_at: 9 }
}

/// A gap stayed for ever: nothing wrote below the cursor and took it out of `gaps`.
#[tokio::test]
async fn a_gap_that_is_filled_leaves_the_table_and_the_rows_are_as_without_it() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    sink.record_gap(gap(10, 39), Cursor::at_block(40)).await.unwrap();
    sink.commit(batch(40..60)).await.unwrap();
    assert_eq!(sink.refill(20, batch(20..25)).await.unwrap(), 5);
    assert_eq!(sink.gaps(0, 10).await.unwrap(), [gap(10, 19), gap(25, 39)]);
    assert_eq!(sink.refill(5, batch(5..45)).await.unwrap(), 25, "those that were not there");
    assert_eq!(sink.gaps(0, 10).await.unwrap(), []);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(60)), "the cursor stays");
    assert_eq!(sink.days(None, 1).await.unwrap()[0].blocks_ingested, 60, "once each");
    let (whole, whole_url) = fresh().await;
    whole.commit(batch(0..60)).await.unwrap();
    assert_eq!(dump(&url).await, dump(&whole_url).await);
}

#[tokio::test]
async fn rows_decoded_anew_and_logs_wanted_since_take_the_place_of_those_that_are_there() {
    let (sink, url) = fresh().await;
    let identity = |logs: &str| Identity { chain_id: 5, codec: "evm".into(), logs: logs.into() };
    sink.bind(&identity("off")).await.unwrap();
    let mut first = batch(0..30);
    first.rows.logs.clear();
    first.rows.txs.iter_mut().for_each(|tx| tx.gas_used = Some(1));
    sink.commit(first).await.unwrap();
    sink.bind(&identity("all")).await.unwrap();
    sink.commit(batch(30..40)).await.unwrap();
    let since = async || sink.meta().await.unwrap().logs_since;
    assert_eq!(since().await, Some(30));
    assert_eq!(sink.refill(0, batch(0..30)).await.unwrap(), 0, "no block is new");
    sink.logs_filled("all", 0, 20).await.unwrap();
    assert_eq!(since().await, Some(30), "blocks 20 to 29 are in between");
    sink.logs_filled("off", 0, 30).await.unwrap();
    assert_eq!(since().await, Some(30), "filled with what was chosen before");
    sink.logs_filled("all", 0, 30).await.unwrap();
    assert_eq!(since().await, Some(0));
    let (whole, whole_url) = fresh().await;
    whole.commit(batch(0..40)).await.unwrap();
    assert_eq!(dump(&url).await, dump(&whole_url).await);
}

#[tokio::test]
async fn a_refill_above_the_cursor_or_of_another_chain_is_refused_and_changes_nothing() {
    let (sink, url) = fresh().await;
    let error = sink.refill(0, batch(0..5)).await.unwrap_err();
    assert!(error.to_string().contains("no block yet"), "{error}");
    sink.commit(batch(0..10)).await.unwrap();
    sink.record_gap(gap(10, 19), Cursor::at_block(20)).await.unwrap();
    sink.commit(batch(20..30)).await.unwrap();
    let before = dump(&url).await;
    let error = sink.refill(25, batch(25..31)).await.unwrap_err();
    assert!(error.to_string().contains("goes on at block 30"), "{error}");
    let other = |blocks: std::ops::Range<u64>| {
        let mut other = batch(blocks);
        other.rows.blocks.iter_mut().for_each(|row| row.hash = Some(BlockHash([9; 32])));
        other
    };
    // One that is there; and a gap whose end does not lead to the block above it.
    for range in [3..5, 15..20] {
        let error = sink.refill(range.start, other(range)).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    }
    assert_eq!(dump(&url).await, before);
    assert_eq!(sink.gaps(0, 10).await.unwrap(), [gap(10, 19)]);
}

// Blocks that several workers had written above the cursor counted as having logs that were chosen later.
#[tokio::test]
async fn logs_chosen_while_workers_share_a_backfill_begin_behind_all_that_is_written() {
    let (sink, _) = fresh().await;
    let identity = |logs: &str| Identity { chain_id: 5, codec: "evm".into(), logs: logs.into() };
    sink.bind(&identity("off")).await.unwrap();
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(0, 3_000).await.unwrap();
    let lower = queue.take().await.unwrap().unwrap();
    let upper = LeasedSink::range(&queue, queue.take().await.unwrap().unwrap());
    upper.commit(batch(1_000..1_100)).await.unwrap();
    sink.bind(&identity("all")).await.unwrap();
    let meta = sink.meta().await.unwrap();
    assert_eq!(meta.cursor, Some(Cursor::at_block(lower.first)));
    assert_eq!((meta.logs.as_deref(), meta.logs_since), (Some("all"), Some(1_100)));
}

#[tokio::test]
async fn a_refill_of_blocks_that_are_all_too_old_promises_nothing_above_them() {
    let (sink, _) = fresh().await;
    sink.commit(batch(1_000..1_050)).await.unwrap();
    let nothing = |next| {
        let (rows, next) = (Rows::default(), Cursor::at_block(next));
        Batch { rows, next, raw_bytes: Vec::new(), head: None, at: 86_400 }
    };
    sink.refill(0, nothing(500)).await.unwrap();
    assert_eq!(sink.meta().await.unwrap().kept_from, Some(1_000));
    sink.refill(990, nothing(1_020)).await.unwrap();
    assert_eq!(sink.meta().await.unwrap().kept_from, Some(1_020));
}

#[tokio::test]
async fn blocks_between_a_filled_range_and_the_indexs_beginning_become_a_gap() {
    let (sink, _) = fresh().await;
    let begin = 2 * RANGE_BLOCKS;
    sink.commit(batch(begin..begin + 5)).await.unwrap();
    assert_eq!(sink.refill(70, batch(70..75)).await.unwrap(), 5, "in a range that was never made");
    let gaps = sink.gaps(0, 10).await.unwrap();
    assert_eq!(
        gaps.iter().map(|gap| (gap.block_from, gap.block_to)).collect::<Vec<_>>(),
        [(75, begin - 1)]
    );
}

/// The page said 1 or 0, and here it was a boolean: a query of SQLite failed.
#[tokio::test]
async fn status_is_1_or_0_as_the_page_says_and_sums_are_exact() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..60)).await.unwrap();
    let txs = rows(0..60).txs;
    for (status, wanted) in [(1_i64, Some(true)), (0, Some(false))] {
        let count = txs.iter().filter(|tx| tx.status == wanted).count();
        let sql = format!("select count(*) from txs where status = {status}");
        assert_eq!(number(&url, &sql).await, i64::try_from(count).unwrap());
    }
    let type_of = "select count(*) from pg_attribute where attname = 'status' and \
        atttypid = 'smallint'::regtype and attrelid = 'txs'::regclass";
    assert_eq!(number(&url, type_of).await, 1);
    let client = connect(&url).await;
    for (view, sent) in [("amounts_sent", true), ("amounts_received", false)] {
        let sql = format!("select encode(address, 'hex'), transactions, total::text from {view}");
        let found = client.query(&sql, &[]).await.unwrap();
        assert!(!found.is_empty());
        for row in found {
            let address: String = row.get(0);
            let moved = txs.iter().filter(|tx| {
                let party = if sent { tx.from } else { tx.to };
                party.is_some_and(|party| alloy_primitives::hex::encode(party) == address)
                    && tx.value.is_some()
                    && tx.status != Some(false)
            });
            let values: Vec<U256> = moved.map(|tx| tx.value.unwrap()).collect();
            let total = values.iter().fold(alloy_primitives::U512::ZERO, |sum, value| {
                sum + alloy_primitives::U512::from(*value)
            });
            let said: (i64, String) = (row.get(1), row.get(2));
            assert_eq!(said, (i64::try_from(values.len()).unwrap(), total.to_string()));
        }
    }
}

/// An index of the version before, with rows: `status` is changed in place.
#[tokio::test]
async fn an_index_with_boolean_truths_is_brought_up_to_date() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..40)).await.unwrap();
    let after = dump(&url).await;
    drop(sink);
    let back = "drop view amounts_sent, amounts_received; \
        alter table txs drop constraint txs_status; \
        alter table txs alter column status type boolean using status = 1; \
        delete from schema_migrations where version >= 3; \
        update meta set value = '2' where key = 'schema_version'";
    connect(&url).await.batch_execute(back).await.unwrap();
    assert_ne!(dump(&url).await, after, "truths are t and f");
    let sink = crate::chain::open(&url).await;
    assert_eq!(dump(&url).await, after);
    assert_eq!(sink.meta().await.unwrap().schema_version, 4);
}
