//! Codec `opaque`: nothing is known of a block but what its source says and its transaction index.

use secateur_core::{BlockMeta, tx_index};

use super::Codec;
use crate::source::SourceBlock;
use crate::{BlockRow, IndexError, Rows, TxRow};

/// Blocks whose payloads mean nothing to us.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpaqueCodec;

impl Codec for OpaqueCodec {
    fn name(&self) -> &'static str {
        "opaque"
    }

    fn wants_meta(&self) -> bool {
        true
    }

    fn rows(&self, block: &SourceBlock) -> Result<Rows, IndexError> {
        let height = block.height;
        let mut txs = Vec::new();
        for entry in tx_index(&block.payloads.tx_index) {
            let entry = entry.map_err(|error| IndexError::decode(height, error.to_string()))?;
            if entry.height != height {
                let reason = format!("its tx_index names height {}", entry.height);
                return Err(IndexError::decode(height, reason));
            }
            txs.push(TxRow {
                hash: entry.tx_id,
                block_number: height,
                tx_index: entry.index,
                ..TxRow::default()
            });
        }
        let meta = block.meta.as_ref();
        let blocks = vec![BlockRow {
            number: height,
            hash: meta.map(|meta| meta.hash),
            parent_hash: meta.map(|meta| meta.parent_hash),
            ts: meta.map(|meta| meta.timestamp),
            tx_count: u32::try_from(txs.len()).unwrap_or(u32::MAX),
        }];
        Ok(Rows { blocks, txs, logs: Vec::new() })
    }

    fn meta(&self, block: &SourceBlock) -> Result<BlockMeta, IndexError> {
        block.meta.clone().ok_or_else(|| {
            let reason = "the source tells neither its hash nor its parent (export v1 cannot), \
                          and the codec `opaque` does not look inside";
            IndexError::decode(block.height, reason)
        })
    }
}
