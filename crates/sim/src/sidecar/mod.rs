//! Blob sidecars simulated: four validators with the product's own store, archiver, announcer, book
//! and pruner, simulated providers and messages between them, crashes at every step, and liars.
//!
//! A seed runs on one thread with a clock that only moves when nothing else can, and replays exactly.

mod liar;
mod life;
mod mortal;
mod net;
mod node;
mod oracle;
mod plan;
mod vault;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use secateur_sidecar::{Sabotage, ValidatorId, testdata};

use crate::on_every_core;

/// The chain.
const CHAIN: u64 = 7;
/// Validators.
const COUNT: usize = 4;
/// Somebody who is none.
const OUTSIDER: usize = 9;

fn byte(n: usize) -> u8 {
    u8::try_from(n + 1).unwrap_or(u8::MAX)
}

/// The name of a validator.
fn validator(n: usize) -> ValidatorId {
    let name = ValidatorId::new(&[byte(n); 20]);
    name.unwrap_or_else(|error| unreachable!("20 bytes are a name: {error}"))
}

/// Which validator has a name.
fn validator_number(id: &ValidatorId) -> Option<usize> {
    (0..COUNT).find(|n| validator(*n) == *id)
}

/// What a validator signs with.
fn secret(n: usize) -> [u8; 32] {
    [byte(n); 32]
}

/// What happened in a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Validators that lost their power.
    pub crashes: u64,
    /// The kinds of steps that they lost it in, as bits.
    pub steps: u64,
    /// The reasons for which notices were refused, as bits.
    pub reasons: u64,
    /// Lies told.
    pub lies: u64,
    /// Blobs pruned, on all validators.
    pub pruned: u64,
    /// Things that happened, and a digest of them.
    pub events: u64,
    /// See `events`.
    pub log: u64,
}

/// Which seeds.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first.
    pub seed: u64,
    /// How many.
    pub seeds: u64,
    /// The planted bug.
    pub bug: Sabotage,
}

/// What a run saw.
#[derive(Debug, Default)]
pub struct Tally {
    seeds: AtomicU64,
    crashes: AtomicU64,
    lies: AtomicU64,
    steps: AtomicU64,
    reasons: AtomicU64,
    pruned: AtomicU64,
    violations: Mutex<Vec<(u64, String)>>,
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "sidecar seeds={} crashes={} steps={} lies={} refusals={} pruned={} violations={}",
            get(&self.seeds),
            get(&self.crashes),
            self.steps(),
            get(&self.lies),
            self.reasons(),
            get(&self.pruned),
            self.violations.lock().len()
        )
    }

    /// In how many kinds of steps a crash came; there are 11.
    pub fn steps(&self) -> u32 {
        self.steps.load(Ordering::Relaxed).count_ones()
    }

    /// For how many different reasons notices were refused or put off.
    pub fn reasons(&self) -> u32 {
        self.reasons.load(Ordering::Relaxed).count_ones()
    }

    /// What went wrong, by seed, each with how to see it again.
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.violations.lock().clone();
        found.sort();
        let told = |(seed, why): (u64, String)| {
            format!("seed {seed}: {why}\nreplay: -- sidecar --seed {seed} --seeds 1")
        };
        found.into_iter().map(told).collect()
    }
}

/// Runs one seed.
pub fn run_seed(seed: u64, bug: Sabotage) -> Result<Stats, String> {
    static POOL: std::sync::Once = std::sync::Once::new();
    POOL.call_once(testdata::assume_pool);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(life::live(seed, bug))
}

/// Runs seeds on every core; with a bug until it is caught.
pub fn run(plan: &Plan) -> Tally {
    let tally = Tally::default();
    let next = AtomicU64::new(0);
    on_every_core(|| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let caught = plan.bug != Sabotage::None && !tally.violations.lock().is_empty();
            if at >= plan.seeds || caught {
                return;
            }
            let seed = plan.seed + at;
            tally.seeds.fetch_add(1, Ordering::Relaxed);
            match run_seed(seed, plan.bug) {
                Ok(stats) => {
                    tally.crashes.fetch_add(stats.crashes, Ordering::Relaxed);
                    tally.steps.fetch_or(stats.steps, Ordering::Relaxed);
                    tally.reasons.fetch_or(stats.reasons, Ordering::Relaxed);
                    tally.lies.fetch_add(stats.lies, Ordering::Relaxed);
                    tally.pruned.fetch_add(stats.pruned, Ordering::Relaxed);
                }
                Err(why) => tally.violations.lock().push((seed, why)),
            }
        }
    });
    tally
}
