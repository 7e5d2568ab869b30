//! A block as Secateur sees it: what names it, and three payloads it does not look into.

use serde::{Deserialize, Serialize};

use crate::{
    BlockHash, CoreError, Height, ReceiptEntry, Segment, TxIndexEntry, receipts, tx_index,
};

/// The longest segment that a store accepts: 16,777,215 bytes. An entry of a run has three bytes for
/// where a receipt begins in its payload, and three for its length: a longer payload could be
/// appended, never sealed, and so never cut.
pub const MAX_SEGMENT_LEN: u32 = 0x00ff_ffff;

/// A transaction's place in its block is below this: three bytes hold it, and more transactions
/// than that fit into no segment.
pub const MAX_TX_INDEX: u32 = 0x00ff_ffff;

/// What names and places a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockMeta {
    /// The block's number.
    pub height: Height,
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block below it.
    pub parent_hash: BlockHash,
    /// Seconds since 1970, as the chain says.
    pub timestamp: u64,
}

/// The three payloads of a block (`docs/format/payloads.md`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payloads {
    /// The block's own bytes.
    pub block: Vec<u8>,
    /// Its receipts.
    pub receipts: Vec<u8>,
    /// Its transaction index.
    pub tx_index: Vec<u8>,
}

impl Payloads {
    /// One payload by its segment.
    pub fn segment(&self, segment: Segment) -> &[u8] {
        match segment {
            Segment::Block => &self.block,
            Segment::Receipts => &self.receipts,
            Segment::TxIndex => &self.tx_index,
        }
    }

    /// All bytes of the three payloads.
    pub fn total_len(&self) -> u64 {
        Segment::ALL.iter().map(|s| self.segment(*s).len() as u64).sum()
    }
}

/// A whole block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What names it.
    pub meta: BlockMeta,
    /// What it holds.
    pub payloads: Payloads,
}

impl Block {
    /// Refuses what could never be exported: a segment over `max_segment_len`, payloads that do
    /// not decode, an index entry of another height. Returns the number of transactions.
    pub fn check(&self, max_segment_len: u32) -> Result<u32, CoreError> {
        self.inspect(max_segment_len, |_| {}, |_| {})
    }

    /// The same, and shows every receipt and then every transaction on the way.
    pub fn inspect<'a>(
        &'a self,
        max_segment_len: u32,
        mut each_receipt: impl FnMut(ReceiptEntry<'a>),
        mut each_transaction: impl FnMut(TxIndexEntry),
    ) -> Result<u32, CoreError> {
        for segment in Segment::ALL {
            let len = self.payloads.segment(segment).len() as u64;
            if len > u64::from(max_segment_len) {
                let what = segment.name();
                return Err(CoreError::TooLong { what, len, max: u64::from(max_segment_len) });
            }
        }
        for receipt in receipts(&self.payloads.receipts) {
            each_receipt(receipt?);
        }
        let mut tx_count = 0u32;
        for entry in tx_index(&self.payloads.tx_index) {
            let entry = entry?;
            if entry.height != self.meta.height {
                return Err(CoreError::decode(
                    "tx_index payload",
                    format!("an entry names height {}, not {}", entry.height, self.meta.height),
                ));
            }
            if entry.index >= MAX_TX_INDEX {
                return Err(CoreError::decode(
                    "tx_index payload",
                    format!("an entry names place {}, not below {MAX_TX_INDEX}", entry.index),
                ));
            }
            tx_count += 1;
            each_transaction(entry);
        }
        Ok(tx_count)
    }
}
