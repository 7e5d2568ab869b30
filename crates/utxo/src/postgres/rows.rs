//! Rows out of the database, locked.
//!
//! Rows of `utxo_txs` are locked in the order of their numbers, always, by everybody, and all that a
//! transaction needs at once. So two transactions never wait for each other. What comes after that
//! waits for nothing but new records of the same id, which are inserted in the order of ids.

use std::collections::{BTreeMap, HashMap};

use secateur_sql::postgres::Transaction;
use tokio_postgres::types::ToSql;

use crate::UtxoError;
use crate::codec::{self, Page, place};
use crate::slate::Row;
use crate::types::{FileKind, OutPoint, TxId};

use super::trip::{Tried as _, Trip};

const READING: &str = "reading records";
const WRITING: &str = "writing records";

/// What a slate needs of a row, without its bytes. Inputs are read only of those that spend: a parent
/// may have a million. Rows are found by their keys and then put in order: were the keys a condition
/// on the table alone, the server could take its order from the index of numbers, and read all of it.
macro_rules! lock {
    ($keys:literal, $found:literal) => {
        concat!(
            "select id, t.txid, outputs, spent, coinbase, conflicting, spending, cut, external, \
             unmined_since, delete_at, preserve_until, blocks, spenders, \
             case when k.child then inputs end from unnest($1::",
            $keys,
            "[], $2::boolean[]) k (key, child) join utxo_txs t on ",
            $found,
            " = k.key order by t.id for no key update of t"
        )
    };
}
pub(super) const LOCK_BY_TXID: &str = lock!("bytea", "t.txid");
pub(super) const LOCK_BY_ID: &str = lock!("bigint", "t.id");
pub(super) const PAGES: &str = "select p.tx, p.page, p.spenders \
    from unnest($1::bigint[], $2::integer[]) w (tx, page) \
    join utxo_spender_pages p on p.tx = w.tx and p.page = w.page";
pub(super) const fn kind_code(kind: FileKind) -> i16 {
    match kind {
        FileKind::Tx => 1,
        FileKind::Outputs => 2,
    }
}

pub(super) fn kind(code: Option<i16>) -> Result<Option<FileKind>, UtxoError> {
    match code {
        None => Ok(None),
        Some(1) => Ok(Some(FileKind::Tx)),
        Some(2) => Ok(Some(FileKind::Outputs)),
        Some(_) => Err(UtxoError::damaged("a kind of file", "it is unknown")),
    }
}

pub(super) fn count(stored: i32) -> Result<u32, UtxoError> {
    u32::try_from(stored).map_err(|_| UtxoError::damaged("a count", format!("it is {stored}")))
}

pub(super) fn counted(count: u32) -> Result<i32, UtxoError> {
    i32::try_from(count)
        .map_err(|_| UtxoError::Setting(format!("{count} is beyond what the store holds")))
}

pub(super) fn txid(bytes: &[u8]) -> Result<TxId, UtxoError> {
    bytes.try_into().map(TxId).map_err(|_| UtxoError::damaged("an id", "its length"))
}

fn height(stored: Option<i64>) -> Result<Option<u64>, UtxoError> {
    stored.map(codec::height).transpose()
}

/// A limit as a parameter.
pub(super) fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Ids as a parameter.
pub(super) fn bytes_of<'a>(txids: impl IntoIterator<Item = &'a TxId>) -> Vec<&'a [u8]> {
    txids.into_iter().map(|txid| txid.0.as_slice()).collect()
}

/// Reads a row of `lock!`.
fn decode(row: &tokio_postgres::Row) -> Result<Row, Trip> {
    let outputs = count(row.try_get(2).tried(READING)?)?;
    let spenders: Vec<u8> = row.try_get(13).tried(READING)?;
    let inputs: Option<&[u8]> = row.try_get(14).tried(READING)?;
    Ok(Row {
        id: row.try_get(0).tried(READING)?,
        txid: txid(row.try_get(1).tried(READING)?)?,
        outputs,
        spent: count(row.try_get(3).tried(READING)?)?,
        inputs: inputs.map(codec::decode_inputs).transpose()?.unwrap_or_default(),
        pages: BTreeMap::from([(0, Page::decode(spenders, outputs, 0)?)]),
        blocks: codec::decode_blocks(row.try_get(12).tried(READING)?)?,
        unmined_since: height(row.try_get(9).tried(READING)?)?,
        delete_at: height(row.try_get(10).tried(READING)?)?,
        preserve_until: height(row.try_get(11).tried(READING)?)?,
        coinbase: row.try_get(4).tried(READING)?,
        conflicting: row.try_get(5).tried(READING)?,
        spending: row.try_get(6).tried(READING)?,
        cut: row.try_get(7).tried(READING)?,
        external: kind(row.try_get(8).tried(READING)?)?,
    })
}

/// Locks the records of transactions that are here; those that say so come with their inputs.
pub(super) async fn lock_by_txid(
    transaction: &Transaction<'_>,
    wanted: &BTreeMap<TxId, bool>,
) -> Result<Vec<Row>, Trip> {
    let lock = transaction.prepare_cached(LOCK_BY_TXID).await.tried(READING)?;
    let children: Vec<bool> = wanted.values().copied().collect();
    let keys: [&(dyn ToSql + Sync); 2] = [&bytes_of(wanted.keys()), &children];
    let rows = transaction.query(&lock, &keys).await.tried(READING)?;
    rows.iter().map(decode).collect()
}

/// The same by the numbers of rows.
pub(super) async fn lock_by_id(
    transaction: &Transaction<'_>,
    wanted: &BTreeMap<i64, bool>,
) -> Result<Vec<Row>, Trip> {
    let lock = transaction.prepare_cached(LOCK_BY_ID).await.tried(READING)?;
    let (ids, children): (Vec<i64>, Vec<bool>) = wanted.iter().map(|(id, own)| (*id, *own)).unzip();
    let rows = transaction.query(&lock, &[&ids, &children]).await.tried(READING)?;
    rows.iter().map(decode).collect()
}

/// Loads the pages beyond the first that outputs are on. Their records are locked, so nobody else
/// changes them.
pub(super) async fn load_pages(
    transaction: &Transaction<'_>,
    rows: &mut [Row],
    outputs: impl IntoIterator<Item = OutPoint>,
) -> Result<(), Trip> {
    let mut at: HashMap<TxId, &mut Row> = rows.iter_mut().map(|row| (row.txid, row)).collect();
    let mut wanted = BTreeMap::new();
    for output in outputs {
        let (page, _) = place(output.n);
        let row = at.get(&output.txid).filter(|row| output.n < row.outputs && !row.cut);
        if let Some(row) = row.filter(|_| page > 0) {
            wanted.insert((row.id, counted(page)?), (output.txid, page));
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let (ids, pages): (Vec<i64>, Vec<i32>) = wanted.keys().copied().unzip();
    let load = transaction.prepare_cached(PAGES).await.tried(READING)?;
    for found in transaction.query(&load, &[&ids, &pages]).await.tried(READING)? {
        let key = (found.try_get(0).tried(READING)?, found.try_get(1).tried(READING)?);
        let Some((txid, page)) = wanted.remove(&key) else { continue };
        if let Some(row) = at.get_mut(&txid) {
            let bytes = found.try_get(2).tried(READING)?;
            row.pages.insert(page, Page::decode(bytes, row.outputs, page)?);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    Err(UtxoError::damaged("spenders", "a page is missing").into())
}

/// Executes a statement about so many rows, unless there are none.
pub(super) async fn execute(
    transaction: &Transaction<'_>,
    sql: &str,
    rows: usize,
    params: &[&(dyn ToSql + Sync)],
) -> Result<(), Trip> {
    if rows == 0 {
        return Ok(());
    }
    let statement = transaction.prepare_cached(sql).await.tried(WRITING)?;
    transaction.execute(&statement, params).await.map(drop).tried(WRITING)
}
