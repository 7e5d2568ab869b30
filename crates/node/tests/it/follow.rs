//! Following a real chain: everything that anvil can mine is stored as it is, and a stop or a
//! restart of either side loses nothing.

use std::path::Path;

use alloy_consensus::proofs::{calculate_receipt_root, calculate_transaction_root};
use alloy_consensus::{EthereumTxEnvelope, ReceiptEnvelope, TxEip4844, TxReceipt as _};
use alloy_eips::eip2718::{Decodable2718 as _, Typed2718};
use alloy_primitives::hex;
use alloy_rlp::Decodable as _;
use secateur_core::{Block, receipts, tx_index};
use secateur_store::ground::disk::DiskStore;
use serde_json::json;
use tempfile::tempdir;

use crate::anvil::{Anvil, number};
use crate::followed::{Followed, stored_hash};
use crate::proxy::{Manner, Proxy};
use crate::tool::{SmallDisk, ask, open_store, run};
use crate::wallet::Wallet;

type EvmBlock = alloy_consensus::Block<EthereumTxEnvelope<TxEip4844>>;

fn decode_receipts(block: &Block) -> Vec<ReceiptEnvelope> {
    let entries = receipts(&block.payloads.receipts).map(Result::unwrap);
    entries.map(|entry| ReceiptEnvelope::decode_2718_exact(entry.bytes).unwrap()).collect()
}

/// Compares a stored block with what anvil says of it, and recomputes what its header promises.
#[track_caller]
fn check(store: &DiskStore, anvil: &Anvil, height: u64) -> (EvmBlock, Vec<ReceiptEnvelope>) {
    let stored = store.get_block(height).unwrap();
    let said = anvil.block(height);
    let evm = EvmBlock::decode(&mut stored.payloads.block.as_slice()).unwrap();
    assert_eq!(said["hash"], hex::encode_prefixed(stored.meta.hash.0));
    assert_eq!(evm.header.hash_slow().0, stored.meta.hash.0);
    let root = calculate_transaction_root(&evm.body.transactions);
    assert_eq!(evm.header.transactions_root, root);
    let receipts = decode_receipts(&stored);
    assert_eq!(evm.header.receipts_root, calculate_receipt_root(&receipts));
    let ids = tx_index(&stored.payloads.tx_index).map(|entry| entry.unwrap().tx_id);
    let ids: Vec<String> = ids.map(|id| hex::encode_prefixed(id.0)).collect();
    assert_eq!(said["transactions"], json!(ids));
    (evm, receipts)
}

#[track_caller]
fn check_all(data: &Path, anvil: &Anvil) {
    let store = open_store(data);
    assert_eq!(store.head(), Some(anvil.head()));
    for height in 0..=anvil.head() {
        check(&store, anvil, height);
    }
}

#[test]
fn every_kind_of_transaction_is_followed_and_stored_as_it_is() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    Wallet::default().every_kind(&anvil);
    anvil.mine(2);
    let mut node = Followed::start(data.path(), &anvil.url);
    node.catches_up(&anvil);
    node.stop();

    let store = open_store(data.path());
    assert_eq!(store.header().chain_id, 31337);
    let mut kinds = Vec::new();
    let (mut failed, mut logs) = (0, 0);
    for height in 0..=5 {
        let (block, receipts) = check(&store, &anvil, height);
        kinds.extend(block.body.transactions.iter().map(Typed2718::ty));
        failed += receipts.iter().filter(|receipt| !receipt.status()).count();
        logs += receipts.iter().map(|receipt| receipt.logs().len()).sum::<usize>();
    }
    kinds.sort_unstable();
    assert_eq!(kinds, [0, 0, 1, 2, 2, 2, 3, 4]);
    // The delegation calls the logger as well.
    assert_eq!((failed, logs), (1, 6));
    drop(store);
    assert_eq!(ask(data.path(), "verify")["clean"], true);
    // The final block is two below the newest, and finality was moved there.
    assert_eq!(ask(data.path(), "status")["finalized"], 3);
}

#[test]
fn a_restart_goes_on_behind_the_head_and_asks_for_nothing_below_it() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    anvil.mine(100);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    node.stop();
    let asked = proxy.take_asked();
    assert!(asked.iter().any(|call| call == r#"eth_getBlockByNumber ["0x64",true]"#), "{asked:?}");
    assert_eq!(proxy.largest_batch(), 32, "16 blocks go into a request, two calls each");

    anvil.mine(30);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    node.stop();
    let whole = |call: &String| call.ends_with("true]");
    let mut heights: Vec<u64> = proxy
        .take_asked()
        .iter()
        .filter(|call| whole(call))
        .map(|call| number(&call.split('"').nth(1).unwrap().into()))
        .collect();
    heights.sort_unstable();
    assert_eq!(heights, (101..=130).collect::<Vec<u64>>());
    check_all(data.path(), &anvil);
}

#[test]
fn a_node_that_is_killed_in_the_middle_goes_on_where_it_was() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(600);
    let small = [("SECATEUR_FOLLOW_BATCH", "2"), ("SECATEUR_FOLLOW_CONCURRENCY", "2")];
    let mut node = Followed::with(data.path(), &anvil.url, "", &small);
    node.says("catching up");
    // Dropping it kills it.
    drop(node);
    let mut node = Followed::start(data.path(), &anvil.url);
    node.catches_up(&anvil);
    node.stop();
    check_all(data.path(), &anvil);
    assert_eq!(ask(data.path(), "verify")["clean"], true);
}

#[test]
fn a_source_that_ends_and_starts_again_is_followed_on() {
    let (data, state) = (tempdir().unwrap(), tempdir().unwrap());
    let state = state.path().join("state.json");
    let anvil = Anvil::keeping(&state);
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    let mut wallet = Wallet::default();
    wallet.every_kind(&anvil);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    anvil.stop();
    node.says("does not answer");

    let anvil = Anvil::keeping(&state);
    proxy.aim(&anvil.url);
    node.says("the trouble is over");
    assert_eq!(anvil.head(), 3);
    wallet.legacy(&anvil, 9);
    anvil.mine(2);
    node.catches_up(&anvil);
    node.stop();
    check_all(data.path(), &anvil);
}

#[test]
fn a_node_starts_while_its_source_is_down_and_goes_on_when_it_is_up() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    anvil.mine(3);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    node.stop();
    anvil.mine(2);
    proxy.set(Manner::Status(503));
    let mut node = Followed::start(data.path(), &proxy.url);
    node.says("HTTP 503");
    proxy.set(Manner::Honest);
    node.catches_up(&anvil);
    node.stop();
}

#[test]
fn a_new_directory_whose_source_is_down_is_not_made() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let ended = run(
        &data,
        "node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --follow http://u:s3cret@127.0.0.1:1/",
    );
    let ended = ended.ends(1).complains("cannot be reached").complains("--chain-id");
    assert!(!ended.err.contains("s3cret"), "{}", ended.err);
    assert!(!data.join("store.toml").exists());
}

#[test]
fn a_source_without_batches_is_asked_one_call_at_a_time() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    Wallet::default().every_kind(&anvil);
    let proxy = Proxy::start(&anvil.url, Manner::NoBatches);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.says("refuses a batch");
    node.catches_up(&anvil);
    node.stop();
    check_all(data.path(), &anvil);
}

#[test]
fn a_source_without_block_receipts_is_asked_for_each_receipt() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    Wallet::default().every_kind(&anvil);
    let proxy = Proxy::start(&anvil.url, Manner::Without("eth_getBlockReceipts"));
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    let said = node.stop();
    assert!(said.contains("no eth_getBlockReceipts here"), "{said}");
    check_all(data.path(), &anvil);
    let asked = proxy.take_asked();
    let each = asked.iter().filter(|call| call.starts_with("eth_getTransactionReceipt")).count();
    assert_eq!(each, 8, "{asked:?}");
}

#[test]
fn a_source_that_limits_its_rate_is_asked_more_slowly() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(20);
    let proxy = Proxy::start(&anvil.url, Manner::Busy);
    let few = [("SECATEUR_FOLLOW_BATCH", "4"), ("SECATEUR_FOLLOW_CONCURRENCY", "2")];
    let mut node = Followed::with(data.path(), &proxy.url, "", &few);
    node.catches_up(&anvil);
    let said = node.stop();
    assert!(said.contains("429"), "{said}");
    check_all(data.path(), &anvil);
}

#[test]
fn a_new_store_begins_where_it_is_told() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(10);
    let mut node = Followed::with(data.path(), &anvil.url, "--start finalized", &[]);
    node.catches_up(&anvil);
    node.stop();
    assert_eq!(ask(data.path(), "status")["oldest_kept_block"], 8);
    assert_eq!(stored_hash(data.path(), 8), Some(anvil.hash(8)));

    let other = tempdir().unwrap();
    let mut node = Followed::with(other.path(), &anvil.url, "--start 12", &[]);
    node.says("still to come");
    anvil.mine(4);
    node.catches_up(&anvil);
    node.stop();
    assert_eq!(ask(other.path(), "status")["oldest_kept_block"], 12);
}

#[test]
fn confirmations_take_the_place_of_a_final_block() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(10);
    let five = [("SECATEUR_FOLLOW_CONFIRMATIONS", "5")];
    let mut node = Followed::with(data.path(), &anvil.url, "", &five);
    node.catches_up(&anvil);
    node.stop();
    assert_eq!(ask(data.path(), "status")["finalized"], 5);
}

#[test]
fn a_source_of_another_chain_is_refused() {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(3);
    let mut node = Followed::start(data.path(), &anvil.url);
    node.catches_up(&anvil);
    node.stop();
    let other = Anvil::with("--chain-id 4242");
    other.mine(8);
    let said = Followed::start(data.path(), &other.url).ends(11);
    assert!(said.contains("is of chain 4242, this directory holds chain 31337"), "{said}");
    check_all(data.path(), &anvil);
}

#[test]
fn a_full_disk_is_waited_out() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let data = disk.data();
    let anvil = Anvil::start();
    let mut wallet = Wallet::default();
    anvil.mine(3);
    let mut node = Followed::start(&data, &anvil.url);
    node.catches_up(&anvil);
    disk.fill();
    // Large enough to need a region of its own.
    let contract = wallet.create(&anvil);
    for _ in 0..4 {
        wallet.log(&anvil, contract, &vec![7; 100_000]);
        anvil.mine(1);
    }
    node.says("disk full");
    disk.empty();
    node.says("the trouble is over");
    node.catches_up(&anvil);
    node.stop();
    check_all(&data, &anvil);
    assert_eq!(ask(&data, "verify")["clean"], true);
}
