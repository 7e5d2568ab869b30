//! Batches into the file. One transaction holds the rows and the cursor behind them; whoever else
//! moved the cursor in between is noticed.

use alloy_primitives::B256;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use secateur_core::{Cursor, Height};

use super::columns::{self, Number, key};
use super::{daily, failed};
use crate::sink::Identity;
use crate::{Batch, BlockRow, GapRow, IndexError, Rows, cursor_from_json, cursor_to_json};

pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, IndexError> {
    connection.transaction().map_err(failed)
}

pub(super) fn get_meta(
    connection: &Connection,
    key: &str,
) -> Result<Option<String>, rusqlite::Error> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

pub(super) fn put_meta(
    connection: &Connection,
    key: &str,
    value: &str,
) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute([key, value])
        .map(drop)
}

/// Where to go on.
pub(super) fn cursor(connection: &Connection) -> Result<Option<Cursor>, IndexError> {
    let text = get_meta(connection, "cursor").map_err(failed)?;
    text.map(|text| cursor_from_json(&text).map_err(|error| IndexError::stored(&error))).transpose()
}

/// The block below the cursor.
pub(super) fn tip(connection: &Connection) -> Result<Option<BlockRow>, IndexError> {
    let Some(below) = cursor(connection)?.and_then(|cursor| cursor.block_number.checked_sub(1))
    else {
        return Ok(None);
    };
    let sql = format!("SELECT {} FROM blocks WHERE number = ?1", columns::BLOCK);
    connection.query_row(&sql, [Number(below)], columns::block).optional().map_err(failed)
}

/// Whose index this is: chain, codec, logs.
pub(super) fn identity(connection: &Connection) -> Result<[Option<String>; 3], rusqlite::Error> {
    let known = |key| get_meta(connection, key);
    Ok([known("chain_id")?, known("codec")?, known("logs")?])
}

/// Notes whose index this is, or refuses.
pub(super) fn bind(connection: &mut Connection, identity: &Identity) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    for (key, value) in
        [("chain_id", identity.chain_id.to_string()), ("codec", identity.codec.clone())]
    {
        match get_meta(&txn, key).map_err(failed)? {
            None => put_meta(&txn, key, &value).map_err(failed)?,
            Some(known) if known == value => {}
            Some(known) => {
                return Err(IndexError::Refused(format!(
                    "this index has {key} {known}, and the source has {value}; use another file"
                )));
            }
        }
    }
    // Other logs than before begin where the cursor is; what is below keeps what it has.
    if get_meta(&txn, "logs").map_err(failed)?.as_ref() != Some(&identity.logs) {
        let since = cursor(&txn)?.map_or(0, |cursor| cursor.block_number);
        put_meta(&txn, "logs", &identity.logs).map_err(failed)?;
        put_meta(&txn, "logs_since", &since.to_string()).map_err(failed)?;
    }
    txn.commit().map_err(failed)
}

/// Writes a batch.
pub(super) fn commit(connection: &mut Connection, batch: &Batch) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    let mut next = batch.next;
    if let Some((first, cursor)) = again_from(&txn, batch)? {
        // Some of it was written before: it is replaced, and the cursor does not go back.
        super::refill::replace(&txn, first, batch)?;
        if cursor.block_number > next.block_number {
            next = cursor;
        }
    } else {
        insert_rows(&txn, &batch.rows)?;
        let blocks = batch.rows.blocks.len() as u64;
        let raw = batch.raw_bytes.iter().sum();
        daily::count(&txn, batch.at, "raw_bytes", raw).map_err(failed)?;
        daily::count(&txn, batch.at, "blocks_ingested", blocks).map_err(failed)?;
    }
    put_meta(&txn, "cursor", &cursor_to_json(next)).map_err(failed)?;
    put_meta(&txn, "last_ingest_at", &batch.at.to_string()).map_err(failed)?;
    if let Some(head) = batch.head {
        put_meta(&txn, "last_head", &head.to_string()).map_err(failed)?;
    }
    txn.commit().map_err(failed)
}

/// Where a batch begins, and where the index is, if it begins below that. One that begins above is refused:
/// it would leave a hole that no row in `gaps` names.
fn again_from(
    txn: &Transaction<'_>,
    batch: &Batch,
) -> Result<Option<(Height, Cursor)>, IndexError> {
    let first = batch.rows.blocks.first().map(|block| block.number);
    let (Some(cursor), Some(first)) = (cursor(txn)?, first) else { return Ok(None) };
    if first > cursor.block_number {
        return Err(IndexError::sink(format!(
            "the index stands at block {}, the batch begins at block {first}; another worker \
             writes here. Stop one of them; the batch was not written",
            cursor.block_number
        )));
    }
    Ok((first < cursor.block_number).then_some((first, cursor)))
}

pub(super) fn insert_rows(txn: &Transaction<'_>, rows: &Rows) -> Result<(), IndexError> {
    let mut insert = txn
        .prepare_cached(
            "INSERT INTO blocks (number, hash, parent_hash, ts, tx_count)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .map_err(failed)?;
    for row in &rows.blocks {
        let hash = row.hash.as_ref().map(|hash| hash.0.as_slice());
        let parent_hash = row.parent_hash.as_ref().map(|hash| hash.0.as_slice());
        insert
            .execute(params![
                Number(row.number),
                hash,
                parent_hash,
                row.ts.map(Number),
                row.tx_count
            ])
            .map_err(failed)?;
    }
    insert_txs(txn, rows)?;
    insert_logs(txn, rows)
}

fn insert_txs(txn: &Transaction<'_>, rows: &Rows) -> Result<(), IndexError> {
    let mut insert = txn
        .prepare_cached(
            "INSERT INTO txs (id, hash, block_number, tx_index, \"from\", \"to\", nonce, value, \
             gas, status, gas_used, contract_address)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )
        .map_err(failed)?;
    for row in &rows.txs {
        let value = row.value.map(|value| value.to_string());
        insert
            .execute(params![
                key(row.block_number, row.tx_index)?,
                row.hash.0.as_slice(),
                Number(row.block_number),
                row.tx_index,
                row.from.as_ref().map(|address| address.as_slice()),
                row.to.as_ref().map(|address| address.as_slice()),
                row.nonce.map(Number),
                value,
                row.gas.map(Number),
                row.status,
                row.gas_used.map(Number),
                row.contract_address.as_ref().map(|address| address.as_slice()),
            ])
            .map_err(failed)?;
    }
    Ok(())
}

fn insert_logs(txn: &Transaction<'_>, rows: &Rows) -> Result<(), IndexError> {
    if rows.logs.is_empty() {
        return Ok(());
    }
    let mut insert = txn
        .prepare_cached(
            "INSERT INTO logs (id, block_number, log_index, tx_index, tx_hash, address, topic0, \
             topic1, topic2, topic3, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )
        .map_err(failed)?;
    for row in &rows.logs {
        let [topic0, topic1, topic2, topic3] =
            row.topics.each_ref().map(|topic| topic.as_ref().map(B256::as_slice));
        insert
            .execute(params![
                key(row.block_number, row.log_index)?,
                Number(row.block_number),
                row.log_index,
                row.tx_index,
                row.tx_hash.0.as_slice(),
                row.address.as_slice(),
                topic0,
                topic1,
                topic2,
                topic3,
                row.data.as_slice(),
            ])
            .map_err(failed)?;
    }
    Ok(())
}

/// Notes a gap and moves the cursor behind it.
pub(super) fn record_gap(
    connection: &mut Connection,
    gap: &GapRow,
    next: Cursor,
) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    super::refill::put_gap(&txn, gap)?;
    put_meta(&txn, "cursor", &cursor_to_json(next)).map_err(failed)?;
    txn.commit().map_err(failed)
}
