//! The closed loop: a worker archives, the node checks for itself, the hold moves, blocks are cut,
//! and what was cut is found again.

use secateur_core::Block;
use secateur_proto::history::v1::{self as pb, block_ref, history_error};
use serde_json::{Value, json};
use tonic::Code;

use crate::grpc::{history_reason, wire};
use crate::indexed::{Bench, archive, keys};
use crate::json_client::Client;

const CONFIG: &str = "[archive]\nurl = \"ARCHIVE\"\n";
const READ_THROUGH: &str = "[archive]\nurl = \"ARCHIVE\"\nread_through = true\n";

/// How often lookups asked the archive with this result.
fn read_through(bench: &Bench, result: &str) -> u64 {
    let (_, page) = http(bench, "/metrics");
    let page = String::from_utf8(page).unwrap();
    let name = format!("secateur_archive_read_through_total{{result=\"{result}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&name));
    value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// A node with 100 blocks, of which 90 are archived, and all but the newest 20 of those cut.
fn looped(config: &str) -> (Bench, Vec<Block>) {
    let mut bench = Bench::start(config, 4);
    let blocks = bench.grow(100);
    assert_eq!(bench.prune(20), None, "nothing is cut before it is archived");
    let archive = bench.archive();
    let more = format!("--archive {archive} --part-blocks 30 --once");
    bench.index("index", &more).ends(0);
    assert_eq!(bench.runtime.block_on(bench.clients.status()).archived, Some(89));
    assert_eq!(bench.prune(5), Some(89), "the archive hold stands at its end");
    (bench, blocks)
}

fn get(bench: &Bench, block: block_ref::Ref) -> Result<pb::Block, tonic::Status> {
    let block = Some(pb::BlockRef { r#ref: Some(block) });
    let request = pb::GetBlockRequest { block, without_payloads: false };
    let answer = bench.runtime.block_on(bench.clients.history.clone().get_block(request));
    answer.map(|answer| answer.into_inner().block.unwrap())
}

fn rpc(bench: &Bench, method: &str, params: &Value) -> Value {
    let client = Client::new(&format!("http://{}", bench.node.http));
    client.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn http(bench: &Bench, path: &str) -> (u16, Vec<u8>) {
    let url = format!("http://{}{path}", bench.node.http);
    bench.runtime.block_on(async {
        let answer = crate::json_client::http().get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
    })
}

fn tx_of(block: &Block, place: usize) -> secateur_core::TxId {
    secateur_core::tx_index(&block.payloads.tx_index).nth(place).unwrap().unwrap().tx_id
}

#[test]
fn what_was_cut_names_its_part_in_every_interface_and_can_be_fetched() {
    let (bench, blocks) = looped(CONFIG);
    let parts = keys(&bench.archive());
    let (block, part) = (&blocks[40], &parts[1]);
    let tx = tx_of(block, 0);
    for name in
        [block_ref::Ref::Number(40), block_ref::Ref::Hash(block.meta.hash.0.to_vec().into())]
    {
        let error = get(&bench, name).unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange);
        let history_error::Reason::Pruned(pruned) = history_reason(&error) else { panic!() };
        let locator = pruned.locator.unwrap();
        assert_eq!((&locator.key, pruned.pruned_before_block), (part, 89));
        assert!(locator.provider.starts_with("file:///"), "{locator:?}");
    }
    for path in ["/v1/blocks/40".to_owned(), format!("/v1/transactions/{tx}")] {
        let (status, body) = http(&bench, &path);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &body["locator"]["key"]), (410, &json!(part)), "{path}: {body}");
    }
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x28", false])),
        ("eth_getTransactionReceipt", json!([tx])),
    ] {
        let error = rpc(&bench, method, &params)["error"].clone();
        assert_eq!(error["code"], 4444, "{method}: {error}");
        assert_eq!(error["data"]["locator"]["key"], json!(part), "{method}: {error}");
    }
    let out = bench.path("block");
    let words = format!("fetch 40 --out {} --json", out.display());
    let fetched = bench.ask_archive(&words).ends(0).json();
    let digits = alloy_primitives::hex::encode(&block.payloads.block);
    assert_eq!((&fetched["block"], &fetched["height"]), (&json!(digits), &json!(40)));
    let bundle = secateur_core::encode_bundle(&block.payloads).unwrap();
    assert_eq!(std::fs::read(out).unwrap(), bundle);
    let by_tx = bench.ask_archive(&format!("fetch {tx} --json")).ends(0).json();
    let index = format!("sqlite:{}", bench.path("index").join("index.sqlite").display());
    let indexed = bench.ask_archive(&format!("fetch {tx} --index {index} --json")).ends(0).json();
    assert_eq!((&by_tx["hash"], &indexed["hash"]), (&fetched["hash"], &fetched["hash"]));
    bench.ask_archive("fetch 95").ends(6).complains("not in the archive");
    let story = crate::tool::ask(&bench.data(), "explain block 40");
    assert_eq!(story["locator"]["key"], json!(part));
    for result in ["served", "missing", "busy", "timeout", "failed"] {
        assert_eq!(read_through(&bench, result), 0, "it does not read through: {result}");
    }
}

#[test]
fn a_node_that_reads_through_answers_with_the_very_bytes() {
    let (bench, blocks) = looped(READ_THROUGH);
    for height in [0, 29, 30, 61, 89] {
        let block = &blocks[usize::try_from(height).unwrap()];
        assert_eq!(get(&bench, block_ref::Ref::Number(height)).unwrap(), wire(block));
        let hash = block_ref::Ref::Hash(block.meta.hash.0.to_vec().into());
        assert_eq!(get(&bench, hash).unwrap(), wire(block));
        let (status, bytes) = http(&bench, &format!("/v1/blocks/{height}?payload=receipts"));
        assert_eq!((status, bytes), (200, block.payloads.receipts.clone()));
    }
    assert_eq!(read_through(&bench, "served"), 15, "three lookups of five blocks");
    let count = |block: &Block| secateur_core::tx_index(&block.payloads.tx_index).count();
    let block = blocks[..80].iter().rfind(|block| count(block) > 2).unwrap();
    let (tx, number) = (tx_of(block, 2), format!("{:#x}", block.meta.height));
    let transactions = count(block);
    let receipt = rpc(&bench, "eth_getTransactionReceipt", &json!([tx]))["result"].clone();
    assert_eq!(
        (&receipt["blockNumber"], &receipt["transactionIndex"]),
        (&json!(number), &json!("0x2"))
    );
    let block = rpc(&bench, "eth_getBlockByNumber", &json!([number, true]))["result"].clone();
    assert_eq!(block["transactions"][2]["hash"], json!(tx));
    let all = rpc(&bench, "eth_getBlockReceipts", &json!([number]))["result"].clone();
    assert_eq!(all.as_array().unwrap().len(), transactions);
    // Logs across the boundary: all of them, from the parts and from the store.
    let range = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    let logs = rpc(&bench, "eth_getLogs", &range)["result"].clone();
    let wanted: usize = (0..100u64)
        .map(|height| {
            let height = format!("{height:#x}");
            let all = rpc(&bench, "eth_getBlockReceipts", &json!([height]))["result"].clone();
            let count = |receipt: &Value| receipt["logs"].as_array().unwrap().len();
            all.as_array().unwrap().iter().map(count).sum::<usize>()
        })
        .sum();
    assert!(wanted > 0);
    assert_eq!(logs.as_array().unwrap().len(), wanted);
    let unknown = rpc(&bench, "eth_getTransactionByHash", &json!([secateur_core::TxId([9; 32])]));
    assert_eq!(unknown["result"], Value::Null);
    for result in ["busy", "timeout", "failed"] {
        assert_eq!(read_through(&bench, result), 0, "{result}");
    }
}

#[test]
fn a_part_that_was_changed_is_never_served() {
    let (bench, _) = looped(READ_THROUGH);
    let key = keys(&bench.archive())[1].clone();
    let path = bench.path("archive").join(key);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut served = 0u64;
    for height in 30..60 {
        match get(&bench, block_ref::Ref::Number(height)) {
            // The frame that was changed is one of several.
            Ok(_) => served += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::Unavailable, "{error:?}");
                assert!(error.message().contains("archive"), "{error:?}");
            }
        }
    }
    assert!(served < 30, "the changed frame was served");
    let counted = (read_through(&bench, "served"), read_through(&bench, "failed"));
    assert_eq!(counted, (served, 30 - served));
    let error = rpc(&bench, "eth_getLogs", &json!([{ "fromBlock": "0x1e", "toBlock": "0x3b" }]));
    assert!(error["error"]["message"].as_str().unwrap().contains("archive"), "{error}");
    bench.ask_archive("verify --full").ends(6);
}

#[test]
fn a_second_archive_ends_with_a_hint_and_works_as_a_copy() {
    for config in ["", CONFIG] {
        let mut bench = Bench::start(config, 3);
        bench.grow(70);
        let copy = bench.path("copy").to_str().unwrap().to_owned();
        let more = |to: &str| format!("--archive {to} --part-blocks 30 --once");
        bench.index("index", &more(&bench.archive())).ends(0);
        let before = bench.rows("index");
        let refused = bench.index("second", &more(&copy)).ends(11);
        let told = refused.err.lines().last().unwrap().to_owned();
        for part in ["the source does not take the part chain=1337/", "archive.acknowledge = false"]
        {
            assert!(told.contains(part), "no {part} in {refused:?}");
        }
        assert!(told.contains("was not acknowledged"), "{told}");
        assert!(!told.contains("nothing was changed"), "the part was written: {told}");
        assert_eq!(bench.runtime.block_on(bench.clients.status()).archived, Some(59));
        // As it says: one that nobody is told of.
        let words = bench.words("second", &more(&copy));
        let mut command = crate::tool::secateur(&bench.data(), &words);
        let done = command.env("SECATEUR_ARCHIVE_ACKNOWLEDGE", "false").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(keys(&copy), keys(&bench.archive()));
        archive(&copy, "verify --full --upto 59").ends(0);
        // And the first one goes on as before.
        bench.index("index", &more(&bench.archive())).ends(0);
        assert_eq!(bench.rows("index"), before);
    }
}

/// What a worker would tell of a part.
fn told(bench: &Bench, place: usize) -> pb::AckArchivedRequest {
    let listed = bench.ask_archive("ls --json").ends(0).json();
    let part = &listed[place];
    let bytes = |name: &str| {
        let digits = part[name].as_str().unwrap().trim_start_matches("0x");
        alloy_primitives::hex::decode(digits).unwrap()
    };
    pb::AckArchivedRequest {
        first: part["first"].as_u64().unwrap(),
        last: part["last"].as_u64().unwrap(),
        parent_hash: bytes("parent_hash").into(),
        last_hash: bytes("last_hash").into(),
        provider: format!("file://{}", bench.archive()),
        key: part["key"].as_str().unwrap().to_owned(),
        sha256: bytes("sha256").into(),
        size: part["size"].as_u64().unwrap(),
    }
}

#[test]
fn a_part_that_is_not_what_it_says_is_refused_and_nothing_changes() {
    let mut bench = Bench::start(CONFIG, 4);
    bench.grow(70);
    let archive = bench.archive();
    let words = bench.words("index", &format!("--archive {archive} --part-blocks 30 --once"));
    let mut command = crate::tool::secateur(&bench.data(), &words);
    let done = command.env("SECATEUR_ARCHIVE_ACKNOWLEDGE", "false").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let good = told(&bench, 0);
    let path = bench.path("archive").join(&good.key);
    let bytes = std::fs::read(&path).unwrap();
    let refuse = |request: &pb::AckArchivedRequest, what: &str| {
        let answer =
            bench.runtime.block_on(bench.clients.admin.clone().ack_archived(request.clone()));
        let error = answer.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{what}: {error:?}");
        assert!(error.message().contains(what), "{error:?}");
        assert_eq!(bench.runtime.block_on(bench.clients.status()).archived, None, "{what}");
    };
    let elsewhere = pb::AckArchivedRequest { provider: "s3://other".into(), ..good.clone() };
    refuse(&elsewhere, "this node's archive is");
    let nameless = pb::AckArchivedRequest { key: "../../etc/passwd".into(), ..good.clone() };
    refuse(&nameless, "no part's name");
    let digest = pb::AckArchivedRequest { sha256: vec![7; 32].into(), ..good.clone() };
    refuse(&digest, "SHA-256");
    let mut changed = bytes.clone();
    let place = changed.len() / 3;
    changed[place] ^= 0x10;
    std::fs::write(&path, &changed).unwrap();
    refuse(&good, "cannot be read back");
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    refuse(&good, "cannot be read back");
    std::fs::remove_file(&path).unwrap();
    refuse(&good, "cannot be read back");
    std::fs::write(&path, &bytes).unwrap();
    let answer = bench.runtime.block_on(bench.clients.admin.clone().ack_archived(good));
    assert_eq!(answer.unwrap().into_inner().archived, Some(29));
}

#[test]
fn lost_parts_come_back_as_they_were_or_the_node_keeps_to_those_that_it_knows() {
    let mut bench = Bench::start(CONFIG, 3);
    bench.grow(100);
    let to = bench.archive();
    let more = |blocks: u64| format!("--archive {to} --part-blocks {blocks} --once");
    bench.index("index", &more(30)).ends(0);
    let before = keys(&to);
    assert_eq!(before.len(), 3);
    let lose = || {
        for key in &before[1..] {
            for ending in ["zst", "json"] {
                let path = bench.path("archive").join(key).with_extension(ending);
                std::fs::remove_file(path).unwrap();
            }
        }
    };
    lose();
    bench.index("index", &more(20)).ends(0);
    assert_eq!(keys(&to), before, "the index remembers how they were cut");
    lose();
    // Another index does not, and the node has no use for parts that are cut otherwise.
    let told = bench.index("fresh", &more(20)).ends(0);
    assert!(told.err.contains("and keeps to them"), "{told:?}");
    assert_eq!(keys(&to).len(), 4);
    bench.ask_archive("verify --full --upto 89").ends(0);
    bench.index("fresh", &more(20)).ends(0);
    assert_eq!(bench.runtime.block_on(bench.clients.status()).archived, Some(89));
}

#[test]
fn a_restore_that_comes_to_a_hole_says_what_it_wrote() {
    let (bench, _) = looped(CONFIG);
    let key = keys(&bench.archive())[1].clone();
    for ending in ["zst", "json"] {
        std::fs::remove_file(bench.path("archive").join(&key).with_extension(ending)).unwrap();
    }
    let words = format!("restore 0..80 --into {}", bench.path("restored").display());
    let told = bench.ask_archive(&words).ends(6);
    for part in ["no block from 30 to 59", "30 blocks below it were written"] {
        assert!(told.err.contains(part), "no {part} in {told:?}");
    }
}

#[test]
fn a_restore_that_comes_to_a_damaged_part_says_what_it_wrote() {
    let (bench, _) = looped(CONFIG);
    let path = bench.path("archive").join(&keys(&bench.archive())[1]);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let words = format!("restore 0..80 --into {}", bench.path("restored").display());
    let told = bench.ask_archive(&words).ends(9);
    for part in ["blocks below it were written", "is damaged"] {
        assert!(told.err.contains(part), "no {part} in {told:?}");
    }
}

#[test]
fn a_cut_block_whose_part_was_lost_is_read_from_the_parts_in_its_place() {
    let mut bench = Bench::start(READ_THROUGH, 3);
    let blocks = bench.grow(100);
    let to = bench.archive();
    let more = |blocks: u64| format!("--archive {to} --part-blocks {blocks} --once");
    bench.index("index", &more(30)).ends(0);
    let lost = keys(&to)[1].clone();
    for ending in ["zst", "json"] {
        std::fs::remove_file(bench.path("archive").join(&lost).with_extension(ending)).unwrap();
    }
    // An index that does not remember the part, and a part above it that was cut otherwise.
    let above = keys(&to)[1].clone();
    for ending in ["zst", "json"] {
        std::fs::remove_file(bench.path("archive").join(&above).with_extension(ending)).unwrap();
    }
    bench.index("fresh", &more(20)).ends(0);
    assert!(!keys(&to).contains(&lost));
    assert_eq!(bench.prune(5), Some(89));
    for height in [30, 49, 70, 89] {
        let block = &blocks[usize::try_from(height).unwrap()];
        for _ in 0..2 {
            assert_eq!(get(&bench, block_ref::Ref::Number(height)).unwrap(), wire(block));
        }
    }
    // Without all of them nothing says that they are the blocks that were verified here.
    let key = keys(&to).pop().unwrap();
    for ending in ["zst", "json"] {
        std::fs::remove_file(bench.path("archive").join(&key).with_extension(ending)).unwrap();
    }
    let error = get(&bench, block_ref::Ref::Number(65)).unwrap_err();
    assert!(error.message().contains("is missing in the archive"), "{error:?}");
}
