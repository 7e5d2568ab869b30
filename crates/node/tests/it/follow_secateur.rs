//! A node that follows another Secateur: uncles and all; and what it says of a source that is dead, that
//! became another chain, or whose block cannot be stored.

use std::time::{Duration, Instant};

use alloy_consensus::proofs::calculate_ommers_root;
use alloy_consensus::{BlockBody, EthereumTxEnvelope, Header, TxEip4844};
use secateur_core::{Block, BlockHash, BlockMeta, Payloads};
use secateur_evm::{ChainSpec, Generator};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::followed::Followed;
use crate::grpc::Rig;
use crate::http_client::send;
use crate::indexed::Chain;
use crate::json_client::Client;
use crate::proxy::{Change, Manner, Proxy, Refuse};
use crate::tool::{ask, open_store, run};

type EvmBlock = alloy_consensus::Block<EthereumTxEnvelope<TxEip4844>>;

const CONFIG: &str = "[chain]\nid = 1337\n";
/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

fn header(height: u64, parent: BlockHash, ommers: &[Header], salt: u8) -> Header {
    Header {
        number: height,
        parent_hash: parent.0.into(),
        ommers_hash: calculate_ommers_root(ommers),
        // A second each, so that the pace is known soon.
        timestamp: 1_700_000_000 + height,
        gas_limit: 30_000_000,
        extra_data: vec![salt].into(),
        ..Header::default()
    }
}

fn stored(header: Header, ommers: Vec<Header>) -> Block {
    let meta = BlockMeta {
        height: header.number,
        hash: BlockHash(header.hash_slow().0),
        parent_hash: BlockHash(header.parent_hash.0),
        timestamp: header.timestamp,
    };
    let body = BlockBody { transactions: Vec::new(), ommers, withdrawals: None };
    let block = alloy_rlp::encode(EvmBlock { header, body });
    Block { meta, payloads: Payloads { block, ..Payloads::default() } }
}

/// Blocks without transactions, which a salt tells from those of another chain.
fn empty_chain(count: u64, salt: u8) -> Vec<Block> {
    let mut parent = BlockHash::default();
    let mut next = |height| {
        let block = stored(header(height, parent, &[], salt), Vec::new());
        parent = block.meta.hash;
        block
    };
    (0..count).map(&mut next).collect()
}

fn url(http: &str) -> String {
    format!("http://{http}")
}

fn ready(http: &str) -> (u16, Value) {
    let reply = send(http, "GET /readyz", &[], b"");
    (reply.status, reply.json())
}

/// Asks again and again whether a node is ready, until the answer is the one that is waited for.
#[track_caller]
fn ready_until(http: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = ready(http);
        if wanted(status, &answer) {
            return answer;
        }
        assert!(Instant::now() < until, "{status} {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A source that is a Secateur did not answer `eth_getUncleByBlockNumberAndIndex`, so that a chain from
/// before the Merge ended at its first block with an uncle.
#[test]
fn a_node_follows_another_secateur_through_blocks_with_uncles() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut blocks = empty_chain(2, 0);
    let (genesis, parent) = (blocks[0].meta.hash, blocks[1].meta.hash);
    let uncles: Vec<Header> = [1, 2].map(|salt| header(1, genesis, &[], salt)).into();
    blocks.push(stored(header(2, parent, &uncles, 0), uncles.clone()));
    let source = runtime.block_on(Rig::configured(CONFIG));
    runtime.block_on(source.clients.append(&blocks));

    let data = tempdir().unwrap();
    let mut node = Followed::start(data.path(), &url(&source.node.http));
    let (http, _) = node.addresses(data.path());
    node.reaches(2, &blocks[2].meta.hash.to_string());
    let client = Client::new(&url(&http));
    let ask = |method: &str, params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        client.post(&call)["result"].clone()
    };
    let hash = blocks[2].meta.hash.to_string();
    assert_eq!(ask("eth_getUncleCountByBlockNumber", json!(["0x2"])), "0x2");
    assert_eq!(ask("eth_getUncleCountByBlockHash", json!([hash])), "0x2");
    assert_eq!(ask("eth_getUncleCountByBlockNumber", json!(["0x9"])), Value::Null);
    for (index, uncle) in uncles.iter().enumerate() {
        let index = format!("{index:#x}");
        let by_number = ask("eth_getUncleByBlockNumberAndIndex", json!(["0x2", index]));
        assert_eq!(by_number["hash"], json!(uncle.hash_slow()));
        assert_eq!(by_number["uncles"], json!([]));
        assert_eq!(by_number.get("transactions"), None);
        assert_eq!(ask("eth_getUncleByBlockHashAndIndex", json!([hash, index])), by_number);
    }
    assert_eq!(ask("eth_getUncleByBlockNumberAndIndex", json!(["0x2", "0x2"])), Value::Null);
    node.stop();
    for block in &blocks {
        assert_eq!(open_store(data.path()).get_block(block.meta.height).unwrap(), *block);
    }
    runtime.block_on(source.stop());
}

/// The lag stayed 0 and readiness true for as long as a source was dead.
#[test]
fn a_dead_source_is_not_caught_up_and_status_shows_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let blocks = empty_chain(12, 0);
    let source = runtime.block_on(Rig::configured(CONFIG));
    runtime.block_on(source.clients.append(&blocks[..10]));
    let data = tempdir().unwrap();
    let mut node = Followed::start(data.path(), &url(&source.node.http));
    let (http, _) = node.addresses(data.path());
    node.reaches(9, &blocks[9].meta.hash.to_string());
    runtime.block_on(source.clients.append(&blocks[10..]));
    node.reaches(11, &blocks[11].meta.hash.to_string());
    let alive = ready_until(&http, |status, alive| status == 200 && alive["caught_up"] == true);
    assert_eq!(alive["lag_blocks"], 0);
    let shown = ask(data.path(), "status")["source"].clone();
    assert_eq!((&shown["head"], &shown["caught_up"]), (&json!(11), &json!(true)), "{shown}");

    let address = url(&source.node.http);
    runtime.block_on(source.stop());
    // A refused connection is trouble at once; that it is silent shows when its patience is over.
    let silent = "the source has not answered for ";
    let dead = ready_until(&http, |status, answer| {
        let mut reasons = answer["reasons"].as_array().unwrap().iter();
        status == 503 && reasons.any(|reason| reason.as_str().unwrap().starts_with(silent))
    });
    assert_eq!(dead["caught_up"], false);
    // It made a block a second.
    let lag = dead["lag_blocks"].as_u64().unwrap();
    ready_until(&http, |_, answer| answer["lag_blocks"].as_u64().unwrap() > lag);
    let page = send(&http, "GET /metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    for (name, wanted) in [("caught_up", "0"), ("enabled", "1")] {
        let line = format!("secateur_follow_{name} {wanted}");
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    let shown = ask(data.path(), "status")["source"].clone();
    assert_eq!((&shown["address"], &shown["caught_up"]), (&json!(address), &json!(false)));
    assert!(shown["trouble"].as_str().unwrap().contains("does not answer"), "{shown}");
    let text = run(data.path(), "status").ends(0).out;
    for part in ["source", address.as_str(), "TROUBLE"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    node.stop();
}

/// A chain of the same number that begins with another block was "caught up with": none of its blocks
/// was high enough to disagree with one that is kept here.
#[test]
fn a_source_that_became_another_chain_is_refused_though_all_of_it_is_below_what_is_kept() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let blocks = empty_chain(60, 0);
    let (source, other) = runtime.block_on(async {
        let (source, other) = (Rig::configured(CONFIG).await, Rig::configured(CONFIG).await);
        source.clients.append(&blocks).await;
        other.clients.append(&empty_chain(10, 1)).await;
        (source, other)
    });
    let data = tempdir().unwrap();
    let proxy = Proxy::start(&url(&source.node.http), Manner::Honest);
    let mut node = Followed::start(data.path(), &proxy.url);
    node.reaches(59, &blocks[59].meta.hash.to_string());
    node.stop();
    run(data.path(), "policy set retain_blocks=8").ends(0);
    run(data.path(), "prune --yes").ends(0);
    assert!(ask(data.path(), "status")["oldest_kept_block"].as_u64().unwrap() > 20);

    let node = Followed::start(data.path(), &proxy.url);
    let (http, _) = node.addresses(data.path());
    // What block 0 is, is known from the source: it is pruned here.
    let known = data.path().join("source.toml");
    ready_until(&http, |status, _| status == 200 && known.exists());
    // The same chain, of which less is there, is no other chain; but nothing new can come from it.
    runtime.block_on(async {
        let shorter = Rig::configured(CONFIG).await;
        shorter.clients.append(&blocks[..10]).await;
        proxy.aim(&url(&shorter.node.http));
        ready_until(&http, |status, answer| status == 503 && answer["lag_blocks"].is_null());
        shorter.stop().await;
    });
    proxy.aim(&url(&other.node.http));
    let said = node.ends(11);
    assert!(said.contains("has another chain: its block 0 is"), "{said}");
    assert!(said.contains("Nothing was taken back"), "{said}");
    // Nor is it accepted by the next start.
    let said = Followed::start(data.path(), &proxy.url).ends(11);
    assert!(said.contains("has another chain: its block 0 is"), "{said}");
    runtime.block_on(async {
        source.stop().await;
        other.stop().await;
    });
}

/// It was logged again and again, and between two times that the trouble is over.
#[test]
fn a_refused_block_is_logged_once_with_what_names_it_and_readiness_says_which() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let blocks = Chain::new(4).next(20);
    let source = runtime.block_on(Rig::configured(CONFIG));
    runtime.block_on(source.clients.append(&blocks));
    let lie: Change = |method, result| {
        let is_whole = method == "eth_getBlockByNumber" && result["transactions"][0].is_object();
        if is_whole && result["number"] == "0x7" {
            result["transactionsRoot"] = json!(format!("0x{}", "ab".repeat(32)));
        }
    };
    let proxy = Proxy::start(&url(&source.node.http), Manner::Change(lie));
    let data = tempdir().unwrap();
    let mut node = Followed::start(data.path(), &proxy.url);
    let (http, _) = node.addresses(data.path());
    let line = node.says("block 7 was refused and not stored: the block hash is stated as");
    let (fields, hash) = (&line["fields"], blocks[7].meta.hash.to_string());
    assert_eq!((&fields["number"], &fields["hash"]), (&json!(7), &json!(hash)), "{line}");
    assert!(fields["size"].as_str().unwrap().ends_with(" KiB"), "{line}");
    assert_eq!(fields["source"], proxy.url, "{line}");
    // Three times in each round.
    proxy.is_asked(r#"eth_getBlockByNumber ["0x7",true]"#, 9);
    let (status, answer) = ready(&http);
    assert_eq!((status, &answer["refused_block"]), (503, &json!(7)), "{answer}");
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(reason.contains("block 7 of the source was refused"), "{reason}");
    assert!(reason.contains(&hash), "{reason}");
    let so_far = node.said();
    assert_eq!(so_far.matches("was refused and not stored").count(), 1, "{so_far}");
    assert!(!so_far.contains("the trouble is over"), "{so_far}");
    proxy.set(Manner::Honest);
    node.says("the trouble is over");
    node.reaches(19, &blocks[19].meta.hash.to_string());
    ready_until(&http, |status, _| status == 200);
    node.stop();
    runtime.block_on(source.stop());
}

/// What a source's answer to one call weighs, in bytes of JSON.
fn weighs(http: &str, method: &str, params: &Value) -> usize {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Client::new(&url(http)).post(&call)["result"].to_string().len()
}

/// The code of "the answer is too long" is that of "too often" elsewhere: such a block was asked for
/// again for ever, and nothing said which block it was.
#[test]
fn receipts_that_are_too_long_for_one_answer_are_asked_for_one_by_one() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let spec = ChainSpec { transactions_per_block: 40, mean_calldata: 0, ..ChainSpec::default() };
    let blocks: Vec<Block> =
        Generator::new(spec).unwrap().blocks().take(8).map(Result::unwrap).collect();
    let config = |limits: &str| format!("{CONFIG}[limits]\n{limits}\n");
    let wide = runtime.block_on(Rig::configured(CONFIG));
    runtime.block_on(wide.clients.append(&blocks));
    let http = &wide.node.http;
    let (mut longest_block, mut longest_receipts) = (0, 0);
    for height in 0..8 {
        let height = format!("{height:#x}");
        let block = weighs(http, "eth_getBlockByNumber", &json!([height, true]));
        let receipts = weighs(http, "eth_getBlockReceipts", &json!([height]));
        (longest_block, longest_receipts) =
            (longest_block.max(block), longest_receipts.max(receipts));
    }
    runtime.block_on(wide.stop());
    let limit = longest_block + 8_192;
    assert!(
        longest_receipts > limit,
        "{longest_receipts} bytes of receipts, {longest_block} of a block"
    );

    let source = runtime.block_on(Rig::configured(&config(&format!("answer_bytes = {limit}"))));
    runtime.block_on(source.clients.append(&blocks));
    let proxy = Proxy::start(&url(&source.node.http), Manner::Honest);
    let data = tempdir().unwrap();
    // All answers of a source share what it has for them.
    let alone = [("SECATEUR_FOLLOW_CONCURRENCY", "1"), ("SECATEUR_FOLLOW_TIMEOUT_SECONDS", "30")];
    let mut node = Followed::with(data.path(), &proxy.url, "", &alone);
    node.reaches(7, &blocks[7].meta.hash.to_string());
    assert!(proxy.take_asked().iter().any(|call| call.starts_with("eth_getTransactionReceipt")));
    let said = node.stop();
    assert!(!said.contains("refused"), "{said}");
    for block in &blocks {
        assert_eq!(open_store(data.path()).get_block(block.meta.height).unwrap(), *block);
    }
    runtime.block_on(source.stop());
}

/// A node that follows 20 blocks of a source through a proxy which is not honest about block 7.
fn dishonest(
    manner: Manner,
) -> (tokio::runtime::Runtime, Rig, Vec<Block>, Proxy, tempfile::TempDir, Followed) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let blocks = Chain::new(4).next(20);
    let source = runtime.block_on(Rig::configured(CONFIG));
    runtime.block_on(source.clients.append(&blocks));
    let proxy = Proxy::start(&url(&source.node.http), manner);
    let data = tempdir().unwrap();
    let node = Followed::start(data.path(), &proxy.url);
    (runtime, source, blocks, proxy, data, node)
}

/// A refused block is named with what the source sent of it, and followed when it is right.
#[track_caller]
fn is_named(manner: Manner, words: &str) {
    let (runtime, source, blocks, proxy, data, mut node) = dishonest(manner);
    let (http, _) = node.addresses(data.path());
    let line = node.says(words);
    let (fields, hash) = (&line["fields"], blocks[7].meta.hash.to_string());
    assert_eq!((&fields["number"], &fields["hash"]), (&json!(7), &json!(hash)), "{line}");
    assert!(fields["size"].as_str().unwrap().ends_with(" KiB"), "{line}");
    let answer = ready_until(&http, |status, _| status == 503);
    assert_eq!(answer["refused_block"], 7, "{answer}");
    proxy.set(Manner::Honest);
    node.reaches(19, &blocks[19].meta.hash.to_string());
    node.stop();
    runtime.block_on(source.stop());
}

/// It was logged with the hash "unknown" and 0 bytes, though the block itself had come.
#[test]
fn a_block_whose_receipts_are_missing_is_refused_with_its_hash_and_size() {
    let lie: Change = |method, result| {
        if method == "eth_getBlockReceipts" && result[0]["blockNumber"] == "0x7" {
            *result = Value::Null;
        }
    };
    is_named(
        Manner::Change(lie),
        "block 7 was refused and not stored: the source does not have it",
    );
}

#[test]
fn a_receipt_that_is_too_long_even_alone_refuses_its_block_by_name() {
    let refuse: Refuse = |call, _| {
        let is_receipts = call["method"] == "eth_getBlockReceipts" && call["params"][0] == "0x7";
        let is_long = is_receipts || call["method"] == "eth_getTransactionReceipt";
        is_long.then_some((-32_005, "the answer is longer than 160 bytes; ask for less"))
    };
    is_named(Manner::Refuse(refuse), "what eth_getTransactionReceipt answers is too long");
}

/// A time limit of the source was "the block was refused".
#[test]
fn a_source_that_is_too_slow_for_a_batch_is_asked_for_less_at_once() {
    let slow: Refuse =
        |_, of| (of > 2).then_some((-32_002, "the request took longer than the node allows"));
    let (runtime, source, blocks, _proxy, _data, mut node) = dishonest(Manner::Refuse(slow));
    node.reaches(19, &blocks[19].meta.hash.to_string());
    let said = node.stop();
    assert!(!said.contains("was refused"), "{said}");
    runtime.block_on(source.stop());
}
