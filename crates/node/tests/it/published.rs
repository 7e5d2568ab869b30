//! The published chain of execution-apis, whose block 2 has 10,662,801 bytes of receipts, through
//! everything that keeps, exports, archives and answers; and the answers that were published with it.

use std::path::Path;

use secateur_core::Block;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::fixtures::{CHAIN_ID, folder, published_calls, published_chain};
use crate::followed::Followed;
use crate::grpc::{Clients, Rig, whole};
use crate::grpc_export_v1::reassemble;
use crate::grpc_export_v2::read_whole;
use crate::indexed::{archive, keys, rows};
use crate::json_client::Client;
use crate::tool::{ask, open_store, run};

const FOLDER: &str = "execution-apis";
/// The block with very many logs.
const FAT: usize = 2;
/// What its receipts take as the store frames them.
const FAT_BYTES: usize = 10_662_801;

/// A node that was given the published chain by `Append`.
async fn source(blocks: &[Block]) -> Rig {
    let rig = Rig::configured(&format!("[chain]\nid = {CHAIN_ID}\ncodec = \"evm\"\n")).await;
    rig.clients.append(blocks).await;
    rig
}

fn call(http: &str, method: &str, params: &Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Client::new(&format!("http://{http}")).post(&call)
}

#[test]
fn published_calls_have_their_published_answers() {
    let Some(folder) = folder(FOLDER) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rig = runtime.block_on(source(&published_chain(&folder)));
    let mut compared = 0;
    for method in [
        "eth_blockNumber",
        "eth_chainId",
        "eth_getBlockByHash",
        "eth_getBlockByNumber",
        "eth_getBlockReceipts",
        "eth_getBlockTransactionCountByHash",
        "eth_getBlockTransactionCountByNumber",
        "eth_getLogs",
        "eth_getTransactionByBlockHashAndIndex",
        "eth_getTransactionByBlockNumberAndIndex",
        "eth_getTransactionByHash",
        "eth_getTransactionReceipt",
        "eth_syncing",
        "net_version",
    ] {
        for (file, request, wanted) in published_calls(&folder, method) {
            let answer = Client::new(&format!("http://{}", rig.node.http)).post(&request);
            if wanted["error"].is_null() {
                assert_eq!(answer["result"], wanted["result"], "{file}");
            } else {
                assert_eq!(answer["error"]["code"], wanted["error"]["code"], "{file}: {answer}");
                let (said, message) = (&answer["error"]["message"], &wanted["error"]["message"]);
                let (said, message) = (said.as_str().unwrap(), message.as_str().unwrap());
                assert!(said.starts_with(message), "{file}: {said}");
            }
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
    runtime.block_on(rig.stop());
}

/// Segments were limited to 8 MiB, so that this block stopped a node for ever: it was refused, asked
/// for again, and refused. It is longer than what was written, sent or kept in memory at once.
#[test]
fn a_block_with_ten_megabytes_of_receipts_goes_through_everything() {
    let Some(folder) = folder(FOLDER) else { return };
    let blocks = published_chain(&folder);
    assert_eq!(blocks[FAT].payloads.receipts.len(), FAT_BYTES);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let source = runtime.block_on(source(&blocks));
    let said = call(&source.node.http, "eth_getBlockReceipts", &json!(["0x2"]));
    let receipts = said["result"].as_array().unwrap_or_else(|| panic!("{:.300}", said.to_string()));
    assert_eq!(receipts.len(), 59);

    let place = tempdir().unwrap();
    let (data, parts) = (place.path().join("data"), place.path().join("archive"));
    let mut node = follower(place.path(), &parts, &data, &source.node.http);
    let (http, grpc) = node.addresses(&data);
    node.reaches(54, &blocks[54].meta.hash.to_string());
    let token = token_of(&data);
    let clients = runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{grpc}")).unwrap();
        Clients::over(endpoint.connect().await.unwrap(), Some(&token))
    });
    let exported = runtime.block_on(async {
        [reassemble(&clients, 0, || 1_500_000).await, read_whole(&clients, 0).await]
    });
    let wanted = whole(&blocks);
    assert!(exported.iter().all(|exported| *exported == wanted), "v1 or v2 gave other bytes");

    index(place.path(), &data, &parts, "index");
    assert_eq!(runtime.block_on(clients.status()).archived, Some(49), "parts of ten blocks");
    assert_eq!(runtime.block_on(clients.prune_to(10)), 44);
    let again = call(&http, "eth_getBlockReceipts", &json!(["0x2"]));
    assert!(
        again == said,
        "read back from its part it is another answer: {:.300}",
        again.to_string()
    );
    let said = node.stop();
    assert!(!said.contains("was refused"), "{said}");
    assert_eq!(ask(&data, "verify")["clean"], true);

    let restored = place.path().join("restored");
    let url = parts.to_str().unwrap();
    archive(url, &format!("verify --full --upto 49 --chain-id {CHAIN_ID}")).ends(0);
    archive(url, &format!("restore 0..49 --into {}", restored.display())).ends(0);
    assert_eq!(keys(url).len(), 5);
    assert!(open_store(&restored).get_block(FAT as u64).unwrap() == blocks[FAT]);
    let rows = rows(&place.path().join("index/index.sqlite"));
    assert_eq!(rows.iter().filter(|row| row.starts_with("blocks: ")).count(), 55);
    let transactions: usize = blocks.iter().map(transactions).sum();
    assert_eq!(rows.iter().filter(|row| row.starts_with("txs: ")).count(), transactions);
    runtime.block_on(source.stop());
}

fn transactions(block: &Block) -> usize {
    secateur_core::tx_index(&block.payloads.tx_index).count()
}

fn token_of(data: &Path) -> String {
    let file = std::fs::read_to_string(data.join("node.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    file["admin_token"].as_str().unwrap().to_owned()
}

/// A node that follows another and reads its archive.
fn follower(place: &Path, parts: &Path, data: &Path, source: &str) -> Followed {
    let config = format!("[archive]\nurl = \"{}\"\nread_through = true\n", parts.display());
    let words = crate::grpc::config(place, &config);
    // The default; other tests have less patience.
    let patient = [("SECATEUR_FOLLOW_TIMEOUT_SECONDS", "30")];
    Followed::with(data, &format!("http://{source}"), &words, &patient)
}

/// Indexes what a running node has, and archives it in parts of ten blocks.
fn index(place: &Path, data: &Path, parts: &Path, name: &str) {
    let sink = place.join(name).join("index.sqlite");
    let words = format!(
        "index --sink sqlite:{} --log warn --archive {} --part-blocks 10 --retention-days 0 --once",
        sink.display(),
        parts.display()
    );
    run(data, &words).ends(0);
}
