//! Twenty kills without warning: whatever was acknowledged before is there afterwards.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tempfile::tempdir;

use crate::tool::{Ledger, Running, ask, open_store, run};

const KILLS: u64 = 20;
const DEFAULT_SEED: u64 = 20_261_115;

/// Numbers from a seed: xorshift, because a test needs no better ones.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Starts the demo, lets it acknowledge so many blocks and run a little longer, kills it, and
/// returns all that it printed.
fn killed(data: &Path, acks: u64, millis: u64) -> String {
    let mut demo = Running::start(data, "demo --blocks 100000 --budget 6MiB --acks");
    let mut printed = String::new();
    for _ in 0..acks {
        printed.push_str(&demo.wait_for("ack "));
    }
    std::thread::sleep(Duration::from_millis(millis));
    demo.child.kill().unwrap();
    demo.out.read_to_string(&mut printed).unwrap();
    printed
}

#[test]
fn twenty_kills_lose_nothing_that_was_acknowledged() {
    let seed = std::env::var("SECATEUR_KILL_SEED").map_or(DEFAULT_SEED, |s| s.parse().unwrap());
    let mut draws = Draws(seed.max(1));
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let mut ledger = Ledger::default();
    let mut boundary = None;
    for round in 0..KILLS {
        // One kill in five comes while the demo is still starting.
        let acks = if draws.below(5) == 0 { 0 } else { draws.below(300) };
        let millis = draws.below(60);
        let context = format!(
            "kill {round}, {acks} acks and {millis} ms in; replay with SECATEUR_KILL_SEED={seed}"
        );
        ledger.note(&killed(&data, acks, millis));
        if ledger.acked.is_empty() {
            continue;
        }
        let verified = ask(&data, "verify");
        assert_eq!(verified["clean"], true, "{context}: {verified:#}");
        let now = ledger.check(&open_store(&data), &context);
        assert!(now >= boundary, "{context}: the boundary moved back, {boundary:?} to {now:?}");
        boundary = now;
    }
    let acked = ledger.acked.len();
    assert!(acked > 1000 && boundary > Some(300), "{acked} acked, boundary {boundary:?}");
    println!("kills={KILLS} acked={acked} boundary={boundary:?} lost=0 seed={seed}");
}

#[test]
fn a_kill_during_creation_leaves_a_directory_that_the_next_run_finishes() {
    let mut draws = Draws(DEFAULT_SEED);
    for round in 0..12 {
        let place = tempdir().unwrap();
        let data = place.path().join("demo");
        let millis = draws.below(25);
        let mut ledger = Ledger::default();
        ledger.note(&killed(&data, 0, millis));
        let context = format!("round {round}, killed after {millis} ms");
        let again = run(&data, "demo --blocks 20 --acks");
        assert_eq!(again.code, 0, "{context}: {again:#?}");
        assert_eq!(ledger.note(&again.out), 20, "{context}");
        ledger.check(&open_store(&data), &context);
        assert_eq!(ask(&data, "status")["pruning_enabled"], true, "{context}");
        assert_eq!(ask(&data, "verify")["clean"], true, "{context}");
    }
}
