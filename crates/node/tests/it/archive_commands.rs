//! `secateur archive` from outside: listing, proving, restoring.

use alloy_consensus::EthereumTypedTransaction;
use alloy_consensus::proofs::calculate_transaction_root;
use alloy_primitives::{Signature, U256};
use alloy_rlp::Decodable as _;
use secateur_archive::{Archive, Archiver, ArchiverOptions, Codec, Grain, Settings};
use secateur_core::{Block, BlockHash, ReceiptEntry, TxId, TxIndexEntry};
use secateur_core::{push_receipt, push_tx_index, receipts};
use secateur_evm::EvmBlock;
use tempfile::tempdir;

use crate::indexed::{Bench, Chain, archive, keys};
use crate::tool::open_store;

fn archived() -> (Bench, Vec<Block>) {
    let mut bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 3);
    let blocks = bench.grow(100);
    let more = format!("--archive {} --part-blocks 25 --once", bench.archive());
    bench.index("index", &more).ends(0);
    (bench, blocks)
}

#[test]
fn restore_gives_back_the_same_bytes_and_refuses_another_chain() {
    let (bench, blocks) = archived();
    let place = tempdir().unwrap();
    let into = place.path().join("restored");
    let restored = bench
        .ask_archive(&format!("restore 10..80 --into {} --json", into.display()))
        .ends(0)
        .json();
    assert_eq!((restored["first"].as_u64(), restored["last"].as_u64()), (Some(10), Some(80)));
    assert_eq!(restored["written"], 71);
    let store = open_store(&into);
    for block in &blocks[10..=80] {
        assert_eq!(&store.get_block(block.meta.height).unwrap(), block);
    }
    drop(store);
    // It goes on where it ended, and says so if there is not so much.
    let words = format!("restore 81.. --into {}", into.display());
    bench.ask_archive(&words).ends(0);
    let words = format!("restore 100..120 --into {}", into.display());
    bench.ask_archive(&words).ends(6).complains("not in the archive");
    assert_eq!(open_store(&into).head(), Some(99));
    let words = format!("restore 5..99999 --into {}", place.path().join("short").display());
    let short = bench.ask_archive(&words).ends(6);
    assert!(short.err.contains("95 blocks of it were written"), "{short:?}");
    assert!(!short.err.contains("nothing was changed"), "{short:?}");
    let other = place.path().join("other");
    crate::tool::small_demo(&other, 20);
    let before = crate::tool::ask(&other, "status")["head"].clone();
    let words = format!("restore 0..50 --into {}", other.display());
    let refused = bench.ask_archive(&words);
    assert!(refused.code != 0, "{refused:?}");
    assert_eq!(crate::tool::ask(&other, "status")["head"], before, "{refused:?}");
}

#[test]
fn a_listing_a_proof_and_its_gaps_tell_the_same() {
    let (bench, _) = archived();
    let url = bench.archive();
    let parts = keys(&url);
    assert_eq!(parts.len(), 4);
    let text = archive(&url, "ls").ends(0).out;
    assert!(text.contains("4 parts, 100 blocks"), "{text}");
    let clean = archive(&url, "verify --full --upto 99 --json").ends(0).json();
    assert_eq!((&clean["clean"], &clean["blocks"]), (&true.into(), &100.into()));
    archive(&url, "verify --upto 100").ends(6).complains("not whole");
    assert_eq!(archive(&url, "gaps --json").ends(0).json(), serde_json::json!([]));
    let middle = bench.path("archive").join(&parts[1]);
    std::fs::rename(middle.with_extension("json"), bench.path("manifest")).unwrap();
    let gaps = archive(&url, "gaps --json").ends(0).json();
    assert_eq!(gaps, serde_json::json!([{ "first": 25, "last": 49 }]));
    archive(&url, "verify").ends(6);
    std::fs::rename(bench.path("manifest"), middle.with_extension("json")).unwrap();
    archive(&url, "verify").ends(0);
    archive("/nonexistent/archive", "ls").ends(6);
    archive(&url, "fetch nonsense").ends(2);
    archive(&url, "fetch 7 --chain-id 5").ends(6);
}

#[test]
fn one_finding_is_one_finding_and_a_part_that_is_cut_says_by_how_much() {
    let (bench, _) = archived();
    let path = bench.path("archive").join(&keys(&bench.archive())[2]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    let found = bench.ask_archive("verify").ends(6);
    let wanted = format!(
        "it is 7 bytes shorter than its manifest says: {}, not {}",
        whole.len() - 7,
        whole.len()
    );
    assert!(found.out.contains(&wanted), "{found:?}");
    found.complains("the archive is not whole: 1 finding, above");
    std::fs::write(&path, &whole).unwrap();
    bench.ask_archive("verify").ends(0);
}

#[test]
fn a_proof_says_which_chains_it_is_not_about() {
    let (bench, _) = archived();
    let root = bench.path("archive");
    for other in ["chain=5", "chain=1"] {
        std::fs::create_dir_all(root.join(other).join("day=2024-01-01")).unwrap();
    }
    bench.ask_archive("verify").ends(2).complains("name one with --chain-id");
    let proved = bench.ask_archive("verify --chain-id 1337").ends(0);
    assert!(proved.out.contains("2 other chains"), "{proved:?}");
    let proved = bench.ask_archive("verify --chain-id 1337 --json").ends(0).json();
    assert_eq!(proved["other_chains"], serde_json::json!([1, 5]));
    // That nothing is wrong with nothing is no proof.
    bench.ask_archive("verify --chain-id 5").ends(6).complains("there is no part of chain 5");
}

/// A chain in which one transaction has a signature that nobody made. Its block's root and hash are made
/// to fit it, and so are all blocks above.
fn forged(mut blocks: Vec<Block>, at: usize) -> Vec<Block> {
    let mut parent = blocks[at].meta.parent_hash;
    for (place, block) in blocks.iter_mut().enumerate().skip(at) {
        let mut evm = EvmBlock::decode(&mut block.payloads.block.as_slice()).unwrap();
        evm.header.parent_hash = parent.0.into();
        if place == at {
            let tx = evm.body.transactions[0].clone();
            let nobodys = Signature::new(U256::ZERO, U256::ONE, false);
            let tx = EthereumTypedTransaction::from(tx).into_envelope(nobodys);
            let forged_id = TxId(tx.tx_hash().0);
            evm.body.transactions[0] = tx;
            evm.header.transactions_root = calculate_transaction_root(&evm.body.transactions);
            let old = std::mem::take(&mut block.payloads);
            for (index, entry) in (0..).zip(receipts(&old.receipts)) {
                let ReceiptEntry { tx_id, bytes } = entry.unwrap();
                let tx_id = if index == 0 { forged_id } else { tx_id };
                push_receipt(&mut block.payloads.receipts, &tx_id, bytes).unwrap();
                let entry = TxIndexEntry { tx_id, height: block.meta.height, index };
                push_tx_index(&mut block.payloads.tx_index, &entry);
            }
        }
        block.payloads.block = alloy_rlp::encode(&evm);
        block.meta.parent_hash = parent;
        block.meta.hash = BlockHash(evm.header.hash_slow().0);
        parent = block.meta.hash;
    }
    blocks
}

#[test]
fn a_block_that_was_forged_before_it_was_archived_is_found_by_the_full_proof_alone() {
    let place = tempdir().unwrap();
    let url = place.path().join("archive").to_str().unwrap().to_owned();
    let blocks = Chain::new(3).next(60);
    let with_some = |block: &Block| !block.payloads.tx_index.is_empty();
    let at = 20 + blocks[20..].iter().position(with_some).unwrap();
    let blocks = forged(blocks, at);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let to = Archive::create(&url.parse().unwrap(), &Settings::default()).unwrap();
        let mut options = ArchiverOptions::new(place.path().join("stage"), 1337, Codec::Evm, 0);
        options.grain = Grain { max_blocks: Some(30), ..Grain::default() };
        let mut archiver = Archiver::open(to, options).await.unwrap();
        for block in &blocks {
            // By its hash and its links it is a block like any other.
            archiver.push(block).await.unwrap();
            while let Some(part) = archiver.publish().await.unwrap() {
                archiver.settled(&part).await.unwrap();
            }
        }
    });
    archive(&url, "verify --quick").ends(0);
    archive(&url, "verify").ends(0);
    let found = archive(&url, "verify --full --json").ends(6).json();
    assert_eq!((&found["found"], &found["parts"]), (&1.into(), &2.into()), "{found}");
    let detail = found["findings"][0]["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("block {at} is not what it says")), "{detail}");
    assert!(detail.contains("the sender of transaction 0 cannot be recovered"), "{detail}");
}

#[test]
fn an_index_can_be_built_again_from_the_parts_alone() {
    let (bench, _) = archived();
    let sink = bench.path("again").join("index.sqlite");
    let words =
        format!("index --source {} --sink sqlite:{} --once", bench.archive(), sink.display());
    crate::tool::run(std::path::Path::new("/nonexistent"), &words).ends(0);
    let of = |name: &str| {
        let keep = |row: &String| row.starts_with("blocks") || row.starts_with("txs");
        bench.rows(name).into_iter().filter(keep).collect::<Vec<_>>()
    };
    assert_eq!(of("again"), of("index"));
}
