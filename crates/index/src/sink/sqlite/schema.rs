//! The tables of an SQLite index, and the version of their shape
//! (`docs/format/index-schema.md`).

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::failed;
use crate::IndexError;

/// The shape that this build reads and writes.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Marks the file as one of ours (`PRAGMA application_id`): "sect".
const APPLICATION_ID: i32 = 0x7365_6374;

/// Transactions and logs are kept in the order of the chain: `id` is block × 2²⁴ + place, so a page
/// of an index entry's rows is read in order, and old blocks go from one end. Columns that may hold
/// 64 bits have no type: SQLite would make a float of text that is a number.
const TABLES: &str = r#"
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE blocks (
    number INTEGER PRIMARY KEY,
    hash BLOB,
    parent_hash BLOB,
    ts INTEGER,
    tx_count INTEGER NOT NULL
);
CREATE INDEX blocks_hash ON blocks (hash);

CREATE TABLE txs (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL,
    block_number INTEGER NOT NULL,
    tx_index INTEGER NOT NULL,
    "from" BLOB,
    "to" BLOB,
    nonce,
    value TEXT,
    gas,
    status INTEGER,
    gas_used,
    contract_address BLOB
);
CREATE INDEX txs_hash ON txs (hash);
CREATE INDEX txs_block_number ON txs (block_number);
CREATE INDEX txs_from ON txs ("from") WHERE "from" IS NOT NULL;
CREATE INDEX txs_to ON txs ("to") WHERE "to" IS NOT NULL;
CREATE INDEX txs_contract ON txs (contract_address) WHERE contract_address IS NOT NULL;

CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    block_number INTEGER NOT NULL,
    log_index INTEGER NOT NULL,
    tx_index INTEGER NOT NULL,
    tx_hash BLOB NOT NULL,
    address BLOB NOT NULL,
    topic0 BLOB,
    topic1 BLOB,
    topic2 BLOB,
    topic3 BLOB,
    data BLOB NOT NULL
);
CREATE INDEX logs_address ON logs (address);
CREATE INDEX logs_address_topic0 ON logs (address, topic0);
CREATE INDEX logs_topic0 ON logs (topic0);

CREATE TABLE archive_parts (
    block_from INTEGER PRIMARY KEY,
    block_to INTEGER NOT NULL,
    provider TEXT NOT NULL,
    object_key TEXT NOT NULL,
    codec TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    parent_hash BLOB NOT NULL,
    last_hash BLOB NOT NULL
);

CREATE TABLE gaps (
    block_from INTEGER PRIMARY KEY,
    block_to INTEGER NOT NULL,
    reason TEXT NOT NULL,
    noted_at INTEGER NOT NULL
);

CREATE TABLE metrics_daily (
    day TEXT PRIMARY KEY,
    raw_bytes INTEGER NOT NULL DEFAULT 0,
    compressed_bytes INTEGER NOT NULL DEFAULT 0,
    sqlite_growth_bytes INTEGER NOT NULL DEFAULT 0,
    blocks_ingested INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"#;

/// Makes the tables if the file is new; refuses a file of another kind or of a newer version.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), IndexError> {
    let txn = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| failed(&error))?;
    let empty: bool = txn
        .query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| failed(&error))?;
    if empty {
        txn.execute_batch(TABLES).map_err(|error| failed(&error))?;
        txn.pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(|error| failed(&error))?;
        txn.execute(
            "INSERT INTO meta (key, value) VALUES ('schema_version', ?1)",
            [SCHEMA_VERSION.to_string()],
        )
        .map_err(|error| failed(&error))?;
    }
    check(&txn)?;
    txn.commit().map_err(|error| failed(&error))
}

/// Refuses a file that is not an index, or one of a version that this build does not know.
pub(super) fn check(connection: &Connection) -> Result<(), IndexError> {
    let id: i32 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(|error| failed(&error))?;
    if id != APPLICATION_ID {
        return Err(IndexError::Refused("this SQLite file is not an index of Secateur".into()));
    }
    let version: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE key = 'schema_version'", [], |row| row.get(0))
        .optional()
        .map_err(|error| failed(&error))?;
    let version = version.and_then(|text| text.parse::<u32>().ok());
    match version {
        Some(SCHEMA_VERSION) => Ok(()),
        Some(version) => Err(IndexError::Refused(format!(
            "the index has schema version {version}, this build knows {SCHEMA_VERSION}; use a \
             newer build, or drop the index and build it again"
        ))),
        None => Err(IndexError::sink("the index does not say which schema version it has")),
    }
}
