//! Sealed rows: every value in the index carries a checksum over its table, key and body, so a
//! flipped bit or a misplaced row is an error and never an answer.

use std::ops::ControlFlow;

use crate::ground::{Snapshot, Table};
use crate::{StoreError, error::row_error};
use secateur_core::Reader;

const SEAL_LEN: usize = 4;

fn seal_of(table: Table, key: &[u8], body: &[u8]) -> [u8; SEAL_LEN] {
    let crc = crc32c::crc32c(&[table as u8]);
    let crc = crc32c::crc32c_append(crc, key);
    crc32c::crc32c_append(crc, body).to_be_bytes()
}

/// The value to store for `body`.
pub(crate) fn seal(table: Table, key: &[u8], mut body: Vec<u8>) -> Vec<u8> {
    let seal = seal_of(table, key, &body);
    body.extend_from_slice(&seal);
    body
}

/// The body of a stored value, if its seal is whole.
pub(crate) fn unseal<'a>(
    table: Table,
    key: &[u8],
    value: &'a [u8],
) -> Result<&'a [u8], StoreError> {
    match value.split_last_chunk::<SEAL_LEN>() {
        Some((body, seal)) if *seal == seal_of(table, key, body) => Ok(body),
        _ => Err(StoreError::corrupt(table.name(), "a row's checksum does not match")),
    }
}

/// Reading sealed rows from any snapshot.
pub trait Rows: Snapshot {
    /// The body of one row.
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut value) = self.get(table, key)? else {
            return Ok(None);
        };
        let len = unseal(table, key, &value)?.len();
        value.truncate(len);
        Ok(Some(value))
    }

    /// The body of the last row whose key is smaller than `bound`.
    fn row_before(&self, table: Table, bound: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((key, value)) = self.before(table, bound)? else {
            return Ok(None);
        };
        unseal(table, &key, &value).map(|body| Some(body.to_vec()))
    }

    /// Visits the bodies of the rows from `from` on.
    fn rows(
        &self,
        table: Table,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        self.scan(table, from, &mut |key, value| visit(key, unseal(table, key, value)?))
    }
}

impl<S: Snapshot + ?Sized> Rows for S {}

/// Reads a key that is one big-endian `u64`.
pub(crate) fn u64_key(table: Table, key: &[u8]) -> Result<u64, StoreError> {
    let mut reader = Reader::new("row key", key);
    let number = reader.u64().map_err(row_error(table.name()))?;
    reader.finish().map_err(row_error(table.name()))?;
    Ok(number)
}
