//! Asking for whole blocks: the blocks, their receipts in whichever way the source has them, and
//! the uncles of old ones. Where the receipts of one block are too long for one answer, they are
//! asked for one by one.

use bytes::Bytes;
use secateur_core::{BlockHash, Height};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::FollowError;
use super::chain::hex;
use super::convert::{RawBlock, RawReceipts, Unfit, stated_hash};
use super::envelope::{Answer, Call, Kind, shown};
use super::source::Source;

const BLOCK: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";
const RECEIPT: &str = "eth_getTransactionReceipt";
const UNCLE: &str = "eth_getUncleByBlockNumberAndIndex";

/// No chain has more uncles in a block; the protocol's own limit is 2.
const MAX_UNCLES: usize = 16;

/// Each block is as the source gave it, or says why it cannot be had.
pub(super) type Found = Vec<Result<RawBlock, Lacking>>;

/// A block of which something cannot be had, with what the source sent of it all the same: the block
/// itself is empty where that did not come either.
#[derive(Debug)]
pub(super) struct Lacking {
    block: Bytes,
    pub(super) bytes: usize,
    pub(super) reason: Box<Unfit>,
}

impl Lacking {
    /// The hash that the source states for it, if the block itself came.
    pub(super) fn stated_hash(&self) -> Option<BlockHash> {
        stated_hash(&self.block)
    }
}

/// A block whose uncles, and perhaps receipts, are still to be asked for.
struct Half {
    height: Height,
    block: Bytes,
    receipts: Option<Bytes>,
}

impl Half {
    fn whole(self, uncles: Vec<Bytes>, each: Vec<Bytes>) -> RawBlock {
        let receipts = self.receipts.map_or(RawReceipts::Each(each), RawReceipts::All);
        RawBlock { height: self.height, block: self.block, receipts, uncles }
    }

    /// What there is of it, where `more` came beside it and something else did not.
    fn lacking(self, more: usize, reason: Unfit) -> Lacking {
        let bytes = self.block.len() + self.receipts.map_or(0, |list| list.len()) + more;
        Lacking { block: self.block, bytes, reason: Box::new(reason) }
    }
}

/// What belongs to a block and is not in the first answer.
#[derive(Default)]
struct Needs {
    uncles: usize,
    transactions: Vec<String>,
}

/// Asks for whole blocks.
pub(super) async fn blocks(source: &Source, heights: &[Height]) -> Result<Found, FollowError> {
    let halves = halves(source, heights).await?;
    let looked = tokio::task::spawn_blocking(move || {
        let look = |half: Result<Half, Lacking>| match half.map(|half| (needs(&half), half))? {
            (Ok(needs), half) => Ok((half, needs)),
            (Err(reason), half) => Err(half.lacking(0, reason)),
        };
        halves.into_iter().map(look).collect::<Vec<Result<(Half, Needs), Lacking>>>()
    });
    let looked = looked.await.map_err(|error| FollowError::Fatal(error.into()))?;
    let calls: Vec<Call> =
        looked.iter().flatten().flat_map(|(half, needs)| needs.calls(half.height)).collect();
    let mut more = Vec::with_capacity(calls.len());
    if !calls.is_empty() {
        for (call, answer) in calls.iter().zip(source.ask(&calls).await?) {
            more.push(had(call.method, answer));
        }
    }
    let mut more = more.into_iter();
    let whole = looked.into_iter().map(|looked| {
        let (half, needs) = looked?;
        // All of its answers are taken, even if one of them is missing.
        let uncles: Vec<_> = more.by_ref().take(needs.uncles).collect();
        let each: Vec<_> = more.by_ref().take(needs.transactions.len()).collect();
        let sent = uncles.iter().chain(&each).flatten().map(Bytes::len).sum();
        let all = |list: Vec<Result<Bytes, Unfit>>| list.into_iter().collect::<Result<Vec<_>, _>>();
        match all(uncles).and_then(|uncles| Ok((uncles, all(each)?))) {
            Ok((uncles, each)) => Ok(half.whole(uncles, each)),
            Err(reason) => Err(half.lacking(sent, reason)),
        }
    });
    Ok(whole.collect())
}

async fn halves(
    source: &Source,
    heights: &[Height],
) -> Result<Vec<Result<Half, Lacking>>, FollowError> {
    let by_block = source.has_block_receipts();
    let mut calls = Vec::with_capacity(heights.len() * 2);
    for height in heights {
        calls.push(Call::new(BLOCK, json!([hex(*height), true])));
        if by_block {
            calls.push(Call::new(RECEIPTS, json!([hex(*height)])));
        }
    }
    let mut answers = source.ask(&calls).await?.into_iter();
    let mut halves = Vec::with_capacity(heights.len());
    for height in heights {
        let block = had(BLOCK, answers.next().unwrap_or(Ok(None)));
        let receipts = match by_block.then(|| answers.next()).flatten() {
            Some(Err(refusal)) if refusal.kind() == Kind::NoMethod => {
                source.lacks_block_receipts();
                Ok(None)
            }
            // Only those of this block: one by one they are shorter.
            Some(Err(refusal)) if refusal.kind() == Kind::TooMuch => Ok(None),
            Some(answer) => had(RECEIPTS, answer).map(Some),
            None => Ok(None),
        };
        let half = |block, receipts| Half { height: *height, block, receipts };
        halves.push(match (block, receipts) {
            (Ok(block), Ok(receipts)) => Ok(half(block, receipts)),
            (Ok(block), Err(reason)) => Err(half(block, None).lacking(0, reason)),
            (Err(reason), _) => Err(half(Bytes::new(), None).lacking(0, reason)),
        });
    }
    Ok(halves)
}

/// What an answer holds; one that holds nothing is about one block, and not about its neighbours.
fn had(what: &'static str, answer: Answer) -> Result<Bytes, Unfit> {
    match answer {
        Ok(found) => found.ok_or(Unfit::Absent),
        Err(reason) if reason.kind() == Kind::TooMuch => Err(Unfit::TooLong { what, reason }),
        Err(reason) => Err(Unfit::Denied { what, reason }),
    }
}

/// Looks into a block for what belongs to it.
fn needs(half: &Half) -> Result<Needs, Unfit> {
    #[derive(Deserialize)]
    struct Uncles {
        #[serde(default)]
        uncles: Vec<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct Transactions {
        transactions: Vec<Transaction>,
    }
    #[derive(Deserialize)]
    struct Transaction {
        hash: String,
    }
    let unreadable =
        |error: serde_json::Error| Unfit::Json { what: "block", reason: shown(&error.to_string()) };
    let found: Uncles = serde_json::from_slice(&half.block).map_err(unreadable)?;
    if found.uncles.len() > MAX_UNCLES {
        return Err(Unfit::TooManyUncles { found: found.uncles.len() });
    }
    let mut needs = Needs { uncles: found.uncles.len(), ..Needs::default() };
    if half.receipts.is_none() {
        let found: Transactions = serde_json::from_slice(&half.block).map_err(unreadable)?;
        needs.transactions = found.transactions.into_iter().map(|tx| tx.hash).collect();
    }
    Ok(needs)
}

impl Needs {
    fn calls(&self, height: Height) -> impl Iterator<Item = Call> {
        let place = move |index: usize| json!([hex(height), format!("{index:#x}")]);
        let uncles = (0..self.uncles).map(move |index| Call::new(UNCLE, place(index)));
        let each = self.transactions.iter().map(|hash| Call::new(RECEIPT, json!([hash])));
        uncles.chain(each)
    }
}
