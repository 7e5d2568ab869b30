//! Real clients on a real chain: anvil mines, Secateur follows, and what alloy and viem read from
//! one they must read from the other, until the boundary.

use std::process::Command;

use alloy_provider::{Provider, ProviderBuilder, RootProvider};
use serde_json::{Value, json};

use crate::anvil::{Anvil, tools};
use crate::node::Node;
use crate::tool::{ask, run};
use crate::wallet::Wallet;

fn provider(url: &str) -> RootProvider {
    ProviderBuilder::default().connect_http(url.parse().unwrap())
}

/// Waits until Secateur has everything that anvil has.
async fn caught_up(source: &RootProvider, secateur: &RootProvider) -> u64 {
    let head = source.get_block_number().await.unwrap();
    let ends = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while secateur.get_block_number().await.ok() != Some(head) {
        assert!(std::time::Instant::now() < ends, "block {head} never came");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    head
}

/// The same raw call to both; the answers must be equal field by field.
async fn same(source: &RootProvider, ours: &RootProvider, method: &str, params: Value) -> Value {
    let ask = async |node: &RootProvider| {
        let answer: Value = node.raw_request(method.to_owned().into(), &params).await.unwrap();
        answer
    };
    let (mut theirs, mut ours) = (ask(source).await, ask(ours).await);
    set_aside(&mut theirs);
    set_aside(&mut ours);
    assert_eq!(ours, theirs, "{method} {params}");
    theirs
}

/// Takes out what anvil 1.7 says otherwise than the interface's definition and other nodes do: the
/// size of a block is short by its empty list of withdrawals, a total difficulty of 0 after the
/// merge, a blob gas price on transactions without blobs, a timestamp on receipts as a plain number.
fn set_aside(answer: &mut Value) {
    match answer {
        Value::Array(answers) => answers.iter_mut().for_each(set_aside),
        Value::Object(fields) if fields.contains_key("transactionsRoot") => {
            fields.remove("size");
            fields.remove("totalDifficulty");
        }
        Value::Object(fields) if fields.contains_key("cumulativeGasUsed") => {
            fields.remove("blockTimestamp");
            if fields.get("type") != Some(&json!("0x3")) {
                fields.remove("blobGasPrice");
            }
        }
        _ => {}
    }
}

/// The call must be refused with 4444 and say what is left.
async fn pruned(ours: &RootProvider, method: &str, params: Value, boundary: u64) {
    let refused = ours.raw_request::<_, Value>(method.to_owned().into(), &params).await;
    let error = refused.expect_err(method);
    let error = error.as_error_resp().unwrap_or_else(|| panic!("{method} {params}: {error}"));
    assert_eq!((error.code, error.message.as_ref()), (4444, "pruned history unavailable"));
    let data: Value = serde_json::from_str(error.data.as_ref().unwrap().get()).unwrap();
    assert_eq!(data["prunedBeforeBlock"], json!(format!("0x{boundary:x}")), "{data}");
    assert_eq!(data["earliestAvailable"], json!(format!("0x{:x}", boundary + 1)), "{data}");
    assert!(data.get("requested").is_some(), "{data}");
}

fn hex(number: u64) -> String {
    format!("0x{number:x}")
}

/// Compares everything above the boundary; returns how many transactions and logs there were.
async fn compare(
    source: &RootProvider,
    ours: &RootProvider,
    from: u64,
    head: u64,
) -> (usize, usize) {
    let (mut transactions, mut logs) = (0, 0);
    for number in from..=head {
        let block = same(source, ours, "eth_getBlockByNumber", json!([hex(number), true])).await;
        let hash = &block["hash"];
        for full in [true, false] {
            same(source, ours, "eth_getBlockByHash", json!([hash, full])).await;
        }
        let receipts = same(source, ours, "eth_getBlockReceipts", json!([hex(number)])).await;
        for receipt in receipts.as_array().unwrap() {
            let id = &receipt["transactionHash"];
            same(source, ours, "eth_getTransactionByHash", json!([id])).await;
            same(source, ours, "eth_getTransactionReceipt", json!([id])).await;
            transactions += 1;
            logs += receipt["logs"].as_array().unwrap().len();
        }
        same(source, ours, "eth_getLogs", json!([{ "blockHash": hash }])).await;
    }
    let range = json!([{ "fromBlock": hex(from), "toBlock": hex(head) }]);
    let found = same(source, ours, "eth_getLogs", range).await;
    assert_eq!(found.as_array().unwrap().len(), logs);
    (transactions, logs)
}

/// Everything at and below the boundary says that it is gone, by number and by hash.
async fn compare_pruned(source: &RootProvider, ours: &RootProvider, boundary: u64) {
    for number in 0..=boundary {
        let asked = json!([hex(number), true]);
        let block: Value = source.raw_request("eth_getBlockByNumber".into(), &asked).await.unwrap();
        pruned(ours, "eth_getBlockByNumber", json!([hex(number), false]), boundary).await;
        pruned(ours, "eth_getBlockReceipts", json!([hex(number)]), boundary).await;
        pruned(ours, "eth_getBlockByHash", json!([block["hash"], false]), boundary).await;
        for transaction in block["transactions"].as_array().unwrap() {
            let id = json!([transaction["hash"]]);
            pruned(ours, "eth_getTransactionByHash", id.clone(), boundary).await;
            pruned(ours, "eth_getTransactionReceipt", id, boundary).await;
        }
        let logs = json!([{ "fromBlock": hex(number), "toBlock": "latest" }]);
        pruned(ours, "eth_getLogs", logs, boundary).await;
    }
}

/// Runs the viem script; what it compared is the answer.
fn viem(source: &str, secateur: &str, boundary: Option<u64>) -> Value {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let script = format!("{here}/tests/clients/viem.mjs");
    let boundary = boundary.map_or("none".to_owned(), |boundary| boundary.to_string());
    let output = Command::new("node")
        .arg(script)
        .arg(tools().join("node_modules"))
        .args([source, secateur, &boundary])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn alloy_and_viem_read_from_secateur_what_they_read_from_anvil_until_the_boundary() {
    let anvil = Anvil::start();
    let mut wallet = Wallet::default();
    for _ in 0..8 {
        wallet.every_kind(&anvil);
    }
    anvil.mine(3);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let node = Node::start(&data, &format!("--follow {} --log warn", anvil.url));
    let url = format!("http://{}", node.http);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (source, ours) = (provider(&anvil.url), provider(&url));
    let head = runtime.block_on(caught_up(&source, &ours));
    let (transactions, logs) = runtime.block_on(compare(&source, &ours, 0, head));
    assert!(transactions >= 64 && logs >= 8, "{transactions} transactions, {logs} logs");
    let seen = viem(&anvil.url, &url, None);
    assert_eq!(seen["transactions"], json!(transactions), "{seen}");

    run(&data, "policy set retain_blocks=10").ends(0);
    run(&data, "prune --yes").ends(0);
    let boundary = ask(&data, "status")["pruned_before_block"].as_u64().unwrap();
    assert!((1..head).contains(&boundary), "{boundary} of {head}");
    runtime.block_on(async {
        compare(&source, &ours, boundary + 1, head).await;
        compare_pruned(&source, &ours, boundary).await;
    });
    let seen = viem(&anvil.url, &url, Some(boundary));
    assert!(seen["pruned"].as_u64() > Some(boundary), "{seen}");
    node.stop();
}
