//! How a value is spelled in a column, and read back.
//!
//! Numbers are integers; SQLite's are 63 bits and a sign, so the few that may be larger (a nonce, a
//! gas limit) are decimal text there. Values of a chain's currency are always decimal text. Hashes
//! and addresses are blobs.

use alloy_primitives::{Address, B256, U256};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use secateur_core::{BlockHash, Height, TxId};

use crate::sink::Place;
use crate::{BlockRow, GapRow, IndexError, LogRow, PartRow, TxRow};

/// Places in a block are below this.
const PLACES: u32 = 1 << 24;
/// Heights are below this, so that height and place fit one integer.
const HEIGHTS: u64 = 1 << 39;

/// The key of a place: ordered as the chain is.
pub(super) fn key(block_number: Height, index: u32) -> Result<i64, IndexError> {
    if block_number >= HEIGHTS || index >= PLACES {
        return Err(IndexError::sink(format!(
            "place {index} of block {block_number} is beyond what this index can number"
        )));
    }
    // Both bounds together leave the sign free.
    Ok(i64::try_from(block_number << 24 | u64::from(index)).unwrap_or(i64::MAX))
}

/// The key below which a page begins; past all keys where none is given.
pub(super) fn key_before(place: Option<Place>) -> i64 {
    place.map_or(i64::MAX, |place| {
        let block = place.block_number.min(HEIGHTS - 1);
        i64::try_from(block << 24 | u64::from(place.index.min(PLACES - 1))).unwrap_or(i64::MAX)
    })
}

/// The first key of a block.
pub(super) fn first_key(block_number: Height) -> i64 {
    i64::try_from(block_number.min(HEIGHTS) << 24).unwrap_or(i64::MAX)
}

/// A number of any size up to 64 bits.
pub(super) struct Number(pub(super) u64);

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value =
            i64::try_from(self.0).map_or_else(|_| Value::Text(self.0.to_string()), Value::Integer);
        Ok(ToSqlOutput::Owned(value))
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(number) => {
                u64::try_from(number).map(Self).map_err(|_| FromSqlError::OutOfRange(number))
            }
            ValueRef::Text(_) => {
                value.as_str()?.parse().map(Self).map_err(|_| FromSqlError::InvalidType)
            }
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

/// Bytes of a known length.
struct Fixed<const N: usize>([u8; N]);

impl<const N: usize> FromSql for Fixed<N> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let blob = value.as_blob()?;
        blob.try_into()
            .map(Self)
            .map_err(|_| FromSqlError::InvalidBlobSize { expected_size: N, blob_size: blob.len() })
    }
}

/// An amount as decimal text.
struct Amount(U256);

impl FromSql for Amount {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        U256::from_str_radix(value.as_str()?, 10).map(Self).map_err(|_| FromSqlError::InvalidType)
    }
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, Number>(at).map(|number| number.0)
}

fn bytes<const N: usize>(row: &Row<'_>, at: usize) -> rusqlite::Result<[u8; N]> {
    row.get::<_, Fixed<N>>(at).map(|fixed| fixed.0)
}

fn some_bytes<const N: usize>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<[u8; N]>> {
    Ok(row.get::<_, Option<Fixed<N>>>(at)?.map(|fixed| fixed.0))
}

fn some_number(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<Number>>(at)?.map(|number| number.0))
}

pub(super) const BLOCK: &str = "number, hash, parent_hash, ts, tx_count";

pub(super) fn block(row: &Row<'_>) -> rusqlite::Result<BlockRow> {
    Ok(BlockRow {
        number: number(row, 0)?,
        hash: some_bytes(row, 1)?.map(BlockHash),
        parent_hash: some_bytes(row, 2)?.map(BlockHash),
        ts: some_number(row, 3)?,
        tx_count: row.get(4)?,
    })
}

pub(super) const TX: &str = "hash, block_number, tx_index, \"from\", \"to\", nonce, value, gas, \
                             status, gas_used, contract_address";

pub(super) fn tx(row: &Row<'_>) -> rusqlite::Result<TxRow> {
    Ok(TxRow {
        hash: TxId(bytes(row, 0)?),
        block_number: number(row, 1)?,
        tx_index: row.get(2)?,
        from: some_bytes(row, 3)?.map(Address::new),
        to: some_bytes(row, 4)?.map(Address::new),
        nonce: some_number(row, 5)?,
        value: row.get::<_, Option<Amount>>(6)?.map(|amount| amount.0),
        gas: some_number(row, 7)?,
        status: row.get(8)?,
        gas_used: some_number(row, 9)?,
        contract_address: some_bytes(row, 10)?.map(Address::new),
    })
}

pub(super) const LOG: &str = "block_number, log_index, tx_index, tx_hash, address, topic0, \
                              topic1, topic2, topic3, data";

pub(super) fn log(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    let topic = |at| some_bytes(row, at).map(|topic| topic.map(B256::new));
    Ok(LogRow {
        block_number: number(row, 0)?,
        log_index: row.get(1)?,
        tx_index: row.get(2)?,
        tx_hash: TxId(bytes(row, 3)?),
        address: Address::new(bytes(row, 4)?),
        topics: [topic(5)?, topic(6)?, topic(7)?, topic(8)?],
        data: row.get(9)?,
    })
}

pub(super) const PART: &str = "block_from, block_to, provider, object_key, codec, size_bytes, \
                               sha256, parent_hash, last_hash";

pub(super) fn part(row: &Row<'_>) -> rusqlite::Result<PartRow> {
    Ok(PartRow {
        block_from: number(row, 0)?,
        block_to: number(row, 1)?,
        provider: row.get(2)?,
        object_key: row.get(3)?,
        codec: row.get(4)?,
        size_bytes: number(row, 5)?,
        sha256: bytes(row, 6)?,
        parent_hash: BlockHash(bytes(row, 7)?),
        last_hash: BlockHash(bytes(row, 8)?),
    })
}

pub(super) const GAP: &str = "block_from, block_to, reason, noted_at";

pub(super) fn gap(row: &Row<'_>) -> rusqlite::Result<GapRow> {
    Ok(GapRow {
        block_from: number(row, 0)?,
        block_to: number(row, 1)?,
        reason: row.get(2)?,
        noted_at: number(row, 3)?,
    })
}
