//! A worker that is killed without warning, again and again: its index and its archive are in the
//! end what they would have been anyway.

use std::time::Duration;

use crate::grpc::Dice;
use crate::indexed::{Bench, assert_same, keys, start};

const KILLS: u64 = 200;
/// Blocks that come between two kills.
const GROWTH: u64 = 8;
const DEFAULT_SEED: u64 = 20_261_115;

pub fn seed() -> u64 {
    std::env::var("SECATEUR_TEST_KILL_SEED").map_or(DEFAULT_SEED, |seed| seed.parse().unwrap())
}

#[test]
fn two_hundred_kills_of_a_worker_change_neither_its_rows_nor_its_parts() {
    let seed = seed();
    let mut dice = Dice(seed);
    let mut bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 3);
    bench.grow(200);
    let archive = bench.archive();
    let more = format!(
        "--archive {archive} --part-blocks 30 --log-address all --consumer killed --verify hash"
    );
    let words = bench.words("killed", &more);
    let context = format!("replay with SECATEUR_TEST_KILL_SEED={seed}");
    for kill in 0..KILLS {
        let mut worker = start(&bench.data(), &words);
        bench.grow(GROWTH);
        std::thread::sleep(Duration::from_millis(dice.below(200)));
        assert!(worker.try_wait().unwrap().is_none(), "kill {kill}: it ended; {context}");
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    bench.index("killed", &format!("{more} --once")).ends(0);
    let whole = bench.path("whole-archive");
    let whole = whole.to_str().unwrap();
    let more = format!("--archive {whole} --part-blocks 30 --log-address all --verify hash --once");
    let mut command = crate::tool::secateur(&bench.data(), &bench.words("whole", &more));
    let done = command.env("SECATEUR_ARCHIVE_ACKNOWLEDGE", "false").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_same(&bench.rows("killed"), &bench.rows("whole"), &context);
    let parts = keys(&archive);
    assert_eq!(parts, keys(whole), "{context}");
    let last = bench.ask_archive("ls --json").ends(0).json();
    let last = last.as_array().unwrap().last().unwrap()["last"].as_u64().unwrap();
    assert!(last > 1_500, "{last}");
    bench.ask_archive(&format!("verify --full --upto {last}")).ends(0);
    let status = bench.runtime.block_on(bench.clients.status());
    assert_eq!(status.archived, Some(last), "the node knows every part; {context}");
    println!("kills={KILLS} blocks={} parts={} seed={seed}", status.head.unwrap() + 1, parts.len());
}
