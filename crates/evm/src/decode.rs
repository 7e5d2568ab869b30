//! A block taken apart: header, transactions, receipts, senders. The one place that decodes; how
//! much of it is checked on the way is the caller's choice ([`Verify`]), and the checks themselves
//! are in `verify`.

use alloy_consensus::transaction::SignerRecoverable;
use alloy_consensus::{ReceiptEnvelope, Sealed, TxReceipt as _};
use alloy_eips::eip2718::Decodable2718;
use alloy_primitives::Address;
use secateur_core::{BlockMeta, Height, Payloads, ReceiptEntry, receipts};

use crate::verify::{
    RECEIPTS, agree, check_body, check_canonical, check_chain, check_count, check_header,
    check_receipts, check_tx_index,
};
use crate::{EvmBlock, EvmError, SignedTx, VerifiedCounts};

/// A thread of its own is not worth it for fewer signatures than this.
const SIGNATURES_PER_THREAD: usize = 32;

/// How much of a block is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Everything that the header promises, and every signature.
    #[default]
    Full,
    /// The block's hash, number, parent and time, and that the transaction index names its
    /// transactions; not the roots.
    Hash,
    /// Only what cannot be decoded otherwise: the number, and that there are as many receipts as
    /// transactions.
    Off,
}

/// A block in its parts.
#[derive(Debug, Clone)]
pub struct DecodedBlock {
    /// Header and body under the block's hash.
    pub block: Sealed<EvmBlock>,
    /// One for each transaction.
    pub receipts: Vec<ReceiptEnvelope>,
    /// Who signed each transaction.
    pub senders: Vec<Address>,
    /// How much that is.
    pub counts: VerifiedCounts,
}

/// Takes blocks of one chain apart.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// The chain that transactions must be signed for, where signatures are checked.
    pub chain_id: u64,
    /// How much is checked.
    pub verify: Verify,
    /// Threads that recover the senders of one block; a small block uses fewer.
    pub threads: usize,
}

/// What a block's receipts tell of when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// They hold a state root each.
    BeforeByzantium,
    /// They say whether their transaction succeeded.
    SinceByzantium,
}

/// A block in its parts, before anybody asked who signed.
pub(crate) struct Unsigned {
    block: Sealed<EvmBlock>,
    receipts: Vec<ReceiptEnvelope>,
}

impl Unsigned {
    pub(crate) fn counts(&self) -> VerifiedCounts {
        count(&self.receipts)
    }
}

impl Decoder {
    /// Takes the block of a height apart. `meta` is what its source says of it, if it says it.
    pub fn decode(
        &self,
        height: Height,
        meta: Option<&BlockMeta>,
        payloads: &Payloads,
    ) -> Result<DecodedBlock, EvmError> {
        let Unsigned { block, receipts } = self.take_apart(height, meta, payloads)?;
        // Signatures cost the most by far, so they come last.
        let strict = self.verify == Verify::Full && age_of(&receipts) == Age::SinceByzantium;
        let senders = recover_all(&block.body.transactions, strict, self.threads)?;
        let counts = count(&receipts);
        Ok(DecodedBlock { block, receipts, senders, counts })
    }

    /// Everything but the senders.
    pub(crate) fn take_apart(
        &self,
        height: Height,
        meta: Option<&BlockMeta>,
        payloads: &Payloads,
    ) -> Result<Unsigned, EvmError> {
        let mut rest = payloads.block.as_slice();
        let block = EvmBlock::decode_sealed(&mut rest).map_err(EvmError::BlockRlp)?;
        let (full, off) = (self.verify == Verify::Full, self.verify == Verify::Off);
        agree("block number", &height, &block.header.number)?;
        if full {
            check_canonical(&payloads.block, &block)?;
        }
        if let Some(meta) = meta.filter(|_| !off) {
            check_header(meta, &block)?;
        }
        if full {
            check_body(&block)?;
        }
        let transactions = &block.body.transactions;
        if !off {
            check_tx_index(height, payloads, transactions)?;
        }
        let entries: Vec<_> = receipts(&payloads.receipts).collect::<Result<_, _>>()?;
        check_count(RECEIPTS, entries.len(), transactions)?;
        let decoded = decode_receipts(&entries)?;
        if full {
            check_receipts(&block.header, transactions, &entries, &decoded)?;
            check_chain(transactions, self.chain_id)?;
        }
        Ok(Unsigned { block, receipts: decoded })
    }
}

fn decode_receipts(entries: &[ReceiptEntry<'_>]) -> Result<Vec<ReceiptEnvelope>, EvmError> {
    let decode = |(index, entry): (usize, &ReceiptEntry<'_>)| {
        ReceiptEnvelope::decode_2718_exact(entry.bytes)
            .map_err(|source| EvmError::Receipt { index, source })
    };
    entries.iter().enumerate().map(decode).collect()
}

fn age_of(receipts: &[ReceiptEnvelope]) -> Age {
    let old = receipts.iter().any(|receipt| receipt.status_or_post_state().is_post_state());
    if old { Age::BeforeByzantium } else { Age::SinceByzantium }
}

fn count(receipts: &[ReceiptEnvelope]) -> VerifiedCounts {
    let mut counts = VerifiedCounts::default();
    for receipt in receipts {
        counts.transactions += 1;
        counts.failed += u64::from(!receipt.status());
        counts.logs += receipt.logs().len() as u64;
        counts.gas_used = receipt.cumulative_gas_used();
    }
    counts
}

/// The senders in order; on several threads where that is worth it.
fn recover_all(
    transactions: &[SignedTx],
    strict: bool,
    threads: usize,
) -> Result<Vec<Address>, EvmError> {
    let threads = threads.min(transactions.len() / SIGNATURES_PER_THREAD).max(1);
    if threads == 1 {
        return recover(transactions, 0, strict);
    }
    let share = transactions.len().div_ceil(threads);
    let shares: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..)
            .step_by(share)
            .zip(transactions.chunks(share))
            .map(|(first, some)| scope.spawn(move || recover(some, first, strict)))
            .collect();
        started.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut senders = Vec::with_capacity(transactions.len());
    for share in shares {
        // A thread ends without an answer only by a panic, which goes on here.
        senders.append(&mut share.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    Ok(senders)
}

fn recover(
    transactions: &[SignedTx],
    first: usize,
    strict: bool,
) -> Result<Vec<Address>, EvmError> {
    let one = |(index, tx): (usize, &SignedTx)| {
        let sender = if strict { tx.recover_signer() } else { tx.recover_signer_unchecked() };
        sender.map_err(|source| EvmError::Signature { index: first + index, source })
    };
    transactions.iter().enumerate().map(one).collect()
}
