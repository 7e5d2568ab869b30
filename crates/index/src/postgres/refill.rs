//! Ranges below the cursor that are written again: gaps that are filled, and blocks that are decoded anew. All
//! rows of a block are replaced, in one transaction with what that takes out of `gaps`.

use std::collections::BTreeMap;

use secateur_core::Height;
use secateur_sql::postgres::{Client, Told as _, Transaction};

use super::encode::CopyRow as _;
use super::notes::{Counts, bytes, count, insert_gap};
use super::write::{bigint, copy_all, set_meta};
use super::{PostgresSink, decode, read};
use crate::sink::{below_cursor, leads_to, same_block};
use crate::{Batch, BlockRow, GapRow, IndexError};

const DOING: &str = "filling a range";
/// Why blocks between what a backfill has written and what was there before are missing.
const NOT_FILLED: &str = "below what the index began with, and not filled yet";
/// One that fills at a time, so that no two of them change the same gap.
const TURN: i64 = 0x5ec4_7e05;

/// Writes blocks below the cursor; how many of them are new is the answer.
pub(super) async fn refill(
    sink: &PostgresSink,
    first: Height,
    batch: &Batch,
) -> Result<u64, IndexError> {
    let past = batch.next.block_number;
    if !batch.rows.blocks.is_empty() {
        sink.make_ranges(first, past).await?;
    }
    let mut client = sink.client().await?;
    let result = refill_in(&mut client, first, batch).await;
    if result.is_err() {
        // A range that is missing after all is made before the next attempt.
        sink.forget_ranges();
    }
    result
}

async fn refill_in(client: &mut Client, first: Height, batch: &Batch) -> Result<u64, IndexError> {
    let past = batch.next.block_number;
    let range = (bigint(first)?, bigint(past)?);
    let transaction = client.transaction().await.told(DOING)?;
    let lock = "select pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&TURN]).await.told(DOING)?;
    let cursor = below_cursor(read::cursor(&transaction).await?, first, past)?;
    // Blocks that are too old were left out, and are not promised.
    let there = batch.rows.blocks.first().map_or(past, |block| block.number);
    let (kept, lowest) = (kept_from(&transaction).await?, lowest(&transaction).await?);
    // Only ever higher: an index that has removed nothing yet begins with its lowest block.
    if there > first && kept.or(lowest).is_none_or(|floor| floor < there) {
        set_meta(&transaction, "kept_from", &there.to_string()).await?;
    }
    if !batch.rows.blocks.is_empty() {
        // What retention has left begins lower now; the blocks between are missing like any others.
        let kept = kept.filter(|kept| there < *kept);
        if kept.is_some() {
            set_meta(&transaction, "kept_from", &there.to_string()).await?;
        }
        let floor = kept.or(lowest).unwrap_or(cursor);
        if let Some(block_to) = floor.checked_sub(1).filter(|to| *to >= first) {
            let reason = NOT_FILLED.to_owned();
            let gap = GapRow { block_from: first, block_to, reason, noted_at: batch.at };
            insert_gap(&transaction, &gap).await?;
        }
    }
    let known = blocks_between(&transaction, range).await?;
    let known: BTreeMap<_, _> = known.into_iter().map(|row| (row.number, row.hash)).collect();
    for row in &batch.rows.blocks {
        same_block(row.number, known.get(&row.number).copied().flatten(), row.hash)?;
    }
    if batch.rows.blocks.last().is_some_and(|last| last.number.saturating_add(1) == past) {
        let above = bigint(past.saturating_add(1))?;
        let above = blocks_between(&transaction, (range.1, above)).await?;
        leads_to(&batch.rows.blocks, above.first())?;
    }
    delete(&transaction, range).await?;
    if !copy_all(&transaction, &batch.rows).await? {
        return Err(IndexError::busy_sink(format!(
            "blocks {first} to below {past} are being written by another worker, too; they were not changed"
        )));
    }
    shrink_gaps(&transaction, first, past, range).await?;
    let (mut new, mut raw) = (0u64, 0u64);
    let rows = batch.rows.blocks.iter().enumerate();
    for (at, _) in rows.filter(|(_, row)| !known.contains_key(&row.number)) {
        new += 1;
        raw = raw.saturating_add(batch.raw_bytes.get(at).copied().unwrap_or(0));
    }
    if new > 0 {
        let blocks = i64::try_from(new).unwrap_or(i64::MAX);
        let counts = Counts { blocks, raw: bytes(raw)?, ..Counts::default() };
        count(&transaction, batch.at, counts).await?;
    }
    transaction.commit().await.told(DOING)?;
    Ok(new)
}

async fn blocks_between(
    transaction: &Transaction<'_>,
    (first, past): (i64, i64),
) -> Result<Vec<BlockRow>, IndexError> {
    let sql =
        format!("select {} from blocks where number >= $1 and number < $2", BlockRow::COLUMNS);
    read::query(transaction, &sql, &[&first, &past], decode::block).await
}

/// The first block that retention has left, if it has removed any.
async fn kept_from(transaction: &Transaction<'_>) -> Result<Option<Height>, IndexError> {
    let select = "select value::bigint from meta where key = 'kept_from' for update";
    let row = transaction.query_opt(select, &[]).await.told(DOING)?;
    let kept: Option<i64> = row.map(|row| row.try_get(0)).transpose().told(DOING)?;
    Ok(kept.map(i64::unsigned_abs))
}

/// The lowest block that is there, or is noted as missing.
async fn lowest(transaction: &Transaction<'_>) -> Result<Option<Height>, IndexError> {
    let sql = "select least((select min(number) from blocks), (select min(block_from) from gaps))";
    let row = transaction.query_one(sql, &[]).await.told(DOING)?;
    let lowest: Option<i64> = row.try_get(0).told(DOING)?;
    Ok(lowest.and_then(|height| u64::try_from(height).ok()))
}

/// Removes the rows of blocks, in the order in which a worker writes.
async fn delete(
    transaction: &Transaction<'_>,
    (first, past): (i64, i64),
) -> Result<(), IndexError> {
    for sql in [
        "delete from blocks where number >= $1 and number < $2",
        "delete from txs where block_number >= $1 and block_number < $2",
        "delete from logs where block_number >= $1 and block_number < $2",
    ] {
        let delete = transaction.prepare_cached(sql).await.told(DOING)?;
        transaction.execute(&delete, &[&first, &past]).await.told(DOING)?;
    }
    Ok(())
}

/// Takes the blocks from `first` to below `past` out of `gaps`.
async fn shrink_gaps(
    transaction: &Transaction<'_>,
    first: Height,
    past: Height,
    (from, to): (i64, i64),
) -> Result<(), IndexError> {
    let delete = format!(
        "delete from gaps where block_from < $2 and block_to >= $1 returning {}",
        decode::GAP_COLUMNS
    );
    for gap in read::query(transaction, &delete, &[&from, &to], decode::gap).await? {
        for left in gap.without(first, past) {
            insert_gap(transaction, &left).await?;
        }
    }
    Ok(())
}

/// Moves `logs_since` down where the blocks below it have their logs now.
pub(super) async fn logs_filled(
    client: &mut Client,
    logs: &str,
    first: Height,
    past: Height,
) -> Result<(), IndexError> {
    let transaction = client.transaction().await.told(DOING)?;
    let chosen = "select 1 from meta where key = 'logs' and value = $1 for update";
    if transaction.query_opt(chosen, &[&logs]).await.told(DOING)?.is_none() {
        // Others were chosen meanwhile: these are not what the index keeps now.
        return Ok(());
    }
    let select = "select value from meta where key = 'logs_since' for update";
    let row = transaction.query_opt(select, &[]).await.told(DOING)?;
    let since: Option<String> = row.map(|row| row.try_get(0)).transpose().told(DOING)?;
    let since = since.and_then(|text| text.parse::<Height>().ok()).unwrap_or(0);
    if first < since && past >= since {
        set_meta(&transaction, "logs_since", &first.to_string()).await?;
    }
    Ok(transaction.commit().await.told(DOING)?)
}
