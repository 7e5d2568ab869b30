//! Published test data of others, beside the repository: `../shared/fixtures`, or where
//! `SECATEUR_FIXTURES` points. It is read in place.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use alloy_consensus::{EthereumTxEnvelope, TxEip4844};
use alloy_primitives::hex;
use alloy_rlp::Decodable as _;
use secateur_core::{
    Block, BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
};
use serde_json::Value;

/// The chain of execution-apis.
pub const CHAIN_ID: u64 = 3_503_995_874_084_926;

type EvmBlock = alloy_consensus::Block<EthereumTxEnvelope<TxEip4844>>;

/// A folder of published data. Without it a test fails, because it would be green and prove nothing;
/// `SECATEUR_FIXTURES=none` says that it is not there, and the test says that it was not run.
pub fn folder(name: &str) -> Option<PathBuf> {
    let place = match std::env::var_os("SECATEUR_FIXTURES") {
        Some(none) if none == "none" => {
            eprintln!("NOT RUN: SECATEUR_FIXTURES=none says that there is no {name}");
            return None;
        }
        Some(place) => PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"),
    };
    let folder = place.join(name);
    assert!(
        folder.is_dir(),
        "there is no {}: put the published data beside the repository, name its folder in \
         SECATEUR_FIXTURES, or set SECATEUR_FIXTURES=none to go without these tests",
        folder.display()
    );
    Some(folder)
}

/// The blocks of the published chain, 0 to 54, as they are stored.
pub fn published_chain(folder: &Path) -> Vec<Block> {
    let file = std::fs::File::open(folder.join("chain.jsonl.zst")).unwrap();
    let lines = std::io::BufReader::new(zstd::Decoder::new(file).unwrap()).lines();
    lines.map(|line| stored(&serde_json::from_str(&line.unwrap()).unwrap())).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn stored(line: &Value) -> Block {
    let block = bytes(&line["block"]);
    let evm = EvmBlock::decode(&mut block.as_slice()).unwrap();
    let meta = BlockMeta {
        height: evm.header.number,
        hash: BlockHash(evm.header.hash_slow().0),
        parent_hash: BlockHash(evm.header.parent_hash.0),
        timestamp: evm.header.timestamp,
    };
    assert_eq!(line["number"], meta.height);
    let mut payloads = Payloads { block, ..Payloads::default() };
    let receipts = line["receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), evm.body.transactions.len());
    for (index, (tx, receipt)) in (0..).zip(evm.body.transactions.iter().zip(receipts)) {
        let tx_id = TxId(tx.tx_hash().0);
        push_receipt(&mut payloads.receipts, &tx_id, &bytes(receipt)).unwrap();
        push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height: meta.height, index });
    }
    Block { meta, payloads }
}

/// Calls with their published answers, of one method: every file of its folder that is judged by its
/// answer and not by its shape alone.
pub fn published_calls(folder: &Path, method: &str) -> Vec<(String, Value, Value)> {
    let mut calls = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("tests").join(method))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.lines().any(|line| line.trim() == "// speconly") {
            continue;
        }
        let line = |mark: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(mark)).unwrap();
            serde_json::from_str(line).unwrap()
        };
        calls.push((file.display().to_string(), line(">> "), line("<< ")));
    }
    assert!(!calls.is_empty(), "{method} has no published calls");
    calls
}
