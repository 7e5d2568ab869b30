//! A worker that was told of one chain and finds another.

use crate::indexed::Bench;
use crate::tool::{ask, files};

#[test]
fn a_worker_that_wants_another_chain_is_refused_and_nothing_is_written() {
    let mut bench = Bench::start("", 2);
    bench.grow(40);
    let archive = bench.archive();
    let more = format!("--archive {archive} --part-blocks 10 --consumer taker --once");
    let refused = bench.index("x", &format!("{more} --chain-id 5")).ends(11);
    let told = refused.err.lines().last().unwrap().to_owned();
    assert!(told.contains("the source has chain 1337, and chain 5 is wanted"), "{refused:?}");
    assert_eq!(told.matches("nothing was changed").count(), 1, "{told}");
    // Not even whose index it is; only that something went wrong is noted, for its day.
    let rows = bench.rows("x");
    assert_eq!(rows, ["meta: schema_version|2", "metrics_daily: 0|0"], "{refused:?}");
    assert_eq!(files(&bench.path("archive")).len(), 0, "a part was written");
    let holds = ask(&bench.data(), "status")["holds"].to_string();
    assert!(!holds.contains("taker"), "{holds}");
    // So the index can still become the right chain's; and then it stays that.
    bench.index("x", &format!("{more} --chain-id 1337")).ends(0);
    let holds = ask(&bench.data(), "status")["holds"].to_string();
    assert!(holds.contains("taker"), "{holds}");
    let before = bench.rows("x");
    let refused = bench.index("x", "--once --chain-id 5").ends(11);
    refused.complains("the index has chain 1337, and chain 5 is wanted");
    assert_eq!(bench.rows("x"), before);
}

#[test]
fn a_node_of_another_chain_is_refused_by_an_index_that_knows_its_own() {
    let mut bench = Bench::start("", 2);
    bench.grow(10);
    bench.index("x", "--once").ends(0);
    let before = bench.rows("x");
    let other = Bench::start_chain(77, "", 2);
    let words = bench.words("x", "--once");
    let refused = crate::tool::run(&other.data(), &words).ends(11);
    refused.complains("the source has chain 77, and chain 1337 is wanted");
    assert_eq!(bench.rows("x"), before);
}
