//! Codec `kasane`: blocks and receipts of the Kasane chain. What a block holds and whether it is what it
//! says is `secateur-evm`'s; here its parts become rows. Its payloads have no transactions, so a row has
//! what the receipt says and nothing of sender, nonce or value.

use secateur_core::BlockMeta;
use secateur_evm::KasaneBlock;

use super::Codec;
use crate::source::SourceBlock;
use crate::{BlockRow, IndexError, LogFilter, LogRow, Rows, TxRow};

/// Blocks of the Kasane chain.
#[derive(Debug, Clone)]
pub struct KasaneCodec {
    logs: LogFilter,
}

impl KasaneCodec {
    /// With the chosen logs.
    pub fn new(logs: LogFilter) -> Self {
        Self { logs }
    }
}

impl Codec for KasaneCodec {
    fn name(&self) -> &'static str {
        "kasane"
    }

    fn wants_meta(&self) -> bool {
        false
    }

    fn rows(&self, block: &SourceBlock) -> Result<Rows, IndexError> {
        let height = block.height;
        let decoded = KasaneBlock::decode(height, block.meta.as_ref(), &block.payloads)
            .map_err(|error| IndexError::decode(height, error.to_string()))?;
        let mut rows = Rows::default();
        rows.blocks.push(BlockRow {
            number: height,
            hash: Some(decoded.meta.hash),
            parent_hash: Some(decoded.meta.parent_hash),
            ts: Some(decoded.meta.timestamp),
            tx_count: u32::try_from(decoded.txs.len()).unwrap_or(u32::MAX),
        });
        rows.txs.reserve_exact(decoded.txs.len());
        let mut next_log = 0;
        for (index, tx) in (0u32..).zip(decoded.txs) {
            for log in tx.logs {
                let log_index = next_log;
                next_log += 1;
                if self.logs.keeps(&log.address, log.data.topics().first()) {
                    rows.logs.push(LogRow::new(height, log_index, (index, tx.id), &log));
                }
            }
            rows.txs.push(TxRow {
                hash: tx.id,
                block_number: height,
                tx_index: index,
                status: Some(tx.status),
                gas_used: Some(tx.gas_used),
                contract_address: tx.contract,
                ..TxRow::default()
            });
        }
        Ok(rows)
    }

    fn meta(&self, block: &SourceBlock) -> Result<BlockMeta, IndexError> {
        KasaneBlock::meta(block.height, block.meta.as_ref(), &block.payloads.block)
            .map_err(|error| IndexError::decode(block.height, error.to_string()))
    }
}
