//! Rows as they come back. A value that the index should never hold is an error, not a panic.

use alloy_primitives::{Address, B256};
use secateur_core::{BlockHash, TxId};
use secateur_sql::postgres::Told as _;
use tokio_postgres::Row;

use super::numeric::Numeric;
use crate::{BlockRow, DailyRow, GapRow, IndexError, LogRow, PartRow, TxRow};

const DOING: &str = "reading rows";

/// The columns of [`daily`], with days as numbers.
pub(super) const DAILY_COLUMNS: &str = "day - date '1970-01-01', raw_bytes, compressed_bytes, \
                                        growth_bytes, blocks_ingested, errors";
/// The columns of [`part`].
pub(super) const PART_COLUMNS: &str = "block_from, block_to, provider, object_key, codec, \
                                       size_bytes, sha256, parent_hash, last_hash";
/// The columns of [`gap`].
pub(super) const GAP_COLUMNS: &str = "block_from, block_to, reason, noted_at";

fn odd(at: usize) -> IndexError {
    IndexError::sink(format!("column {at} of a row does not read back: rebuild the index"))
}

fn bytes<const N: usize>(row: &Row, at: usize) -> Result<Option<[u8; N]>, IndexError> {
    let bytes: Option<&[u8]> = row.try_get(at).told(DOING)?;
    bytes.map(|bytes| bytes.try_into().map_err(|_| odd(at))).transpose()
}

fn fixed<const N: usize>(row: &Row, at: usize) -> Result<[u8; N], IndexError> {
    bytes(row, at)?.ok_or_else(|| odd(at))
}

fn bigint(row: &Row, at: usize) -> Result<u64, IndexError> {
    let value: i64 = row.try_get(at).told(DOING)?;
    u64::try_from(value).map_err(|_| odd(at))
}

fn integer(row: &Row, at: usize) -> Result<u32, IndexError> {
    let value: i32 = row.try_get(at).told(DOING)?;
    u32::try_from(value).map_err(|_| odd(at))
}

fn whole(row: &Row, at: usize) -> Result<Option<u64>, IndexError> {
    let value: Option<Numeric> = row.try_get(at).told(DOING)?;
    value.map(|Numeric(value)| u64::try_from(value).map_err(|_| odd(at))).transpose()
}

fn text(row: &Row, at: usize) -> Result<String, IndexError> {
    Ok(row.try_get(at).told(DOING)?)
}

/// A block.
pub(super) fn block(row: &Row) -> Result<BlockRow, IndexError> {
    let ts: Option<i64> = row.try_get(3).told(DOING)?;
    Ok(BlockRow {
        number: bigint(row, 0)?,
        hash: bytes(row, 1)?.map(BlockHash),
        parent_hash: bytes(row, 2)?.map(BlockHash),
        ts: ts.map(|ts| u64::try_from(ts).map_err(|_| odd(3))).transpose()?,
        tx_count: integer(row, 4)?,
    })
}

/// 1 or 0.
fn status(row: &Row, at: usize) -> Result<Option<bool>, IndexError> {
    match row.try_get::<_, Option<i16>>(at).told(DOING)? {
        None => Ok(None),
        Some(0) => Ok(Some(false)),
        Some(1) => Ok(Some(true)),
        Some(_) => Err(odd(at)),
    }
}

/// A transaction.
pub(super) fn tx(row: &Row) -> Result<TxRow, IndexError> {
    let value: Option<Numeric> = row.try_get(6).told(DOING)?;
    Ok(TxRow {
        hash: TxId(fixed(row, 0)?),
        block_number: bigint(row, 1)?,
        tx_index: integer(row, 2)?,
        from: bytes(row, 3)?.map(Address::new),
        to: bytes(row, 4)?.map(Address::new),
        nonce: whole(row, 5)?,
        value: value.map(|Numeric(value)| value),
        gas: whole(row, 7)?,
        status: status(row, 8)?,
        gas_used: whole(row, 9)?,
        contract_address: bytes(row, 10)?.map(Address::new),
    })
}

/// A log.
pub(super) fn log(row: &Row) -> Result<LogRow, IndexError> {
    let topic = |at| bytes(row, at).map(|topic| topic.map(B256::new));
    Ok(LogRow {
        block_number: bigint(row, 0)?,
        log_index: integer(row, 1)?,
        tx_index: integer(row, 2)?,
        tx_hash: TxId(fixed(row, 3)?),
        address: Address::new(fixed(row, 4)?),
        topics: [topic(5)?, topic(6)?, topic(7)?, topic(8)?],
        data: row.try_get(9).told(DOING)?,
    })
}

/// An archive part.
pub(super) fn part(row: &Row) -> Result<PartRow, IndexError> {
    Ok(PartRow {
        block_from: bigint(row, 0)?,
        block_to: bigint(row, 1)?,
        provider: text(row, 2)?,
        object_key: text(row, 3)?,
        codec: text(row, 4)?,
        size_bytes: bigint(row, 5)?,
        sha256: fixed(row, 6)?,
        parent_hash: BlockHash(fixed(row, 7)?),
        last_hash: BlockHash(fixed(row, 8)?),
    })
}

/// A gap.
pub(super) fn gap(row: &Row) -> Result<GapRow, IndexError> {
    Ok(GapRow {
        block_from: bigint(row, 0)?,
        block_to: bigint(row, 1)?,
        reason: text(row, 2)?,
        noted_at: bigint(row, 3)?,
    })
}

/// A day.
pub(super) fn daily(row: &Row) -> Result<DailyRow, IndexError> {
    Ok(DailyRow {
        day: integer(row, 0)?,
        raw_bytes: bigint(row, 1)?,
        compressed_bytes: bigint(row, 2)?,
        growth_bytes: row.try_get(3).told(DOING)?,
        blocks_ingested: bigint(row, 4)?,
        errors: bigint(row, 5)?,
    })
}
