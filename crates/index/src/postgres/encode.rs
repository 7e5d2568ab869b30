//! Rows as binary COPY: a head, each row as its fields with their lengths, an end. What is sent is
//! put together here; who sends it, and where to, is `write`'s business.

use alloy_primitives::B256;
use bytes::{BufMut as _, BytesMut};

use super::numeric;
use crate::{BlockRow, IndexError, LogRow, TxRow};

/// A number that PostgreSQL's column does not hold.
pub(super) fn too_large(what: &str, value: impl std::fmt::Display) -> IndexError {
    IndexError::sink(format!("{what} {value} is beyond what the index holds; nothing was written"))
}

/// Signature, flags and the length of an extension that is not there.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What goes over the wire, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Copy(BytesMut);

impl Copy {
    /// Begins a copy.
    pub(super) fn new() -> Self {
        let mut copy = Self(BytesMut::new());
        copy.0.put_slice(HEAD);
        copy
    }

    /// How much waits.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes what waits.
    pub(super) fn take(&mut self) -> BytesMut {
        self.0.split()
    }

    /// Ends the copy.
    pub(super) fn end(&mut self) {
        self.0.put_i16(-1);
    }

    fn row(&mut self, fields: i16) {
        self.0.put_i16(fields);
    }

    fn null(&mut self) {
        self.0.put_i32(-1);
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let length = i32::try_from(bytes.len())
            .map_err(|_| too_large("a field of so many bytes:", bytes.len()))?;
        self.0.put_i32(length);
        self.0.put_slice(bytes);
        Ok(())
    }

    fn maybe_bytes(&mut self, bytes: Option<&[u8]>) -> Result<(), IndexError> {
        let Some(bytes) = bytes else {
            self.null();
            return Ok(());
        };
        self.bytes(bytes)
    }

    fn bigint(&mut self, what: &str, value: u64) -> Result<(), IndexError> {
        let value = i64::try_from(value).map_err(|_| too_large(what, value))?;
        self.0.put_i32(8);
        self.0.put_i64(value);
        Ok(())
    }

    fn integer(&mut self, what: &str, value: u32) -> Result<(), IndexError> {
        let value = i32::try_from(value).map_err(|_| too_large(what, value))?;
        self.0.put_i32(4);
        self.0.put_i32(value);
        Ok(())
    }

    /// A truth as 1 or 0.
    fn status(&mut self, value: Option<bool>) {
        match value {
            Some(value) => {
                self.0.put_i32(2);
                self.0.put_i16(i16::from(value));
            }
            None => self.null(),
        }
    }

    fn numeric(&mut self, value: Option<alloy_primitives::U256>) {
        let Some(value) = value else { return self.null() };
        let (number, length) = numeric::encoded(value);
        let number = number.get(..length).unwrap_or_default();
        self.0.put_i32(i32::try_from(length).unwrap_or_default());
        self.0.put_slice(number);
    }

    fn whole(&mut self, value: Option<u64>) {
        self.numeric(value.map(alloy_primitives::U256::from));
    }
}

/// A row that can be copied: into which columns, and how.
pub(super) trait CopyRow {
    /// The table.
    const TABLE: &'static str;
    /// Its columns, in the order in which [`CopyRow::put`] writes them.
    const COLUMNS: &'static str;
    /// The column of the block's number.
    const NUMBER: &'static str = "block_number";

    /// Puts it behind the others.
    fn put(&self, copy: &mut Copy) -> Result<(), IndexError>;
}

impl CopyRow for BlockRow {
    const TABLE: &'static str = "blocks";
    const COLUMNS: &'static str = "number, hash, parent_hash, ts, tx_count";
    const NUMBER: &'static str = "number";

    fn put(&self, copy: &mut Copy) -> Result<(), IndexError> {
        copy.row(5);
        copy.bigint("block number", self.number)?;
        copy.maybe_bytes(self.hash.as_ref().map(|hash| hash.0.as_slice()))?;
        copy.maybe_bytes(self.parent_hash.as_ref().map(|hash| hash.0.as_slice()))?;
        match self.ts {
            Some(ts) => copy.bigint("timestamp", ts)?,
            None => copy.null(),
        }
        copy.integer("count of transactions", self.tx_count)
    }
}

impl CopyRow for TxRow {
    const TABLE: &'static str = "txs";
    const COLUMNS: &'static str = "hash, block_number, tx_index, \"from\", \"to\", nonce, value, \
                                   gas, status, gas_used, contract_address";

    fn put(&self, copy: &mut Copy) -> Result<(), IndexError> {
        copy.row(11);
        copy.bytes(&self.hash.0)?;
        copy.bigint("block number", self.block_number)?;
        copy.integer("place of a transaction", self.tx_index)?;
        copy.maybe_bytes(self.from.as_ref().map(|address| address.as_slice()))?;
        copy.maybe_bytes(self.to.as_ref().map(|address| address.as_slice()))?;
        copy.whole(self.nonce);
        copy.numeric(self.value);
        copy.whole(self.gas);
        copy.status(self.status);
        copy.whole(self.gas_used);
        copy.maybe_bytes(self.contract_address.as_ref().map(|address| address.as_slice()))
    }
}

impl CopyRow for LogRow {
    const TABLE: &'static str = "logs";
    const COLUMNS: &'static str = "block_number, log_index, tx_index, tx_hash, address, topic0, \
                                   topic1, topic2, topic3, data";

    fn put(&self, copy: &mut Copy) -> Result<(), IndexError> {
        copy.row(10);
        copy.bigint("block number", self.block_number)?;
        copy.integer("place of a log", self.log_index)?;
        copy.integer("place of a transaction", self.tx_index)?;
        copy.bytes(&self.tx_hash.0)?;
        copy.bytes(self.address.as_slice())?;
        for topic in &self.topics {
            copy.maybe_bytes(topic.as_ref().map(B256::as_slice))?;
        }
        copy.bytes(&self.data)
    }
}
