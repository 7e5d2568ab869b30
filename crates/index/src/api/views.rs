//! Rows as JSON. Heights and counts are numbers; hashes, addresses and bytes are `0x…`; amounts are
//! decimal text, because they do not fit a number.

use alloy_primitives::hex;
use serde::Serialize;

use crate::sink::IndexMeta;
use crate::worker::Health;
use crate::{BlockRow, DailyRow, GapRow, LogRow, PartRow, TxRow, day_text};

#[derive(Debug, Serialize)]
pub(super) struct BlockView {
    number: u64,
    hash: Option<String>,
    parent_hash: Option<String>,
    timestamp: Option<u64>,
    tx_count: u32,
}

impl From<BlockRow> for BlockView {
    fn from(row: BlockRow) -> Self {
        Self {
            number: row.number,
            hash: row.hash.map(|hash| hash.to_string()),
            parent_hash: row.parent_hash.map(|hash| hash.to_string()),
            timestamp: row.ts,
            tx_count: row.tx_count,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct TxView {
    hash: String,
    block_number: u64,
    tx_index: u32,
    from: Option<String>,
    to: Option<String>,
    nonce: Option<u64>,
    value: Option<String>,
    gas: Option<u64>,
    status: Option<bool>,
    gas_used: Option<u64>,
    contract_address: Option<String>,
}

impl From<TxRow> for TxView {
    fn from(row: TxRow) -> Self {
        let shown = |address: Option<alloy_primitives::Address>| address.map(hex::encode_prefixed);
        Self {
            hash: row.hash.to_string(),
            block_number: row.block_number,
            tx_index: row.tx_index,
            from: shown(row.from),
            to: shown(row.to),
            nonce: row.nonce,
            value: row.value.map(|value| value.to_string()),
            gas: row.gas,
            status: row.status,
            gas_used: row.gas_used,
            contract_address: shown(row.contract_address),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LogView {
    block_number: u64,
    log_index: u32,
    tx_index: u32,
    tx_hash: String,
    address: String,
    topics: Vec<String>,
    data: String,
}

impl From<LogRow> for LogView {
    fn from(row: LogRow) -> Self {
        Self {
            block_number: row.block_number,
            log_index: row.log_index,
            tx_index: row.tx_index,
            tx_hash: row.tx_hash.to_string(),
            address: hex::encode_prefixed(row.address),
            topics: row.topics.iter().flatten().map(hex::encode_prefixed).collect(),
            data: hex::encode_prefixed(row.data),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PartView {
    first: u64,
    last: u64,
    provider: String,
    key: String,
    codec: String,
    size: u64,
    sha256: String,
    parent_hash: String,
    last_hash: String,
}

impl From<PartRow> for PartView {
    fn from(row: PartRow) -> Self {
        Self {
            first: row.block_from,
            last: row.block_to,
            provider: row.provider,
            key: row.object_key,
            codec: row.codec,
            size: row.size_bytes,
            sha256: hex::encode(row.sha256),
            parent_hash: row.parent_hash.to_string(),
            last_hash: row.last_hash.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct GapView {
    first: u64,
    last: u64,
    reason: String,
    noted_at: u64,
}

impl From<GapRow> for GapView {
    fn from(row: GapRow) -> Self {
        let GapRow { block_from, block_to, reason, noted_at } = row;
        Self { first: block_from, last: block_to, reason, noted_at }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct DayView {
    day: String,
    raw_bytes: u64,
    compressed_bytes: u64,
    growth_bytes: i64,
    blocks_ingested: u64,
    errors: u64,
}

impl From<DailyRow> for DayView {
    fn from(row: DailyRow) -> Self {
        Self {
            day: day_text(row.day),
            raw_bytes: row.raw_bytes,
            compressed_bytes: row.compressed_bytes,
            growth_bytes: row.growth_bytes,
            blocks_ingested: row.blocks_ingested,
            errors: row.errors,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MetaView {
    schema_version: u32,
    chain_id: Option<u64>,
    codec: Option<String>,
    logs: Option<String>,
    /// The first block whose logs were chosen so; none where none are kept.
    logs_since: Option<u64>,
    /// The first block that is not indexed.
    next_block: Option<u64>,
    /// The first block that retention has left; before the first block there is none.
    kept_from: Option<u64>,
    last_head: Option<u64>,
    /// How long ago the source said so; none where no worker runs, or it has not answered yet.
    head_age_seconds: Option<u64>,
    lag_blocks: Option<u64>,
    /// None where no worker runs.
    lag_seconds: Option<u64>,
    last_ingest_at: Option<u64>,
    last_error: Option<serde_json::Value>,
}

impl MetaView {
    /// What is stored, and what a worker that runs knows better.
    pub(super) fn of(meta: IndexMeta, health: Option<&Health>) -> Self {
        let next_block = meta.cursor.map(|cursor| cursor.block_number);
        let stored = meta
            .last_head
            .map(|head| head.saturating_add(1).saturating_sub(next_block.unwrap_or(0)));
        // What is stored is as old as the last batch: a worker that does not know better says nothing.
        let lag_blocks = health.map_or(stored, |health| health.lag_blocks);
        let logs_since =
            meta.logs_since.filter(|_| meta.logs.as_deref().is_some_and(|logs| logs != "off"));
        Self {
            schema_version: meta.schema_version,
            chain_id: meta.chain_id,
            codec: meta.codec,
            logs: meta.logs,
            logs_since,
            next_block,
            kept_from: meta.kept_from,
            last_head: health.and_then(|health| health.head).or(meta.last_head),
            head_age_seconds: health.and_then(|health| Some(health.head_age?.as_secs())),
            lag_blocks,
            lag_seconds: health.map(|health| health.lag.as_secs()),
            last_ingest_at: meta.last_ingest_at,
            last_error: meta.last_error.and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}
