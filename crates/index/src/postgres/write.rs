//! Writes. A batch goes by binary COPY straight into the index; rows, cursor and counts in one
//! transaction. If some of it is there already (a unique key says so), that transaction is undone and
//! the batch goes into staging tables of the connection first and from there, with what is there left
//! alone, into the index. What is left alone is compared: another block at the same height is an
//! error, never silence.

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use secateur_core::{Cursor, Height};
use secateur_sql::postgres::{Client, Told as _, Transaction};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::PostgresSink;
use super::encode::{Copy, CopyRow, too_large};
use super::notes::{Counts, bytes, count};
use crate::{Batch, BlockRow, IndexError, LogRow, Rows, TxRow, cursor_from_json, cursor_to_json};

const DOING: &str = "writing a batch";
/// Bytes that are sent at once.
const PIECE: usize = 256 << 10;
/// The turn of those who write into an index that has no cursor yet.
pub(super) const FIRST_WRITE: i64 = 0x5ec4_7e04;

/// What must still hold when a batch is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fence {
    /// The batch goes on where the cursor is.
    Cursor,
    /// That, and this is still the one who follows the head.
    Head {
        /// The epoch that was given.
        epoch: i64,
        /// How long it is held from now on.
        seconds: f64,
    },
    /// The lease is still this one's; the cursor moves when it is done.
    Lease {
        /// The lease's first block.
        first: i64,
        /// The epoch that was given.
        epoch: i64,
        /// How long it is held from now on.
        seconds: f64,
    },
}

/// What the fence says to a batch.
pub(super) enum Stand {
    /// It was written before.
    Known,
    /// It is to be written, and the cursor moved.
    Write,
    /// It is to be written; with `done` the lease ends here.
    WriteLease { done: bool },
}

/// How rows come in.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Nothing of them is there: the usual case.
    Straight,
    /// Some may be.
    Staged,
}

/// What became of a batch.
enum Outcome {
    /// All of it is in the index.
    Written,
    /// Nothing was changed, because some of it is in the index already.
    SomeIsThere,
}

/// A height as a column holds it.
pub(super) fn bigint(height: Height) -> Result<i64, IndexError> {
    i64::try_from(height).map_err(|_| too_large("block number", height))
}

/// Refuses a batch whose rows are not those of consecutive blocks up to its cursor.
fn first_of(batch: &Batch) -> Result<Height, IndexError> {
    let next = batch.next;
    let wrong = |why: String| Err(IndexError::InvalidCursor(why));
    if next != Cursor::at_block(next.block_number) {
        return wrong(format!("the batch ends inside block {}", next.block_number));
    }
    let first = batch.rows.blocks.first().map_or(next.block_number, |block| block.number);
    let mut expected = first;
    for block in &batch.rows.blocks {
        if block.number != expected {
            return wrong(format!("block {} stands where {expected} belongs", block.number));
        }
        expected = expected.saturating_add(1);
    }
    if expected != next.block_number {
        return wrong(format!(
            "the batch ends before block {expected}, and says {}",
            next.block_number
        ));
    }
    let txs = batch.rows.txs.iter().map(|row| row.block_number);
    let logs = batch.rows.logs.iter().map(|row| row.block_number);
    match txs.chain(logs).find(|number| !(first..expected).contains(number)) {
        Some(number) => wrong(format!("a row of block {number} is in the batch, the block is not")),
        None => Ok(first),
    }
}

/// Writes a batch in one transaction.
pub(super) async fn commit(
    sink: &PostgresSink,
    batch: &Batch,
    fence: &Fence,
) -> Result<(), IndexError> {
    let first = first_of(batch)?;
    if !batch.rows.blocks.is_empty() {
        sink.make_ranges(first, batch.next.block_number).await?;
    }
    let mut client = sink.client().await?;
    let mut result = commit_in(&mut client, batch, first, fence, Way::Straight).await;
    if matches!(result, Ok(Outcome::SomeIsThere)) {
        stage(&client).await?;
        result = commit_in(&mut client, batch, first, fence, Way::Staged).await;
    }
    if result.is_err() {
        // A range that is missing after all is made before the next attempt.
        sink.forget_ranges();
    }
    result.map(|_| ())
}

async fn commit_in(
    client: &mut Client,
    batch: &Batch,
    first: Height,
    fence: &Fence,
    way: Way,
) -> Result<Outcome, IndexError> {
    let transaction = client.transaction().await.told(DOING)?;
    let past = batch.next.block_number;
    let stand = stand(&transaction, fence, first, past).await?;
    if matches!(stand, Stand::Known) && matches!(fence, Fence::Lease { .. }) {
        transaction.rollback().await.told(DOING)?;
        return Ok(Outcome::Written);
    }
    let new = match way {
        Way::Straight => {
            if matches!(stand, Stand::Known) || !copy_all(&transaction, &batch.rows).await? {
                transaction.rollback().await.told(DOING)?;
                return Ok(Outcome::SomeIsThere);
            }
            batch.rows.blocks.iter().map(|block| block.number).collect()
        }
        Way::Staged => put_all(&transaction, &batch.rows, (bigint(first)?, bigint(past)?)).await?,
    };
    move_on(&transaction, &stand, batch.next).await?;
    if let Some(head) = batch.head {
        set_meta(&transaction, "last_head", &head.to_string()).await?;
    }
    set_meta(&transaction, "last_ingest_at", &batch.at.to_string()).await?;
    if !new.is_empty() {
        count(&transaction, batch.at, counts_of(batch, first, &new)?).await?;
    }
    transaction.commit().await.told(DOING)?;
    Ok(Outcome::Written)
}

/// What the day gains: the blocks that were not there, with their bytes.
fn counts_of(batch: &Batch, first: Height, new: &[Height]) -> Result<Counts, IndexError> {
    let of = |number: &Height| {
        let place = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        batch.raw_bytes.get(place).copied().unwrap_or(0)
    };
    let blocks = i64::try_from(new.len()).unwrap_or(i64::MAX);
    Ok(Counts { blocks, raw: bytes(new.iter().map(of).sum())?, ..Counts::default() })
}

/// Moves the cursor: behind the batch, or over the leases that are done without a hole.
pub(super) async fn move_on(
    transaction: &Transaction<'_>,
    stand: &Stand,
    next: Cursor,
) -> Result<(), IndexError> {
    match stand {
        Stand::Known | Stand::WriteLease { done: false } => Ok(()),
        Stand::Write => set_meta(transaction, "cursor", &cursor_to_json(next)).await,
        Stand::WriteLease { done: true } => {
            let advance = transaction.prepare_cached("select secateur_advance_cursor()").await;
            transaction.query_one(&advance.told(DOING)?, &[]).await.told(DOING)?;
            Ok(())
        }
    }
}

/// Compares the batch with where the index is, and holds that place until the end.
pub(super) async fn stand(
    transaction: &Transaction<'_>,
    fence: &Fence,
    first: Height,
    past: Height,
) -> Result<Stand, IndexError> {
    match *fence {
        Fence::Lease { first: lease, epoch, seconds } => {
            return leased(transaction, (lease, epoch, seconds), first, past).await;
        }
        Fence::Head { epoch, seconds } => {
            let hold = "update head_lease set expires_at = clock_timestamp() + \
                make_interval(secs => $2) where epoch = $1";
            let hold = transaction.prepare_cached(hold).await.told(DOING)?;
            let held = transaction.execute(&hold, &[&epoch, &seconds]).await.told(DOING)?;
            if held == 0 {
                return Err(IndexError::Refused(
                    "another worker follows the head by now".to_owned(),
                ));
            }
        }
        Fence::Cursor => {}
    }
    let Some(cursor) = locked_cursor(transaction).await? else { return Ok(Stand::Write) };
    if first > cursor.block_number {
        return Err(IndexError::InvalidCursor(format!(
            "the batch begins at block {first}, and the index goes on at block {}",
            cursor.block_number
        )));
    }
    Ok(if past <= cursor.block_number { Stand::Known } else { Stand::Write })
}

/// The cursor, which nobody else moves until the end of the transaction.
pub(super) async fn locked_cursor(
    transaction: &Transaction<'_>,
) -> Result<Option<Cursor>, IndexError> {
    let select = "select value from meta where key = 'cursor' for update";
    let select = transaction.prepare_cached(select).await.told(DOING)?;
    let mut row = transaction.query_opt(&select, &[]).await.told(DOING)?;
    if row.is_none() {
        // There is no row to hold yet. Whoever is second finds the first one's.
        let lock = "select pg_advisory_xact_lock($1)";
        transaction.execute(lock, &[&FIRST_WRITE]).await.told(DOING)?;
        row = transaction.query_opt(&select, &[]).await.told(DOING)?;
    }
    let Some(row) = row else { return Ok(None) };
    let text: String = row.try_get(0).told(DOING)?;
    cursor_from_json(&text).map(Some).map_err(|error| IndexError::stored(&error))
}

/// Moves the lease on, if it is still held.
async fn leased(
    transaction: &Transaction<'_>,
    (lease, epoch, seconds): (i64, i64, f64),
    first: Height,
    past: Height,
) -> Result<Stand, IndexError> {
    let (from, to) = (bigint(first)?, bigint(past)?);
    let update = "update leases set next = $4, \
        expires_at = clock_timestamp() + make_interval(secs => $5) \
        where first = $1 and epoch = $2 and next = $3 and past >= $4 returning past = $4";
    let update = transaction.prepare_cached(update).await.told(DOING)?;
    let values: [&(dyn ToSql + Sync); 5] = [&lease, &epoch, &from, &to, &seconds];
    if let Some(row) = transaction.query_opt(&update, &values).await.told(DOING)? {
        return Ok(Stand::WriteLease { done: row.try_get(0).told(DOING)? });
    }
    // A commit whose answer got lost is found here when it is tried again.
    let select = "select next from leases where first = $1 and epoch = $2";
    let row = transaction.query_opt(select, &[&lease, &epoch]).await.told(DOING)?;
    match row.map(|row| row.try_get::<_, i64>(0)).transpose().told(DOING)? {
        Some(next) if next >= to => Ok(Stand::Known),
        Some(next) => Err(IndexError::InvalidCursor(format!(
            "the batch holds blocks {first} to below {past}, and the lease goes on at block {next}"
        ))),
        None => Err(IndexError::Refused(format!(
            "the lease of the blocks from {lease} on was taken over by another worker, or is done"
        ))),
    }
}

/// The staging tables of this connection.
pub(super) async fn stage(client: &Client) -> Result<(), IndexError> {
    let sql = "create temp table if not exists stage_blocks (like blocks) on commit delete rows; \
        create temp table if not exists stage_txs (like txs) on commit delete rows; \
        create temp table if not exists stage_logs (like logs) on commit delete rows";
    Ok(client.batch_execute(sql).await.told(DOING)?)
}

/// Sends rows into their table, or into one of its kind with a prefix. Whether all of them were new is
/// the answer; if not, the transaction can only be rolled back.
async fn copy<R: CopyRow>(
    transaction: &Transaction<'_>,
    prefix: &str,
    rows: &[R],
) -> Result<bool, IndexError> {
    if rows.is_empty() {
        return Ok(true);
    }
    let sql = format!("copy {prefix}{} ({}) from stdin (format binary)", R::TABLE, R::COLUMNS);
    let statement = transaction.prepare_cached(&sql).await.told(DOING)?;
    let mut sink = pin!(transaction.copy_in::<_, Bytes>(&statement).await.told(DOING)?);
    let mut copy = Copy::new();
    for row in rows {
        row.put(&mut copy)?;
        if copy.len() >= PIECE {
            sink.feed(copy.take().freeze()).await.told(DOING)?;
        }
    }
    copy.end();
    sink.feed(copy.take().freeze()).await.told(DOING)?;
    match sink.finish().await {
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(false),
        other => Ok(other.told(DOING).map(|_| true)?),
    }
}

/// Sends all rows of some blocks straight into the index; whether all of them were new is the answer.
pub(super) async fn copy_all(
    transaction: &Transaction<'_>,
    rows: &Rows,
) -> Result<bool, IndexError> {
    Ok(copy(transaction, "", &rows.blocks).await?
        && copy(transaction, "", &rows.txs).await?
        && copy(transaction, "", &rows.logs).await?)
}

/// Takes over what is staged; gives back the block of each row that was new.
async fn take_over<R: CopyRow>(
    transaction: &Transaction<'_>,
    rows: &[R],
    range: (i64, i64),
) -> Result<Vec<Height>, IndexError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    copy(transaction, "stage_", rows).await?;
    let (table, columns, number) = (R::TABLE, R::COLUMNS, R::NUMBER);
    let insert = format!(
        "insert into {table} ({columns}) select {columns} from stage_{table} \
         on conflict do nothing returning {number}"
    );
    let insert = transaction.prepare_cached(&insert).await.told(DOING)?;
    let new = transaction.query(&insert, &[]).await.told(DOING)?;
    if new.len() < rows.len() {
        compare::<R>(transaction, range).await?;
    }
    let height = |row: &Row| row.try_get::<_, i64>(0).told(DOING).map(i64::unsigned_abs);
    Ok(new.iter().map(height).collect::<Result<_, _>>()?)
}

/// Refuses if something else is stored where a staged row belongs.
async fn compare<R: CopyRow>(
    transaction: &Transaction<'_>,
    (first, past): (i64, i64),
) -> Result<(), IndexError> {
    let (table, columns, number) = (R::TABLE, R::COLUMNS, R::NUMBER);
    let sql = format!(
        "select {number} from (
            select {columns} from stage_{table}
            except
            select {columns} from {table} where {number} >= $1 and {number} < $2
        ) other order by 1 limit 1"
    );
    let statement = transaction.prepare_cached(&sql).await.told(DOING)?;
    let row = transaction.query_opt(&statement, &[&first, &past]).await.told(DOING)?;
    let Some(row) = row else { return Ok(()) };
    let number: i64 = row.try_get(0).told(DOING)?;
    Err(IndexError::sink(format!(
        "block {number} is in the index already, with other {table} than the source has; nothing \
         was changed. The chain was reorganised below what was final, or the index is of another \
         chain: rebuild it in a fresh database"
    )))
}

/// Puts all rows of some blocks in; gives back the blocks that were new.
pub(super) async fn put_all(
    transaction: &Transaction<'_>,
    rows: &Rows,
    range: (i64, i64),
) -> Result<Vec<Height>, IndexError> {
    let new = take_over::<BlockRow>(transaction, &rows.blocks, range).await?;
    take_over::<TxRow>(transaction, &rows.txs, range).await?;
    take_over::<LogRow>(transaction, &rows.logs, range).await?;
    Ok(new)
}

/// Sets a value of `meta`.
pub(super) async fn set_meta(
    transaction: &Transaction<'_>,
    key: &str,
    value: &str,
) -> Result<(), IndexError> {
    let upsert = "insert into meta (key, value) values ($1, $2) \
        on conflict (key) do update set value = excluded.value";
    let upsert = transaction.prepare_cached(upsert).await.told(DOING)?;
    transaction.execute(&upsert, &[&key, &value]).await.told(DOING)?;
    Ok(())
}
