//! The generator itself: block `n` of a chain, made without the blocks below it.

use alloy_consensus::proofs::{calculate_transaction_root, ordered_trie_root_encoded};
use alloy_consensus::{
    BlockBody, EMPTY_OMMER_ROOT_HASH, EMPTY_ROOT_HASH, Header, Receipt, ReceiptEnvelope,
    SignableTransaction,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{B256, Bloom, Bytes};
use secateur_core::{
    Block, BlockHash, BlockMeta, Height, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
};

use crate::action::Context;
use crate::data::{self, Lengths};
use crate::draft::Draft;
use crate::logs::Events;
use crate::pool::{Account, Pool};
use crate::schedule::Schedule;
use crate::seeded::Seeded;
use crate::{ChainSpec, EvmBlock, EvmError, SignedTx, gas};

/// What the header's extra data says.
const EXTRA_DATA: &[u8] = b"secateur generated chain";

/// Makes the blocks of one chain, in any order.
pub struct Generator {
    spec: ChainSpec,
    pool: Pool,
    events: Events,
    schedule: Schedule,
    gas_limit: u64,
}

/// A block's transactions and receipts while they are being made.
#[derive(Default)]
struct Body {
    transactions: Vec<SignedTx>,
    receipts: Vec<Vec<u8>>,
    bloom: Bloom,
    gas_used: u64,
}

impl Generator {
    /// Checks the spec and derives the senders' keys.
    pub fn new(spec: ChainSpec) -> Result<Self, EvmError> {
        spec.check()?;
        let pool = Pool::new(spec.seed)?;
        let schedule = Schedule::new(&spec, pool.senders.len() as u64);
        let transactions = schedule.peak_transactions();
        let calldata = data::most_calldata(&spec, transactions);
        Ok(Self {
            spec,
            pool,
            events: Events::new(),
            schedule,
            gas_limit: gas::block_limit(transactions, calldata),
        })
    }

    /// The chain, from its first block on.
    pub fn blocks(&self) -> impl Iterator<Item = Result<Block, EvmError>> + '_ {
        let mut parent = BlockHash::default();
        (0..).map(move |height| {
            let block = self.block(height, parent)?;
            parent = block.meta.hash;
            Ok(block)
        })
    }

    /// Block `height` on top of `parent_hash`. Depends on the spec and these two alone; the parent
    /// hash is the only thing taken from the block below. Block 0 is empty and stands on the zero
    /// hash, and any other parent is refused for it.
    pub fn block(&self, height: Height, parent_hash: BlockHash) -> Result<Block, EvmError> {
        if height == 0 && parent_hash != BlockHash::default() {
            let parent = parent_hash;
            return Err(EvmError::GenesisParent { parent });
        }
        let timestamp = self.timestamp(height)?;
        let mut draws = Seeded::new(self.spec.seed, "block", height);
        let body = self.body(height, &mut draws)?;
        let header = Header {
            parent_hash: parent_hash.0.into(),
            ommers_hash: EMPTY_OMMER_ROOT_HASH,
            beneficiary: draws.pick(&self.pool.builders),
            // Nothing is executed, so there is no state to have a root.
            state_root: draws.word(),
            transactions_root: calculate_transaction_root(&body.transactions),
            receipts_root: ordered_trie_root_encoded(&body.receipts),
            logs_bloom: body.bloom,
            number: height,
            gas_limit: self.gas_limit,
            gas_used: body.gas_used,
            timestamp,
            extra_data: Bytes::from_static(EXTRA_DATA),
            mix_hash: draws.word(),
            base_fee_per_gas: Some(gas::BASE_FEE),
            withdrawals_root: Some(EMPTY_ROOT_HASH),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(if height == 0 { B256::ZERO } else { draws.word() }),
            ..Header::default()
        };
        let meta =
            BlockMeta { height, hash: BlockHash(header.hash_slow().0), parent_hash, timestamp };
        let payloads = body.into_payloads(header)?;
        Ok(Block { meta, payloads })
    }

    fn timestamp(&self, height: Height) -> Result<u64, EvmError> {
        self.spec
            .block_time
            .checked_mul(height)
            .and_then(|since| since.checked_add(self.spec.genesis_time))
            .ok_or(EvmError::HeightOutOfRange { height, what: "timestamp" })
    }

    fn body(&self, height: Height, draws: &mut Seeded) -> Result<Body, EvmError> {
        let mut context = Context {
            chain_id: self.spec.chain_id,
            pool: &self.pool,
            events: &self.events,
            lengths: Lengths::draw(draws, &self.spec),
        };
        let mut body = Body::default();
        for (sender, nonce) in self.turns(height, draws)? {
            let draft = Draft::draw(draws, &mut context, sender.address, nonce);
            body.push(sender, draft)?;
        }
        Ok(body)
    }

    /// Who sends in this block, in a seeded order in which each sender's nonces still rise.
    fn turns(&self, height: Height, draws: &mut Seeded) -> Result<Vec<(&Account, u64)>, EvmError> {
        let mut nonces = self.schedule.nonces(height)?;
        let mut order: Vec<usize> = nonces
            .iter()
            .enumerate()
            .flat_map(|(place, range)| range.clone().map(move |_| place))
            .collect();
        draws.shuffle(&mut order);
        let turn = |place: usize| {
            let sender = self.pool.senders.get(place)?;
            Some((sender, nonces.get_mut(place)?.next()?))
        };
        Ok(order.into_iter().filter_map(turn).collect())
    }
}

impl Body {
    /// Signs a drawn transaction and adds it with its receipt.
    fn push(&mut self, sender: &Account, draft: Draft) -> Result<(), EvmError> {
        let signature = sender.sign(&draft.tx.signature_hash())?;
        self.gas_used += draft.gas_used;
        let receipt = Receipt {
            status: draft.success.into(),
            cumulative_gas_used: self.gas_used,
            logs: draft.logs,
        };
        let receipt = ReceiptEnvelope::from_typed(draft.tx.tx_type(), receipt.with_bloom());
        self.bloom.accrue_bloom(receipt.logs_bloom());
        self.receipts.push(receipt.encoded_2718());
        self.transactions.push(draft.tx.into_envelope(signature));
        Ok(())
    }

    fn into_payloads(self, header: Header) -> Result<Payloads, EvmError> {
        let height = header.number;
        let mut payloads = Payloads::default();
        for (index, (tx, receipt)) in (0..).zip(self.transactions.iter().zip(&self.receipts)) {
            let tx_id = TxId(tx.tx_hash().0);
            push_receipt(&mut payloads.receipts, &tx_id, receipt)?;
            let entry = TxIndexEntry { tx_id, height, index };
            push_tx_index(&mut payloads.tx_index, &entry);
        }
        let body = BlockBody {
            transactions: self.transactions,
            ommers: Vec::new(),
            withdrawals: Some(Vec::new().into()),
        };
        payloads.block = alloy_rlp::encode(EvmBlock::new(header, body));
        Ok(payloads)
    }
}
