//! `secateur archive` from outside: listing, proving, restoring.

use secateur_core::Block;
use tempfile::tempdir;

use crate::indexed::{Bench, archive, keys};
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
