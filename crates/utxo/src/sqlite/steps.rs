//! Steps that change records: rows are gathered, a slate changes them, and they go back, all in one
//! transaction.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use secateur_core::Height;

use crate::UtxoError;
use crate::codec;
use crate::rule::Rules;
use crate::slate::{Slate, unseen};
use crate::store::{Created, Preserved};
use crate::types::{NewTx, OutPoint, TxId};

use super::rows::{self, Want};
use super::{failed, read};

pub(super) const EXPIRED: &str =
    "SELECT txid FROM txs WHERE preserve_until <= ?1 ORDER BY preserve_until, id LIMIT ?2";
pub(super) const COUNT: &str = "INSERT INTO meta (key, value) VALUES ('records', ?1)
    ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + ?1";

pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, UtxoError> {
    connection.transaction().map_err(failed)
}

pub(super) fn commit(transaction: Transaction<'_>) -> Result<(), UtxoError> {
    transaction.commit().map_err(failed)
}

/// The next number of a row: one that was never used.
fn next_id(connection: &Connection) -> Result<i64, UtxoError> {
    let last: Option<i64> = connection
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'txs'", [], |row| row.get(0))
        .optional()
        .map_err(failed)?;
    Ok(last.unwrap_or(0) + 1)
}

/// Changes how many records there are.
pub(super) fn count(connection: &Connection, change: i64) -> Result<(), UtxoError> {
    connection
        .prepare_cached(COUNT)
        .and_then(|mut statement| statement.execute([change]))
        .map(drop)
        .map_err(failed)
}

pub(super) fn create(
    connection: &mut Connection,
    rules: Rules,
    txs: &[NewTx],
    height: Height,
) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
    let transaction = begin(connection)?;
    let known = txs.iter().map(|tx| tx.txid);
    let outputs = txs.iter().flat_map(|tx| tx.inputs.iter().copied());
    let found = rows::gather(&transaction, known, outputs)?;
    let mut pruned = Vec::new();
    for txid in unseen(txs, &found) {
        pruned.extend(read::pruned_at(&transaction, txid)?.map(|_| txid));
    }
    let mut slate = Slate::new(rules, height, found).knowing(pruned);
    let ids = next_id(&transaction)?..;
    let created: Vec<_> = txs.iter().zip(ids).map(|(tx, id)| slate.create(tx, id)).collect();
    rows::store(&transaction, &slate)?;
    let made = slate.made().count();
    if made > 0 {
        count(&transaction, i64::try_from(made).unwrap_or(i64::MAX))?;
    }
    commit(transaction)?;
    Ok(created)
}

/// A step about one transaction and those that it spends.
pub(super) fn with_parents(
    connection: &mut Connection,
    rules: Rules,
    height: Height,
    txid: TxId,
    step: impl FnOnce(&mut Slate) -> Result<(), UtxoError>,
) -> Result<(), UtxoError> {
    let transaction = begin(connection)?;
    let spends: Vec<OutPoint> = rows::load(&transaction, txid, Want::Inputs)?
        .map(|row| row.inputs.iter().map(|input| input.spends).collect())
        .unwrap_or_default();
    let found = rows::gather(&transaction, [txid], spends)?;
    let mut slate = Slate::new(rules, height, found);
    step(&mut slate)?;
    rows::store(&transaction, &slate)?;
    commit(transaction)
}

/// A step about each of these, all or none.
pub(super) fn for_each(
    connection: &mut Connection,
    rules: Rules,
    height: Height,
    txids: &[TxId],
    mut step: impl FnMut(&mut Slate, TxId) -> Result<(), UtxoError>,
) -> Result<(), UtxoError> {
    let transaction = begin(connection)?;
    let found = rows::gather(&transaction, txids.iter().copied(), [])?;
    let mut slate = Slate::new(rules, height, found);
    txids.iter().try_for_each(|txid| step(&mut slate, *txid))?;
    rows::store(&transaction, &slate)?;
    commit(transaction)
}

pub(super) fn preserve(
    connection: &mut Connection,
    rules: Rules,
    txids: &[TxId],
    until: Height,
) -> Result<Preserved, UtxoError> {
    let transaction = begin(connection)?;
    let mut found = Vec::with_capacity(txids.len());
    for txid in txids {
        found.extend(rows::load(&transaction, *txid, Want::Outputs)?);
    }
    let mut slate = Slate::new(rules, 0, found);
    let mut preserved = Preserved::default();
    for txid in txids {
        if slate.preserve(*txid, until) { preserved.kept += 1 } else { preserved.missing += 1 }
    }
    rows::store(&transaction, &slate)?;
    commit(transaction)?;
    Ok(preserved)
}

pub(super) fn expire(
    connection: &mut Connection,
    rules: Rules,
    height: Height,
    limit: usize,
) -> Result<u64, UtxoError> {
    let transaction = begin(connection)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let ended: Vec<TxId> = {
        let mut statement = transaction.prepare_cached(EXPIRED).map_err(failed)?;
        let rows = statement.query_map(params![codec::stored(height)?, limit], |row| row.get(0));
        rows.and_then(|rows| rows.map(|txid| txid.map(TxId)).collect()).map_err(failed)?
    };
    let mut found = Vec::with_capacity(ended.len());
    for txid in &ended {
        found.extend(rows::load(&transaction, *txid, Want::Outputs)?);
    }
    let mut slate = Slate::new(rules, height, found);
    for txid in &ended {
        slate.expire(*txid);
    }
    rows::store(&transaction, &slate)?;
    commit(transaction)?;
    Ok(ended.len() as u64)
}
