//! Sources that lie or break: nothing wrong is stored, the trouble is told, and following goes on
//! when the source is honest again.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::anvil::Anvil;
use crate::followed::{Followed, stored_hash};
use crate::proxy::{Change, Manner, Proxy};
use crate::tool::{ask, open_store};
use crate::wallet::Wallet;

/// The block that the lies are about: the second of the three with transactions, behind others
/// that are good.
const BAD: u64 = 12;

fn is_bad_block(method: &str, result: &Value) -> bool {
    method == "eth_getBlockByNumber"
        && result["number"] == "0xc"
        && result["transactions"][0].is_object()
}

fn are_bad_receipts(method: &str, result: &Value) -> bool {
    method == "eth_getBlockReceipts" && result[0]["blockNumber"] == "0xc"
}

/// Follows a source that lies about one block; it must be refused in these words.
#[track_caller]
fn is_refused(lie: Manner, words: &str) {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(10);
    Wallet::default().every_kind(&anvil);
    anvil.mine(20);
    let proxy = Proxy::start(&anvil.url, lie);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.wait(words, |line| line.to_string().contains(words));
    // It is asked for again, and is still not believed.
    proxy.is_asked(&format!(r#"eth_getBlockByNumber ["{BAD:#x}",true]"#), 3);
    node.stop();
    {
        let store = open_store(data.path());
        assert_eq!(store.head(), Some(BAD - 1), "what was good before it is stored");
        for height in 0..BAD {
            let stored = store.get_block(height).unwrap().meta.hash.0;
            let stored = alloy_primitives::hex::encode_prefixed(stored);
            assert_eq!(stored, anvil.hash(height));
        }
    }
    let mut node = Followed::start(data.path(), &proxy.url);
    node.wait(words, |line| line.to_string().contains(words));
    proxy.set(Manner::Honest);
    node.says("the trouble is over");
    node.catches_up(&anvil);
    node.stop();
    assert_eq!(stored_hash(data.path(), BAD), Some(anvil.hash(BAD)));
    assert_eq!(ask(data.path(), "verify")["clean"], true);
}

#[track_caller]
fn change_is_refused(change: Change, words: &str) {
    is_refused(Manner::Change(change), words);
}

#[test]
fn a_wrong_hash_is_refused() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["hash"] = json!(format!("0x{}", "ab".repeat(32)));
            }
        },
        "block 12 was refused and not stored: the block hash is stated as 0xabab",
    );
}

#[test]
fn a_wrong_transactions_root_is_refused() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["transactionsRoot"] = json!(format!("0x{}", "ab".repeat(32)));
            }
        },
        "block 12 was refused and not stored: the block hash is stated as",
    );
}

#[test]
fn a_transaction_that_was_left_out_is_refused() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["transactions"].as_array_mut().unwrap().pop();
            }
            if are_bad_receipts(method, result) {
                result.as_array_mut().unwrap().pop();
            }
        },
        "block 12 was refused and not stored: the transactions root is stated as",
    );
}

#[test]
fn a_changed_amount_is_refused() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["transactions"][0]["value"] = json!("0x1234");
            }
        },
        "block 12 was refused and not stored: the transactions root is stated as",
    );
}

#[test]
fn a_missing_receipt_is_refused() {
    change_is_refused(
        |method, result| {
            if are_bad_receipts(method, result) {
                result.as_array_mut().unwrap().pop();
            }
        },
        "block 12 was refused and not stored: 3 receipts came for 4 transactions",
    );
}

#[test]
fn no_receipts_at_all_are_refused() {
    change_is_refused(
        |method, result| {
            if are_bad_receipts(method, result) {
                *result = Value::Null;
            }
        },
        "block 12 was refused and not stored: the source does not have it",
    );
}

#[test]
fn receipts_of_another_block_are_refused() {
    change_is_refused(
        |method, result| {
            if are_bad_receipts(method, result) {
                for receipt in result.as_array_mut().unwrap() {
                    receipt["transactionHash"] = json!(format!("0x{}", "cd".repeat(32)));
                }
            }
        },
        "block 12 was refused and not stored: receipt 0 is that of transaction 0xcdcd",
    );
}

#[test]
fn a_receipt_that_turns_failure_into_success_is_refused() {
    change_is_refused(
        |method, result| {
            if are_bad_receipts(method, result) {
                result[1]["status"] = json!("0x1");
            }
        },
        "block 12 was refused and not stored: the receipts root is stated as",
    );
}

#[test]
fn another_block_than_was_asked_for_is_refused() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["number"] = json!("0xd");
            }
        },
        "block 12 was refused and not stored: the source was asked for block 12 and gave block 13",
    );
}

#[test]
fn a_transaction_of_an_unknown_kind_is_refused_by_its_kind() {
    change_is_refused(
        |method, result| {
            if is_bad_block(method, result) {
                result["transactions"][1]["type"] = json!("0x7e");
            }
        },
        "block 12 was refused and not stored: transaction 1 is of type 0x7e",
    );
}

/// A source that breaks as a whole is told of and followed on when it works again.
#[track_caller]
fn is_survived(manner: Manner, words: &str) {
    let (anvil, data) = (Anvil::start(), tempdir().unwrap());
    anvil.mine(5);
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    proxy.set(manner);
    Wallet::default().every_kind(&anvil);
    node.wait(words, |line| line.to_string().contains(words));
    proxy.set(Manner::Honest);
    node.recovers(&anvil);
    node.stop();
    for height in 0..=anvil.head() {
        assert_eq!(stored_hash(data.path(), height), Some(anvil.hash(height)));
    }
}

#[test]
fn truncated_answers_are_survived() {
    is_survived(Manner::Truncate, "its answer is not JSON-RPC");
}

#[test]
fn answers_without_end_are_survived() {
    is_survived(Manner::Giant(300 << 20), "one answer is longer than 256 MiB");
}

#[test]
fn server_errors_are_survived() {
    is_survived(Manner::Status(500), "it answered HTTP 500");
}

#[test]
fn refused_requests_are_survived() {
    is_survived(Manner::Status(400), "does not answer: it answered HTTP 400");
}

#[test]
fn silence_is_survived() {
    is_survived(Manner::Hang, "it was silent for 1 seconds");
}

#[test]
fn a_head_with_a_false_hash_is_not_believed() {
    let lie: Change = |method, result| {
        if method == "eth_getBlockByNumber" && result["transactions"][0].is_string() {
            result["timestamp"] = json!("0x1");
        }
    };
    is_survived(Manner::Change(lie), "header was refused: the block hash is stated as");
}

/// Makes a header another one, with a hash that fits it.
fn forge(result: &mut Value, change: impl FnOnce(&mut alloy_consensus::Header)) {
    let told: alloy_rpc_types_eth::Header = serde_json::from_value(result.clone()).unwrap();
    let mut header = told.inner;
    change(&mut header);
    result["number"] = json!(format!("{:#x}", header.number));
    result["extraData"] = json!(header.extra_data);
    result["hash"] = json!(header.hash_slow());
}

#[test]
fn a_final_block_above_the_newest_one_makes_nothing_final() {
    let (anvil, data) = (Anvil::with("--slots-in-an-epoch 32"), tempdir().unwrap());
    anvil.mine(20);
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    // From now on block 0 is asked for only as the final one.
    let lie: Change = |method, result| {
        if method == "eth_getBlockByNumber" && result["number"] == "0x0" {
            forge(result, |header| header.number = 1_000);
        }
    };
    proxy.set(Manner::Change(lie));
    proxy.take_asked();
    proxy.is_asked(r#"eth_getBlockByNumber ["finalized",false]"#, 3);
    proxy.set(Manner::Honest);
    anvil.ask("anvil_reorg", &json!([5, []]));
    node.says("the chain reorganised");
    node.catches_up(&anvil);
    node.stop();
    assert_eq!(stored_hash(data.path(), 20), Some(anvil.hash(20)));
    assert_eq!(open_store(data.path()).get_head(), Some(0), "what was final before the lie");
}

#[test]
fn a_final_block_of_another_branch_makes_nothing_final() {
    let (anvil, data) = (Anvil::with("--slots-in-an-epoch 8"), tempdir().unwrap());
    anvil.mine(10);
    Wallet::default().every_kind(&anvil);
    anvil.mine(BAD + 16 - anvil.head());
    let lie: Change = |method, result| {
        let is_header = result["transactions"][0].is_string();
        if method == "eth_getBlockByNumber" && result["number"] == "0xc" && is_header {
            forge(result, |header| header.extra_data = vec![7].into());
        }
    };
    let proxy = Proxy::start(&anvil.url, Manner::Change(lie));
    let mut node = Followed::start(data.path(), &proxy.url);
    node.says("do not stand on each other");
    node.stop();
    assert_eq!(open_store(data.path()).get_head(), None);
    proxy.set(Manner::Honest);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    node.wait("finality", |line| line["fields"]["height"] == BAD);
    node.stop();
    assert_eq!(open_store(data.path()).get_head(), Some(BAD));
}
