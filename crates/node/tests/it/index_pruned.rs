//! A worker whose source cuts what it has not pulled yet.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::OpenFlags;

use crate::indexed::Bench;
use crate::tool::secateur;

#[test]
fn a_worker_that_comes_too_late_stops_with_its_own_exit_code_and_says_what_to_do() {
    let mut bench = Bench::start("", 2);
    bench.grow(60);
    bench.index("late", "--to 19").ends(0);
    let boundary = bench.prune(15).unwrap();
    assert!(boundary > 20, "{boundary}");
    let before = bench.rows("late");
    let stopped = bench.index("late", "--once").ends(3);
    let stopped = stopped.complains("block 20 is pruned").complains("on_pruned = rebase");
    assert!(stopped.err.contains(&format!("from there up to {boundary}")), "{stopped:?}");
    let same = |rows: Vec<String>| rows.into_iter().filter(|row| !row.starts_with("meta"));
    assert!(same(bench.rows("late")).eq(same(before)), "the index was not changed");
    bench.index("late", "--once --on-pruned rebase").ends(0);
    let rows = bench.rows("late");
    let gaps: Vec<&String> = rows.iter().filter(|row| row.starts_with("gaps")).collect();
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0].starts_with(&format!("gaps: 20|{boundary}|pruned")), "{gaps:?}");
    let blocks = rows.iter().filter(|row| row.starts_with("blocks")).count() as u64;
    assert_eq!(blocks, 20 + 59 - boundary);
}

#[test]
fn a_worker_that_is_overtaken_while_it_pulls_stops_in_the_same_way() {
    let mut bench = Bench::start("", 2);
    bench.grow(30);
    let words = bench.words("overtaken", "");
    let mut command = secateur(&bench.data(), &words);
    let worker = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    let file = bench.path("overtaken").join("index.sqlite");
    // The file and its tables are the worker's to make; until then there is nothing.
    let indexed = || {
        let db = rusqlite::Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let count = db.and_then(|db| db.query_row("select count(*) from blocks", [], |r| r.get(0)));
        count.unwrap_or(0)
    };
    while indexed() < 30 {
        assert!(Instant::now() < until, "{} blocks", indexed());
        std::thread::sleep(Duration::from_millis(20));
    }
    let signal = |name: &str| {
        let pid = worker.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    };
    signal("STOP");
    bench.grow(60);
    assert_eq!(bench.prune(10), Some(79));
    signal("CONT");
    let ended = worker.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("block 30 is pruned") && said.contains("rebase"), "{said}");
    bench.index("overtaken", "--once --on-pruned rebase").ends(0);
    let gaps = bench.rows("overtaken").into_iter().filter(|row| row.starts_with("gaps"));
    assert_eq!(gaps.count(), 1);
}

#[test]
fn a_worker_that_is_a_consumer_is_waited_for() {
    let mut bench = Bench::start("", 2);
    bench.grow(30);
    bench.index("held", "--to 9 --consumer held").ends(0);
    bench.grow(30);
    assert_eq!(bench.prune(10), Some(9), "its hold stands where it is");
    bench.index("held", "--once --consumer held").ends(0);
    assert_eq!(bench.prune(10), Some(49));
}

#[test]
fn what_cannot_be_done_has_an_exit_code_of_its_own() {
    let mut bench = Bench::start("", 2);
    bench.grow(3);
    bench.index("x", "--sink nonsense --once").ends(2);
    bench.index("x", "--sink postgres://u:secret@127.0.0.1/x --once").ends(2);
    let refused = bench.index("x", "--once --http 0.0.0.0:0").ends(11);
    refused.complains("not on this machine");
    bench.index("x", "--once --workers 2").ends(2).complains("PostgreSQL");
    std::fs::create_dir_all(bench.path("bad")).unwrap();
    std::fs::write(bench.path("bad").join("index.sqlite"), "not a database, by far").unwrap();
    bench.index("bad", "--once").ends(7);
    let done = bench.index("x", "--once --json").ends(0).json();
    assert_eq!((&done["indexed"], &done["archived"]), (&2.into(), &serde_json::Value::Null));
}

#[test]
fn a_fresh_index_that_wants_only_pruned_blocks_is_told_so_and_writes_nothing() {
    let mut bench = Bench::start("", 2);
    bench.grow(60);
    let boundary = bench.prune(15).unwrap();
    for more in ["--to 10", "--to 10 --once --on-pruned rebase"] {
        let told = bench.index("fresh", more).ends(3).complains("block 10 is pruned");
        assert!(told.err.contains(&format!("from there up to {boundary}")), "{told:?}");
        let rows = bench.rows("fresh");
        assert!(!rows.iter().any(|row| row.starts_with("blocks")), "{rows:?}");
    }
    // What it may have is still to be had.
    bench.index("fresh", &format!("--to {}", boundary + 1)).ends(0);
    let blocks = bench.rows("fresh").into_iter().filter(|row| row.starts_with("blocks"));
    assert_eq!(blocks.count(), 1);
}

#[test]
fn an_index_in_a_place_that_cannot_be_made_and_an_archive_without_a_name_are_refused() {
    let mut bench = Bench::start("", 2);
    bench.grow(5);
    std::fs::write(bench.path("file"), "no directory").unwrap();
    let told = bench.index("file/below", "--once").ends(7);
    let place = bench.path("file/below");
    assert!(told.err.contains(place.to_str().unwrap()), "{told:?}");
    bench.index("index", "--once --archive=").ends(2).complains("--archive is empty");
    assert!(!bench.path("index").exists(), "nothing was begun");
}
