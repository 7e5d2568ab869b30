//! Rows are what the generated chain says, and nothing that is wrong becomes one.

use alloy_consensus::transaction::SignerRecoverable as _;
use alloy_consensus::{ReceiptEnvelope, Transaction as _};
use alloy_eips::eip2718::Decodable2718 as _;
use secateur_core::{Block, TxId, receipts};
use secateur_evm::{ChainSpec, EvmBlock, Generator, Verify};

use super::{Codec, EvmCodec, OpaqueCodec};
use crate::source::SourceBlock;
use crate::{ErrorClass, LogFilter};

fn chain(blocks: u64) -> Vec<Block> {
    let generator = Generator::new(ChainSpec::default()).unwrap();
    generator.blocks().take(usize::try_from(blocks).unwrap()).map(Result::unwrap).collect()
}

fn asked(block: &Block, with_meta: bool) -> SourceBlock {
    SourceBlock {
        height: block.meta.height,
        meta: with_meta.then(|| block.meta.clone()),
        payloads: block.payloads.clone(),
    }
}

fn codec(verify: Verify, logs: LogFilter) -> EvmCodec {
    EvmCodec::new(ChainSpec::default().chain_id, verify, logs)
}

#[test]
fn evm_rows_are_what_transactions_and_receipts_say() {
    let mut kinds = std::collections::BTreeSet::new();
    for block in chain(60) {
        let rows = codec(Verify::Full, LogFilter::All).rows(&asked(&block, false)).unwrap();
        let evm: EvmBlock = alloy_rlp::decode_exact(&block.payloads.block).unwrap();
        assert_eq!(rows.blocks.len(), 1);
        assert_eq!(rows.blocks[0].number, block.meta.height);
        assert_eq!(rows.blocks[0].hash, Some(block.meta.hash));
        assert_eq!(rows.blocks[0].parent_hash, Some(block.meta.parent_hash));
        assert_eq!(rows.blocks[0].ts, Some(block.meta.timestamp));
        assert_eq!(rows.txs.len(), evm.body.transactions.len());
        let (mut gas, mut logs) = (0, 0usize);
        let entries = receipts(&block.payloads.receipts).map(Result::unwrap);
        for ((row, tx), entry) in rows.txs.iter().zip(&evm.body.transactions).zip(entries) {
            let receipt = ReceiptEnvelope::decode_2718_exact(entry.bytes).unwrap();
            let from = tx.recover_signer().unwrap();
            assert_eq!(row.hash, TxId(tx.tx_hash().0));
            assert_eq!(row.from, Some(from));
            assert_eq!(row.to, tx.to());
            assert_eq!(row.nonce, Some(tx.nonce()));
            assert_eq!(row.value, Some(tx.value()));
            assert_eq!(row.gas, Some(tx.gas_limit()));
            assert_eq!(row.status, Some(receipt.status()));
            assert_eq!(row.gas_used, Some(receipt.cumulative_gas_used() - gas));
            assert_eq!(row.contract_address.is_some(), tx.to().is_none());
            gas = receipt.cumulative_gas_used();
            for log in receipt.logs() {
                let row = &rows.logs[logs];
                assert_eq!(row.log_index as usize, logs);
                assert_eq!(row.address, log.address);
                assert_eq!(row.data, log.data.data.to_vec());
                let topics: Vec<_> = row.topics.iter().flatten().copied().collect();
                assert_eq!(topics, log.topics());
                logs += 1;
            }
            kinds.insert((tx.tx_type() as u8, tx.to().is_none(), receipt.status()));
        }
        assert_eq!(rows.logs.len(), logs);
    }
    assert!(kinds.len() >= 6, "the chain shows few kinds: {kinds:?}");
}

#[test]
fn only_logs_of_chosen_addresses_or_topics_are_kept_under_their_own_numbers() {
    let blocks = chain(40);
    let all: Vec<_> = blocks
        .iter()
        .flat_map(|block| {
            codec(Verify::Off, LogFilter::All).rows(&asked(block, true)).unwrap().logs
        })
        .collect();
    let address = all[0].address;
    let topic = all.iter().find(|log| log.address != address).unwrap().topics[0].unwrap();
    let filter = LogFilter::chosen(vec![address], vec![topic]);
    let kept: Vec<_> = blocks
        .iter()
        .flat_map(|block| {
            codec(Verify::Off, filter.clone()).rows(&asked(block, true)).unwrap().logs
        })
        .collect();
    let wanted: Vec<_> = all
        .iter()
        .filter(|log| log.address == address || log.topics[0] == Some(topic))
        .cloned()
        .collect();
    assert!(wanted.len() < all.len());
    assert_eq!(kept, wanted);
    assert_eq!(LogFilter::chosen(vec![], vec![]), LogFilter::Off);
    let text = filter.to_string();
    assert_eq!(text, format!("address={address:#x},topic={topic:#x}"));
}

#[test]
fn a_wrong_byte_is_a_decode_error_with_its_height() {
    let block = &chain(12)[11];
    let mut wrong = asked(block, true);
    let middle = wrong.payloads.receipts.len() / 2;
    wrong.payloads.receipts[middle] ^= 1;
    let error = codec(Verify::Full, LogFilter::Off).rows(&wrong).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Decode);
    assert!(error.to_string().contains("block 11 "), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn meta_comes_from_the_header_where_the_source_does_not_tell_it() {
    let block = &chain(3)[2];
    let evm = codec(Verify::Full, LogFilter::Off);
    assert_eq!(evm.meta(&asked(block, false)).unwrap(), block.meta);
    assert_eq!(evm.meta(&asked(block, true)).unwrap(), block.meta);
    assert_eq!(OpaqueCodec.meta(&asked(block, true)).unwrap(), block.meta);
    assert!(OpaqueCodec.meta(&asked(block, false)).is_err());
}

#[test]
fn opaque_rows_are_the_transaction_index_and_what_the_source_says() {
    let block = &chain(12)[11];
    let rows = OpaqueCodec.rows(&asked(block, true)).unwrap();
    let evm = codec(Verify::Full, LogFilter::Off).rows(&asked(block, true)).unwrap();
    assert_eq!(rows.blocks, evm.blocks);
    assert_eq!(rows.txs.len(), evm.txs.len());
    for (opaque, evm) in rows.txs.iter().zip(&evm.txs) {
        assert_eq!((opaque.hash, opaque.tx_index), (evm.hash, evm.tx_index));
        assert_eq!(opaque.from, None);
    }
    let blind = OpaqueCodec.rows(&asked(block, false)).unwrap();
    assert_eq!(blind.blocks[0].hash, None);
    let mut wrong = asked(block, true);
    wrong.payloads.tx_index[35] = 13;
    assert_eq!(OpaqueCodec.rows(&wrong).unwrap_err().class(), ErrorClass::Decode);
}
