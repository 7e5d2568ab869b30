//! The chain as a whole: it verifies, links, repeats, and varies as it should.

use std::collections::{HashMap, HashSet};

use alloy_consensus::transaction::SignerRecoverable;
use alloy_consensus::{Transaction, TxType};
use alloy_eips::eip1559::BaseFeeParams;
use alloy_primitives::{Address, Log};
use alloy_rlp::Decodable;
use secateur_core::{Block, BlockHash, MAX_SEGMENT_LEN, Segment};

use crate::spec::MAX_CHAIN_ID;
use crate::{ChainSpec, EvmBlock, EvmError, Generator, gas, verify_block};

/// The first `count` blocks of the chain of `spec`.
pub(super) fn chain(spec: ChainSpec, count: u64) -> Vec<Block> {
    let generator = Generator::new(spec).unwrap();
    generator.blocks().take(usize::try_from(count).unwrap()).map(Result::unwrap).collect()
}

pub(super) fn decode(block: &Block) -> EvmBlock {
    EvmBlock::decode(&mut block.payloads.block.as_slice()).unwrap()
}

fn logs(block: &Block) -> Vec<Log> {
    super::verify_tests::decode_receipts(block)
        .into_iter()
        .flat_map(alloy_consensus::ReceiptEnvelope::into_logs)
        .collect()
}

#[test]
fn a_chain_of_200_blocks_verifies_and_links() {
    let spec = ChainSpec::default();
    let blocks = chain(spec, 200);
    let mut parent = BlockHash::default();
    let mut transactions = 0;
    for (height, block) in (0..).zip(&blocks) {
        assert_eq!(block.meta.height, height);
        assert_eq!(block.meta.parent_hash, parent);
        let timestamp = spec.genesis_time + height * spec.block_time;
        assert_eq!(block.meta.timestamp, timestamp);
        let counts = verify_block(block, spec.chain_id).unwrap();
        let checked = block.check(MAX_SEGMENT_LEN).unwrap();
        assert_eq!(counts.transactions, u64::from(checked));
        transactions += counts.transactions;
        parent = block.meta.hash;
    }
    assert!((2200..2600).contains(&transactions), "{transactions}");
}

#[test]
fn every_senders_nonces_are_sequential_from_zero() {
    let mut next: HashMap<Address, u64> = HashMap::new();
    for block in chain(ChainSpec::default(), 100) {
        for tx in &decode(&block).body.transactions {
            let nonce = next.entry(tx.recover_signer().unwrap()).or_default();
            assert_eq!(tx.nonce(), *nonce);
            *nonce += 1;
        }
    }
    assert_eq!(next.len(), 24);
}

#[test]
fn the_same_spec_gives_the_same_bytes_and_another_seed_gives_others() {
    let spec = ChainSpec::default();
    assert_eq!(chain(spec, 20), chain(spec, 20));
    let other = ChainSpec { seed: 2, ..spec };
    for (one, two) in chain(spec, 20).iter().zip(&chain(other, 20)) {
        assert_ne!(one.payloads.block, two.payloads.block);
    }
}

/// Stores, parts and benchmarks are compared across versions by the hashes of generated chains.
#[test]
fn the_default_chain_keeps_its_bytes_from_version_to_version() {
    let head = chain(ChainSpec::default(), 21).pop().unwrap();
    let known = "0x88c4b0234f94950f03fbb3942d17bbd8e2fb5721ab21d80d3f87ecbfdbc9db4c";
    assert_eq!(head.meta.hash.to_string(), known);
}

#[test]
fn a_block_made_alone_equals_the_same_block_made_in_sequence() {
    let spec = ChainSpec::default();
    let blocks = chain(spec, 60);
    for height in [1, 2, 30, 59] {
        let block = &blocks[height];
        let parent = blocks[height - 1].meta.hash;
        let alone = Generator::new(spec).unwrap();
        assert_eq!(*block, alone.block(height as u64, parent).unwrap());
    }
}

#[test]
fn the_parent_hash_changes_nothing_but_the_header() {
    let generator = Generator::new(ChainSpec::default()).unwrap();
    let one = generator.block(7, BlockHash([1; 32])).unwrap();
    let two = generator.block(7, BlockHash([2; 32])).unwrap();
    assert_ne!(one.meta.hash, two.meta.hash);
    assert_eq!(one.payloads.receipts, two.payloads.receipts);
    assert_eq!(decode(&one).body, decode(&two).body);
}

#[test]
fn genesis_is_empty_and_has_no_parent() {
    let generator = Generator::new(ChainSpec::default()).unwrap();
    let genesis = generator.block(0, BlockHash::default()).unwrap();
    assert!(decode(&genesis).body.transactions.is_empty());
    assert!(genesis.payloads.receipts.is_empty() && genesis.payloads.tx_index.is_empty());
    let error = generator.block(0, BlockHash([1; 32])).unwrap_err();
    assert!(matches!(error, EvmError::GenesisParent { .. }));
}

#[test]
fn most_blocks_are_small_and_a_few_are_large() {
    let blocks = chain(ChainSpec::default(), 800);
    let lens: Vec<u64> = blocks.iter().map(|b| b.payloads.total_len()).collect();
    let within = |low, high| lens.iter().filter(|len| (low..=high).contains(*len)).count();
    assert!(within(2_000, 20_000) > 600, "{}", within(2_000, 20_000));
    assert!(within(60_000, 220_000) > 8, "{}", within(60_000, 220_000));
    let different: HashSet<_> = lens.iter().collect();
    assert!(different.len() > 600, "{}", different.len());
}

#[test]
fn the_spec_sets_how_large_blocks_are_on_average() {
    let mean = |mean_calldata| {
        let spec = ChainSpec { mean_calldata, ..ChainSpec::default() };
        let blocks = chain(spec, 500);
        let all: u64 = blocks.iter().map(|b| b.payloads.total_len()).sum();
        all / 500
    };
    let (small, large) = (mean(0), mean(2048));
    // 12 transactions of 2048 bytes more: some 24 KB, with the spread that few large blocks bring.
    let more = large - small;
    assert!((16_000..34_000).contains(&more), "{small} {large}");
}

#[test]
fn every_kind_of_transaction_and_event_occurs() {
    let (mut kinds, mut failed, mut creations, mut plain, mut calls) = (HashMap::new(), 0, 0, 0, 0);
    let (mut events, mut emitters) = (HashSet::new(), HashMap::<Address, u32>::new());
    let spec = ChainSpec::default();
    for block in &chain(spec, 100) {
        failed += verify_block(block, spec.chain_id).unwrap().failed;
        for tx in &decode(block).body.transactions {
            *kinds.entry(tx.tx_type()).or_insert(0) += 1;
            creations += u32::from(tx.is_create());
            plain += u32::from(tx.input().is_empty());
            calls += u32::from(!tx.is_create() && !tx.input().is_empty());
        }
        for log in logs(block) {
            events.insert(log.topics()[0]);
            *emitters.entry(log.address).or_default() += 1;
        }
    }
    for kind in [TxType::Legacy, TxType::Eip2930, TxType::Eip1559] {
        assert!(kinds[&kind] > 50, "{kind}: {}", kinds[&kind]);
    }
    assert!(failed > 10 && creations > 10 && plain > 100 && calls > 300);
    assert_eq!(events.len(), 3);
    assert!(emitters.values().any(|count| *count > 100));
}

#[test]
fn the_base_fee_is_the_one_the_block_below_demands() {
    let full =
        ChainSpec { transactions_per_block: 16, mean_calldata: 8192, ..ChainSpec::default() };
    for spec in [ChainSpec::default(), full] {
        let mut wanted = Some(gas::BASE_FEE);
        for block in chain(spec, 120) {
            let header = decode(&block).header;
            assert_eq!(header.base_fee_per_gas, wanted);
            assert!(header.gas_used <= header.gas_limit / 2);
            wanted = header.next_block_base_fee(BaseFeeParams::ethereum());
        }
    }
}

#[test]
fn the_fullest_specs_give_blocks_that_fit_and_verify() {
    for (transactions_per_block, mean_calldata, blocks) in [(512, 256, 6), (16, 8192, 150)] {
        let spec = ChainSpec { transactions_per_block, mean_calldata, ..ChainSpec::default() };
        let blocks = chain(spec, blocks);
        for block in &blocks {
            block.check(MAX_SEGMENT_LEN).unwrap();
        }
        let largest = blocks.iter().max_by_key(|b| b.payloads.total_len());
        verify_block(largest.unwrap(), spec.chain_id).unwrap();
    }
}

#[test]
fn a_chain_without_transactions_is_still_a_chain() {
    let spec = ChainSpec { transactions_per_block: 0, ..ChainSpec::default() };
    for block in chain(spec, 5) {
        let counts = verify_block(&block, spec.chain_id).unwrap();
        assert_eq!(counts.transactions, 0);
        assert!(block.payloads.segment(Segment::Receipts).is_empty());
    }
}

#[test]
fn the_largest_chain_id_signs_and_verifies() {
    let spec = ChainSpec { chain_id: MAX_CHAIN_ID, ..ChainSpec::default() };
    for block in chain(spec, 5) {
        verify_block(&block, MAX_CHAIN_ID).unwrap();
    }
}

#[test]
fn a_spec_outside_its_limits_is_refused_with_the_limits() {
    let good = ChainSpec::default();
    let bad = [
        ChainSpec { chain_id: 0, ..good },
        ChainSpec { chain_id: MAX_CHAIN_ID + 1, ..good },
        ChainSpec { block_time: 0, ..good },
        ChainSpec { transactions_per_block: 513, mean_calldata: 0, ..good },
        ChainSpec { mean_calldata: 20_000, ..good },
    ];
    for spec in bad {
        let error = Generator::new(spec).err().unwrap();
        assert!(error.to_string().contains("is accepted"), "{error}");
    }
}

#[test]
fn a_height_whose_timestamp_does_not_fit_is_an_error() {
    let generator = Generator::new(ChainSpec::default()).unwrap();
    let error = generator.block(u64::MAX / 12, BlockHash([1; 32]));
    assert!(matches!(error.unwrap_err(), EvmError::HeightOutOfRange { what: "timestamp", .. }));
    generator.block(1 << 50, BlockHash([1; 32])).unwrap();
}
