//! `index backfill`, and a worker whose node has pruned what the archive on its command line has.

use serde_json::json;

use crate::indexed::Bench;
use crate::postgres;
use crate::tool::{Run, files, run};

/// A node with 100 blocks, of which all but the newest 30 are cut; an archive of blocks 0 to 89; and an index that
/// ended at block 9.
fn bench() -> Bench {
    let mut bench = Bench::start("", 2);
    bench.grow(100);
    let archiving = format!("--archive {} --part-blocks 30 --once", bench.archive());
    bench.index("other", &archiving).ends(0);
    bench.index("index", "--to 9").ends(0);
    bench.index("whole", "--once").ends(0);
    assert_eq!(bench.prune(30), Some(69));
    bench
}

/// Runs `index backfill` on the bench's index.
fn fill(bench: &Bench, range: &str, more: &str) -> Run {
    let sink = bench.path("index").join("index.sqlite");
    let words =
        format!("index backfill {range} --sink sqlite:{} --log warn {more}", sink.display());
    run(&bench.data(), &words)
}

fn of(rows: Vec<String>, tables: &[&str]) -> Vec<String> {
    rows.into_iter().filter(|row| tables.iter().any(|table| row.starts_with(table))).collect()
}

const ROWS: [&str; 3] = ["blocks", "txs", "logs"];

#[test]
fn a_worker_goes_on_from_the_archive_on_its_command_line_where_its_node_has_pruned() {
    let bench = bench();
    bench.index("index", "--once").ends(3).complains("block 10 is pruned");
    bench.index("index", &format!("--once --archive {}", bench.archive())).ends(0);
    assert_eq!(of(bench.rows("index"), &ROWS), of(bench.rows("whole"), &ROWS));
    assert_eq!(of(bench.rows("index"), &["gaps"]), Vec::<String>::new());
}

#[test]
fn a_worker_fills_what_gaps_lists_once_an_archive_is_named() {
    let bench = bench();
    bench.index("index", "--once --on-pruned rebase").ends(0);
    assert_eq!(of(bench.rows("index"), &["gaps"]).len(), 1);
    bench.index("index", &format!("--once --archive {}", bench.archive())).ends(0);
    assert_eq!(of(bench.rows("index"), &["gaps"]), Vec::<String>::new());
    assert_eq!(of(bench.rows("index"), &ROWS), of(bench.rows("whole"), &ROWS));
}

#[test]
fn backfill_fills_gaps_and_newly_wanted_logs_in_sqlite_from_the_node_or_the_archive() {
    let bench = bench();
    bench.index("index", "--once --on-pruned rebase").ends(0);
    let fill = |range: &str, more: &str| fill(&bench, range, more);
    let archive = format!("--archive {}", bench.archive());
    // The node has not got it, and says so; nothing is lost.
    let told = fill("10..69", "--from node").ends(3);
    told.complains("the source does not have blocks 10..69");
    let filled = fill("10..39", &format!("--from archive {archive} --json")).ends(0).json();
    assert_eq!((&filled["written"], &filled["new"]), (&json!(30), &json!(30)));
    let gaps = of(bench.rows("index"), &["gaps"]);
    assert!(gaps.len() == 1 && gaps[0].starts_with("gaps: 40|69|"), "{gaps:?}");
    fill("gaps", &archive).ends(0);
    assert_eq!(of(bench.rows("index"), &["gaps"]), Vec::<String>::new());
    assert_eq!(of(bench.rows("index"), &ROWS), of(bench.rows("whole"), &ROWS));
    // Logs are wanted from now on: they begin at the cursor until they are filled.
    bench.index("index", "--once --log-address all").ends(0);
    fill("0..", &archive).ends(11).complains("name the same as its worker");
    fill("0..", &format!("{archive} --log-address all")).ends(0);
    let rows = bench.rows("index");
    assert!(of(rows.clone(), &["logs"]).len() > 10, "{}", rows.len());
    fill("0..100", &archive).ends(11);
    fill("9..5", &archive).ends(2);
    bench.ask_archive("verify").ends(0);
}

// Gaps were read before the worker noted any: a run that ends left its own.
#[test]
fn a_run_that_ends_fills_the_gaps_that_it_noted_itself() {
    let bench = bench();
    bench.index("fresh", &format!("--once --archive {}", bench.archive())).ends(0);
    assert_eq!(of(bench.rows("fresh"), &["gaps"]), Vec::<String>::new());
    assert_eq!(of(bench.rows("fresh"), &ROWS), of(bench.rows("whole"), &ROWS));
}

// The first gap that failed ended the filling, each time, without a word of the others.
#[test]
fn a_gap_that_cannot_be_filled_keeps_no_other_one_from_it() {
    let bench = bench();
    bench.index("index", "--once --on-pruned rebase").ends(0);
    let archive = format!("--archive {}", bench.archive());
    fill(&bench, "30..39", &format!("--from archive {archive}")).ends(0);
    let parts = files(&bench.path("archive"));
    let ending = std::ffi::OsStr::new("zst");
    let is_part = |path: &&std::path::PathBuf| path.extension() == Some(ending);
    let first = bench.path("archive").join(parts.keys().find(is_part).unwrap());
    let mut bytes = std::fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0);
    std::fs::write(&first, bytes).unwrap();
    let told = bench.index("index", &format!("--once {archive}")).ends(0);
    told.complains("a gap is not filled");
    let left = of(bench.rows("index"), &["gaps"]);
    assert!(left.len() == 1 && left[0].starts_with("gaps: 10|29|"), "{left:?}");
}

// A directory without a node is an error, and of that one nothing was wanted.
#[test]
fn what_is_filled_from_an_archive_needs_no_node_and_makes_no_archive() {
    let bench = bench();
    bench.index("index", "--once --on-pruned rebase").ends(0);
    let sink = format!("--sink sqlite:{}/index.sqlite --log warn", bench.path("index").display());
    let (archive, nowhere) = (bench.archive(), bench.path("nowhere"));
    let Bench { place, node, .. } = bench;
    node.stop();
    let data = place.path().join("data");
    let fill = |more: &str| run(&data, &format!("index backfill gaps {sink} {more}"));
    fill(&format!("--from archive --archive {}", nowhere.display())).ends(6);
    assert!(!nowhere.exists());
    fill("--from archive").ends(2).complains("--archive <url>");
    let told = fill(&format!("--from node --archive {archive}")).ends(1);
    told.complains("no node is running on");
    fill(&format!("--from archive --archive {archive}")).ends(0);
}

// What was meant to be the node of a directory was compared for `index` only.
#[test]
fn a_backfill_from_another_node_than_the_directorys_is_refused() {
    let mut bench = bench();
    let other = Bench::start("", 2);
    bench.grow(1);
    let source = format!("--from node --source http://{}", other.node.grpc);
    let told = fill(&bench, "0..5", &source).ends(11);
    told.complains("are two stores");
    // The same node under another name is the same node.
    let port = bench.node.grpc.rsplit(':').next().unwrap();
    let told = fill(&bench, "5..8", &format!("--from node --source http://localhost:{port}"));
    told.ends(3).complains("the source does not have blocks 5..8");
}

// A file that is no TOML set nothing, and nothing was said.
#[test]
fn a_backfill_judges_its_configuration_as_its_worker_does() {
    let bench = Bench::start("", 2);
    let file = bench.path("broken.toml");
    std::fs::write(&file, "[index\nsink = ").unwrap();
    let told = fill(&bench, "gaps", &format!("--config {}", file.display())).ends(2);
    told.complains("broken.toml");
}

#[test]
fn backfill_fills_gaps_in_postgresql() {
    let bench = bench();
    let (url, whole) = (postgres::database(), postgres::database());
    let index = |url: &str, more: &str| {
        run(&bench.data(), &format!("index --sink {url} --log warn --once {more}"))
    };
    index(&url, "").ends(0);
    let from = |more: &str| {
        let words = format!("index backfill {more} --sink {url} --log warn --json");
        run(&bench.data(), &words)
    };
    // It began where the node does: what is below comes from parts, and is a gap as far as it is not there.
    let archive = format!("--from archive --archive {}", bench.archive());
    let filled = from(&format!("20..49 {archive}")).ends(0).json();
    assert_eq!(filled["new"], json!(30));
    let filled = from(&format!("gaps {archive}")).ends(0).json();
    assert_eq!(filled["new"], json!(40), "below and above it");
    from(&format!("0..19 {archive}")).ends(0);
    index(&whole, &format!("--source {}", bench.archive())).ends(0);
    let count = |url: &str, sql: &str| {
        let output =
            std::process::Command::new("psql").args(["-XAtq", url, "-c", sql]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let sum = "select count(*), sum(number) from blocks where number < 90";
    assert_eq!(count(&url, sum), count(&whole, sum));
    let sum = "select count(*), sum(gas_used), sum(status) from txs where block_number < 90";
    assert_eq!(count(&url, sum), count(&whole, sum));
    assert_eq!(count(&url, "select count(*) from gaps"), "0");
}
