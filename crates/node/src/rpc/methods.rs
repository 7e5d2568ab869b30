//! The methods: which there are, what they take, and what each answers.

use std::io::{self, Write};
use std::sync::Arc;

use alloy_primitives::B256;
use secateur_core::PrunePolicy;
use secateur_sidecar::VersionedHash;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::blocks::{block_at, load, record_at, retry, transaction_at};
use super::errors::{NO_METHOD, RpcError, SERVER};
use super::params::{At, Filter, Params, quantity};
use super::receipts::{Wanted, of_block};
use super::{Space, blobs, logs};
use crate::service::Node;

/// What the node calls itself.
const CLIENT: &str = concat!("secateur/v", env!("CARGO_PKG_VERSION"));
/// How much of a wrong method name is said back.
const NAME_SHOWN: usize = 64;

/// A call that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    ChainId,
    NetVersion,
    ClientVersion,
    BlockNumber,
    Syncing,
    Capabilities,
    Block { at: At, full: bool },
    TransactionCount(At),
    Transaction(B256),
    TransactionAt { at: At, index: u64 },
    Receipt(B256),
    Receipts(At),
    Uncle { at: At, index: u64 },
    UncleCount(At),
    Logs(Filter),
    Blobs(Vec<VersionedHash>),
}

impl Question {
    /// What to ask instead, where the answer is too long.
    pub(super) const fn advice(&self) -> &'static str {
        match self {
            Self::Receipts(_) => "ask for each receipt with eth_getTransactionReceipt",
            Self::Block { full: true, .. } => {
                "ask for the block without its transactions, and for each with \
                 eth_getTransactionByHash"
            }
            Self::Blobs(_) => "ask for fewer blobs",
            _ => "ask for less",
        }
    }
}

/// Understands a call, or says why not.
pub(super) fn read(method: &str, params: Option<&RawValue>) -> Result<Question, RpcError> {
    let take = |most| Params::read(params, most);
    let nothing = |question| take(0).map(|_| question);
    match method {
        "eth_chainId" => nothing(Question::ChainId),
        "net_version" => nothing(Question::NetVersion),
        "web3_clientVersion" => nothing(Question::ClientVersion),
        "eth_blockNumber" => nothing(Question::BlockNumber),
        "eth_syncing" => nothing(Question::Syncing),
        "eth_capabilities" => nothing(Question::Capabilities),
        "eth_getBlockByNumber" => {
            let given = take(2)?;
            Ok(Question::Block { at: given.number(0)?, full: given.flag(1)? })
        }
        "eth_getBlockByHash" => {
            let given = take(2)?;
            Ok(Question::Block { at: At::Hash(given.hash(0)?), full: given.flag(1)? })
        }
        "eth_getBlockTransactionCountByNumber" => {
            take(1)?.number(0).map(Question::TransactionCount)
        }
        "eth_getBlockTransactionCountByHash" => {
            take(1)?.hash(0).map(|hash| Question::TransactionCount(At::Hash(hash)))
        }
        "eth_getTransactionByHash" => take(1)?.hash(0).map(Question::Transaction),
        "eth_getTransactionByBlockNumberAndIndex" => {
            let given = take(2)?;
            Ok(Question::TransactionAt { at: given.number(0)?, index: given.index(1)? })
        }
        "eth_getTransactionByBlockHashAndIndex" => {
            let given = take(2)?;
            Ok(Question::TransactionAt { at: At::Hash(given.hash(0)?), index: given.index(1)? })
        }
        "eth_getTransactionReceipt" => take(1)?.hash(0).map(Question::Receipt),
        "eth_getBlockReceipts" => take(1)?.number_or_hash(0).map(Question::Receipts),
        "eth_getUncleByBlockNumberAndIndex" => {
            let given = take(2)?;
            Ok(Question::Uncle { at: given.number(0)?, index: given.index(1)? })
        }
        "eth_getUncleByBlockHashAndIndex" => {
            let given = take(2)?;
            Ok(Question::Uncle { at: At::Hash(given.hash(0)?), index: given.index(1)? })
        }
        "eth_getUncleCountByBlockNumber" => take(1)?.number(0).map(Question::UncleCount),
        "eth_getUncleCountByBlockHash" => {
            take(1)?.hash(0).map(|hash| Question::UncleCount(At::Hash(hash)))
        }
        "engine_getBlobsV1" => take(1)?.hashes(0).map(Question::Blobs),
        "eth_getLogs" => take(1)?.filter(0).map(Question::Logs),
        other => {
            let shown: String = other.chars().take(NAME_SHOWN).collect();
            Err(RpcError::new(NO_METHOD, format!("the method {shown} is not available")))
        }
    }
}

/// Answers a question as JSON that fits the space; None if that is not enough.
pub(super) async fn answer(
    node: &Arc<Node>,
    question: Question,
    deadline: Instant,
    space: Space,
) -> Result<Option<Vec<u8>>, RpcError> {
    let room = space.left;
    if let Question::Logs(filter) = question {
        return logs::answer(node, filter, deadline, space).await;
    }
    if let Question::Blobs(hashes) = question {
        return blobs::answer(node, hashes, room).await;
    }
    let asked = Arc::clone(node);
    node.ask(move |_| Ok(look_up(&asked, &question, room))).await?
}

/// Answers anything but a log scan. It reads the store, so it must not run where sockets are
/// served.
fn look_up(node: &Node, question: &Question, room: usize) -> Result<Option<Vec<u8>>, RpcError> {
    match question {
        Question::ChainId => render(&quantity(node.chain_id()), room),
        Question::NetVersion => render(&node.chain_id().to_string(), room),
        Question::ClientVersion => render(&CLIENT, room),
        Question::BlockNumber => render(&block_number(node)?, room),
        Question::Syncing => render(&syncing(node), room),
        Question::Capabilities => render(&capabilities(node)?, room),
        Question::Block { at, full } => match block_at(node, *at)? {
            Some(block) => render(&block.block(*full)?, room),
            None => render(&(), room),
        },
        Question::TransactionCount(at) => {
            let count = record_at(node, *at)?.map(|found| quantity(found.tx_count()));
            render(&count, room)
        }
        Question::Transaction(hash) => transaction(node, *hash, room),
        Question::TransactionAt { at, index } => {
            let tx = match (block_at(node, *at)?, usize::try_from(*index)) {
                (Some(block), Ok(index)) => block.transaction(index)?,
                _ => None,
            };
            render(&tx, room)
        }
        Question::Uncle { at, index } => {
            let uncle = block_at(node, *at)?.zip(usize::try_from(*index).ok());
            render(&uncle.and_then(|(block, index)| block.uncle(index)), room)
        }
        Question::UncleCount(at) => {
            let count = block_at(node, *at)?.map(|block| quantity(block.uncle_count()));
            render(&count, room)
        }
        Question::Receipt(hash) => receipt(node, *hash, room),
        Question::Receipts(at) => {
            let found = retry(|| match record_at(node, *at)? {
                Some(record) => Ok(of_block(node, &record, Wanted::All)?.map(Some)),
                None => Ok(Some(None)),
            });
            render(&found?, room)
        }
        Question::Logs(_) | Question::Blobs(_) => {
            Err(RpcError::internal("this is not a lookup in the history"))
        }
    }
}

fn block_number(node: &Node) -> Result<String, RpcError> {
    let head = node.store.head();
    head.map(quantity).ok_or_else(|| RpcError::new(SERVER, "this node has no block yet"))
}

fn transaction(node: &Node, hash: B256, room: usize) -> Result<Option<Vec<u8>>, RpcError> {
    let found = retry(|| {
        let Some((index, found)) = transaction_at(node, hash)? else { return Ok(Some(None)) };
        let Some(block) = load(node, &found)? else { return Ok(None) };
        block.transaction(index).map(Some)
    });
    render(&found?, room)
}

fn receipt(node: &Node, hash: B256, room: usize) -> Result<Option<Vec<u8>>, RpcError> {
    let found = retry(|| {
        let Some((index, found)) = transaction_at(node, hash)? else { return Ok(Some(None)) };
        let Some(built) = of_block(node, &found, Wanted::One(index))? else { return Ok(None) };
        Ok(Some(built.into_iter().next()))
    });
    render(&found?, room)
}

/// How far a follower is behind; false where nothing is followed or nothing is missing. Of a source
/// that fell silent it is not known that nothing is missing.
fn syncing(node: &Node) -> Value {
    let standing = node.standing.borrow().clone();
    let (current, now) = (node.store.head(), Instant::now());
    let behind = current < standing.source_head || standing.is_stale(now);
    match standing.source_head {
        Some(known) if standing.following && !standing.is_caught_up(now) && behind => {
            let starting = standing.from.or(current).unwrap_or(0);
            let here = current.unwrap_or(starting);
            let likely = standing.lag(current, now).map_or(known, |lag| here.saturating_add(lag));
            json!({
                "startingBlock": quantity(starting),
                "currentBlock": quantity(here),
                "highestBlock": quantity(known.max(likely)),
            })
        }
        _ => Value::Bool(false),
    }
}

/// Which history is here, as execution-apis' `eth_capabilities` says it. Blocks, transactions,
/// receipts and logs are cut together; there is no state.
fn capabilities(node: &Node) -> Result<Value, RpcError> {
    let heights = node.store.heights()?;
    let none = || RpcError::new(SERVER, "this node has no block yet");
    let ((head, hash), oldest) = heights.head.zip(heights.oldest).ok_or_else(none)?;
    let oldest = quantity(oldest);
    let kept = match window(&node.store.policy()) {
        Some(blocks) => json!({
            "disabled": false,
            "oldestBlock": oldest,
            "deleteStrategy": { "type": "window", "retentionBlocks": quantity(blocks) },
        }),
        None => json!({ "disabled": false, "oldestBlock": oldest }),
    };
    let none = json!({ "disabled": true });
    Ok(json!({
        "head": { "number": quantity(head), "hash": hash },
        "state": none,
        "tx": kept,
        "logs": kept,
        "receipts": kept,
        "blocks": kept,
        "stateproofs": none,
    }))
}

/// The sliding window of a policy that has nothing else; bytes and days are no number of blocks.
fn window(policy: &PrunePolicy) -> Option<u64> {
    let alone = policy.target_bytes == 0 && policy.retain_days == 0;
    (alone && policy.retain_blocks > 0).then_some(policy.retain_blocks.max(policy.min_keep_blocks))
}

/// JSON of at most `room` bytes; None if that is not enough. Nothing longer is ever in memory.
pub(super) fn render(value: &impl Serialize, room: usize) -> Result<Option<Vec<u8>>, RpcError> {
    let mut out = Bounded { bytes: Vec::new(), room };
    match serde_json::to_writer(&mut out, value) {
        Ok(()) => Ok(Some(out.bytes)),
        Err(error) if error.is_io() => Ok(None),
        Err(error) => Err(RpcError::internal(format!("an answer cannot be written: {error}"))),
    }
}

struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if more.len() > self.room - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
