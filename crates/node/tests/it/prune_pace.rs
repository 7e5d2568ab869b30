//! The pace of pruning as an operator sees it, and what the daemon's own prunes count.

use std::time::{Duration, Instant};

use crate::http_client::get;
use crate::indexed::Bench;
use crate::tool::{ask, run};

#[test]
fn status_plan_and_policy_show_print_what_a_tick_cuts_and_what_comes_in() {
    let mut bench = Bench::start("", 1);
    let data = bench.data();
    run(&data, "pruning off").ends(0);
    let policy = "retain_blocks=10 max_ops_per_tick=40 trigger=every_n_blocks:84";
    run(&data, &format!("policy set {policy}")).ends(0);
    bench.grow(60);
    for command in ["status", "plan", "policy show"] {
        let text = run(&data, command).ends(0).out;
        let row = text.lines().find(|line| line.trim_start().starts_with("a tick"));
        let row = row.unwrap_or_else(|| panic!("{command}: {text}"));
        let wanted = "cuts 10 blocks at most; 84 are appended between two ticks";
        assert!(row.ends_with(wanted), "{command}: {row}");
        let said = ask(&data, command);
        assert_eq!(
            (&said["blocks_per_tick"], &said["blocks_between_ticks"]),
            (&10.into(), &84.into())
        );
    }
    let status = run(&data, "status").ends(0).out;
    assert!(status.contains("50 blocks more than retention keeps"), "{status}");
}

/// Only prunes that somebody asked for were in a test; what the daemon cuts comes another way.
#[test]
fn what_the_daemon_cuts_is_counted_once_it_is_durable() {
    let config = "[policy]\nretain_blocks = 10\ntrigger = \"every_n_blocks:84\"\n";
    let mut bench = Bench::start(config, 1);
    bench.grow(84);
    let ends = Instant::now() + Duration::from_mins(2);
    let page = loop {
        let page = String::from_utf8(get(&bench.node, "/metrics").is(200).body).unwrap();
        if page.contains("\nsecateur_history_cut_blocks_total 74") {
            break page;
        }
        assert!(Instant::now() < ends, "nothing was counted: {page}");
        std::thread::yield_now();
    };
    assert!(page.contains("\nsecateur_history_prune_duration_seconds_count 1\n"), "{page}");
    let status = ask(&bench.data(), "status");
    assert_eq!(status["oldest_kept_block"].as_u64(), status["head"].as_u64().map(|head| head - 9));
}
