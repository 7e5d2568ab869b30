//! Codec `evm`: RLP blocks with EIP-2718 receipts. What a block holds and whether it is what it says
//! is `secateur-evm`'s; here its parts become rows.

use alloy_consensus::{ReceiptEnvelope, Transaction as _, TxReceipt as _};
use alloy_primitives::Address;
use secateur_core::{BlockHash, BlockMeta, Height, TxId};
use secateur_evm::{DecodedBlock, Decoder, SignedTx, Verify};

use super::Codec;
use crate::source::SourceBlock;
use crate::{BlockRow, IndexError, LogFilter, LogRow, Rows, TxRow};

/// Blocks of an EVM chain.
#[derive(Debug, Clone)]
pub struct EvmCodec {
    decoder: Decoder,
    logs: LogFilter,
}

impl EvmCodec {
    /// Of a chain, checked as far as `verify` says, with the chosen logs.
    pub fn new(chain_id: u64, verify: Verify, logs: LogFilter) -> Self {
        // Blocks are decoded side by side already; only a large one gets a second thread.
        Self { decoder: Decoder { chain_id, verify, threads: 2 }, logs }
    }

    fn decode(&self, block: &SourceBlock) -> Result<DecodedBlock, IndexError> {
        self.decoder
            .decode(block.height, block.meta.as_ref(), &block.payloads)
            .map_err(|error| IndexError::decode(block.height, error.to_string()))
    }
}

impl Codec for EvmCodec {
    fn name(&self) -> &'static str {
        "evm"
    }

    fn wants_meta(&self) -> bool {
        false
    }

    fn rows(&self, block: &SourceBlock) -> Result<Rows, IndexError> {
        let height = block.height;
        let decoded = self.decode(block)?;
        let transactions = &decoded.block.body.transactions;
        let mut rows = Rows::default();
        rows.txs.reserve_exact(transactions.len());
        let mut places = Places { height, gas: 0, next_log: 0 };
        for (index, ((tx, receipt), from)) in
            (0u32..).zip(transactions.iter().zip(&decoded.receipts).zip(&decoded.senders))
        {
            rows.txs.push(places.tx(index, tx, receipt, *from));
            places.logs(index, tx, receipt, &self.logs, &mut rows.logs);
        }
        let header = &decoded.block.header;
        rows.blocks.push(BlockRow {
            number: height,
            hash: Some(BlockHash(decoded.block.hash().0)),
            parent_hash: Some(BlockHash(header.parent_hash.0)),
            ts: Some(header.timestamp),
            tx_count: u32::try_from(transactions.len()).unwrap_or(u32::MAX),
        });
        Ok(rows)
    }

    fn meta(&self, block: &SourceBlock) -> Result<BlockMeta, IndexError> {
        if let Some(meta) = &block.meta {
            return Ok(meta.clone());
        }
        let fail = |error: alloy_rlp::Error| IndexError::decode(block.height, error.to_string());
        let mut rest = block.payloads.block.as_slice();
        let evm = secateur_evm::EvmBlock::decode_sealed(&mut rest).map_err(fail)?;
        Ok(BlockMeta {
            height: block.height,
            hash: BlockHash(evm.hash().0),
            parent_hash: BlockHash(evm.header.parent_hash.0),
            timestamp: evm.header.timestamp,
        })
    }
}

/// What is counted through a block.
struct Places {
    height: Height,
    /// Used by all transactions so far.
    gas: u64,
    next_log: u32,
}

impl Places {
    fn tx(&mut self, index: u32, tx: &SignedTx, receipt: &ReceiptEnvelope, from: Address) -> TxRow {
        let total = receipt.cumulative_gas_used();
        let gas_used = total.saturating_sub(self.gas);
        self.gas = total;
        let status = receipt.status_or_post_state();
        TxRow {
            hash: TxId(tx.tx_hash().0),
            block_number: self.height,
            tx_index: index,
            from: Some(from),
            to: tx.to(),
            nonce: Some(tx.nonce()),
            value: Some(tx.value()),
            gas: Some(tx.gas_limit()),
            status: (!status.is_post_state()).then(|| receipt.status()),
            gas_used: Some(gas_used),
            // Where a creation puts its contract, whether it succeeds or not.
            contract_address: tx.kind().is_create().then(|| from.create(tx.nonce())),
        }
    }

    fn logs(
        &mut self,
        index: u32,
        tx: &SignedTx,
        receipt: &ReceiptEnvelope,
        filter: &LogFilter,
        into: &mut Vec<LogRow>,
    ) {
        for log in receipt.logs() {
            let log_index = self.next_log;
            self.next_log += 1;
            if filter.keeps(&log.address, log.topics().first()) {
                let tx = (index, TxId(tx.tx_hash().0));
                into.push(LogRow::new(self.height, log_index, tx, log));
            }
        }
    }
}
