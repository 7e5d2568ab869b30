//! Stored blocks as JSON-RPC shows them: finding one, taking it apart, and building the answer.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use alloy_consensus::transaction::{Recovered, SignerRecoverable, TransactionInfo};
use alloy_consensus::{EthereumTxEnvelope, TxEip4844};
use alloy_primitives::{Address, B256, U256};
use alloy_rlp::Decodable;
use alloy_rpc_types_eth::{Block, BlockTransactions, Header, Transaction};
use secateur_core::{BlockHash, BlockMeta, Height, LookupError, Segment, TxId, tx_index};
use secateur_store::{BlockRecord, Heights, StoreError};

use super::errors::{RpcError, honest};
use super::params::{At, Tag};
use crate::service::{Node, Sought};

/// A signed transaction as a block holds it: a blob transaction without its blobs.
pub(super) type SignedTx = EthereumTxEnvelope<TxEip4844>;
/// A block as it is stored.
type StoredBlock = alloy_consensus::Block<SignedTx>;

/// How often a lookup begins anew when the chain changed under it.
const ATTEMPTS: u32 = 3;

/// A stored block, taken apart once. Senders are recovered when they are first asked for.
pub(super) struct Decoded {
    pub(super) hash: B256,
    pub(super) inner: StoredBlock,
    /// The length of its encoding.
    size: usize,
    senders: Box<[OnceLock<Address>]>,
}

impl Decoded {
    pub(super) fn new(meta: &BlockMeta, payload: &[u8]) -> Result<Self, RpcError> {
        let mut rest = payload;
        let inner = StoredBlock::decode(&mut rest).map_err(|e| not_evm(meta.height, &e))?;
        let senders = inner.body.transactions.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { hash: meta.hash.0.into(), inner, size: payload.len() - rest.len(), senders })
    }

    /// About how much memory it takes.
    pub(super) fn memory(&self) -> usize {
        let each = size_of::<SignedTx>() + size_of::<OnceLock<Address>>();
        size_of::<Self>() + self.size + self.transactions().len() * each
    }

    pub(super) fn transactions(&self) -> &[SignedTx] {
        &self.inner.body.transactions
    }

    pub(super) fn height(&self) -> Height {
        self.inner.header.number
    }

    /// Who sent a transaction.
    pub(super) fn sender(&self, index: usize) -> Result<Address, RpcError> {
        let place = self.transactions().get(index).zip(self.senders.get(index));
        let (tx, known) = place.ok_or_else(|| {
            RpcError::internal(format!("block {} has no transaction {index}", self.height()))
        })?;
        if let Some(sender) = known.get() {
            return Ok(*sender);
        }
        // Blocks from before EIP-2 may hold a high `s`.
        let sender = tx.recover_signer_unchecked().map_err(|error| {
            RpcError::internal(format!("transaction {} has no sender: {error}", tx.tx_hash()))
        })?;
        Ok(*known.get_or_init(|| sender))
    }

    /// One transaction; None if the block does not have so many.
    pub(super) fn transaction(
        &self,
        index: usize,
    ) -> Result<Option<Transaction<SignedTx>>, RpcError> {
        let Some(tx) = self.transactions().get(index) else { return Ok(None) };
        let header = &self.inner.header;
        let info = TransactionInfo {
            hash: Some(*tx.tx_hash()),
            index: Some(index as u64),
            block_hash: Some(self.hash),
            block_number: Some(header.number),
            base_fee: header.base_fee_per_gas,
            block_timestamp: Some(header.timestamp),
        };
        let tx = Recovered::new_unchecked(tx.clone(), self.sender(index)?);
        Ok(Some(Transaction::from_transaction(tx, info)))
    }

    /// How many uncles it has.
    pub(super) fn uncle_count(&self) -> u64 {
        self.inner.body.ommers.len() as u64
    }

    /// One of its uncles: a header without transactions. None if it does not have so many.
    pub(super) fn uncle(&self, index: usize) -> Option<Block<Transaction<SignedTx>>> {
        let inner = self.inner.body.ommers.get(index)?.clone();
        let alone =
            StoredBlock { header: inner.clone(), body: alloy_consensus::BlockBody::default() };
        let size = Some(U256::from(alloy_rlp::Encodable::length(&alone)));
        let header = Header { hash: inner.hash_slow(), inner, total_difficulty: None, size };
        let transactions = BlockTransactions::Uncle;
        Some(Block { header, uncles: Vec::new(), transactions, withdrawals: None })
    }

    /// The block, with its transactions or their hashes.
    pub(super) fn block(&self, full: bool) -> Result<Block<Transaction<SignedTx>>, RpcError> {
        let transactions = if full {
            let all =
                (0..self.transactions().len()).filter_map(|i| self.transaction(i).transpose());
            BlockTransactions::Full(all.collect::<Result<_, _>>()?)
        } else {
            BlockTransactions::Hashes(self.transactions().iter().map(|tx| *tx.tx_hash()).collect())
        };
        let body = &self.inner.body;
        Ok(Block {
            header: Header {
                hash: self.hash,
                inner: self.inner.header.clone(),
                total_difficulty: None,
                size: Some(U256::from(self.size)),
            },
            uncles: body.ommers.iter().map(alloy_consensus::Header::hash_slow).collect(),
            transactions,
            withdrawals: body.withdrawals.clone(),
        })
    }
}

/// The refusal to read a block of another kind of chain.
pub(super) fn not_evm(height: Height, error: &alloy_rlp::Error) -> RpcError {
    RpcError::internal(format!("block {height} is not an EVM block: {error}"))
}

/// The height of a tag now; None where it names no block.
fn height_of(node: &Node, tag: Tag) -> Result<Option<Height>, RpcError> {
    Ok(height_in(&node.store.heights()?, tag))
}

/// The height of a tag at some moment; None where it names no block.
///
/// `safe` is the newest final block. Between a chain's safe and its final block nothing is known
/// here but that the source may still take it back, and a final block is safe in any case.
pub(super) fn height_in(heights: &Heights, tag: Tag) -> Option<Height> {
    match tag {
        Tag::Latest => heights.head.map(|(height, _)| height),
        Tag::Safe | Tag::Finalized => heights.finalized,
        Tag::Earliest => heights.oldest,
        Tag::Pending => None,
    }
}

/// A block as a lookup found it: here, or in the archive, where the node reads through.
#[derive(Debug)]
pub(super) enum Found {
    Kept(BlockRecord),
    Archived(Arc<secateur_core::Block>),
}

impl Found {
    pub(super) fn meta(&self) -> &BlockMeta {
        match self {
            Self::Kept(record) => &record.meta,
            Self::Archived(block) => &block.meta,
        }
    }

    /// How many transactions it has.
    pub(super) fn tx_count(&self) -> u64 {
        match self {
            Self::Kept(record) => record.tx_count.into(),
            Self::Archived(block) => tx_index(&block.payloads.tx_index).count() as u64,
        }
    }
}

fn is_pruned<T>(found: &Result<T, StoreError>) -> bool {
    matches!(found, Err(StoreError::Lookup(LookupError::Pruned { .. })))
}

/// What was found, if need be in the archive.
fn found(
    node: &Node,
    sought: Sought,
    record: Result<BlockRecord, StoreError>,
) -> Result<Option<Found>, RpcError> {
    if is_pruned(&record)
        && let Some(archived) = node.archived(sought)?
    {
        return Ok(Some(Found::Archived(archived.block)));
    }
    Ok(honest(&node.store, sought, record)?.map(Found::Kept))
}

/// What is known of a block; None if there is none.
pub(super) fn record_at(node: &Node, at: At) -> Result<Option<Found>, RpcError> {
    let store = &node.store;
    match at {
        At::Number(height) => found(node, Sought::Height(height), store.get_record(height)),
        At::Hash(hash) => {
            let hash = BlockHash(hash.0);
            found(node, Sought::Block(hash), store.get_record_by_hash(&hash))
        }
        At::Tag(tag) => {
            let mut kept = Ok(None);
            for _ in 0..ATTEMPTS {
                let Some(height) = height_of(node, tag)? else { return Ok(None) };
                // A tag always names a kept block; it moves, and is looked up again if it did.
                kept = honest(store, Sought::Height(height), store.get_record(height));
                if matches!(kept, Ok(Some(_))) {
                    break;
                }
            }
            Ok(kept?.map(Found::Kept))
        }
    }
}

/// A transaction's place and its block; None if it is in none.
pub(super) fn transaction_at(node: &Node, hash: B256) -> Result<Option<(usize, Found)>, RpcError> {
    let id = TxId(hash.0);
    let place = node.store.get_location(&id);
    if is_pruned(&place)
        && let Some(archived) = node.archived(Sought::Transaction(id))?
        && let Some(index) = archived.place_of(&id)
    {
        return Ok(Some((index as usize, Found::Archived(archived.block))));
    }
    let place = honest(&node.store, Sought::Transaction(id), place)?;
    Ok(place.map(|(location, record)| (location.index as usize, Found::Kept(record))))
}

/// The block at a place; None if there is none.
pub(super) fn block_at(node: &Node, at: At) -> Result<Option<Arc<Decoded>>, RpcError> {
    retry(|| {
        let Some(record) = record_at(node, at)? else { return Ok(Some(None)) };
        Ok(load(node, &record)?.map(Some))
    })
}

/// Runs a lookup until the chain does not change under it; nothing is found if it never stops.
pub(super) fn retry<T>(
    attempt: impl Fn() -> Result<Option<Option<T>>, RpcError>,
) -> Result<Option<T>, RpcError> {
    for _ in 0..ATTEMPTS {
        if let Some(settled) = attempt()? {
            return Ok(settled);
        }
    }
    Ok(None)
}

/// The block that was found, from memory or from where it is; None if it was rolled back since.
pub(super) fn load(node: &Node, found: &Found) -> Result<Option<Arc<Decoded>>, RpcError> {
    let hash = found.meta().hash;
    if let Some(block) = node.rpc.block(&hash) {
        return Ok(Some(block));
    }
    let Some(payload) = payload(node, found, Segment::Block)? else { return Ok(None) };
    let block = Arc::new(Decoded::new(found.meta(), &payload)?);
    node.rpc.keep_block(hash, &block);
    Ok(Some(block))
}

/// One payload of exactly this block; None if it was rolled back since.
pub(super) fn payload<'a>(
    node: &Node,
    found: &'a Found,
    segment: Segment,
) -> Result<Option<Cow<'a, [u8]>>, RpcError> {
    let record = match found {
        Found::Archived(block) => return Ok(Some(block.payloads.segment(segment).into())),
        Found::Kept(record) => record,
    };
    let height = record.meta.height;
    let read = node.store.get_payload(height, segment);
    // It may have been cut since it was found.
    if is_pruned(&read)
        && let Some(archived) = node.archived(Sought::Height(height))?
    {
        let same = archived.block.meta.hash == record.meta.hash;
        return Ok(same.then(|| archived.block.payloads.segment(segment).to_vec().into()));
    }
    let read = honest(&node.store, Sought::Height(height), read)?;
    let same = read.filter(|(now, _)| now.meta.hash == record.meta.hash);
    Ok(same.map(|(_, payload)| payload.into()))
}

#[cfg(test)]
mod tests {
    use secateur_store::Finality;

    use super::*;
    use crate::rpc::tests_support::{Bench, LIMITS, chain, chain_of};
    use secateur_evm::ChainSpec;

    #[test]
    fn a_record_of_a_block_that_was_rolled_back_gives_no_bytes_of_another() {
        let blocks = chain(6);
        let bench = Bench::make(&blocks, LIMITS, Finality::Explicit, 1337);
        let record = record_at(&bench.node, At::Number(4)).unwrap().unwrap();
        bench.node.store.rollback(3).unwrap();
        assert!(load(&bench.node, &record).unwrap().is_none(), "there is no block");
        let other = ChainSpec { seed: 2, ..ChainSpec::default() };
        let fork = chain_of(other, 4, blocks[3].meta.hash, 2);
        bench.node.store.append_group(&fork).unwrap();
        assert!(load(&bench.node, &record).unwrap().is_none(), "there is another block");
        let now = block_at(&bench.node, At::Number(4)).unwrap().unwrap();
        assert_eq!(now.hash.0, fork[0].meta.hash.0);
    }
}
