//! What the verifier must refuse: single flipped bytes, and blocks that lie consistently.

use alloy_consensus::proofs::{calculate_receipt_root, calculate_transaction_root};
use alloy_consensus::{
    Eip658Value, EthereumTypedTransaction, Receipt, ReceiptEnvelope, Transaction, TxType,
};
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use alloy_primitives::{Address, B256, Bloom, Signature, U256};
use secateur_core::{
    Block, BlockHash, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index, receipts,
};

use crate::tests::{chain, decode};
use crate::{ChainSpec, Decoder, EvmBlock, EvmError, SignedTx, Verify, verify_block, verify_roots};

const CHAIN_ID: u64 = 1337;

type Payload = fn(&mut Payloads) -> &mut Vec<u8>;
const PAYLOADS: [Payload; 3] = [|p| &mut p.block, |p| &mut p.receipts, |p| &mut p.tx_index];

type Lie = fn(&mut Forgery);

pub(super) fn decode_receipts(block: &Block) -> Vec<ReceiptEnvelope> {
    receipts(&block.payloads.receipts)
        .map(|entry| ReceiptEnvelope::decode_2718_exact(entry.unwrap().bytes).unwrap())
        .collect()
}

/// A small block with several transactions, logs included.
fn sample() -> Block {
    chain(ChainSpec::default(), 40)
        .into_iter()
        .filter(|block| block.payloads.tx_index.len() > 6 * 48)
        .min_by_key(|block| block.payloads.total_len())
        .unwrap()
}

/// A block taken apart, to be changed and put together again with roots that fit the change.
struct Forgery {
    evm: EvmBlock,
    receipts: Vec<ReceiptEnvelope>,
}

impl Forgery {
    fn new() -> Self {
        let block = sample();
        Self { evm: decode(&block), receipts: decode_receipts(&block) }
    }

    /// The forged block with its roots, ids and hash recomputed.
    fn block(mut self) -> Block {
        let header = &mut self.evm.header;
        header.transactions_root = calculate_transaction_root(&self.evm.body.transactions);
        header.receipts_root = calculate_receipt_root(&self.receipts);
        self.seal()
    }

    /// The forged block with only its hash recomputed.
    fn seal(self) -> Block {
        let header = &self.evm.header;
        let meta = secateur_core::BlockMeta {
            height: header.number,
            hash: BlockHash(header.hash_slow().0),
            parent_hash: BlockHash(header.parent_hash.0),
            timestamp: header.timestamp,
        };
        let mut payloads = Payloads { block: alloy_rlp::encode(&self.evm), ..Payloads::default() };
        for (index, tx) in (0..).zip(&self.evm.body.transactions) {
            let tx_id = TxId(tx.tx_hash().0);
            let entry = TxIndexEntry { tx_id, height: meta.height, index };
            push_tx_index(&mut payloads.tx_index, &entry);
            let receipt = self.receipts[index as usize].encoded_2718();
            push_receipt(&mut payloads.receipts, &tx_id, &receipt).unwrap();
        }
        Block { meta, payloads }
    }

    fn receipt(&mut self, index: usize) -> &mut Receipt {
        let receipt = self.receipts[index].as_receipt_with_bloom_mut().unwrap();
        &mut receipt.receipt
    }
}

fn refused(block: &Block) -> EvmError {
    verify_block(block, CHAIN_ID).unwrap_err()
}

fn mismatch(block: &Block) -> &'static str {
    match refused(block) {
        EvmError::Mismatch { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn flipping_any_byte_of_any_payload_is_noticed() {
    let good = sample();
    verify_block(&good, CHAIN_ID).unwrap();
    for payload in PAYLOADS {
        let len = payload(&mut good.payloads.clone()).len();
        for place in 0..len {
            for flip in [0x01, 0x80] {
                let mut bad = good.clone();
                payload(&mut bad.payloads)[place] ^= flip;
                assert!(verify_block(&bad, CHAIN_ID).is_err(), "byte {place} ^ {flip}");
            }
        }
    }
}

#[test]
fn bytes_missing_or_left_over_at_the_end_are_noticed() {
    let good = sample();
    for payload in PAYLOADS {
        let mut short = good.clone();
        payload(&mut short.payloads).pop();
        refused(&short);
        let mut long = good.clone();
        payload(&mut long.payloads).push(0);
        refused(&long);
        let mut empty = good.clone();
        payload(&mut empty.payloads).clear();
        refused(&empty);
    }
}

#[test]
fn a_wrong_meta_is_refused_field_by_field() {
    let good = sample();
    let mut bad = good.clone();
    bad.meta.hash.0[0] ^= 1;
    assert_eq!(mismatch(&bad), "block hash");
    let mut bad = good.clone();
    bad.meta.parent_hash.0[0] ^= 1;
    assert_eq!(mismatch(&bad), "parent hash");
    let mut bad = good.clone();
    bad.meta.height += 1;
    assert_eq!(mismatch(&bad), "block number");
    let mut bad = good;
    bad.meta.timestamp += 1;
    assert_eq!(mismatch(&bad), "timestamp");
}

#[test]
fn a_header_that_lies_about_its_body_is_refused_field_by_field() {
    let lies: [(Lie, &str); 5] = [
        (|f| f.evm.header.transactions_root = B256::ZERO, "transactions root"),
        (|f| f.evm.header.receipts_root = B256::ZERO, "receipts root"),
        (|f| f.evm.header.ommers_hash = B256::ZERO, "ommers hash"),
        (|f| f.evm.header.gas_used += 1, "gas used"),
        (|f| f.evm.header.withdrawals_root = Some(B256::ZERO), "withdrawals root"),
    ];
    for (lie, what) in lies {
        let mut forgery = Forgery::new();
        lie(&mut forgery);
        assert_eq!(mismatch(&forgery.seal()), what);
    }
    let mut forgery = Forgery::new();
    forgery.evm.body.withdrawals = None;
    assert_eq!(mismatch(&forgery.seal()), "withdrawals root");
}

#[test]
fn a_bloom_that_is_not_of_the_logs_is_refused_in_header_and_receipt() {
    let mut forgery = Forgery::new();
    forgery.evm.header.logs_bloom = Bloom::ZERO;
    assert!(matches!(refused(&forgery.block()), EvmError::Bloom { of } if of == "the header"));
    let mut forgery = Forgery::new();
    let last = forgery.receipts.last_mut().unwrap();
    last.as_receipt_with_bloom_mut().unwrap().logs_bloom = Bloom::repeat_byte(1);
    assert!(matches!(refused(&forgery.block()), EvmError::Bloom { of } if of != "the header"));
}

#[test]
fn a_receipt_of_another_type_or_with_impossible_gas_is_refused() {
    let mut forgery = Forgery::new();
    let receipt = forgery.receipt(0).clone();
    forgery.receipts[0] = ReceiptEnvelope::from_typed(TxType::Eip7702, receipt);
    let error = refused(&forgery.block());
    assert!(matches!(error, EvmError::ReceiptType { index: 0, .. }), "{error}");

    let mut forgery = Forgery::new();
    let first = forgery.receipt(0).cumulative_gas_used;
    forgery.receipt(1).cumulative_gas_used = first;
    let error = refused(&forgery.block());
    let nothing = matches!(error, EvmError::GasUsed { index: 1, used: 0, .. });
    assert!(nothing, "{error}");

    let mut forgery = Forgery::new();
    let limit = forgery.evm.body.transactions[0].gas_limit();
    forgery.receipt(0).cumulative_gas_used = limit + 1;
    let error = refused(&forgery.block());
    assert!(matches!(error, EvmError::GasUsed { index: 0, .. }), "{error}");
}

/// The order of the curve: `s` and this minus `s` sign the same.
const ORDER: U256 = U256::from_be_bytes([
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
    0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
]);

/// The same transaction under another signature.
fn resigned(tx: &SignedTx, signature: Signature) -> SignedTx {
    EthereumTypedTransaction::from(tx.clone()).into_envelope(signature)
}

#[test]
fn a_signature_with_a_high_s_is_refused_though_it_recovers() {
    let mut forgery = Forgery::new();
    let tx = &mut forgery.evm.body.transactions[2];
    let low = *tx.signature();
    *tx = resigned(tx, Signature::new(low.r(), ORDER - low.s(), !low.v()));
    let error = refused(&forgery.block());
    assert!(matches!(error, EvmError::Signature { index: 2, .. }), "{error}");
}

#[test]
fn a_signature_with_a_high_s_is_accepted_where_receipts_are_as_old_as_that() {
    let mut forgery = Forgery::new();
    for tx in &mut forgery.evm.body.transactions {
        let low = *tx.signature();
        *tx = resigned(tx, Signature::new(low.r(), ORDER - low.s(), !low.v()));
    }
    for index in 0..forgery.receipts.len() {
        forgery.receipt(index).status = Eip658Value::PostState(B256::repeat_byte(7));
    }
    verify_block(&forgery.block(), CHAIN_ID).unwrap();
}

#[test]
fn a_block_may_count_more_gas_than_its_receipts_only_where_it_has_an_access_list() {
    let mut forgery = Forgery::new();
    forgery.evm.header.gas_used += 5;
    assert_eq!(mismatch(&forgery.seal()), "gas used");
    let mut forgery = Forgery::new();
    let header = &mut forgery.evm.header;
    header.gas_used += 5;
    // A header's fields come one after the other, so that those before it must be there as well.
    header.blob_gas_used = Some(0);
    header.excess_blob_gas = Some(0);
    header.parent_beacon_block_root = Some(B256::ZERO);
    header.requests_hash = Some(B256::ZERO);
    header.block_access_list_hash = Some(B256::ZERO);
    verify_block(&forgery.seal(), CHAIN_ID).unwrap();
}

#[test]
fn a_signature_that_nobody_made_is_refused() {
    let mut forgery = Forgery::new();
    let tx = &mut forgery.evm.body.transactions[1];
    *tx = resigned(tx, Signature::new(U256::ZERO, U256::ONE, false));
    let error = refused(&forgery.block());
    assert!(matches!(error, EvmError::Signature { index: 1, .. }), "{error}");
}

#[test]
fn a_block_of_another_chain_is_refused() {
    let error = verify_block(&sample(), CHAIN_ID + 1).unwrap_err();
    assert!(matches!(error, EvmError::ChainId { found: CHAIN_ID, .. }), "{error}");
}

#[test]
fn entries_in_another_order_or_number_are_refused() {
    let good = sample();
    let mut bad = good.clone();
    bad.payloads.tx_index.rotate_left(48);
    assert!(matches!(refused(&bad), EvmError::TxId { index: 0, .. }));
    let mut bad = good.clone();
    bad.payloads.tx_index.truncate(48);
    assert!(matches!(refused(&bad), EvmError::Count { found: 1, .. }));
    let mut bad = good;
    bad.payloads.tx_index[47] ^= 1;
    assert!(matches!(refused(&bad), EvmError::Place { place: 1, .. }));
}

#[test]
fn a_decoded_block_names_the_same_senders_on_any_number_of_threads() {
    let spec = ChainSpec { transactions_per_block: 150, ..ChainSpec::default() };
    let block = chain(spec, 3).pop().unwrap();
    let decode = |threads, verify| {
        let decoder = Decoder { chain_id: spec.chain_id, verify, threads };
        decoder.decode(2, Some(&block.meta), &block.payloads).unwrap()
    };
    let one = decode(1, Verify::Full);
    assert!(one.senders.len() > 64, "{}", one.senders.len());
    for (threads, verify) in [(2, Verify::Full), (3, Verify::Hash), (8, Verify::Off)] {
        let other = decode(threads, verify);
        assert_eq!(other.senders, one.senders);
        assert_eq!(other.receipts, one.receipts);
        assert_eq!(other.counts, one.counts);
    }
}

#[test]
fn what_is_not_to_be_verified_is_not_but_the_rest_is() {
    let mut block = sample();
    let decode = |block: &Block, verify| {
        let decoder = Decoder { chain_id: CHAIN_ID, verify, threads: 1 };
        decoder.decode(block.meta.height, Some(&block.meta), &block.payloads)
    };
    // A receipt's cumulative gas is under the receipts root alone.
    block.payloads.receipts[36 + 9] ^= 1;
    assert!(decode(&block, Verify::Full).is_err());
    let good = sample();
    let mut other = good.clone();
    other.meta.parent_hash.0[0] ^= 1;
    assert!(decode(&other, Verify::Hash).is_err());
    assert!(decode(&other, Verify::Off).is_ok());
    other.meta.height += 1;
    assert!(decode(&other, Verify::Off).is_err());
}

#[test]
fn roots_alone_are_checked_where_nobody_asks_who_signed() {
    let mut forgery = Forgery::new();
    let tx = &mut forgery.evm.body.transactions[1];
    *tx = resigned(tx, Signature::new(U256::ZERO, U256::ONE, false));
    let block = forgery.block();
    assert!(matches!(refused(&block), EvmError::Signature { index: 1, .. }));
    // Its hash and roots are those of these bytes, and that is all that is asked.
    let found = verify_roots(&block, CHAIN_ID).unwrap();
    assert_eq!(found, verify_block(&sample(), CHAIN_ID).unwrap());
}

#[test]
fn every_byte_counts_for_the_roots_too_signatures_included() {
    let good = sample();
    verify_roots(&good, CHAIN_ID).unwrap();
    for payload in PAYLOADS {
        let len = payload(&mut good.payloads.clone()).len();
        for place in 0..len {
            let mut bad = good.clone();
            payload(&mut bad.payloads)[place] ^= 0x04;
            assert!(verify_roots(&bad, CHAIN_ID).is_err(), "byte {place}");
        }
    }
}

#[test]
fn a_changed_root_bloom_receipt_or_meta_is_refused_without_signatures_too() {
    let what = |block: &Block| match verify_roots(block, CHAIN_ID).unwrap_err() {
        EvmError::Mismatch { what, .. } => what.to_owned(),
        EvmError::Bloom { of } => format!("bloom of {of}"),
        other => panic!("{other}"),
    };
    let lies: [(Lie, &str); 5] = [
        (|f| f.evm.header.transactions_root = B256::ZERO, "transactions root"),
        (|f| f.evm.header.receipts_root = B256::ZERO, "receipts root"),
        (|f| f.evm.header.withdrawals_root = Some(B256::ZERO), "withdrawals root"),
        (|f| f.evm.header.logs_bloom = Bloom::ZERO, "bloom of the header"),
        (|f| f.receipt(0).cumulative_gas_used += 1, "receipts root"),
    ];
    for (lie, wanted) in lies {
        let mut forgery = Forgery::new();
        lie(&mut forgery);
        assert_eq!(what(&forgery.seal()), wanted);
    }
    let mut forgery = Forgery::new();
    let last = forgery.receipts.len() - 1;
    forgery.receipts[last].as_receipt_with_bloom_mut().unwrap().logs_bloom = Bloom::repeat_byte(1);
    assert_eq!(what(&forgery.block()), format!("bloom of receipt {last}"));
    // A log that was put elsewhere, in a receipt whose own bloom and root were made to fit it.
    let mut forgery = Forgery::new();
    let with_logs = |receipt: &ReceiptEnvelope| !receipt.logs().is_empty();
    let index = forgery.receipts.iter().position(with_logs).unwrap();
    forgery.receipt(index).logs[0].address = Address::repeat_byte(9);
    let with_bloom = forgery.receipts[index].as_receipt_with_bloom_mut().unwrap();
    with_bloom.logs_bloom = with_bloom.receipt.logs.iter().collect();
    assert_eq!(what(&forgery.block()), "bloom of the header");
    let mut other = sample();
    other.meta.hash.0[0] ^= 1;
    assert_eq!(what(&other), "block hash");
    assert!(verify_roots(&sample(), CHAIN_ID + 1).is_err());
}
