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
    // A peak is what happens to come together once; a longer run has more chances, so the shorter one
    // gets as many.
    let shorts = (0..10).map(|run| peak(&format!("short-{run}"), SHORT - 1));
    let short = shorts.max().unwrap();
    let long = peak("long", 10 * SHORT - 1);
    println!("peak memory: {short} KiB for {SHORT} blocks, {long} KiB for ten times as many");
    // What the allocator keeps differs by some mebibytes from run to run; whatever grew with the
    // length would show as hundreds. The ratio itself is `bench/run index`'s.
    assert!(long <= short + 16 * 1024, "{short} KiB, then {long} KiB");
}
