//! How PostgreSQL answers the reads: by an index, and from no more ranges than it must.

use alloy_primitives::Address;
use secateur_core::Cursor;
use secateur_index::postgres::{PostgresSink, RANGE_BLOCKS};
use secateur_index::sink::{BlockKey, IndexReader as _, LogQuery, Place, Role, Sink as _};
use secateur_index::{GapRow, TxRow};

use crate::chain::{address, batch, connect, fresh, rows, topic};

/// An index with blocks in three ranges, and statistics.
async fn three_ranges() -> (PostgresSink, String, Vec<TxRow>) {
    let (sink, url) = fresh().await;
    let mut txs = Vec::new();
    for range in 0..3 {
        let first = range * RANGE_BLOCKS;
        if range > 0 {
            let gap = GapRow {
                block_from: first - RANGE_BLOCKS + 700,
                block_to: first - 1,
                reason: "test".into(),
                noted_at: 0,
            };
            sink.record_gap(gap, Cursor::at_block(first)).await.unwrap();
        }
        sink.commit(batch(first..first + 700)).await.unwrap();
        txs.extend(rows(first..first + 700).txs);
    }
    connect(&url).await.batch_execute("analyze").await.unwrap();
    (sink, url, txs)
}

type Belongs = Box<dyn Fn(&TxRow) -> bool>;

/// Newest first, a page at a time, until there is no more.
async fn all_pages(sink: &PostgresSink, whose: Address, role: Role) -> Vec<TxRow> {
    let mut all: Vec<TxRow> = Vec::new();
    loop {
        let before =
            all.last().map(|tx| Place { block_number: tx.block_number, index: tx.tx_index });
        let page = sink.address_txs(whose, role, before, 100).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[tokio::test]
async fn an_addresss_history_is_whole_and_each_transaction_comes_once() {
    let (sink, _, mut txs) = three_ranges().await;
    txs.reverse();
    for which in 0..7 {
        let whose = address(which);
        let is = move |party: Option<Address>| party == Some(whose);
        let roles: [(Role, Belongs); 3] = [
            (Role::From, Box::new(move |tx| is(tx.from))),
            (Role::To, Box::new(move |tx| is(tx.to) || is(tx.contract_address))),
            (Role::Any, Box::new(move |tx| is(tx.from) || is(tx.to) || is(tx.contract_address))),
        ];
        for (role, belongs) in roles {
            let wanted: Vec<TxRow> = txs.iter().filter(|tx| belongs(tx)).cloned().collect();
            assert!(!wanted.is_empty());
            assert_eq!(all_pages(&sink, whose, role).await, wanted, "{role:?}");
        }
    }
}

#[tokio::test]
async fn logs_are_found_by_address_and_topic_between_bounds() {
    let (sink, _, _) = three_ranges().await;
    let mut logs = Vec::new();
    for range in 0..3 {
        logs.extend(rows(range * RANGE_BLOCKS..range * RANGE_BLOCKS + 700).logs);
    }
    logs.reverse();
    let (whose, what) = (address(3), topic(1));
    for (by_address, by_topic) in [(true, true), (true, false), (false, true)] {
        for (from, to) in [(None, None), (Some(100_300), None), (Some(650), Some(100_100))] {
            let query = LogQuery {
                address: by_address.then_some(whose),
                topic0: by_topic.then_some(what),
                from_block: from,
                to_block: to,
            };
            let wanted: Vec<_> = logs
                .iter()
                .filter(|log| !by_address || log.address == whose)
                .filter(|log| !by_topic || log.topics[0] == Some(what))
                .filter(|log| from.is_none_or(|from| log.block_number >= from))
                .filter(|log| to.is_none_or(|to| log.block_number <= to))
                .cloned()
                .collect();
            let mut found = Vec::new();
            loop {
                let before = found.last().map(|log: &secateur_index::LogRow| Place {
                    block_number: log.block_number,
                    index: log.log_index,
                });
                let page = sink.logs(query, before, 90).await.unwrap();
                if page.is_empty() {
                    break;
                }
                found.extend(page);
            }
            assert_eq!(found, wanted, "{query:?}");
        }
    }
    assert!(sink.logs(LogQuery::default(), None, 1).await.is_err());
}

#[tokio::test]
async fn single_rows_are_found_and_absent_ones_are_not() {
    let (sink, _, txs) = three_ranges().await;
    for tx in txs.iter().step_by(97) {
        assert_eq!(sink.tx(tx.hash).await.unwrap().as_ref(), Some(tx));
    }
    let block = sink.block(BlockKey::Number(100_005)).await.unwrap().unwrap();
    assert_eq!(sink.block(BlockKey::Hash(block.hash.unwrap())).await.unwrap(), Some(block));
    for absent in [700, 99_999, 5_000_000, u64::MAX] {
        assert_eq!(sink.block(BlockKey::Number(absent)).await.unwrap(), None);
        assert_eq!(sink.block_txs(absent, 0, 9).await.unwrap(), []);
    }
    let newest: Vec<u64> =
        sink.blocks(Some(100_002), 4).await.unwrap().iter().map(|block| block.number).collect();
    assert_eq!(newest, [100_001, 100_000, 699, 698]);
}

/// What PostgreSQL does for a statement in a session like the index's own.
async fn plan_of(url: &str, prepare: &str, execute: &str) -> String {
    let client = connect(url).await;
    // As for a table that is larger than this one.
    client
        .batch_execute("set enable_seqscan = off; set plan_cache_mode = force_custom_plan")
        .await
        .unwrap();
    client.batch_execute(prepare).await.unwrap();
    let sql = format!("explain (analyze, costs off, timing off, summary off) {execute}");
    let rows = client.query(&sql, &[]).await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}

#[tokio::test]
async fn reads_use_an_index_and_leave_out_the_ranges_they_do_not_need() {
    let (_, url, txs) = three_ranges().await;
    // Many addresses, as a chain has. Where one is in every other row, another plan is as good.
    let spread = "update txs set \"from\" = substring(hash for 20); \
        update logs set address = substring(tx_hash for 20); analyze";
    connect(&url).await.batch_execute(spread).await.unwrap();
    let hash = txs[0].hash;
    let who = &hash.0[..20];
    let what = topic(1);
    let reads = [
        // (the statement, its values, an index it must use, ranges that it may open)
        (
            "(bigint) as select * from blocks where number = $1",
            "(100005)".to_owned(),
            "blocks_000000100000_pkey",
            1,
        ),
        (
            "(bigint, int, bigint) as select * from txs where block_number = $1 and tx_index >= $2 \
             order by tx_index limit $3",
            "(100005, 0, 10)".to_owned(),
            "txs_000000100000_block_number_tx_index_idx",
            1,
        ),
        (
            "(bytea) as select * from txs where hash = $1 \
             order by block_number desc, tx_index desc limit 1",
            format!("('\\x{hash:?}')").replace("\\x0x", "\\x"),
            "txs_000000000000_pkey",
            4,
        ),
        (
            "(bytea, bigint, int, bigint) as select * from txs where \"from\" = $1 and \
             block_number <= $2 and (block_number, tx_index) < ($2, $3) \
             order by block_number desc, tx_index desc limit $4",
            format!("('\\x{}', 600, 0, 20)", alloy_primitives::hex::encode(who)),
            "txs_000000000000_from_block_number_tx_index_idx",
            1,
        ),
        (
            "(bytea, bytea, bigint, bigint, bigint, int, bigint) as select * from logs where \
             address = $1 and topic0 = $2 and block_number >= $3 and block_number <= $4 and \
             (block_number, log_index) < ($5, $6) order by block_number desc, log_index desc \
             limit $7",
            format!(
                "('\\x{}', '\\x{}', 100000, 100500, 100500, 0, 20)",
                alloy_primitives::hex::encode(who),
                alloy_primitives::hex::encode(what)
            ),
            "logs_000000100000_address_",
            1,
        ),
    ];
    for (statement, values, index, ranges) in reads {
        let plan =
            plan_of(&url, &format!("prepare q {statement}"), &format!("execute q {values}")).await;
        assert!(plan.contains(index), "{plan}");
        assert!(!plan.contains("Sort"), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        let opened = plan.lines().filter(|line| line.contains(" on ") && line.contains("_0000"));
        let opened = opened.filter(|line| !line.contains("never executed")).count();
        assert!(opened <= ranges, "{opened} ranges:\n{plan}");
    }
}
