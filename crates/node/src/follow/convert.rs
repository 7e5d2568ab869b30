//! From what a source says of a block to the block itself, checked: nothing of it is believed that
//! its hash does not cover.

use std::fmt::Write as _;

use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope, ReceiptWithBloom, TxType};
use alloy_eips::eip2718::Encodable2718 as _;
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, U8, U64};
use alloy_rpc_types_eth::{BlockTransactions, Header, Transaction};
use bytes::Bytes as Body;
use secateur_core::{
    Block, BlockHash, BlockMeta, CoreError, Height, MAX_SEGMENT_LEN, Payloads, TxId, TxIndexEntry,
    push_receipt, push_tx_index,
};
use serde::Deserialize;

use super::envelope::Refusal;
use super::fields;
use secateur_evm::{EvmBlock, EvmError, SignedTx, verify_roots};

type RpcBlock = alloy_rpc_types_eth::Block<Transaction<SignedTx>>;

/// Everything that a source says of one block, as it came.
#[derive(Debug, Clone)]
pub(super) struct RawBlock {
    pub(super) height: Height,
    pub(super) block: Body,
    pub(super) receipts: RawReceipts,
    /// Uncles, one header each, in the order of the block's list.
    pub(super) uncles: Vec<Body>,
}

/// Receipts, in either of the two forms in which they come.
#[derive(Debug, Clone)]
pub(super) enum RawReceipts {
    /// One list.
    All(Body),
    /// One by one, in the order of the transactions.
    Each(Vec<Body>),
}

/// Why a block cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("the source does not have it (yet, or any more)")]
    Absent,
    #[error("the source refuses {what}: {reason}")]
    Denied { what: &'static str, reason: Refusal },
    #[error("what {what} answers is too long to be sent or read: {reason}")]
    TooLong { what: &'static str, reason: Refusal },
    #[error("the {what} cannot be read: {reason}")]
    Json { what: &'static str, reason: String },
    #[error(
        "transaction {index} is of type {ty:#x}, which this version does not know; a newer \
         secateur may"
    )]
    UnknownType { index: usize, ty: u64 },
    #[error("the source gave transaction hashes, not transactions")]
    HashesOnly,
    #[error("the source was asked for block {asked} and gave block {found}")]
    OtherBlock { asked: Height, found: Height },
    #[error("{found} receipts came for {transactions} transactions")]
    ReceiptCount { found: usize, transactions: usize },
    #[error("receipt {index} is that of transaction {found}; transaction {index} is {wanted}")]
    OtherReceipt { index: usize, found: B256, wanted: B256 },
    #[error("receipt {index} has neither a status nor a state root")]
    NoOutcome { index: usize },
    #[error("{found} of {wanted} uncles came")]
    Uncles { found: usize, wanted: usize },
    #[error("it lists {found} uncles, more than any block may have")]
    TooManyUncles { found: usize },
    #[error("{0}")]
    Evm(#[from] EvmError),
    /// A hash that does not fit, probably because a newer fork hashes more.
    #[error("{0}; the source names header fields that this version does not know: {1}")]
    UnknownFields(EvmError, String),
    #[error(transparent)]
    Core(#[from] CoreError),
}

impl RawBlock {
    /// How much the source sent for it.
    pub(super) fn bytes(&self) -> usize {
        let receipts = match &self.receipts {
            RawReceipts::All(list) => list.len(),
            RawReceipts::Each(list) => list.iter().map(Body::len).sum(),
        };
        self.block.len() + receipts + self.uncles.iter().map(Body::len).sum::<usize>()
    }

    /// The hash that the source states for it.
    pub(super) fn stated_hash(&self) -> Option<BlockHash> {
        stated_hash(&self.block)
    }
}

/// The hash that a block or a header in JSON states for itself.
pub(super) fn stated_hash(raw: &[u8]) -> Option<BlockHash> {
    #[derive(Deserialize)]
    struct Stated {
        hash: B256,
    }
    serde_json::from_slice::<Stated>(raw).ok().map(|stated| BlockHash(stated.hash.0))
}

impl Unfit {
    fn json(what: &'static str) -> impl Fn(serde_json::Error) -> Self {
        move |error| Self::Json { what, reason: super::envelope::shown(&error.to_string()) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RpcReceipt {
    transaction_hash: B256,
    #[serde(rename = "type", default)]
    ty: Option<U8>,
    #[serde(default)]
    status: Option<U64>,
    /// The state root, of receipts from before Byzantium.
    #[serde(default)]
    root: Option<B256>,
    cumulative_gas_used: U64,
    logs_bloom: Bloom,
    logs: Vec<RpcLog>,
}

#[derive(Deserialize)]
struct RpcLog {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
}

/// The block that a source describes, if all of it fits its hash.
pub(super) fn convert(raw: &RawBlock, chain_id: u64) -> Result<Block, Unfit> {
    let rpc: RpcBlock =
        serde_json::from_slice(&raw.block).map_err(|error| unreadable(&raw.block, &error))?;
    let (stated, header) = (rpc.header.hash, rpc.header.inner);
    if header.number != raw.height {
        return Err(Unfit::OtherBlock { asked: raw.height, found: header.number });
    }
    let BlockTransactions::Full(transactions) = rpc.transactions else {
        return Err(Unfit::HashesOnly);
    };
    let transactions: Vec<SignedTx> =
        transactions.into_iter().map(Transaction::into_inner).collect();
    let meta = BlockMeta {
        height: header.number,
        hash: BlockHash(stated.0),
        parent_hash: BlockHash(header.parent_hash.0),
        timestamp: header.timestamp,
    };
    let mut payloads = Payloads::default();
    push_receipts(&mut payloads, &raw.receipts, &transactions)?;
    for (index, tx) in (0..).zip(&transactions) {
        let entry = TxIndexEntry { tx_id: TxId(tx.tx_hash().0), height: meta.height, index };
        push_tx_index(&mut payloads.tx_index, &entry);
    }
    let ommers = uncles(&raw.uncles, rpc.uncles.len())?;
    let body = alloy_consensus::BlockBody { transactions, ommers, withdrawals: rpc.withdrawals };
    payloads.block = alloy_rlp::encode(EvmBlock { header, body });
    let block = Block { meta, payloads };
    // What the store would refuse is refused here, where it is known which block it is.
    block.check(MAX_SEGMENT_LEN)?;
    verify_roots(&block, chain_id).map_err(|error| explain(error, &raw.block))?;
    Ok(block)
}

fn push_receipts(
    payloads: &mut Payloads,
    raw: &RawReceipts,
    transactions: &[SignedTx],
) -> Result<(), Unfit> {
    const WHAT: &str = "receipts";
    let receipts: Vec<RpcReceipt> = match raw {
        RawReceipts::All(list) => serde_json::from_slice(list).map_err(Unfit::json(WHAT))?,
        RawReceipts::Each(list) => {
            let read = list.iter().map(|one| serde_json::from_slice(one));
            read.collect::<Result<_, _>>().map_err(Unfit::json(WHAT))?
        }
    };
    if receipts.len() != transactions.len() {
        let (found, transactions) = (receipts.len(), transactions.len());
        return Err(Unfit::ReceiptCount { found, transactions });
    }
    for (index, (receipt, tx)) in receipts.into_iter().zip(transactions).enumerate() {
        let (found, wanted) = (receipt.transaction_hash, *tx.tx_hash());
        if found != wanted {
            return Err(Unfit::OtherReceipt { index, found, wanted });
        }
        let encoded = envelope(index, receipt)?.encoded_2718();
        push_receipt(&mut payloads.receipts, &TxId(wanted.0), &encoded)?;
    }
    Ok(())
}

fn envelope(index: usize, receipt: RpcReceipt) -> Result<ReceiptEnvelope, Unfit> {
    // A receipt that names no type is from before there were any.
    let ty = receipt.ty.map_or(0, |ty| ty.to::<u8>());
    let tx_type =
        TxType::try_from(ty).map_err(|_| Unfit::UnknownType { index, ty: u64::from(ty) })?;
    let status = match (receipt.status, receipt.root) {
        (Some(status), _) => Eip658Value::Eip658(!status.is_zero()),
        (None, Some(root)) => Eip658Value::PostState(root),
        (None, None) => return Err(Unfit::NoOutcome { index }),
    };
    let logs = receipt.logs.into_iter();
    let logs = logs.map(|log| Log::new_unchecked(log.address, log.topics, log.data)).collect();
    let cumulative_gas_used = receipt.cumulative_gas_used.to::<u64>();
    let inner = Receipt { status, cumulative_gas_used, logs };
    let whole = ReceiptWithBloom { receipt: inner, logs_bloom: receipt.logs_bloom };
    Ok(ReceiptEnvelope::from_typed(tx_type, whole))
}

fn uncles(raw: &[Body], wanted: usize) -> Result<Vec<alloy_consensus::Header>, Unfit> {
    if raw.len() != wanted {
        return Err(Unfit::Uncles { found: raw.len(), wanted });
    }
    let read = raw.iter().map(|one| serde_json::from_slice::<Header>(one));
    let headers: Result<Vec<Header>, _> = read.collect();
    Ok(headers.map_err(Unfit::json("uncles"))?.into_iter().map(|header| header.inner).collect())
}

/// The hash and the parent's hash that a source gives for a height, from a header that really has
/// that hash.
pub(super) fn check_header(asked: Option<Height>, raw: &Body) -> Result<BlockMeta, Unfit> {
    let header: Header = serde_json::from_slice(raw).map_err(Unfit::json("header"))?;
    let (stated, inner) = (header.hash, header.inner);
    if let Some(asked) = asked.filter(|asked| *asked != inner.number) {
        return Err(Unfit::OtherBlock { asked, found: inner.number });
    }
    let computed = inner.hash_slow();
    if computed != stated {
        let what = "block hash";
        let (stated, computed) = (stated.to_string(), computed.to_string());
        return Err(explain(EvmError::Mismatch { what, stated, computed }, raw));
    }
    Ok(BlockMeta {
        height: inner.number,
        hash: BlockHash(stated.0),
        parent_hash: BlockHash(inner.parent_hash.0),
        timestamp: inner.timestamp,
    })
}

/// A block that does not even read: mostly for a transaction of a kind that is not known.
fn unreadable(raw: &Body, error: &serde_json::Error) -> Unfit {
    #[derive(Deserialize)]
    struct Kinds {
        transactions: Vec<Kind>,
    }
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type", default)]
        ty: Option<U64>,
    }
    let kinds = serde_json::from_slice::<Kinds>(raw).map(|block| block.transactions);
    for (index, kind) in kinds.unwrap_or_default().into_iter().enumerate() {
        let ty = kind.ty.map_or(0, |ty| ty.to::<u64>());
        if u8::try_from(ty).map_or(true, |ty| TxType::try_from(ty).is_err()) {
            return Unfit::UnknownType { index, ty };
        }
    }
    Unfit::json("block")(serde::de::Error::custom(error))
}

/// Adds to a hash that does not fit what may be the reason.
fn explain(error: EvmError, raw: &Body) -> Unfit {
    let hash = matches!(error, EvmError::Mismatch { what: "block hash", .. });
    let unknown = if hash { fields::unknown(raw) } else { Vec::new() };
    if unknown.is_empty() {
        return error.into();
    }
    let mut names = String::new();
    for name in unknown {
        let comma = if names.is_empty() { "" } else { ", " };
        // Writing into a string cannot fail.
        write!(names, "{comma}{name}").unwrap_or_default();
    }
    Unfit::UnknownFields(error, names)
}
