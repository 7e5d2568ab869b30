//! The demo's UTXO chain: which transactions each height has, as a function of the height, so that a
//! run that was cut off goes on where it was.
//!
//! Every height has a coinbase, a transaction that spends the one that has just ripened, and one that
//! spends what that one left two heights before. Some are large. Now and then a transaction waits long
//! for a block, and one of three of those loses a double spend. Now and then a block is replaced.

use bytes::Bytes;
use secateur_proto::utxo::v1 as pb;
use secateur_utxo::TxId;
use sha2::{Digest as _, Sha256};

/// Blocks that a coinbase ripens in.
pub(super) const MATURITY: u64 = 5;
/// A transaction is spent so many heights after it.
const REST: u64 = 2;
/// Every so many heights a transaction is made that waits for a block, and for how long.
const WAITERS: u64 = 20;
const FIRST_WAITER: u64 = 10;
const WAIT: u64 = 15;
/// Every so many heights the block before is replaced.
const FORKS: u64 = 25;
/// Every so many heights a transaction, or a coinbase, is large.
const LARGE: u64 = 8;
const LARGE_BYTES: usize = 96 * 1024;

/// The transactions of a height.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Coinbase,
    /// Spends a coinbase.
    Spend,
    /// Spends that.
    Gather,
    /// Spends that, and waits for a block.
    Waiter,
}

/// A chain of a seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    pub(super) seed: u64,
}

/// What happens at a height, in this order.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) create: pb::CreateRequest,
    /// A transaction that lost a double spend.
    pub(super) lost: Option<pb::SetConflictingRequest>,
    /// A transaction that a block holds at last.
    pub(super) mined: Option<pb::SetMinedRequest>,
    /// A block that was replaced by another one.
    pub(super) replaced: Option<(pb::UnsetMinedRequest, pb::SetMinedRequest)>,
}

impl Chain {
    fn hash(self, what: &str, height: u64, fork: u8) -> Bytes {
        let mut hash = Sha256::new();
        for part in [b"secateur demo utxo".as_slice(), what.as_bytes(), &[fork]] {
            hash.update(part);
        }
        hash.update(self.seed.to_be_bytes());
        hash.update(height.to_be_bytes());
        Bytes::copy_from_slice(&hash.finalize())
    }

    fn txid(self, kind: Kind, height: u64) -> Bytes {
        self.hash(&format!("{kind:?}"), height, 0)
    }

    fn block(self, height: u64, fork: u8) -> pb::BlockRef {
        pb::BlockRef { hash: self.hash("block", height, fork), height }
    }

    /// The id of the coinbase of a height, as people write it.
    pub(super) fn coinbase(self, height: u64) -> String {
        shown(&self.txid(Kind::Coinbase, height))
    }

    /// The id of the newest transaction whose child has waited for a block, if there is one.
    pub(super) fn waited_for(self, head: u64) -> Option<String> {
        let waiter = (FIRST_WAITER..=head).rev().find(|height| is_waiter(*height))?;
        Some(shown(&self.txid(Kind::Gather, waiter - 1)))
    }

    fn transaction(self, kind: Kind, height: u64) -> pb::NewTransaction {
        let spends = |kind, height, outputs: u32| -> Vec<pb::OutPoint> {
            (0..outputs).map(|n| pb::OutPoint { txid: self.txid(kind, height), n }).collect()
        };
        let (inputs, outputs, large) = match kind {
            Kind::Coinbase => (Vec::new(), 2, height.is_multiple_of(2 * LARGE)),
            Kind::Spend => {
                (spends(Kind::Coinbase, height - MATURITY, 2), 2, height.is_multiple_of(LARGE))
            }
            Kind::Gather => (spends(Kind::Spend, height - REST, 2), 1, false),
            Kind::Waiter => (spends(Kind::Gather, height - 1, 1), 1, false),
        };
        let txid = self.txid(kind, height);
        let len = if large { LARGE_BYTES } else { txid.len() };
        pb::NewTransaction {
            body: txid.iter().copied().cycle().take(len).collect(),
            coinbase: inputs.is_empty(),
            mined: (!matches!(kind, Kind::Waiter)).then(|| self.block(height, 0)),
            txid,
            inputs,
            outputs,
            ..pb::NewTransaction::default()
        }
    }

    fn made_at(height: u64) -> Vec<Kind> {
        let first_gather = MATURITY + REST;
        [
            (Kind::Coinbase, true),
            (Kind::Spend, height >= MATURITY),
            (Kind::Gather, height >= first_gather),
            (Kind::Waiter, is_waiter(height)),
        ]
        .into_iter()
        .filter_map(|(kind, is_there)| is_there.then_some(kind))
        .collect()
    }

    /// The transactions that a block of this height holds.
    fn held_at(self, height: u64) -> Vec<Bytes> {
        let made = Self::made_at(height).into_iter();
        let made = made.filter(|kind| !matches!(kind, Kind::Waiter));
        let waited = height.checked_sub(WAIT).filter(|since| is_waiter(*since) && !loses(*since));
        made.map(|kind| self.txid(kind, height))
            .chain(waited.map(|since| self.txid(Kind::Waiter, since)))
            .collect()
    }

    /// What happens at a height.
    pub(super) fn step(self, height: u64) -> Step {
        let made = Self::made_at(height);
        let transactions = made.into_iter().map(|kind| self.transaction(kind, height)).collect();
        let mut step =
            Step { create: pb::CreateRequest { height, transactions }, ..Step::default() };
        if let Some(since) = height.checked_sub(WAIT).filter(|since| is_waiter(*since)) {
            let txid = self.txid(Kind::Waiter, since);
            if loses(since) {
                let conflicting = true;
                step.lost = Some(pb::SetConflictingRequest { height, txid, conflicting });
            } else {
                let block = Some(self.block(height, 0));
                step.mined = Some(pb::SetMinedRequest { height, txids: vec![txid], block });
            }
        }
        if let Some(before) = height.checked_sub(1).filter(|_| height.is_multiple_of(FORKS)) {
            let txids = self.held_at(before);
            let old = self.block(before, 0).hash;
            let out = pb::UnsetMinedRequest { height: before, txids: txids.clone(), block: old };
            let block = Some(self.block(before, 1));
            step.replaced = Some((out, pb::SetMinedRequest { height, txids, block }));
        }
        step
    }
}

const fn is_waiter(height: u64) -> bool {
    height % WAITERS == FIRST_WAITER
}

const fn loses(since: u64) -> bool {
    since / WAITERS % 3 == 2
}

/// An id as people write it: its bytes turned round.
fn shown(id: &[u8]) -> String {
    id.try_into().map(|id| TxId(id).to_string()).unwrap_or_default()
}
