//! Memory does not grow with the length of a backfill.

use crate::grpc::chain;
use crate::indexed::{Bench, peak_kib};

/// Blocks of the short backfill, and their bytes: more than ever wait between source and sink. They
/// have few rows, because SQLite's cache fills up to its own limit before it is as large as it gets.
const SHORT: u64 = 300;
const BYTES: usize = 100_000;

#[test]
fn a_ten_times_longer_backfill_takes_no_more_memory() {
    let bench = Bench::start("", 0);
    for first in (0..10 * SHORT).step_by(100) {
        bench.runtime.block_on(bench.clients.append(&chain(first..=first + 99, BYTES, 0)));
    }
    let data = bench.data();
    let peak = |name: &str, last: u64| {
        let sink = format!("sqlite:{}", bench.path(name).join("index.sqlite").display());
        let (data, to) = (data.to_str().unwrap(), last.to_string());
        let words = ["--data", data, "index", "--sink", &sink, "--to", &to, "--codec", "opaque"];
        peak_kib(&[&words[..], &["--budget-bytes", "4MiB", "--log", "error"]].concat())
    };
    let (short, long) = (peak("short", SHORT - 1), peak("long", 10 * SHORT - 1));
    println!("peak memory: {short} KiB for {SHORT} blocks, {long} KiB for ten times as many");
    assert!(long * 10 <= short * 11, "{short} KiB, then {long} KiB");
}
