//! A source that changes its mind: what is not final is taken back, what is final never.

use serde_json::json;
use tempfile::tempdir;

use crate::anvil::Anvil;
use crate::followed::{Followed, stored_hash};
use crate::http_client::send;
use crate::proxy::{Change, Manner, Proxy};
use crate::tool::{ask, open_store};
use crate::wallet::Wallet;

/// A node that has everything of an anvil with so many blocks, whose final block is far below.
fn following(blocks: u64) -> (Anvil, tempfile::TempDir, Followed) {
    let anvil = Anvil::slow();
    anvil.mine(blocks);
    let data = tempdir().unwrap();
    let mut node = Followed::start(data.path(), &anvil.url);
    node.catches_up(&anvil);
    (anvil, data, node)
}

fn reorg(anvil: &Anvil, depth: u64) {
    anvil.ask("anvil_reorg", &json!([depth, []]));
}

#[test]
fn blocks_that_the_source_takes_back_are_taken_back_here() {
    let (anvil, data, mut node) = following(20);
    let old: Vec<String> = (16..=20).map(|height| anvil.hash(height)).collect();
    reorg(&anvil, 5);
    node.says("the chain reorganised");
    node.catches_up(&anvil);
    anvil.mine(3);
    node.catches_up(&anvil);
    node.stop();
    for height in 0..=anvil.head() {
        assert_eq!(stored_hash(data.path(), height), Some(anvil.hash(height)));
    }
    let store = open_store(data.path());
    for hash in old {
        let hash = alloy_primitives::hex::decode_to_array(&hash).unwrap();
        let found = store.get_block_by_hash(&secateur_core::BlockHash(hash));
        assert!(found.is_err(), "{found:?}");
    }
}

/// In each round the head that the source named was "the trouble is over", and the refusal was logged
/// again; the node was ready meanwhile.
#[test]
fn a_false_header_of_a_block_that_is_here_is_trouble_until_it_is_right() {
    let anvil = Anvil::slow();
    anvil.mine(20);
    let data = tempdir().unwrap();
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    let (http, _) = node.addresses(data.path());
    let lie: Change = |method, result| {
        if method == "eth_getBlockByNumber" && result["number"] == "0x13" {
            result["hash"] = json!(format!("0x{}", "ab".repeat(32)));
        }
    };
    proxy.set(Manner::Change(lie));
    reorg(&anvil, 5);
    let line = node.says("the header of block 19 was refused: the block hash is stated as 0xabab");
    assert_eq!(line["fields"]["number"], 19, "{line}");
    // In each round it is looked for where the chains part.
    proxy.is_asked(r#"eth_getBlockByNumber ["0x13",false]"#, 3);
    let reply = send(&http, "GET /readyz", &[], b"").is(503).json();
    assert_eq!((&reply["refused_block"], &reply["caught_up"]), (&json!(19), &json!(false)));
    let reason = reply["reasons"][0].as_str().unwrap();
    assert!(reason.contains("the header of block 19 of the source was refused"), "{reason}");
    let so_far = node.said();
    assert_eq!(so_far.matches("block 19 was refused").count(), 1, "{so_far}");
    assert!(!so_far.contains("the trouble is over"), "{so_far}");
    proxy.set(Manner::Honest);
    node.recovers(&anvil);
    node.stop();
    assert_eq!(stored_hash(data.path(), 19), Some(anvil.hash(19)));
}

#[test]
fn a_reorganisation_while_the_node_is_down_is_found_at_the_next_start() {
    let (anvil, data, node) = following(20);
    node.stop();
    reorg(&anvil, 6);
    anvil.mine(50);
    let mut node = Followed::start(data.path(), &anvil.url);
    node.says("the chain reorganised");
    node.catches_up(&anvil);
    node.stop();
    for height in 0..=anvil.head() {
        assert_eq!(stored_hash(data.path(), height), Some(anvil.hash(height)));
    }
    assert_eq!(ask(data.path(), "verify")["clean"], true);
}

#[test]
fn a_source_that_has_less_of_the_same_chain_is_waited_for() {
    let (anvil, data, mut node) = following(20);
    let newest = anvil.hash(20);
    let proxy = Proxy::start(&anvil.url, Manner::Honest);
    anvil.ask("anvil_rollback", &json!([4]));
    assert_eq!(anvil.head(), 16);
    node.stop();
    node = Followed::start(data.path(), &proxy.url);
    node.reaches(20, &newest);
    // It has looked several times, and has kept what it has.
    proxy.is_asked("latest", 5);
    // Now the source goes another way.
    let mut wallet = Wallet::default();
    wallet.legacy(&anvil, 1);
    anvil.mine(6);
    node.says("the chain reorganised");
    node.catches_up(&anvil);
    let said = node.stop();
    assert_eq!(said.matches("the chain reorganised").count(), 1, "{said}");
    assert_eq!(stored_hash(data.path(), 17), Some(anvil.hash(17)));
    assert_ne!(stored_hash(data.path(), 20), Some(newest));
}

#[test]
fn a_source_that_contradicts_a_final_block_ends_the_node_and_nothing_is_changed() {
    let (anvil, data, node) = following(20);
    node.stop();
    assert_eq!(ask(data.path(), "status")["finalized"], 12);
    let other = Anvil::slow();
    Wallet::default().legacy(&other, 5);
    other.mine(30);
    let said = Followed::start(data.path(), &other.url).ends(11);
    assert!(said.contains("has another chain"), "{said}");
    assert!(said.contains("block 12 is final here"), "{said}");
    assert!(said.contains("begin a new one with --data"), "{said}");
    for height in 0..=20 {
        assert_eq!(stored_hash(data.path(), height), Some(anvil.hash(height)));
    }
    // The right source is followed on.
    anvil.mine(1);
    let mut node = Followed::start(data.path(), &anvil.url);
    node.catches_up(&anvil);
    node.stop();
}

#[test]
fn a_shorter_chain_that_contradicts_a_final_block_is_refused_as_well() {
    let (anvil, data, node) = following(20);
    node.stop();
    let other = Anvil::slow();
    Wallet::default().legacy(&other, 5);
    other.mine(5);
    let said = Followed::start(data.path(), &other.url).ends(11);
    assert!(said.contains("has another chain"), "{said}");
    assert_eq!(stored_hash(data.path(), 20), Some(anvil.hash(20)));
}

#[test]
fn while_nothing_is_final_even_the_first_block_here_is_taken_back() {
    let (anvil, data) = (Anvil::slow(), tempdir().unwrap());
    anvil.mine(20);
    let proxy = Proxy::start(&anvil.url, Manner::NoFinality);
    let mut node = Followed::with(data.path(), &proxy.url, "--start 18", &[]);
    node.says("nothing is final here");
    node.catches_up(&anvil);
    // Further down than anything that is here.
    reorg(&anvil, 6);
    node.says("the chain reorganised");
    node.catches_up(&anvil);
    let said = node.stop();
    assert_eq!(said.matches("nothing is final here").count(), 1, "it is said once: {said}");
    for height in 18..=20 {
        assert_eq!(stored_hash(data.path(), height), Some(anvil.hash(height)));
    }
    let status = ask(data.path(), "status");
    assert_eq!((&status["oldest_kept_block"], &status["finalized"]), (&json!(18), &json!(null)));
}

#[test]
fn another_first_block_is_another_chain_even_while_nothing_is_final() {
    let (anvil, data) = (Anvil::slow(), tempdir().unwrap());
    anvil.mine(3);
    let proxy = Proxy::start(&anvil.url, Manner::NoFinality);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.catches_up(&anvil);
    node.stop();
    let other = Anvil::with("--gas-limit 12345678");
    other.mine(9);
    proxy.aim(&other.url);
    let said = Followed::start(data.path(), &proxy.url).ends(11);
    assert!(said.contains("has another chain"), "{said}");
    assert_eq!(stored_hash(data.path(), 3), Some(anvil.hash(3)));
}
