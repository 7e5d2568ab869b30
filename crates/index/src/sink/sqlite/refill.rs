//! Blocks that are written again: a batch that was written before, and ranges below the cursor that are
//! filled or decoded anew. All rows of a block are replaced, so that twice is the same as once.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use secateur_core::Height;

use super::columns::{self, BLOCK, GAP, Number, first_key};
use super::write::{begin, cursor, get_meta, insert_rows, put_meta};
use super::{daily, failed};
use crate::sink::{below_cursor, leads_to, same_block};
use crate::{Batch, BlockRow, GapRow, IndexError};

/// Why blocks between what a backfill has written and what was there before are missing.
const NOT_FILLED: &str = "below what the index began with, and not filled yet";

/// Writes blocks below the cursor.
pub(super) fn refill(
    connection: &mut Connection,
    first: Height,
    batch: &Batch,
) -> Result<u64, IndexError> {
    let past = batch.next.block_number;
    let txn = begin(connection)?;
    let cursor = below_cursor(cursor(&txn)?, first, past)?;
    // Blocks that are too old were left out, and are not promised.
    let there = batch.rows.blocks.first().map_or(past, |block| block.number);
    let (kept, lowest) = (kept_from(&txn)?, lowest(&txn)?);
    // Only ever higher: an index that has removed nothing yet begins with its lowest block.
    if there > first && kept.or(lowest).is_none_or(|floor| floor < there) {
        put_meta(&txn, "kept_from", &there.to_string()).map_err(failed)?;
    }
    if !batch.rows.blocks.is_empty() {
        // What retention has left begins lower now; the blocks between are missing like any others.
        let kept = kept.filter(|kept| there < *kept);
        if kept.is_some() {
            put_meta(&txn, "kept_from", &there.to_string()).map_err(failed)?;
        }
        let floor = kept.or(lowest).unwrap_or(cursor);
        if let Some(block_to) = floor.checked_sub(1).filter(|to| *to >= first) {
            let reason = NOT_FILLED.to_owned();
            put_gap(&txn, &GapRow { block_from: first, block_to, reason, noted_at: batch.at })?;
        }
    }
    let new = replace(&txn, first, batch)?;
    txn.commit().map_err(failed)?;
    Ok(new)
}

/// Puts the rows of a batch in the place of those that are there, shrinks `gaps`, and counts what is new to
/// its day. How many blocks are new is the answer.
pub(super) fn replace(
    txn: &Transaction<'_>,
    first: Height,
    batch: &Batch,
) -> Result<u64, IndexError> {
    let past = batch.next.block_number;
    let known = blocks_between(txn, first, past)?;
    let known: BTreeMap<_, _> = known.into_iter().map(|row| (row.number, row.hash)).collect();
    for row in &batch.rows.blocks {
        same_block(row.number, known.get(&row.number).copied().flatten(), row.hash)?;
    }
    if batch.rows.blocks.last().is_some_and(|last| last.number.saturating_add(1) == past) {
        let above = blocks_between(txn, past, past.saturating_add(1))?;
        leads_to(&batch.rows.blocks, above.first())?;
    }
    let keys = [first_key(first), first_key(past)];
    for sql in [
        "DELETE FROM logs WHERE id >= ?1 AND id < ?2",
        "DELETE FROM txs WHERE id >= ?1 AND id < ?2",
    ] {
        txn.prepare_cached(sql).map_err(failed)?.execute(keys).map_err(failed)?;
    }
    txn.prepare_cached("DELETE FROM blocks WHERE number >= ?1 AND number < ?2")
        .map_err(failed)?
        .execute([Number(first), Number(past)])
        .map_err(failed)?;
    insert_rows(txn, &batch.rows)?;
    shrink_gaps(txn, first, past)?;
    let is_new = |row: &BlockRow| !known.contains_key(&row.number);
    let (mut new, mut raw) = (0u64, 0u64);
    for (at, _) in batch.rows.blocks.iter().enumerate().filter(|(_, row)| is_new(row)) {
        new += 1;
        raw = raw.saturating_add(batch.raw_bytes.get(at).copied().unwrap_or(0));
    }
    daily::count(txn, batch.at, "raw_bytes", raw).map_err(failed)?;
    daily::count(txn, batch.at, "blocks_ingested", new).map_err(failed)?;
    Ok(new)
}

fn blocks_between(
    txn: &Transaction<'_>,
    first: Height,
    past: Height,
) -> Result<Vec<BlockRow>, IndexError> {
    let sql =
        format!("SELECT {BLOCK} FROM blocks WHERE number >= ?1 AND number < ?2 ORDER BY number");
    let read = || {
        txn.prepare_cached(&sql)?
            .query_map([Number(first), Number(past)], columns::block)?
            .collect::<Result<_, _>>()
    };
    read().map_err(failed)
}

/// The first block that retention has left, if it has removed any.
pub(super) fn kept_from(txn: &Transaction<'_>) -> Result<Option<Height>, IndexError> {
    let text = get_meta(txn, "kept_from").map_err(failed)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// The lowest block that is there, or is noted as missing.
fn lowest(txn: &Transaction<'_>) -> Result<Option<Height>, IndexError> {
    let read = |sql: &str| -> Result<Option<Height>, IndexError> {
        let found: Option<Option<Number>> =
            txn.query_row(sql, [], |row| row.get(0)).optional().map_err(failed)?;
        Ok(found.flatten().map(|Number(number)| number))
    };
    let (block, gap) =
        (read("SELECT min(number) FROM blocks")?, read("SELECT min(block_from) FROM gaps")?);
    Ok(block.into_iter().chain(gap).min())
}

/// Notes a gap; one that begins at the same block grows.
pub(super) fn put_gap(txn: &Transaction<'_>, gap: &GapRow) -> Result<(), IndexError> {
    let insert = "INSERT INTO gaps (block_from, block_to, reason, noted_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (block_from) DO UPDATE SET block_to = max(block_to, excluded.block_to)";
    let (from, to) = (Number(gap.block_from), Number(gap.block_to));
    txn.execute(insert, params![from, to, gap.reason, Number(gap.noted_at)])
        .map(drop)
        .map_err(failed)
}

/// Takes the blocks from `first` to below `past` out of `gaps`.
fn shrink_gaps(txn: &Transaction<'_>, first: Height, past: Height) -> Result<(), IndexError> {
    let sql = format!("SELECT {GAP} FROM gaps WHERE block_from < ?2 AND block_to >= ?1");
    let over: Vec<GapRow> = {
        let mut select = txn.prepare_cached(&sql).map_err(failed)?;
        let rows = select.query_map([Number(first), Number(past)], columns::gap).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)?
    };
    for gap in over {
        txn.execute("DELETE FROM gaps WHERE block_from = ?1", [Number(gap.block_from)])
            .map_err(failed)?;
        for left in gap.without(first, past) {
            put_gap(txn, &left)?;
        }
    }
    Ok(())
}

/// Moves `logs_since` down where the blocks below it have their logs now.
pub(super) fn logs_filled(
    connection: &mut Connection,
    logs: &str,
    first: Height,
    past: Height,
) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    // Others were chosen meanwhile: these are not what the index keeps now.
    if get_meta(&txn, "logs").map_err(failed)?.as_deref() != Some(logs) {
        return Ok(());
    }
    let since = get_meta(&txn, "logs_since").map_err(failed)?;
    let since = since.and_then(|text| text.parse::<Height>().ok()).unwrap_or(0);
    if first < since && past >= since {
        put_meta(&txn, "logs_since", &first.to_string()).map_err(failed)?;
    }
    txn.commit().map_err(failed)
}
