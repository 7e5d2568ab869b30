//! The same with PostgreSQL: kills change nothing, and several workers share a backfill.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::grpc::Dice;
use crate::index_kill::seed;
use crate::indexed::{Bench, assert_same, start};
use crate::postgres;
use crate::tool::{Running, run, secateur};

const KILLS: u64 = 50;

/// Every row of an index, as text.
fn rows(url: &str) -> Vec<String> {
    let queries = [
        "select key, value from meta where key in \
         ('cursor', 'schema_version', 'chain_id', 'codec', 'logs') order by 1",
        "select * from blocks order by number",
        "select * from txs order by block_number, tx_index",
        "select * from logs order by block_number, log_index",
        "select block_from, block_to, object_key, size_bytes, sha256 from archive_parts order by 1",
        "select block_from, block_to, reason from gaps order by 1",
        "select sum(blocks_ingested), sum(raw_bytes) from metrics_daily",
    ];
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", url]);
    for query in queries {
        command.args(["-c", query]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn words(url: &str, more: &str) -> String {
    format!("index --sink {url} --log warn --log-address all --verify hash {more}")
}

#[test]
fn fifty_kills_of_a_worker_change_no_row_in_postgresql() {
    let seed = seed();
    let mut dice = Dice(seed);
    let mut bench = Bench::start("", 3);
    bench.grow(100);
    let (killed, whole) = (postgres::database(), postgres::database());
    let context = format!("replay with SECATEUR_TEST_KILL_SEED={seed}");
    for kill in 0..KILLS {
        let mut worker = start(&bench.data(), &words(&killed, ""));
        bench.grow(20);
        std::thread::sleep(Duration::from_millis(dice.below(300)));
        assert!(worker.try_wait().unwrap().is_none(), "kill {kill}: it ended; {context}");
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    run(&bench.data(), &words(&killed, "--once")).ends(0);
    run(&bench.data(), &words(&whole, "--once")).ends(0);
    let wanted = rows(&whole);
    assert!(wanted.len() > 3_000, "{}", wanted.len());
    assert_same(&rows(&killed), &wanted, &context);
    let shared = postgres::database();
    run(&bench.data(), &words(&shared, "--once --workers 3")).ends(0);
    assert_same(&rows(&shared), &wanted, "three workers");
    // From SQLite, moved and gone on with.
    let sqlite = bench.words("small", "--log-address all --verify hash --to 599");
    run(&bench.data(), &sqlite).ends(0);
    let moved = postgres::database();
    let from = bench.path("small").join("index.sqlite");
    let promote = format!("index promote --from sqlite:{} --to {moved} --json", from.display());
    let told = run(&bench.data(), &promote).ends(0).json();
    assert_eq!((&told["next"], &told["tables"]["blocks"]), (&600.into(), &600.into()));
    run(&bench.data(), &promote).ends(0);
    run(&bench.data(), &words(&moved, "--once")).ends(0);
    assert_same(&rows(&moved), &wanted, "promoted");
}

#[test]
fn workers_that_share_a_backfill_wait_for_a_source_that_is_not_there() {
    let mut bench = Bench::start("", 2);
    bench.grow(60);
    let Bench { place, node, .. } = bench;
    let (data, grpc) = (place.path().join("data"), node.grpc.clone());
    node.stop();
    let url = postgres::database();
    let more = format!("--once --workers 2 --chain-id 1337 --source http://{grpc}");
    let mut worker = secateur(&data, &words(&url, &more)).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(worker.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("tried again")), "it ended");
    let words = format!("node --http 127.0.0.1:0 --grpc {grpc} --chain-id 1337");
    let mut again = Running::start(&data, &words);
    again.wait_for("listening");
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert!(worker.wait().unwrap().success(), "{rest:?}");
    let blocks = rows(&url).into_iter().filter(|row| row.contains("|\\x")).count();
    assert!(blocks > 60, "{blocks}");
}

#[test]
fn a_fresh_index_that_several_workers_share_says_where_it_begins() {
    let mut bench = Bench::start("", 2);
    bench.grow(60);
    let boundary = bench.prune(15).unwrap();
    let url = postgres::database();
    let told = run(&bench.data(), &words(&url, "--once --workers 2")).ends(0);
    told.complains("the index begins above block 0");
    let gap = format!("0|{boundary}|below the first block that the source had");
    assert!(rows(&url).iter().any(|row| row.starts_with(&gap)), "{:?}", rows(&url));
}

#[test]
fn a_shared_backfill_of_another_chain_is_refused_before_it_is_planned() {
    let mut bench = Bench::start("", 2);
    bench.grow(20);
    let url = postgres::database();
    let refused = run(&bench.data(), &words(&url, "--once --workers 2 --chain-id 5")).ends(11);
    refused.complains("the source has chain 1337, and chain 5 is wanted");
    assert_eq!(rows(&url), ["schema_version|4", "|"], "no chain, no cursor, no plan");
    run(&bench.data(), &words(&url, "--once --workers 2")).ends(0);
}
