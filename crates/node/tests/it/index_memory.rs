//! Memory does not grow with the length of a backfill.

use crate::indexed::{Bench, peak_kib};

#[test]
fn a_ten_times_longer_backfill_takes_no_more_memory() {
    let mut bench = Bench::start("", 20);
    bench.grow(6_000);
    let data = bench.data();
    let peak = |name: &str, to: u64| {
        let sink = format!("sqlite:{}", bench.path(name).join("index.sqlite").display());
        let archive = bench.path(&format!("{name}-archive"));
        let (data, to) = (data.to_str().unwrap(), to.to_string());
        peak_kib(&[
            "--data",
            data,
            "index",
            "--sink",
            &sink,
            "--to",
            &to,
            "--verify",
            "off",
            "--log-address",
            "all",
            "--log",
            "error",
            "--stage",
            archive.to_str().unwrap(),
        ])
    };
    // The first tenth is long enough to fill every buffer.
    let (short, long) = (peak("short", 599), peak("long", 5_999));
    println!("peak memory: {short} KiB for 600 blocks, {long} KiB for 6,000");
    assert!(long * 10 <= short * 11, "{short} KiB for 600 blocks, {long} KiB for 6,000");
}
