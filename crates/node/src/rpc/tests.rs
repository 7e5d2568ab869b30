//! Envelope, parameters, tags, honest answers and limits, on a real store.

use std::time::Duration;

use secateur_core::{BlockHash, Locator, Part, TxId, tx_index};
use secateur_store::Finality;
use serde_json::{Value, json};

use super::tests_support::{Bench, LIMITS, chain, chain_of, hex};
use crate::config::Limits;
use crate::follow::Standing;
use secateur_evm::ChainSpec;

/// Hashes that no block and no transaction has.
const UNKNOWN: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

fn first_tx(block: &secateur_core::Block) -> String {
    let entry = tx_index(&block.payloads.tx_index).next().unwrap().unwrap();
    entry.tx_id.to_string()
}

#[tokio::test]
async fn an_id_comes_back_as_it_was_sent() {
    let bench = Bench::with(&[]);
    for id in ["1", "-7", "1.50", "1e3", "18446744073709551616", r#""a\u0041\n""#, "null", r#""""#]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
        let answer = bench.post(&body).await.unwrap();
        let wanted = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x539"}}"#);
        assert_eq!(String::from_utf8(answer).unwrap(), wanted);
    }
}

#[tokio::test]
async fn what_is_not_json_is_a_parse_error() {
    let bench = Bench::with(&[]);
    let deep = "[".repeat(1_000_000);
    for body in ["", " ", "{", "[1,", "nope", "{} {}", "[{}] x", "\"a", "[1,2}", &deep] {
        let answer = bench.send(body).await;
        assert_eq!(answer["error"]["code"], -32_700, "{body:.20}");
        assert_eq!(answer["id"], Value::Null);
    }
    let answer = super::answer(&bench.node, b"\xff\xfe{}").await.unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["error"]["code"], -32_700);
}

#[tokio::test]
async fn what_is_no_call_is_an_invalid_request() {
    let bench = Bench::with(&[]);
    for (body, id) in [
        ("1", json!(null)),
        ("\"eth_chainId\"", json!(null)),
        ("null", json!(null)),
        ("{}", json!(null)),
        (r#"{"jsonrpc":"2.0"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":5}"#, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, json!(5)),
        (r#"{"jsonrpc":"1.0","id":"x","method":"eth_chainId"}"#, json!("x")),
        (r#"{"id":3,"method":"eth_chainId"}"#, json!(3)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"eth_chainId"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":true,"method":"eth_chainId"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"eth_chainId"}"#, json!(null)),
    ] {
        let answer = bench.send(body).await;
        assert_eq!(answer["error"]["code"], -32_600, "{body}");
        assert_eq!(answer["id"], id, "{body}");
        assert!(answer.get("result").is_none());
    }
}

#[tokio::test]
async fn a_notification_is_not_answered() {
    let bench = Bench::with(&[]);
    let quiet = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    assert_eq!(bench.post(quiet).await, None);
    assert_eq!(bench.post(r#"{"jsonrpc":"2.0","method":"nope","params":7}"#).await, None);
    assert_eq!(bench.post(&format!("[{quiet},{quiet}]")).await, None);
    let mixed = format!(r#"[{quiet},{{"jsonrpc":"2.0","id":9,"method":"net_version"}},{quiet}]"#);
    let answer = bench.send(&mixed).await;
    assert_eq!(answer, json!([{ "jsonrpc": "2.0", "id": 9, "result": "1337" }]));
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order_with_each_call_by_itself() {
    let bench = Bench::with(&chain(3));
    let call = |id: u64, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    let batch = json!([call(4, "eth_blockNumber"), 7, call(3, "nope"), [], call(4, "eth_chainId")]);
    let answer = bench.send(&format!(" \n{batch} ")).await;
    let answers = answer.as_array().unwrap();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(4), &json!(null), &json!(3), &json!(null), &json!(4)]);
    assert_eq!(answers[0]["result"], "0x2");
    assert_eq!(answers[1]["error"]["code"], -32_600);
    assert_eq!(answers[2]["error"]["code"], -32_601);
    assert_eq!(answers[3]["error"]["code"], -32_600);
    assert_eq!(answers[4]["result"], "0x539");
}

/// A batch of too many calls was answered with one object. Clients that sent a list, such as viem,
/// read a list, and failed on the object with an error of their own. geth answers a list with one
/// error under the first call's id.
#[tokio::test]
async fn a_batch_of_too_many_calls_is_answered_with_a_list_of_one_error_as_geth_does() {
    let bench = Bench::with(&[]);
    let answer = bench.send("[ ]").await;
    assert_eq!(answer["error"]["code"], -32_600, "an empty batch is answered with an object");
    let call = r#"{"jsonrpc":"2.0","id":"x1","method":"eth_chainId"}"#;
    let most = [call; 10].join(",");
    assert_eq!(bench.send(&format!("[{most}]")).await.as_array().unwrap().len(), 10);
    let error = json!({ "code": -32_600, "message": "batch too large" });
    for (more, id) in [
        (format!("[{most},{call}]"), json!("x1")),
        (format!("[7,{{\"jsonrpc\":\"2.0\",\"method\":\"x\"}},{most}]"), json!("x1")),
        (format!("[{}1]", "1,".repeat(2_000_000)), json!(null)),
    ] {
        let wanted = json!([{ "jsonrpc": "2.0", "id": id, "error": error }]);
        assert_eq!(bench.send(&more).await, wanted, "{more:.80}");
    }
}

#[test]
fn a_thousand_calls_are_a_batch_at_the_default_limits() {
    let layers = crate::config::Layers::defaults();
    let config = crate::config::Config::of(&layers).unwrap();
    assert_eq!(config.limits.batch, 1_000, "viem sends up to so many");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_a_limit_and_ends_its_batch() {
    let blocks = chain(4);
    let bench = Bench::with(&blocks);
    let call = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let large = call(2, "eth_getBlockByNumber", json!(["0x3", true]));
    let batch =
        json!([call(1, "eth_chainId", json!([])), large, call(3, "eth_chainId", json!([]))]);
    let answer = super::answer_within(&bench.node, batch.to_string().as_bytes(), 2_000).await;
    let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    assert_eq!(answer[0]["result"], "0x539");
    for place in [1, 2] {
        assert_eq!(answer[place]["error"]["code"], -32_005);
        assert_eq!(answer[place]["id"], json!(place + 1));
        let said = answer[place]["error"]["message"].as_str().unwrap();
        assert!(said.ends_with("send this call in a request of its own"), "{said}");
    }
    for (method, params, other) in [
        ("eth_getBlockReceipts", json!(["0x3"]), "eth_getTransactionReceipt"),
        ("eth_getBlockByNumber", json!(["0x3", true]), "eth_getTransactionByHash"),
    ] {
        let alone = call(1, method, params).to_string();
        let answer = super::answer_within(&bench.node, alone.as_bytes(), 1_000).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let said = answer["error"]["message"].as_str().unwrap();
        assert!(said.starts_with("the answer is longer than 1000 bytes"), "{said}");
        assert!(said.contains(other), "{said}");
    }
    let logs = call(1, "eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": "latest" }]));
    let answer = super::answer_within(&bench.node, logs.to_string().as_bytes(), 2_000).await;
    let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    assert_eq!(answer["error"]["code"], -32_005);
    assert!(answer["error"]["message"].as_str().unwrap().contains("2000 bytes"), "{answer}");
}

#[tokio::test]
async fn methods_that_take_nothing_answer_about_the_node() {
    let bench = Bench::with(&chain(5));
    assert_eq!(bench.get("eth_chainId", json!([])).await, "0x539");
    assert_eq!(bench.get("net_version", json!([])).await, "1337");
    assert_eq!(bench.get("eth_blockNumber", Value::Null).await, "0x4");
    assert_eq!(bench.get("eth_syncing", json!([])).await, false);
    let client = bench.get("web3_clientVersion", json!([])).await;
    assert!(client.as_str().unwrap().starts_with("secateur/v"), "{client}");
    assert_eq!(bench.fail("eth_chainId", json!([1])).await["code"], -32_602);
    assert_eq!(bench.fail("eth_blockNumber", json!({})).await["code"], -32_602);
    let long = "x".repeat(100_000);
    let error = bench.fail(&long, json!([])).await;
    assert_eq!(error["code"], -32_601);
    assert!(error["message"].as_str().unwrap().len() < 200);
}

#[tokio::test]
async fn wrong_parameters_are_refused_with_a_reason() {
    let bench = Bench::with(&chain(3));
    let deep = |n| Value::String("[".repeat(n));
    let hash = json!(UNKNOWN);
    let by_number = "eth_getBlockByNumber";
    for (method, params) in [
        (by_number, json!([])),
        (by_number, json!([null, true])),
        (by_number, json!([1, true])),
        (by_number, json!(["1", true])),
        (by_number, json!(["0x", true])),
        (by_number, json!(["", true])),
        (by_number, json!(["0x01", true])),
        (by_number, json!(["0x+1", true])),
        (by_number, json!(["0xg", true])),
        (by_number, json!(["0x10000000000000000", true])),
        (by_number, json!(["newest", true])),
        (by_number, json!([hash, true])),
        (by_number, json!(["latest", "true"])),
        (by_number, json!(["latest", true, 1])),
        (by_number, json!([{ "blockNumber": "0x1" }, true])),
        (by_number, json!([deep(100_000), true])),
        (by_number, json!("latest")),
        ("eth_getBlockByHash", json!(["latest", true])),
        ("eth_getBlockByHash", json!([&UNKNOWN[2..], true])),
        ("eth_getBlockByHash", json!([&UNKNOWN[..65], true])),
        ("eth_getBlockByHash", json!([format!("{UNKNOWN}00"), true])),
        ("eth_getBlockByHash", json!([format!("0x0x{}", &UNKNOWN[4..]), true])),
        ("eth_getTransactionByHash", json!(["0x1"])),
        ("eth_getTransactionReceipt", json!([7])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["latest", 0])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["latest"])),
        ("eth_getBlockReceipts", json!([{}])),
        ("eth_getBlockReceipts", json!([{ "blockNumber": "0x1", "blockHash": hash }])),
        ("eth_getBlockReceipts", json!([["0x1"]])),
        ("eth_getLogs", json!([])),
        ("eth_getLogs", json!([["0x0", "0x1"]])),
        ("eth_getLogs", json!([{ "fromBlock": "0x00" }])),
        ("eth_getLogs", json!([{ "fromBlock": "0x2", "toBlock": "0x1" }])),
        ("eth_getLogs", json!([{ "fromBlock": "0x99", "toBlock": "0x98" }])),
        ("eth_getLogs", json!([{ "fromBlock": "latest", "toBlock": "0x1" }])),
        ("eth_getLogs", json!([{ "toBlock": "pending" }])),
        ("eth_getLogs", json!([{ "blockHash": hash, "fromBlock": "0x1" }])),
        ("eth_getLogs", json!([{ "blockHash": "0x1" }])),
        ("eth_getLogs", json!([{ "address": 5 }])),
        ("eth_getLogs", json!([{ "address": ["0x1"] }])),
        ("eth_getLogs", json!([{ "address": [[]] }])),
        ("eth_getLogs", json!([{ "topics": "0x1" }])),
        ("eth_getLogs", json!([{ "topics": [hash, hash, hash, hash, hash] }])),
        ("eth_getLogs", json!([{ "topics": [["0x1"]] }])),
        ("eth_getLogs", json!([{ "topics": [[[hash]]] }])),
        ("eth_getLogs", json!([{ "topics": [vec![UNKNOWN; 1_001]] }])),
    ] {
        let error = bench.fail(method, params.clone()).await;
        assert_eq!(error["code"], -32_602, "{method} {params:.100}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.len() < 300, "{message}");
    }
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for params in [nested.clone(), format!("[{nested}]"), format!(r#"[{{"topics":{nested}}}]"#)] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":{params},"x":{nested}}}"#
        );
        assert_eq!(bench.send(&body).await["error"]["code"], -32_602);
    }
}

#[tokio::test]
async fn tags_name_blocks_and_safe_is_the_newest_final_one() {
    let blocks = chain(9);
    let bench = Bench::make(&blocks, LIMITS, Finality::Explicit, 1337);
    let number = async |tag: &str| {
        bench.get("eth_getBlockByNumber", json!([tag, false])).await["number"].clone()
    };
    assert_eq!(number("finalized").await, Value::Null);
    let error = bench.fail("eth_getLogs", json!([{ "toBlock": "finalized" }])).await;
    assert_eq!(error["code"], -32_000);
    bench.node.store.set_finalized(6).unwrap();
    assert_eq!(number("latest").await, "0x8");
    assert_eq!(number("finalized").await, "0x6");
    assert_eq!(number("safe").await, "0x6");
    assert_eq!(number("earliest").await, "0x0");
    assert_eq!(number("0X3").await, "0x3");
    bench.prune_to(4);
    assert_eq!(number("earliest").await, "0x5");
    for method in
        ["eth_getBlockByNumber", "eth_getBlockTransactionCountByNumber", "eth_getBlockReceipts"]
    {
        assert_eq!(bench.get(method, json!(["pending"])).await, Value::Null);
    }
    let by_index = "eth_getTransactionByBlockNumberAndIndex";
    assert_eq!(bench.get(by_index, json!(["pending", "0x0"])).await, Value::Null);
    assert_eq!(
        bench.get("eth_getBlockReceipts", json!([{ "blockNumber": "latest" }])).await,
        bench.get("eth_getBlockReceipts", json!([{ "blockHash": blocks[8].meta.hash }])).await,
    );
}

#[tokio::test]
async fn what_is_not_known_or_only_queued_is_null() {
    let bench = Bench::with(&chain(3));
    bench.node.store.queue_tx(TxId([0x22; 32])).unwrap();
    let queued = format!("0x{}", "22".repeat(32));
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x3", true])),
        ("eth_getBlockByHash", json!([UNKNOWN, true])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x3"])),
        ("eth_getBlockTransactionCountByHash", json!([UNKNOWN])),
        ("eth_getTransactionByHash", json!([UNKNOWN])),
        ("eth_getTransactionByHash", json!([queued])),
        ("eth_getTransactionReceipt", json!([UNKNOWN])),
        ("eth_getTransactionReceipt", json!([queued])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x1", "0xffffffffffffffff"])),
        ("eth_getTransactionByBlockHashAndIndex", json!([UNKNOWN, "0x0"])),
        ("eth_getBlockReceipts", json!(["0x3"])),
        ("eth_getBlockReceipts", json!([UNKNOWN])),
    ] {
        assert_eq!(bench.get(method, params).await, Value::Null, "{method}");
    }
}

#[tokio::test]
async fn a_store_without_blocks_says_so() {
    let bench = Bench::with(&[]);
    for method in ["eth_blockNumber", "eth_capabilities"] {
        assert_eq!(bench.fail(method, json!([])).await["code"], -32_000);
    }
    assert_eq!(bench.fail("eth_getLogs", json!([{}])).await["code"], -32_000);
    for tag in ["latest", "earliest", "finalized", "0x0"] {
        assert_eq!(bench.get("eth_getBlockByNumber", json!([tag, true])).await, Value::Null);
    }
    assert_eq!(bench.get("eth_syncing", json!([])).await, false);
}

#[tokio::test]
async fn what_was_cut_is_4444_by_number_by_hash_and_by_transaction() {
    let blocks = chain(60);
    let bench = Bench::with(&blocks);
    // What is remembered must not outlive its block.
    bench.get("eth_getBlockByNumber", json!(["0x3", true])).await;
    let part = Part {
        first: 0,
        last: 9,
        parent_hash: BlockHash::default(),
        last_hash: blocks[9].meta.hash,
        locator: Locator { provider: "fs".into(), key: "parts/0-9".into() },
        sha256: "ab".repeat(32),
        size: 1,
    };
    bench.node.store.ack_archived(&part).unwrap();
    bench.prune_to(20);
    let cut = &blocks[3];
    let (hash, tx) = (cut.meta.hash.to_string(), first_tx(cut));
    let data = json!({
        "requested": "0x3", "earliestAvailable": "0x28", "prunedBeforeBlock": "0x27",
        "locator": { "provider": "fs", "key": "parts/0-9" },
    });
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x3", true])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x3"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x3", "0x0"])),
        ("eth_getBlockReceipts", json!(["0x3"])),
        ("eth_getLogs", json!([{ "fromBlock": "0x3", "toBlock": "latest" }])),
        ("eth_getLogs", json!([{ "fromBlock": "0x3", "toBlock": "0x4" }])),
    ] {
        let error = bench.fail(method, params).await;
        let wanted = json!({ "code": 4444, "message": "pruned history unavailable", "data": data });
        assert_eq!(error, wanted, "{method}");
    }
    for (method, params, requested) in [
        ("eth_getBlockByHash", json!([hash, true]), &hash),
        ("eth_getBlockTransactionCountByHash", json!([hash]), &hash),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"]), &hash),
        ("eth_getBlockReceipts", json!([hash]), &hash),
        ("eth_getLogs", json!([{ "blockHash": hash }]), &hash),
        ("eth_getTransactionByHash", json!([tx]), &tx),
        ("eth_getTransactionReceipt", json!([tx]), &tx),
    ] {
        let error = bench.fail(method, params).await;
        assert_eq!(error["code"], 4444, "{method}: {error}");
        let wanted = json!({
            "requested": requested, "earliestAvailable": "0x28", "prunedBeforeBlock": "0x27",
            "locator": { "provider": "fs", "key": "parts/0-9" },
        });
        assert_eq!(error["data"], wanted, "{method}");
    }
    // Block 10 is in no part; block 40 is here.
    let error = bench.fail("eth_getBlockByNumber", json!(["0xa", true])).await;
    assert!(error["data"].get("locator").is_none());
    assert_eq!(bench.get("eth_getBlockByNumber", json!(["0x28", true])).await["number"], "0x28");
}

#[tokio::test]
async fn what_is_below_the_first_block_is_not_denied() {
    let bench = Bench::with(&chain_of(ChainSpec::default(), 100, BlockHash([9; 32]), 5));
    let data = json!({
        "requested": "0x63", "earliestAvailable": "0x64", "prunedBeforeBlock": null,
    });
    let error = bench.fail("eth_getBlockByNumber", json!(["0x63", false])).await;
    assert_eq!((&error["code"], &error["data"]), (&json!(4444), &data));
    let range = json!([{ "fromBlock": "0x63", "toBlock": "0x66" }]);
    let error = bench.fail("eth_getLogs", range).await;
    assert_eq!((&error["code"], &error["data"]), (&json!(4444), &data));
}

#[tokio::test]
async fn capabilities_say_what_is_here_and_how_it_goes() {
    let blocks = chain(30);
    let bench = Bench::with(&blocks);
    let all = json!({ "disabled": false, "oldestBlock": "0x0" });
    let none = json!({ "disabled": true });
    let head = json!({ "number": "0x1d", "hash": blocks[29].meta.hash });
    let answer = bench.get("eth_capabilities", json!([])).await;
    assert_eq!(
        answer,
        json!({
            "head": head, "state": none, "stateproofs": none,
            "tx": all, "logs": all, "receipts": all, "blocks": all,
        })
    );
    bench.prune_to(8);
    let answer = bench.get("eth_capabilities", json!([])).await;
    let window = json!({ "type": "window", "retentionBlocks": "0x8" });
    let some = json!({ "disabled": false, "oldestBlock": "0x16", "deleteStrategy": window });
    for family in ["tx", "logs", "receipts", "blocks"] {
        assert_eq!(answer[family], some);
    }
    // A budget of bytes is no number of blocks.
    let mut policy = bench.node.store.policy();
    policy.target_bytes = 1 << 40;
    bench.node.store.set_prune_policy(policy).unwrap();
    let answer = bench.get("eth_capabilities", json!([])).await;
    assert_eq!(answer["logs"], json!({ "disabled": false, "oldestBlock": "0x16" }));
}

#[tokio::test]
async fn syncing_is_said_while_a_follower_catches_up() {
    let bench = Bench::with(&chain(5));
    let behind =
        Standing { following: true, from: Some(2), source_head: Some(90), ..Standing::default() };
    bench.standing.send_replace(behind.clone());
    let wanted = json!({ "startingBlock": "0x2", "currentBlock": "0x4", "highestBlock": "0x5a" });
    assert_eq!(bench.get("eth_syncing", json!([])).await, wanted);
    let sync: alloy_rpc_types_eth::SyncStatus = serde_json::from_value(wanted).unwrap();
    assert!(matches!(sync, alloy_rpc_types_eth::SyncStatus::Info(_)));
    bench.standing.send_replace(Standing { caught_up: true, ..behind.clone() });
    assert_eq!(bench.get("eth_syncing", json!([])).await, false);
    bench.standing.send_replace(Standing { source_head: Some(4), ..behind.clone() });
    assert_eq!(bench.get("eth_syncing", json!([])).await, false);
    // Nothing is known of a source that fell silent, but that it had block 4.
    let asked = Some(tokio::time::Instant::now());
    let silent = Standing { source_head: Some(4), caught_up: true, asked, ..behind };
    bench.standing.send_replace(silent);
    assert_eq!(bench.get("eth_syncing", json!([])).await["highestBlock"], "0x4");
}

#[tokio::test]
async fn a_block_that_was_reorganised_away_is_null_by_hash_and_new_by_number() {
    let blocks = chain(10);
    let bench = Bench::make(&blocks, LIMITS, Finality::Explicit, 1337);
    let old = bench.get("eth_getBlockByNumber", json!(["0x8", true])).await;
    bench.node.store.rollback(6).unwrap();
    let other = ChainSpec { seed: 2, ..ChainSpec::default() };
    let fork = chain_of(other, 7, blocks[6].meta.hash, 3);
    bench.node.store.append_group(&fork).unwrap();
    let new = bench.get("eth_getBlockByNumber", json!(["0x8", true])).await;
    assert_eq!(new["hash"], json!(fork[1].meta.hash));
    assert_ne!(new, old);
    assert_eq!(bench.get("eth_getBlockByHash", json!([old["hash"], true])).await, Value::Null);
    let gone = &old["transactions"][0]["hash"];
    assert_eq!(bench.get("eth_getTransactionByHash", json!([gone])).await, Value::Null);
    assert_eq!(bench.get("eth_getTransactionReceipt", json!([gone])).await, Value::Null);
}

#[tokio::test]
async fn a_call_ends_when_its_time_is_over() {
    let limits = Limits { timeout: Duration::ZERO, ..LIMITS };
    let bench = Bench::with_limits(&chain(2), limits);
    for (method, params) in [("eth_blockNumber", json!([])), ("eth_getLogs", json!([{}]))] {
        assert_eq!(bench.fail(method, params).await["code"], -32_002, "{method}");
    }
}

#[tokio::test]
async fn a_log_scan_ends_when_the_node_stops() {
    let bench = Bench::with(&chain(2));
    bench.stop.send_replace(true);
    assert_eq!(bench.fail("eth_getLogs", json!([{}])).await["code"], -32_002);
}

#[tokio::test]
async fn blocks_of_another_kind_of_chain_are_an_internal_error() {
    let mut block = chain(1).remove(0);
    block.payloads.block = b"not an EVM block".to_vec();
    let bench = Bench::with(&[block]);
    for (method, params) in
        [("eth_getBlockByNumber", json!([hex(0), true])), ("eth_getLogs", json!([{}]))]
    {
        assert_eq!(bench.fail(method, params).await["code"], -32_603, "{method}");
    }
}
