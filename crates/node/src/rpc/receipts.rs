//! Receipts as JSON-RPC shows them: what is stored, and what follows from the block around it.

use alloy_consensus::{ReceiptEnvelope, Transaction as _};
use alloy_eips::eip2718::Decodable2718;
use alloy_primitives::{Address, B256, Log as StoredLog};
use alloy_rpc_types_eth::{Log, TransactionReceipt};
use secateur_core::{Height, Segment, receipts};

use super::blocks::{Decoded, Found, load, payload};
use super::errors::RpcError;
use super::fees::blob_gas_price;
use crate::service::Node;

/// Where a log is, but for its transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogBlock {
    pub(super) hash: B256,
    pub(super) height: Height,
    pub(super) timestamp: u64,
}

impl LogBlock {
    /// A log with everything that names it.
    pub(super) fn log(&self, inner: StoredLog, tx: (B256, u64), log_index: u64) -> Log {
        Log {
            inner,
            block_hash: Some(self.hash),
            block_number: Some(self.height),
            block_timestamp: Some(self.timestamp),
            transaction_hash: Some(tx.0),
            transaction_index: Some(tx.1),
            log_index: Some(log_index),
            removed: false,
        }
    }
}

/// The receipts of a payload, each with the transaction it belongs to.
pub(super) fn decode(
    height: Height,
    payload: &[u8],
) -> impl Iterator<Item = Result<(B256, ReceiptEnvelope), RpcError>> {
    receipts(payload).map(move |entry| {
        let wrong = |reason: String| {
            RpcError::internal(format!("a receipt of block {height} cannot be read: {reason}"))
        };
        let entry = entry.map_err(|error| wrong(error.to_string()))?;
        let receipt = ReceiptEnvelope::decode_2718_exact(entry.bytes)
            .map_err(|error| wrong(error.to_string()))?;
        Ok((B256::new(entry.tx_id.0), receipt))
    })
}

/// Which receipts of a block are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    One(usize),
}

/// Receipts of a block that was found; None if it was rolled back since.
pub(super) fn of_block(
    node: &Node,
    found: &Found,
    wanted: Wanted,
) -> Result<Option<Vec<TransactionReceipt>>, RpcError> {
    let Some(block) = load(node, found)? else { return Ok(None) };
    let Some(payload) = payload(node, found, Segment::Receipts)? else { return Ok(None) };
    let header = &block.inner.header;
    let price = blob_gas_price(node.chain_id(), node.chain.blob_update_fraction, header);
    build(&block, &payload, price, wanted).map(Some)
}

fn build(
    block: &Decoded,
    payload: &[u8],
    blob_gas_price: Option<u128>,
    wanted: Wanted,
) -> Result<Vec<TransactionReceipt>, RpcError> {
    let height = block.height();
    let (mut gas, mut logs, mut count) = (0, 0, 0);
    let mut built = Vec::new();
    for found in decode(height, payload) {
        let (tx_hash, receipt) = found?;
        let index = count;
        count += 1;
        let (gas_before, first_log) = (gas, logs);
        gas = receipt.cumulative_gas_used();
        logs += receipt.logs().len() as u64;
        let tx = block.transactions().get(index).filter(|tx| *tx.tx_hash() == tx_hash);
        if tx.is_none() {
            return Err(RpcError::internal(format!(
                "receipt {index} of block {height} belongs to another transaction"
            )));
        }
        match wanted {
            Wanted::One(one) if one > index => continue,
            Wanted::One(one) if one < index => break,
            _ => {}
        }
        let gas_used = gas.saturating_sub(gas_before);
        let place = Place { index, gas_used, first_log, blob_gas_price };
        built.push(one(block, receipt, &place)?);
    }
    if wanted == Wanted::All && count != block.transactions().len() {
        return Err(RpcError::internal(format!(
            "block {height} has {count} receipts for {} transactions",
            block.transactions().len()
        )));
    }
    Ok(built)
}

/// What a receipt is told by its neighbours.
struct Place {
    index: usize,
    gas_used: u64,
    first_log: u64,
    blob_gas_price: Option<u128>,
}

fn one(
    block: &Decoded,
    receipt: ReceiptEnvelope,
    place: &Place,
) -> Result<TransactionReceipt, RpcError> {
    let (header, index) = (&block.inner.header, place.index);
    let from = block.sender(index)?;
    let tx = block.transactions().get(index).ok_or_else(|| {
        RpcError::internal(format!("block {} has no transaction {index}", header.number))
    })?;
    let around = LogBlock { hash: block.hash, height: header.number, timestamp: header.timestamp };
    let named = (*tx.tx_hash(), index as u64);
    let mut log_index = place.first_log..;
    let inner = receipt.map_logs(|log| around.log(log, named, log_index.next().unwrap_or(0)));
    let blob_gas_used = tx.blob_gas_used();
    Ok(TransactionReceipt {
        inner,
        transaction_hash: named.0,
        transaction_index: Some(named.1),
        block_hash: Some(block.hash),
        block_number: Some(header.number),
        gas_used: place.gas_used,
        effective_gas_price: tx.effective_gas_price(header.base_fee_per_gas),
        blob_gas_used,
        blob_gas_price: blob_gas_used.and(place.blob_gas_price),
        from,
        to: tx.to(),
        contract_address: created(from, tx),
    })
}

/// Where a creation puts its contract, whether it succeeds or not.
fn created(from: Address, tx: &impl alloy_consensus::Transaction) -> Option<Address> {
    tx.kind().is_create().then(|| from.create(tx.nonce()))
}
