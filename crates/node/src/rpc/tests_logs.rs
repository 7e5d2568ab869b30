//! `eth_getLogs` against a naive filter over every receipt, its limits, and scans while the chain
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy_consensus::ReceiptEnvelope;
use alloy_eips::eip2718::Decodable2718;
use alloy_primitives::{Address, B256, Log};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use secateur_core::{Block, Height, receipts};
use secateur_store::Finality;
use serde_json::{Value, json};

use super::tests_support::{Bench, LIMITS, chain, chain_of, hex};
use crate::config::Limits;
use secateur_evm::ChainSpec;

/// A log with its height, its transaction's index and its own.
struct Known {
    height: Height,
    tx_index: u64,
    log_index: u64,
    log: Log,
}

/// Every log of some blocks, in order.
fn all_logs(blocks: &[Block]) -> Vec<Known> {
    let mut all = Vec::new();
    for block in blocks {
        let mut log_index = 0;
        for (tx_index, entry) in (0..).zip(receipts(&block.payloads.receipts)) {
            let receipt = ReceiptEnvelope::decode_2718_exact(entry.unwrap().bytes).unwrap();
            for log in receipt.into_logs() {
                all.push(Known { height: block.meta.height, tx_index, log_index, log });
                log_index += 1;
            }
        }
    }
    all
}

/// The filter's rules, written down once more and slowly.
fn naive(log: &Log, addresses: &[Address], topics: &[Option<Vec<B256>>]) -> bool {
    if !addresses.is_empty() && !addresses.contains(&log.address) {
        return false;
    }
    for (position, wanted) in topics.iter().enumerate() {
        match (log.topics().get(position), wanted) {
            (None, _) => return false,
            (Some(topic), Some(any)) if !any.is_empty() && !any.contains(topic) => return false,
            _ => {}
        }
    }
    true
}

fn shown(found: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let logs = found.as_array().unwrap().iter();
    logs.map(|log| {
        (text(&log["blockNumber"]), text(&log["transactionIndex"]), text(&log["logIndex"]))
    })
    .collect()
}

struct Draws(ChaCha8Rng);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[tokio::test]
async fn filters_find_what_a_naive_filter_finds() {
    let blocks = chain(120);
    let all = all_logs(&blocks);
    let bench = Bench::with(&blocks);
    let mut draws = Draws(ChaCha8Rng::seed_from_u64(11));
    let (mut empty, mut filled) = (0, 0);
    for _ in 0..300 {
        let from = draws.below(120);
        let to = from + draws.below(120 - from);
        let addresses: Vec<Address> = (0..draws.below(4).saturating_sub(1))
            .map(|_| match draws.below(8) {
                0 => Address::repeat_byte(7),
                _ => draws.pick(&all).log.address,
            })
            .collect();
        let topic = |draws: &mut Draws, position: usize| {
            let log = &draws.pick(&all).log;
            log.topics().get(position).copied().unwrap_or(B256::repeat_byte(5))
        };
        let topics: Vec<Option<Vec<B256>>> = (0..draws.below(5))
            .map(|position| match draws.below(3) {
                0 => None,
                _ => Some((0..draws.below(4)).map(|_| topic(&mut draws, position)).collect()),
            })
            .collect();
        let mut filter = json!({ "fromBlock": hex(from as u64), "toBlock": hex(to as u64) });
        match addresses.as_slice() {
            [one] if draws.below(2) == 0 => filter["address"] = json!(one),
            [] if draws.below(2) == 0 => {}
            many => filter["address"] = json!(many),
        }
        let said = |any: &Option<Vec<B256>>| match any.as_deref() {
            Some([one]) => json!(one),
            any => json!(any),
        };
        filter["topics"] = topics.iter().map(said).collect();
        let found = bench.get("eth_getLogs", json!([filter])).await;
        let wanted: Vec<_> = all
            .iter()
            .filter(|known| (from as u64..=to as u64).contains(&known.height))
            .filter(|known| naive(&known.log, &addresses, &topics))
            .map(|known| (hex(known.height), hex(known.tx_index), hex(known.log_index)))
            .collect();
        assert_eq!(shown(&found), wanted, "{filter}");
        *if wanted.is_empty() { &mut empty } else { &mut filled } += 1;
    }
    assert!(empty > 20 && filled > 20, "{empty} {filled}");
}

#[tokio::test]
async fn a_null_among_alternatives_means_any_and_no_alternatives_too() {
    let blocks = chain(20);
    let bench = Bench::with(&blocks);
    let all = all_logs(&blocks).len();
    let topic = B256::repeat_byte(9);
    for (filter, wanted) in [
        (json!({ "topics": [[topic, null]] }), all),
        (json!({ "topics": [[]] }), all),
        (json!({ "topics": [] }), all),
        (json!({ "topics": null, "address": null }), all),
        (json!({ "address": [] }), all),
        (json!({ "topics": [topic] }), 0),
    ] {
        let mut filter = filter;
        filter["fromBlock"] = json!("earliest");
        filter["unknown"] = json!([{}]);
        let found = bench.get("eth_getLogs", json!([filter])).await;
        assert_eq!(found.as_array().unwrap().len(), wanted, "{filter}");
    }
}

#[tokio::test]
async fn a_filter_without_blocks_means_the_newest_one() {
    let blocks = chain(20);
    let bench = Bench::with(&blocks);
    let newest = all_logs(&blocks[19..]).len();
    assert_eq!(bench.get("eth_getLogs", json!([{}])).await.as_array().unwrap().len(), newest);
    let hash = json!([{ "blockHash": blocks[19].meta.hash }]);
    assert_eq!(bench.get("eth_getLogs", hash).await.as_array().unwrap().len(), newest);
}

/// The answer was cut at the head: a client that asked a node which is behind took a part of the
/// logs, or none, for all of them. The scan ended at the lower of the two heights. Now each end must
/// be at or below the head.
#[tokio::test]
async fn a_log_range_that_ends_or_begins_above_the_head_is_refused_and_never_cut() {
    let blocks = chain(20);
    let bench = Bench::with(&blocks);
    for (from, to) in [
        ("0xf", "0x14"),
        ("0xf", "0xffffffffffffffff"),
        ("0x14", "0x30"),
        ("0x14", "latest"),
        ("earliest", "0x14"),
    ] {
        let filter = json!([{ "fromBlock": from, "toBlock": to }]);
        let error = bench.fail("eth_getLogs", filter).await;
        assert_eq!(error["code"], -32_602, "{from} to {to}: {error}");
        assert_eq!(error["message"], "block range extends beyond current head block");
    }
    let whole = json!([{ "fromBlock": "0xf", "toBlock": "0x13" }]);
    let found = bench.get("eth_getLogs", whole).await;
    assert_eq!(found.as_array().unwrap().len(), all_logs(&blocks[15..]).len());
    let reversed = json!([{ "fromBlock": "0x32", "toBlock": "0x2f" }]);
    let error = bench.fail("eth_getLogs", reversed).await;
    assert_eq!(error["code"], -32_602, "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("invalid block range params"));
}

/// An empty list would say that there are no logs; that is not known.
#[tokio::test]
async fn a_node_without_blocks_answers_a_log_range_with_an_error_and_not_with_no_logs() {
    let bench = Bench::with(&[]);
    for filter in [json!([{}]), json!([{ "fromBlock": "0x0", "toBlock": "0x5" }])] {
        assert_eq!(bench.fail("eth_getLogs", filter).await["code"], -32_000);
    }
}

#[tokio::test]
async fn ranges_and_results_are_limited_and_the_error_names_a_range_that_is_answered() {
    let blocks = chain(40);
    let all = all_logs(&blocks).len();
    let whole = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    let message = async |limits: Limits| {
        let error = Bench::with_limits(&blocks, limits).fail("eth_getLogs", whole.clone()).await;
        assert_eq!(error["code"], -32_005, "{error}");
        error["message"].as_str().unwrap().to_owned()
    };
    let said = message(Limits { log_blocks: 39, ..LIMITS }).await;
    assert!(said.contains("40 blocks") && said.contains("ask for 0x0 to 0x26"), "{said}");
    let said = message(Limits { log_results: all - 1, ..LIMITS }).await;
    assert!(said.contains(&format!("more than {}", all - 1)), "{said}");
    // The last block that has logs is too much; up to the one below it there is an answer.
    let last = all_logs(&blocks).last().unwrap().height - 1;
    assert!(said.contains(&format!("ask for 0x0 to {}", hex(last))), "{said}");
    let below = json!([{ "fromBlock": "0x0", "toBlock": hex(last) }]);
    let limits = Limits { log_results: all - 1, ..LIMITS };
    let found = Bench::with_limits(&blocks, limits).get("eth_getLogs", below).await;
    assert!(found.as_array().unwrap().len() < all);
    let fits = Limits { log_blocks: 40, log_results: all, ..LIMITS };
    let found = Bench::with_limits(&blocks, fits).get("eth_getLogs", whole).await;
    assert_eq!(found.as_array().unwrap().len(), all);
}

/// "Ask for less" did not say how much less.
#[tokio::test]
async fn a_log_range_of_too_many_bytes_is_refused_and_the_error_names_one_that_fits() {
    let blocks = chain(40);
    let bench = Bench::with(&blocks);
    let ask = async |to: &str, most: usize| {
        let filter = json!([{ "fromBlock": "0x2", "toBlock": to }]);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": filter });
        let answer = super::answer_within(&bench.node, call.to_string().as_bytes(), most).await;
        serde_json::from_slice::<Value>(&answer.unwrap()).unwrap()
    };
    let refused = ask("0x27", 60_000).await;
    assert_eq!(refused["error"]["code"], -32_005, "{refused}");
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("the answer is longer than 60000 bytes; ask for 0x2 to 0x"), "{said}");
    let to = said.split(" to ").nth(1).unwrap().split(',').next().unwrap();
    assert!(ask(to, 60_000).await["result"].is_array(), "{said}");
    let last = u64::from_str_radix(&to[2..], 16).unwrap() + 1;
    assert!(ask(&hex(last), 60_000).await["error"].is_object(), "the largest that fits: {said}");
    let one = ask("0x2", 100).await;
    let said = one["error"]["message"].as_str().unwrap();
    assert!(said.ends_with("100 bytes; name addresses and topics"), "{said}");
}

#[tokio::test]
async fn an_unknown_block_hash_is_an_error_and_not_no_logs() {
    let bench = Bench::with(&chain(2));
    let error = bench.fail("eth_getLogs", json!([{ "blockHash": B256::repeat_byte(1) }])).await;
    assert_eq!(error["code"], -32_000);
}

#[tokio::test]
async fn a_range_is_whole_or_refused_while_blocks_are_cut() {
    let blocks = chain(400);
    let bench = Bench::with(&blocks);
    let all = all_logs(&blocks);
    let mut refused = 0;
    for keep in [380, 300, 200, 120, 20] {
        let mut policy = bench.node.store.policy();
        policy.retain_blocks = keep;
        bench.node.store.set_prune_policy(policy).unwrap();
        let store = Arc::clone(&bench.node.store);
        let pruning = tokio::task::spawn_blocking(move || while_due(&store));
        let from = 400 - keep - 10;
        for from in [from, from + 25] {
            let filter = json!([{ "fromBlock": hex(from), "toBlock": "latest" }]);
            let answer = bench.call("eth_getLogs", filter).await;
            if let Some(found) = answer.get("result") {
                let wanted = all.iter().filter(|known| known.height >= from).count();
                assert_eq!(found.as_array().unwrap().len(), wanted);
            } else {
                assert_eq!(answer["error"]["code"], 4444);
                refused += 1;
            }
        }
        // From wherever history begins there is an answer, unless it keeps running away.
        let filter = json!([{ "fromBlock": "earliest", "toBlock": "latest" }]);
        let answer = bench.call("eth_getLogs", filter).await;
        if let Some(found) = answer.get("result") {
            let found = shown(found);
            let first = u64::from_str_radix(&found[0].0[2..], 16).unwrap();
            let wanted = all.iter().filter(|known| known.height >= first).count();
            assert_eq!(found.len(), wanted);
        } else {
            assert_eq!(answer["error"]["code"], -32_000);
        }
        pruning.await.unwrap();
    }
    assert!(refused <= 10);
}

fn while_due(store: &secateur_store::ground::disk::DiskStore) {
    while store.need_prune().unwrap().need_prune {
        store.prune_now(40).unwrap();
    }
}

/// Logs of every answer must come from one chain, however often it changes meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_never_mixes_two_sides_of_a_fork() {
    let blocks = chain(150);
    let bench = Bench::make(&blocks, LIMITS, Finality::Explicit, 1337);
    let other = ChainSpec { seed: 2, ..ChainSpec::default() };
    let fork = chain_of(other, 5, blocks[4].meta.hash, 145);
    let stem = all_logs(&blocks[..5]).len();
    let sides = [stem, all_logs(&blocks).len(), stem + all_logs(&fork).len()];
    let done = Arc::new(AtomicBool::new(false));
    let (store, over) = (Arc::clone(&bench.node.store), Arc::clone(&done));
    let swapping = tokio::task::spawn_blocking(move || {
        for swap in 0..20 {
            store.rollback(4).unwrap();
            store.append_group(if swap % 2 == 0 { &fork } else { &blocks[5..] }).unwrap();
        }
        over.store(true, Ordering::Release);
    });
    let mut last = false;
    while !last {
        last = done.load(Ordering::Acquire);
        let filter = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
        let answer = bench.call("eth_getLogs", filter).await;
        match answer.get("error") {
            Some(error) if !last => assert_eq!(error["code"], -32_000, "{error}"),
            _ => {
                let found = answer["result"].as_array().unwrap().len();
                assert!(sides.contains(&found), "{found} is not of {sides:?}");
            }
        }
    }
    swapping.await.unwrap();
}

#[tokio::test]
async fn answers_that_are_still_on_their_way_leave_less_room_for_others() {
    let blocks = chain(40);
    let bench = Bench::with_limits(&blocks, Limits { answer_bytes: 1 << 20, ..LIMITS });
    let logs = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": logs });
    let (call, mut on_their_way) = (call.to_string(), Vec::new());
    let refused = loop {
        let answer = super::answer(&bench.node, call.as_bytes()).await.unwrap();
        let read: Value = serde_json::from_slice(&answer).unwrap();
        if read.get("error").is_some() {
            break read;
        }
        on_their_way.push(answer);
    };
    assert_eq!(refused["error"]["code"], -32_005, "{refused}");
    let bytes: usize = on_their_way.iter().map(bytes::Bytes::len).sum();
    assert!(!on_their_way.is_empty() && bytes <= 1 << 20, "{bytes}");
    assert_eq!(bench.get("eth_chainId", json!([])).await, "0x539", "what is short is answered");
    drop(on_their_way);
    assert!(!bench.get("eth_getLogs", logs).await.as_array().unwrap().is_empty());
}
