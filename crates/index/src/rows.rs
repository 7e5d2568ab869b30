//! What an index holds, row by row, and what a worker hands to a sink at once.
//!
//! The same rows go into every sink; how a column is spelled there (`bytea`, `BLOB`, text) is the
//! sink's business and is written down in `docs/format/index-schema.md`.

use alloy_primitives::{Address, B256, Log, U256};
use secateur_core::{BlockHash, Cursor, Height, TxId};

/// One block. What an opaque block's source did not tell is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRow {
    /// Its number.
    pub number: Height,
    /// Its hash.
    pub hash: Option<BlockHash>,
    /// The hash of the block below it.
    pub parent_hash: Option<BlockHash>,
    /// Seconds since 1970, as the chain says.
    pub ts: Option<u64>,
    /// Its transactions.
    pub tx_count: u32,
}

/// One transaction with its receipt. Of an opaque chain only the first three are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxRow {
    /// Its id.
    pub hash: TxId,
    /// The block it is in.
    pub block_number: Height,
    /// Its place there.
    pub tx_index: u32,
    /// Who signed it.
    pub from: Option<Address>,
    /// Whom it calls; absent also where it creates a contract.
    pub to: Option<Address>,
    /// The sender's nonce.
    pub nonce: Option<u64>,
    /// What it moves.
    pub value: Option<U256>,
    /// The gas it may use.
    pub gas: Option<u64>,
    /// Whether it succeeded; absent where receipts hold a state root instead.
    pub status: Option<bool>,
    /// The gas it used.
    pub gas_used: Option<u64>,
    /// The contract it created.
    pub contract_address: Option<Address>,
}

/// One log of a chosen address or topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    /// The block it is in.
    pub block_number: Height,
    /// Its place among all logs of the block, chosen or not.
    pub log_index: u32,
    /// The transaction's place in the block.
    pub tx_index: u32,
    /// The transaction.
    pub tx_hash: TxId,
    /// The contract that wrote it.
    pub address: Address,
    /// Its topics, up to four.
    pub topics: [Option<B256>; 4],
    /// Its data.
    pub data: Vec<u8>,
}

impl LogRow {
    /// The row of a log, the so many-th of its block, by the transaction at that place.
    pub fn new(block_number: Height, log_index: u32, tx: (u32, TxId), log: &Log) -> Self {
        let ((tx_index, tx_hash), topics) = (tx, log.data.topics());
        Self {
            block_number,
            log_index,
            tx_index,
            tx_hash,
            address: log.address,
            topics: std::array::from_fn(|place| topics.get(place).copied()),
            data: log.data.data.to_vec(),
        }
    }
}

/// Blocks that the index does not hold: the source had cut them, or they were never pulled. A backfill
/// takes out of it what it fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapRow {
    /// The first missing block.
    pub block_from: Height,
    /// The last missing block.
    pub block_to: Height,
    /// Why.
    pub reason: String,
    /// When it was found out, in seconds since 1970.
    pub noted_at: u64,
}

impl GapRow {
    /// What is left of it when the blocks from `first` to below `past` are there.
    pub fn without(&self, first: Height, past: Height) -> Vec<Self> {
        if past <= self.block_from || first > self.block_to {
            return vec![self.clone()];
        }
        let below = first.checked_sub(1).filter(|to| *to >= self.block_from);
        let above = Some(past).filter(|from| *from <= self.block_to);
        let below = below.map(|block_to| Self { block_to, ..self.clone() });
        let above = above.map(|block_from| Self { block_from, ..self.clone() });
        below.into_iter().chain(above).collect()
    }
}

/// One archive part, as the worker wrote it and read it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRow {
    /// Its first block.
    pub block_from: Height,
    /// Its last block.
    pub block_to: Height,
    /// Whose it is, as in a locator.
    pub provider: String,
    /// Its name there.
    pub object_key: String,
    /// How it is compressed: `zstd`.
    pub codec: String,
    /// The object's bytes.
    pub size_bytes: u64,
    /// The SHA-256 of the object.
    pub sha256: [u8; 32],
    /// The hash below its first block.
    pub parent_hash: BlockHash,
    /// Its last block's hash.
    pub last_hash: BlockHash,
}

/// What a day brought. Days are days of the worker's clock, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DailyRow {
    /// Days since 1970-01-01.
    pub day: u32,
    /// Payload bytes that were ingested.
    pub raw_bytes: u64,
    /// Bytes of the parts that were written.
    pub compressed_bytes: u64,
    /// By how much the sink grew; below zero where it shrank.
    pub growth_bytes: i64,
    /// Blocks that were ingested.
    pub blocks_ingested: u64,
    /// Errors that were noted.
    pub errors: u64,
}

/// The rows of some consecutive blocks, in chain order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// Blocks.
    pub blocks: Vec<BlockRow>,
    /// Their transactions.
    pub txs: Vec<TxRow>,
    /// Their chosen logs.
    pub logs: Vec<LogRow>,
}

impl Rows {
    /// Puts other rows behind these.
    pub fn append(&mut self, mut other: Self) {
        self.blocks.append(&mut other.blocks);
        self.txs.append(&mut other.txs);
        self.logs.append(&mut other.logs);
    }

    /// All rows of all tables.
    pub fn len(&self) -> usize {
        self.blocks.len() + self.txs.len() + self.logs.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes of memory they take.
    pub fn weight(&self) -> u64 {
        let of = |rows: usize, size: usize| rows.saturating_mul(size) as u64;
        of(self.blocks.len(), size_of::<BlockRow>())
            + of(self.txs.len(), size_of::<TxRow>())
            + of(self.logs.len(), size_of::<LogRow>())
            + self.logs.iter().map(|log| log.data.len() as u64).sum::<u64>()
    }
}

/// What one transaction of a sink writes: rows, and the cursor behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The rows.
    pub rows: Rows,
    /// The first block that is not in it; always at a block boundary.
    pub next: Cursor,
    /// The payload bytes of each of its blocks.
    pub raw_bytes: Vec<u64>,
    /// The source's newest exportable block, as far as it is known.
    pub head: Option<Height>,
    /// The worker's clock, in seconds since 1970: `last_ingest_at`, and the day it counts to.
    pub at: u64,
}

/// The day of a time, counted from 1970-01-01.
pub fn day_of(seconds: u64) -> u32 {
    u32::try_from(seconds / secateur_core::SECONDS_PER_DAY).unwrap_or(u32::MAX)
}

/// A day as `YYYY-MM-DD`.
pub fn day_text(day: u32) -> String {
    // Years of 365.2425 days that begin in March, so that the leap day comes last.
    let shifted = u64::from(day) + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_keeps_what_is_not_filled_and_no_block_more() {
        let gap = |block_from, block_to| GapRow {
            block_from,
            block_to,
            reason: "cut".into(),
            noted_at: 7,
        };
        let whole = gap(10, 19);
        for (first, past, left) in [
            (0, 10, vec![gap(10, 19)]),
            (20, 30, vec![gap(10, 19)]),
            (0, 11, vec![gap(11, 19)]),
            (19, 20, vec![gap(10, 18)]),
            (12, 15, vec![gap(10, 11), gap(15, 19)]),
            (10, 20, vec![]),
            (0, u64::MAX, vec![]),
        ] {
            assert_eq!(whole.without(first, past), left, "{first} to below {past}");
        }
        assert_eq!(gap(0, 4).without(0, 2), [gap(2, 4)]);
    }

    #[test]
    fn days_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day_text(day_of(seconds)), text, "{seconds}");
        }
    }
}
