//! What is written beside the rows: whose index it is, gaps, parts, what went wrong, the day's
//! counts, and what is due from time to time. Rows and the cursor behind them are `write`'s.

use secateur_core::Cursor;
use secateur_sql::postgres::{Client, Told as _, Transaction};
use tokio_postgres::types::ToSql;

use super::encode::too_large;
use super::write::{FIRST_WRITE, Fence, bigint, move_on, set_meta, stand};
use super::{PostgresSink, promote, read};
use crate::sink::{Identity, Note, Retained};
use crate::{GapRow, IndexError, PartRow, day_of};

const DOING: &str = "writing notes";
const PART: &str = "noting a part";

/// A count of bytes as a column holds it.
pub(super) fn bytes(count: u64) -> Result<i64, IndexError> {
    i64::try_from(count).map_err(|_| too_large("bytes", count))
}

/// What is added to a day.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) blocks: i64,
    pub(super) raw: i64,
    pub(super) compressed: i64,
    pub(super) errors: i64,
}

/// The day of a time, as PostgreSQL counts from 1970 on.
fn day(at: u64) -> Result<i32, IndexError> {
    i32::try_from(day_of(at)).map_err(|_| too_large("time", at))
}

/// Adds to a day.
pub(super) async fn count(
    transaction: &Transaction<'_>,
    at: u64,
    add: Counts,
) -> Result<(), IndexError> {
    let upsert = "insert into metrics_daily as m
        (day, blocks_ingested, raw_bytes, compressed_bytes, errors)
        values (date '1970-01-01' + $1::integer, $2, $3, $4, $5)
        on conflict (day) do update set
            blocks_ingested = m.blocks_ingested + excluded.blocks_ingested,
            raw_bytes = m.raw_bytes + excluded.raw_bytes,
            compressed_bytes = m.compressed_bytes + excluded.compressed_bytes,
            errors = m.errors + excluded.errors";
    let upsert = transaction.prepare_cached(upsert).await.told(DOING)?;
    let values: [&(dyn ToSql + Sync); 5] =
        [&day(at)?, &add.blocks, &add.raw, &add.compressed, &add.errors];
    transaction.execute(&upsert, &values).await.told(DOING)?;
    Ok(())
}

/// Notes whose index this is, or refuses.
pub(super) async fn bind(client: &mut Client, identity: &Identity) -> Result<(), IndexError> {
    let transaction = client.transaction().await.told("binding the index")?;
    let lock = "select pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&FIRST_WRITE]).await.told("binding the index")?;
    promote::refuse_half(&transaction).await?;
    let meta = read::meta_in(&transaction).await?;
    let Identity { chain_id, codec, logs } = identity;
    if let Some(other) = meta.chain_id.filter(|known| known != chain_id) {
        return Err(IndexError::Refused(format!(
            "the index holds chain {other}, and the source is of chain {chain_id}"
        )));
    }
    if let Some(other) = meta.codec.filter(|known| known != codec) {
        return Err(IndexError::Refused(format!(
            "the index was made with the codec {other}, and the worker has {codec}"
        )));
    }
    set_meta(&transaction, "chain_id", &chain_id.to_string()).await?;
    set_meta(&transaction, "codec", codec).await?;
    // Other logs than before begin behind every block that is there, also those that several workers have
    // written above the cursor; what is below keeps what it has.
    if meta.logs.as_ref() != Some(logs) {
        let newest = transaction.query_one("select max(number) from blocks", &[]).await;
        let newest: Option<i64> = newest.told(DOING)?.try_get(0).told(DOING)?;
        let past = newest.map_or(0, |number| number.unsigned_abs().saturating_add(1));
        let since = meta.cursor.map_or(0, |cursor| cursor.block_number).max(past);
        set_meta(&transaction, "logs", logs).await?;
        set_meta(&transaction, "logs_since", &since.to_string()).await?;
    }
    Ok(transaction.commit().await.told("binding the index")?)
}

/// Notes a gap and moves the cursor, or the lease, behind it.
pub(super) async fn record_gap(
    sink: &PostgresSink,
    gap: &GapRow,
    next: Cursor,
    fence: &Fence,
) -> Result<(), IndexError> {
    let mut client = sink.client().await?;
    let transaction = client.transaction().await.told(DOING)?;
    let stand = stand(&transaction, fence, gap.block_from, next.block_number).await?;
    insert_gap(&transaction, gap).await?;
    move_on(&transaction, &stand, next).await?;
    Ok(transaction.commit().await.told(DOING)?)
}

/// Notes a gap; one that begins at the same block grows.
pub(super) async fn insert_gap(
    transaction: &Transaction<'_>,
    gap: &GapRow,
) -> Result<(), IndexError> {
    let insert = "insert into gaps (block_from, block_to, reason, noted_at) \
        values ($1, $2, $3, $4) on conflict (block_from) do update \
        set block_to = greatest(gaps.block_to, excluded.block_to)";
    let noted_at = bigint(gap.noted_at)?;
    let (from, to) = (bigint(gap.block_from)?, bigint(gap.block_to)?);
    let values: [&(dyn ToSql + Sync); 4] = [&from, &to, &gap.reason, &noted_at];
    transaction.execute(insert, &values).await.told(DOING)?;
    Ok(())
}

/// Notes what is known of the source, and what went wrong.
pub(super) async fn note(client: &mut Client, note: &Note) -> Result<(), IndexError> {
    let transaction = client.transaction().await.told(DOING)?;
    if let Some(head) = note.head {
        set_meta(&transaction, "last_head", &head.to_string()).await?;
    }
    if let Some((class, message)) = &note.error {
        let error = serde_json::json!({ "at": note.at, "class": class.name(), "message": message });
        set_meta(&transaction, "last_error", &error.to_string()).await?;
        count(&transaction, note.at, Counts { errors: 1, ..Counts::default() }).await?;
    }
    Ok(transaction.commit().await.told(DOING)?)
}

/// Notes an archive part.
pub(super) async fn add_part(
    client: &mut Client,
    part: &PartRow,
    at: u64,
) -> Result<(), IndexError> {
    let transaction = client.transaction().await.told(PART)?;
    if insert_part(&transaction, part).await? {
        let compressed = bytes(part.size_bytes)?;
        count(&transaction, at, Counts { compressed, ..Counts::default() }).await?;
    }
    Ok(transaction.commit().await.told(PART)?)
}

/// Puts a part in, or compares it with the one that is there; says whether it is new.
pub(super) async fn insert_part(
    transaction: &Transaction<'_>,
    part: &PartRow,
) -> Result<bool, IndexError> {
    let insert = "insert into archive_parts (block_from, block_to, provider, object_key, codec, \
        size_bytes, sha256, parent_hash, last_hash) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
        on conflict (block_from) do nothing";
    let values: [&(dyn ToSql + Sync); 9] = [
        &bigint(part.block_from)?,
        &bigint(part.block_to)?,
        &part.provider,
        &part.object_key,
        &part.codec,
        &bytes(part.size_bytes)?,
        &part.sha256.as_slice(),
        &part.parent_hash.0.as_slice(),
        &part.last_hash.0.as_slice(),
    ];
    if transaction.execute(insert, &values).await.told(PART)? > 0 {
        return Ok(true);
    }
    if read::parts(transaction, part.block_from, 1).await?.first() == Some(part) {
        return Ok(false);
    }
    Err(IndexError::Refused(format!(
        "another part than {} begins at block {} already",
        part.object_key, part.block_from
    )))
}

/// Forgets an archive part.
pub(super) async fn forget_part(client: &Client, block_from: u64) -> Result<(), IndexError> {
    let delete = "delete from archive_parts where block_from = $1";
    client.execute(delete, &[&bigint(block_from)?]).await.told(PART)?;
    Ok(())
}

/// Drops the oldest range if it is due.
pub(super) async fn retain(client: &Client, cutoff: u64) -> Result<Retained, IndexError> {
    const DOING: &str = "dropping old ranges";
    let cutoff = i64::try_from(cutoff).unwrap_or(i64::MAX);
    let row =
        client.query_one("select * from secateur_retain($1)", &[&cutoff]).await.told(DOING)?;
    let number = |at: usize| row.try_get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(Retained {
        blocks: number(0).told(DOING)?,
        rows: number(1).told(DOING)?,
        more: row.try_get(2).told(DOING)?,
    })
}

/// Makes ranges ahead of the cursor and notes the day's growth.
pub(super) async fn maintain(client: &Client, at: u64) -> Result<(), IndexError> {
    const DOING: &str = "maintaining the index";
    client.execute("select secateur_make_ahead()", &[]).await.told(DOING)?;
    let note = "select secateur_note_growth(date '1970-01-01' + $1::integer)";
    client.execute(note, &[&day(at)?]).await.told(DOING)?;
    Ok(())
}
