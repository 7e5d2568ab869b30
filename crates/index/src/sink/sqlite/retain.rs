//! Retention: the rows of old blocks go, some blocks at a time.

use rusqlite::{Connection, params};
use secateur_core::Height;

use super::columns::{Number, first_key};
use super::failed;
use super::refill::kept_from;
use super::write::{begin, cursor, put_meta};
use crate::IndexError;
use crate::sink::Retained;

/// Removes the rows of blocks below a time, oldest first, at most so many blocks. The block below
/// the cursor stays: the next one is checked against it.
pub(super) fn retain(
    connection: &mut Connection,
    cutoff: u64,
    max_blocks: u32,
) -> Result<Retained, IndexError> {
    let txn = begin(connection)?;
    let tip = cursor(&txn)?.and_then(|cursor| cursor.block_number.checked_sub(1)).unwrap_or(0);
    let mut due: Option<Height> = None;
    let (mut blocks, mut more) = (0u64, false);
    {
        let mut oldest = txn
            .prepare_cached(
                "SELECT number, ts FROM blocks WHERE number < ?1 ORDER BY number LIMIT ?2",
            )
            .map_err(failed)?;
        let limit = i64::from(max_blocks) + 1;
        let mut rows = oldest.query(params![Number(tip), limit]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let number = row.get::<_, Number>(0).map_err(failed)?.0;
            let ts = row.get::<_, Option<Number>>(1).map_err(failed)?;
            if ts.is_none_or(|ts| ts.0 >= cutoff) {
                break;
            }
            if blocks == u64::from(max_blocks) {
                more = true;
                break;
            }
            (due, blocks) = (Some(number), blocks + 1);
        }
    }
    let Some(last) = due else { return Ok(Retained::default()) };
    let above = last.saturating_add(1);
    let number = i64::try_from(above).unwrap_or(i64::MAX);
    let key = first_key(above);
    let mut gone = 0;
    for (table, column, bound) in
        [("logs", "id", key), ("txs", "id", key), ("blocks", "number", number)]
    {
        gone += txn
            .prepare_cached(&format!("DELETE FROM {table} WHERE {column} < ?1"))
            .map_err(failed)?
            .execute([bound])
            .map_err(failed)?;
    }
    // Blocks above may be missing too: a refill leaves out what is too old.
    let left: Option<Number> =
        txn.query_row("SELECT min(number) FROM blocks", [], |row| row.get(0)).map_err(failed)?;
    let kept = left.map_or(above, |Number(left)| left.max(above));
    let kept = kept.max(kept_from(&txn)?.unwrap_or(0));
    put_meta(&txn, "kept_from", &kept.to_string()).map_err(failed)?;
    txn.commit().map_err(failed)?;
    Ok(Retained { blocks, rows: gone as u64, more })
}
