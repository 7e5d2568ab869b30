//! Conversion of what anvil said of its blocks, of lies about them, and of blocks that are older
//! than anvil can make.

use alloy_consensus::proofs::{
    calculate_ommers_root, calculate_receipt_root, calculate_transaction_root,
};
use alloy_consensus::transaction::Recovered;
use alloy_consensus::{
    BlockBody, Eip658Value, Receipt, ReceiptEnvelope, ReceiptWithBloom, SignableTransaction as _,
    TxLegacy,
};
use alloy_primitives::{Address, B256, Bloom, TxKind, U256};
use bytes::Bytes;
use k256::ecdsa::SigningKey;
use secateur_core::MAX_SEGMENT_LEN;
use serde_json::{Value, json};

use super::convert::{RawBlock, RawReceipts, Unfit, check_header, convert};
use secateur_evm::{EvmBlock, SignedTx};

const CHAIN: u64 = 31337;
const BLOCKS: [(&str, &str); 4] = [
    (
        include_str!("../../tests/data/anvil/block0.json"),
        include_str!("../../tests/data/anvil/receipts0.json"),
    ),
    (
        include_str!("../../tests/data/anvil/block1.json"),
        include_str!("../../tests/data/anvil/receipts1.json"),
    ),
    (
        include_str!("../../tests/data/anvil/block2.json"),
        include_str!("../../tests/data/anvil/receipts2.json"),
    ),
    (
        include_str!("../../tests/data/anvil/block3.json"),
        include_str!("../../tests/data/anvil/receipts3.json"),
    ),
];

fn captured(height: usize) -> (Value, Value) {
    let (block, receipts) = BLOCKS[height];
    (serde_json::from_str(block).unwrap(), serde_json::from_str(receipts).unwrap())
}

fn body(value: &Value) -> Bytes {
    value.to_string().into()
}

fn raw(height: u64, block: &Value, receipts: &Value) -> RawBlock {
    let receipts = RawReceipts::All(body(receipts));
    RawBlock { height, block: body(block), receipts, uncles: Vec::new() }
}

fn refused(height: u64, block: &Value, receipts: &Value) -> Unfit {
    convert(&raw(height, block, receipts), CHAIN).unwrap_err()
}

/// Another value of the same kind.
fn other(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if text.len() > 2 => {
            let mut text = text.clone();
            let last = if text.ends_with('1') { "2" } else { "1" };
            text.replace_range(text.len() - 1.., last);
            Some(json!(text))
        }
        Value::String(_) => Some(json!("0x01")),
        _ => None,
    }
}

/// The store refused such a block with the whole group that it was in, and did not say which it was.
#[test]
fn a_block_that_is_longer_than_the_store_takes_is_refused_by_itself() {
    let (block, mut receipts) = captured(1);
    let data = format!("0x{}", "00".repeat(MAX_SEGMENT_LEN as usize));
    receipts[0]["logs"] = json!([{ "address": Address::ZERO, "topics": [], "data": data }]);
    let reason = refused(1, &block, &receipts).to_string();
    assert!(reason.contains(&format!("the limit is {MAX_SEGMENT_LEN}")), "{reason}");
}

#[test]
fn what_anvil_says_of_its_blocks_becomes_blocks_that_verify() {
    let mut parent = None;
    for height in 0..4 {
        let (block, receipts) = captured(height);
        let converted = convert(&raw(height as u64, &block, &receipts), CHAIN).unwrap();
        assert_eq!(block["hash"], converted.meta.hash.to_string());
        assert!(parent.is_none_or(|parent| parent == converted.meta.parent_hash));
        parent = Some(converted.meta.hash);
        assert_eq!(converted.check(u32::MAX).unwrap() as usize, receipts.as_array().unwrap().len());
        // Receipts that come one by one are the same receipts.
        let each = receipts.as_array().unwrap().iter().map(body).collect();
        let singly =
            RawBlock { receipts: RawReceipts::Each(each), ..raw(height as u64, &block, &receipts) };
        assert_eq!(convert(&singly, CHAIN).unwrap(), converted);
        let header = check_header(Some(height as u64), &body(&block)).unwrap();
        assert_eq!(header, converted.meta);
    }
}

#[test]
fn every_field_of_a_header_counts() {
    let (block, receipts) = captured(2);
    let mut tried = 0;
    for (name, value) in block.as_object().unwrap() {
        let Some(changed) = other(value) else { continue };
        if ["size", "totalDifficulty"].contains(&name.as_str()) {
            continue;
        }
        let mut lie = block.clone();
        lie[name] = changed;
        refused(2, &lie, &receipts);
        assert!(check_header(Some(2), &body(&lie)).is_err(), "{name}");
        tried += 1;
    }
    assert_eq!(tried, 22);
}

#[test]
fn every_field_of_a_transaction_counts_that_is_part_of_it() {
    // Said beside a transaction, and not stored.
    const BESIDE: [&str; 7] =
        ["blockHash", "blockNumber", "blockTimestamp", "from", "gasPrice", "transactionIndex", "v"];
    let mut tried = 0;
    for height in 1..4 {
        let (block, receipts) = captured(height);
        for (index, tx) in block["transactions"].as_array().unwrap().iter().enumerate() {
            let typed = tx["type"] != "0x0";
            for (name, value) in tx.as_object().unwrap() {
                let own = !typed && ["gasPrice", "v"].contains(&name.as_str());
                let beside = BESIDE.contains(&name.as_str()) && !own;
                let Some(changed) = other(value).filter(|_| !beside) else { continue };
                // A legacy transaction says its chain and parity once more, in `v`.
                if !typed && ["chainId", "yParity"].contains(&name.as_str()) {
                    continue;
                }
                let mut lie = block.clone();
                lie["transactions"][index][name] = changed;
                refused(height as u64, &lie, &receipts);
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn every_field_of_a_receipt_counts_that_is_part_of_it() {
    const PART: [&str; 5] = ["cumulativeGasUsed", "logsBloom", "status", "transactionHash", "type"];
    const OF_LOG: [&str; 2] = ["address", "data"];
    let (block, receipts) = captured(2);
    for index in 0..4 {
        for name in PART {
            let mut lie = receipts.clone();
            let changed = match name {
                "status" => json!(if lie[index][name] == "0x1" { "0x0" } else { "0x1" }),
                _ => other(&lie[index][name]).unwrap(),
            };
            lie[index][name] = changed;
            refused(2, &block, &lie);
        }
    }
    assert_eq!(receipts[0]["logs"].as_array().unwrap().len(), 2);
    for log in 0..2 {
        for name in OF_LOG {
            let mut lie = receipts.clone();
            lie[0]["logs"][log][name] = other(&lie[0]["logs"][log][name]).unwrap();
            refused(2, &block, &lie);
        }
        let mut lie = receipts.clone();
        lie[0]["logs"][log]["topics"].as_array_mut().unwrap().pop();
        refused(2, &block, &lie);
    }
}

#[test]
fn a_field_that_is_not_known_is_named_when_the_hash_does_not_fit() {
    let (mut block, receipts) = captured(1);
    block["futureRoot"] = json!("0x00");
    // Alone it does no harm: sources say many things beside a block.
    convert(&raw(1, &block, &receipts), CHAIN).unwrap();
    block["hash"] = json!(format!("0x{}", "ab".repeat(32)));
    let error = refused(1, &block, &receipts).to_string();
    assert!(error.contains("the block hash") && error.contains("futureRoot"), "{error}");
    let error = check_header(Some(1), &body(&block)).unwrap_err().to_string();
    assert!(error.contains("futureRoot"), "{error}");
}

#[test]
fn a_transaction_of_an_unknown_type_is_refused_by_its_type() {
    let (mut block, receipts) = captured(2);
    for ty in ["0x7e", "0x5", "0x1234"] {
        block["transactions"][3]["type"] = json!(ty);
        let error = refused(2, &block, &receipts);
        assert!(matches!(error, Unfit::UnknownType { index: 3, .. }), "{error}");
        assert!(error.to_string().contains(ty), "{error}");
    }
    let (block, mut receipts) = captured(2);
    receipts[3]["type"] = json!("0x7e");
    let error = refused(2, &block, &receipts);
    assert!(matches!(error, Unfit::UnknownType { index: 3, ty: 0x7e }), "{error}");
}

#[test]
fn blocks_without_transactions_and_other_shapes_are_refused() {
    let (block, receipts) = captured(1);
    let mut hashes = block.clone();
    hashes["transactions"] = json!([block["transactions"][0]["hash"]]);
    assert!(matches!(refused(1, &hashes, &receipts), Unfit::HashesOnly));
    let mut uncles = block.clone();
    uncles["uncles"] = json!([block["hash"]]);
    let error = refused(1, &uncles, &receipts);
    assert!(matches!(error, Unfit::Uncles { found: 0, wanted: 1 }), "{error}");
    for strange in [json!([]), json!({}), json!(7), json!("x"), json!({ "transactions": 7 })] {
        assert!(matches!(refused(1, &strange, &receipts), Unfit::Json { .. }), "{strange}");
        assert!(convert(&raw(1, &block, &strange), CHAIN).is_err(), "{strange}");
    }
}

/// A block as they were before Byzantium: no chain in signatures, state roots in receipts, uncles.
fn ancient() -> (Value, Value, Vec<Bytes>) {
    let key = SigningKey::from_slice(&[7; 32]).unwrap();
    let tx = TxLegacy {
        chain_id: None,
        gas_limit: 21_000,
        to: TxKind::Call(Address::ZERO),
        value: U256::from(1),
        ..TxLegacy::default()
    };
    let signed = key.sign_prehash_recoverable(tx.signature_hash().as_slice()).unwrap();
    let tx = SignedTx::from(tx.into_signed(signed.into()));
    let root = B256::repeat_byte(9);
    let receipt = Receipt {
        status: Eip658Value::PostState(root),
        cumulative_gas_used: 21_000,
        logs: Vec::new(),
    };
    let receipt = ReceiptEnvelope::Legacy(ReceiptWithBloom { receipt, logs_bloom: Bloom::ZERO });
    let uncle = alloy_consensus::Header { number: 41, ..Default::default() };
    let ommers = vec![uncle.clone()];
    let header = alloy_consensus::Header {
        number: 42,
        gas_used: 21_000,
        ommers_hash: calculate_ommers_root(&ommers),
        transactions_root: calculate_transaction_root(std::slice::from_ref(&tx)),
        receipts_root: calculate_receipt_root(&[receipt]),
        ..Default::default()
    };
    let hash = *tx.tx_hash();
    let body = BlockBody { transactions: vec![tx], ommers, withdrawals: None };
    let block = EvmBlock { header, body };
    let rpc = alloy_rpc_types_eth::Block::from_consensus(block, None);
    let rpc = rpc.map_transactions(|tx| alloy_rpc_types_eth::Transaction {
        inner: Recovered::new_unchecked(tx, Address::ZERO),
        block_hash: None,
        block_number: Some(42),
        transaction_index: Some(0),
        effective_gas_price: None,
        block_timestamp: None,
    });
    let receipts = json!([{
        "transactionHash": hash,
        "root": root,
        "cumulativeGasUsed": "0x5208",
        "logsBloom": Bloom::ZERO,
        "logs": [],
    }]);
    let uncle = serde_json::to_vec(&alloy_rpc_types_eth::Header::new(uncle)).unwrap();
    (serde_json::to_value(rpc).unwrap(), receipts, vec![uncle.into()])
}

#[test]
fn a_block_from_before_byzantium_is_converted_with_its_uncles() {
    let (block, receipts, uncles) = ancient();
    let whole = RawBlock { uncles: uncles.clone(), ..raw(42, &block, &receipts) };
    // A transaction that names no chain is of any.
    let converted = convert(&whole, 1).unwrap();
    assert_eq!(converted.meta.height, 42);
    let mut lie = receipts.clone();
    lie[0]["root"] = json!(B256::repeat_byte(8));
    let wrong = RawBlock { uncles: uncles.clone(), ..raw(42, &block, &lie) };
    let error = convert(&wrong, 1).unwrap_err().to_string();
    assert!(error.contains("receipts root"), "{error}");
    lie[0].as_object_mut().unwrap().remove("root");
    let wrong = RawBlock { uncles, ..raw(42, &block, &lie) };
    assert!(matches!(convert(&wrong, 1), Err(Unfit::NoOutcome { index: 0 })));
    let other = serde_json::to_vec(&alloy_rpc_types_eth::Header::new(alloy_consensus::Header {
        number: 40,
        ..Default::default()
    }));
    let wrong = RawBlock { uncles: vec![other.unwrap().into()], ..raw(42, &block, &receipts) };
    let error = convert(&wrong, 1).unwrap_err().to_string();
    assert!(error.contains("ommers hash"), "{error}");
}
