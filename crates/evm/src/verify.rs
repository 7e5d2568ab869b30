//! The check that a block's three payloads are what its header promises.
//!
//! Every byte is covered: the header by the block's hash, the body by the roots in the header, the
//! receipts by the receipts root, the index by the transactions. What only execution could tell,
//! such as the state root, balances, and whether a nonce was due, is not looked at; nor are rules
//! that speak of two blocks, such as the base fee. The caller links blocks by their parent hashes.
//!
//! Two rules came or went with a fork, and the block itself tells on which side of it it is.
//! Signatures must have a low `s` (EIP-2), except in blocks whose receipts hold state roots: those
//! are from before Byzantium, and the oldest of them from before EIP-2. A block's gas must be the
//! last cumulative gas of its receipts, except where the header has the hash of an access list
//! (EIP-7928): the same fork counts a block's gas before refunds (EIP-7778), and a receipt's after.

use std::collections::HashMap;
use std::fmt::Display;

use alloy_consensus::proofs::{
    calculate_ommers_root, calculate_transaction_root, ordered_trie_root_encoded,
};
use alloy_consensus::{Header, ReceiptEnvelope, Sealed, Transaction};
use alloy_eips::eip2718::{Encodable2718, Typed2718};
use alloy_primitives::{B256, Bloom, BloomInput, keccak256};
use secateur_core::{Block, BlockHash, BlockMeta, Height, Payloads, ReceiptEntry, TxId, tx_index};

use crate::decode::{Decoder, Verify};
use crate::{EvmBlock, EvmError, SignedTx};

/// What a verified block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifiedCounts {
    /// Its transactions.
    pub transactions: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The logs of all of them.
    pub logs: u64,
    /// The gas they used.
    pub gas_used: u64,
}

/// What the addresses and topics of a block hash to. A few of them are in most of its logs, and hashing
/// them anew each time is half of what a check without signatures costs.
#[derive(Default)]
struct Hashes<'a>(HashMap<&'a [u8], B256>);

impl<'a> Hashes<'a> {
    fn of(&mut self, bytes: &'a [u8]) -> B256 {
        *self.0.entry(bytes).or_insert_with(|| keccak256(bytes))
    }
}

/// The receipts payload in messages.
pub(crate) const RECEIPTS: &str = "receipts payload";

/// Takes a block apart and recomputes everything its header promises.
///
/// A legacy transaction that names no chain (from before EIP-155) is accepted on any; all others
/// must be signed for `chain_id`.
pub fn verify_block(block: &Block, chain_id: u64) -> Result<VerifiedCounts, EvmError> {
    let decoder = Decoder { chain_id, verify: Verify::Full, threads: 1 };
    let decoded = decoder.decode(block.meta.height, Some(&block.meta), &block.payloads)?;
    Ok(decoded.counts)
}

/// The same without recovering who signed. Every byte is covered all the same, those of signatures by
/// the transactions root: for blocks whose hash is trusted, this is all there is to check.
pub fn verify_roots(block: &Block, chain_id: u64) -> Result<VerifiedCounts, EvmError> {
    let decoder = Decoder { chain_id, verify: Verify::Full, threads: 1 };
    let apart = decoder.take_apart(block.meta.height, Some(&block.meta), &block.payloads)?;
    Ok(apart.counts())
}

/// The bytes of a block are the one encoding of it, and none are left over.
pub(crate) fn check_canonical(payload: &[u8], block: &EvmBlock) -> Result<(), EvmError> {
    if alloy_rlp::encode(block) == payload {
        return Ok(());
    }
    Err(EvmError::NotCanonical { what: "the block payload".to_owned() })
}

/// A block is the one that its meta names.
pub(crate) fn check_header(meta: &BlockMeta, block: &Sealed<EvmBlock>) -> Result<(), EvmError> {
    let header = &block.header;
    agree("block hash", &meta.hash, &BlockHash(block.hash().0))?;
    let parent_hash = BlockHash(header.parent_hash.0);
    agree("parent hash", &meta.parent_hash, &parent_hash)?;
    agree("block number", &meta.height, &header.number)?;
    agree("timestamp", &meta.timestamp, &header.timestamp)
}

/// A body is the one that its header promises.
pub(crate) fn check_body(block: &EvmBlock) -> Result<(), EvmError> {
    let (header, body) = (&block.header, &block.body);
    let root = calculate_transaction_root(&body.transactions);
    agree("transactions root", &header.transactions_root, &root)?;
    let hash = calculate_ommers_root(&body.ommers);
    agree("ommers hash", &header.ommers_hash, &hash)?;
    let root = body.calculate_withdrawals_root();
    let shown = |root: Option<B256>| root.map_or("absent".to_owned(), |root| root.to_string());
    let stated = shown(header.withdrawals_root);
    agree("withdrawals root", &stated, &shown(root))
}

/// The transaction index names every transaction in its place.
pub(crate) fn check_tx_index(
    height: Height,
    payloads: &Payloads,
    transactions: &[SignedTx],
) -> Result<(), EvmError> {
    const WHAT: &str = "tx_index payload";
    let entries: Vec<_> = tx_index(&payloads.tx_index).collect::<Result<_, _>>()?;
    check_count(WHAT, entries.len(), transactions)?;
    for (index, (entry, tx)) in entries.iter().zip(transactions).enumerate() {
        check_id(WHAT, index, entry.tx_id, tx)?;
        if entry.height != height || entry.index as usize != index {
            return Err(EvmError::Place { index, height: entry.height, place: entry.index });
        }
    }
    Ok(())
}

/// Receipts are those that the header promises, and fit their transactions.
pub(crate) fn check_receipts(
    header: &Header,
    transactions: &[SignedTx],
    entries: &[ReceiptEntry<'_>],
    receipts: &[ReceiptEnvelope],
) -> Result<(), EvmError> {
    let encoded: Vec<&[u8]> = entries.iter().map(|entry| entry.bytes).collect();
    let receipts_root = ordered_trie_root_encoded(&encoded);
    agree("receipts root", &header.receipts_root, &receipts_root)?;
    let mut bloom = Bloom::ZERO;
    let mut hashes = Hashes::default();
    let mut before = 0;
    for (index, ((entry, receipt), tx)) in
        entries.iter().zip(receipts).zip(transactions).enumerate()
    {
        check_id(RECEIPTS, index, entry.tx_id, tx)?;
        check_receipt(index, entry.bytes, receipt, tx, &mut hashes)?;
        let total = receipt.cumulative_gas_used();
        let used = total.saturating_sub(before);
        before = total;
        let limit = tx.gas_limit();
        if used == 0 || used > limit {
            return Err(EvmError::GasUsed { index, used, limit });
        }
        bloom.accrue_bloom(receipt.logs_bloom());
    }
    if header.block_access_list_hash.is_none() {
        agree("gas used", &header.gas_used, &before)?;
    }
    if header.logs_bloom != bloom {
        let of = "the header".to_owned();
        return Err(EvmError::Bloom { of });
    }
    Ok(())
}

fn check_receipt<'a>(
    index: usize,
    bytes: &[u8],
    receipt: &'a ReceiptEnvelope,
    tx: &SignedTx,
    hashes: &mut Hashes<'a>,
) -> Result<(), EvmError> {
    if receipt.encoded_2718() != bytes {
        let what = format!("receipt {index}");
        return Err(EvmError::NotCanonical { what });
    }
    if receipt.ty() != tx.ty() {
        return Err(EvmError::ReceiptType { index, found: receipt.ty(), wanted: tx.ty() });
    }
    let mut bloom = Bloom::ZERO;
    for log in receipt.logs() {
        bloom.accrue(BloomInput::Hash(hashes.of(log.address.as_slice())));
        for topic in log.topics() {
            bloom.accrue(BloomInput::Hash(hashes.of(topic.as_slice())));
        }
    }
    if *receipt.logs_bloom() != bloom {
        let of = format!("receipt {index}");
        return Err(EvmError::Bloom { of });
    }
    Ok(())
}

/// Every transaction is signed for this chain, or for none.
pub(crate) fn check_chain(transactions: &[SignedTx], wanted: u64) -> Result<(), EvmError> {
    for (index, tx) in transactions.iter().enumerate() {
        match tx.chain_id() {
            Some(found) if found != wanted => {
                return Err(EvmError::ChainId { index, found, wanted });
            }
            _ => {}
        }
    }
    Ok(())
}

/// A payload has one entry for each transaction.
pub(crate) fn check_count(
    what: &'static str,
    found: usize,
    transactions: &[SignedTx],
) -> Result<(), EvmError> {
    let transactions = transactions.len();
    if found == transactions {
        return Ok(());
    }
    Err(EvmError::Count { what, found, transactions })
}

fn check_id(what: &'static str, index: usize, found: TxId, tx: &SignedTx) -> Result<(), EvmError> {
    let wanted = TxId(tx.tx_hash().0);
    if found == wanted {
        return Ok(());
    }
    Err(EvmError::TxId { what, index, found, wanted })
}

/// Two statements of the same thing do not differ.
pub(crate) fn agree<T: PartialEq + Display>(
    what: &'static str,
    stated: &T,
    computed: &T,
) -> Result<(), EvmError> {
    if stated == computed {
        return Ok(());
    }
    Err(EvmError::Mismatch { what, stated: stated.to_string(), computed: computed.to_string() })
}
