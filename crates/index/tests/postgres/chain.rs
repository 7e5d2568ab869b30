//! A made-up chain as rows: block `n` is always the same, and every kind of value comes up in it.
//! No block of it would verify; only what a sink does with rows is looked at here.

use std::ops::Range;

use alloy_primitives::{Address, B256, U256};
use secateur_core::{BlockHash, Cursor, TxId};
use secateur_index::postgres::{Address as Place, PostgresOptions, PostgresSink};
use secateur_index::{Batch, BlockRow, LogRow, Rows, TxRow};
use tokio_postgres::{Client, NoTls};

use crate::fixture;

/// The first block's time; a block comes every twelve seconds.
pub const GENESIS: u64 = 1_700_000_000;

/// 32 bytes that look random and are always the same.
pub fn bytes(kind: &str, number: u64, index: u64) -> [u8; 32] {
    alloy_primitives::keccak256(format!("{kind} {number} {index}")).0
}

/// One of a few addresses, so that they come up often.
pub fn address(which: u64) -> Address {
    Address::from_slice(&bytes("address", which % 7, 0)[..20])
}

pub fn topic(which: u64) -> B256 {
    B256::new(bytes("topic", which % 3, 0))
}

pub fn block(number: u64) -> BlockRow {
    BlockRow {
        number,
        hash: Some(BlockHash(bytes("block", number, 0))),
        parent_hash: Some(BlockHash(bytes("block", number.wrapping_sub(1), 0))),
        ts: Some(GENESIS + 12 * number),
        tx_count: txs_in(number),
    }
}

fn txs_in(number: u64) -> u32 {
    u32::try_from(number % 4).unwrap()
}

fn tx(number: u64, index: u32) -> TxRow {
    let hash = bytes("tx", number, index.into());
    let mut tx =
        TxRow { hash: TxId(hash), block_number: number, tx_index: index, ..TxRow::default() };
    // Now and then one of an opaque chain.
    if number % 50 == 7 {
        return tx;
    }
    tx.from = Some(address(number + u64::from(index)));
    tx.nonce = Some(if number % 31 == 3 { u64::MAX } else { number });
    tx.value = Some(U256::from_be_bytes(hash) >> usize::from(hash[0]));
    tx.gas = Some(21_000 + number);
    tx.status = (!number.is_multiple_of(5)).then_some(!number.is_multiple_of(3));
    tx.gas_used = Some(21_000);
    if number % 11 == 1 {
        tx.contract_address = Some(address(number + 2));
    } else {
        tx.to = Some(address(number * 3 + u64::from(index)));
    }
    tx
}

fn log(number: u64, index: u32) -> LogRow {
    LogRow {
        block_number: number,
        log_index: index * 2,
        tx_index: index,
        tx_hash: TxId(bytes("tx", number, index.into())),
        address: address(number + 4),
        topics: [
            Some(topic(number)),
            number.is_multiple_of(2).then(|| topic(number + 1)),
            None,
            None,
        ],
        data: bytes("data", number, 0)[..usize::try_from(number % 33).unwrap()].to_vec(),
    }
}

/// The rows of some blocks.
pub fn rows(blocks: Range<u64>) -> Rows {
    let mut rows = Rows::default();
    for number in blocks {
        rows.blocks.push(block(number));
        rows.txs.extend((0..txs_in(number)).map(|index| tx(number, index)));
        rows.logs.extend((0..txs_in(number)).map(|index| log(number, index)));
    }
    rows
}

/// The same as a batch.
pub fn batch(blocks: Range<u64>) -> Batch {
    Batch {
        next: Cursor::at_block(blocks.end),
        raw_bytes: blocks.clone().map(|_| 1_000).collect(),
        head: Some(1_000_000),
        at: GENESIS + 86_400,
        rows: rows(blocks),
    }
}

/// Opens an index.
pub async fn open(url: &str) -> PostgresSink {
    PostgresSink::open(&Place::parse(url).unwrap(), PostgresOptions::default()).await.unwrap()
}

/// A fresh index, and its address.
pub async fn fresh() -> (PostgresSink, String) {
    let url = fixture::database();
    (open(&url).await, url)
}

/// A connection beside the index.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    client
}

/// One number that a query answers.
pub async fn number(url: &str, sql: &str) -> i64 {
    connect(url).await.query_one(sql, &[]).await.unwrap().get(0)
}

/// Everything that the big tables hold, as text in a fixed order: what two indexes are compared by.
pub async fn dump(url: &str) -> String {
    let client = connect(url).await;
    let mut text = String::new();
    for table in ["blocks", "txs", "logs"] {
        let sql = format!("select t::text from {table} t order by 1");
        for row in client.query(&sql, &[]).await.unwrap() {
            text.push_str(table);
            text.push_str(row.get(0));
            text.push('\n');
        }
    }
    text
}
