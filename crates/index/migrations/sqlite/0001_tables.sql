-- Transactions and logs are kept in the order of the chain: `id` is block × 2²⁴ + place, so a page of an
-- index entry's rows is read in order, and old blocks go from one end. Columns that may hold 64 bits have
-- no type: SQLite would make a float of text that is a number. docs/format/index-schema.md says what each
-- column means.

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
