//! `append-prune`: sustained append at a full byte budget, pruning all the while.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Setting;
use crate::contestants::{Contestant, RawBuffered, Secateur};
use crate::machine::Machine;
use crate::measure::{Turn, float, median, share};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Feed, Pool, Shape};

/// Its name.
pub const NAME: &str = "append-prune";

const MIB: u64 = 1 << 20;
const SEED: u64 = 20_260_101;
/// Each round writes this part of the budget, so that it holds several drains.
const ROUNDS_PER_BUDGET: u64 = 2;
/// On a slow or busy disk a quick case begins no further round after this long, warm-up included.
const QUICK_CASE: Duration = Duration::from_secs(22);

/// One size of block with its budgets. The largest group must fit between the high and the hard
/// water mark (5 % of the budget), or every drain would begin as an emergency.
struct Size {
    shape: Shape,
    full_budget: u64,
    quick_budget: u64,
}

const SIZES: [Size; 3] = [
    Size {
        shape: Shape { label: "20KB", bytes: 20_000, transactions: 10 },
        full_budget: 64 * MIB,
        quick_budget: 64 * MIB,
    },
    Size {
        shape: Shape { label: "200KB", bytes: 200_000, transactions: 200 },
        full_budget: 512 * MIB,
        quick_budget: 256 * MIB,
    },
    Size {
        shape: Shape { label: "2MB", bytes: 2_000_000, transactions: 2_000 },
        full_budget: 2048 * MIB,
        quick_budget: 1536 * MIB,
    },
];

/// How much is written in one case.
struct Extent {
    budget: u64,
    warm_up_groups: u64,
    rounds: u64,
    groups_per_round: u64,
    at_most: Option<Duration>,
}

/// One side of the comparison.
struct Side<'a> {
    contestant: &'a mut dyn Contestant,
    feed: Feed,
    total: Turn,
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (groups, times): (&[usize], u64) =
        if setting.quick { (&[8, 32], 3) } else { (&[1, 8, 32], 10) };
    let mut cases = Vec::new();
    for size in &SIZES {
        let budget = if setting.quick { size.quick_budget } else { size.full_budget };
        for group in groups {
            eprintln!("{NAME}: {} in groups of {group} …", size.shape.label);
            let mut pool = Pool::new(size.shape, *group, SEED)?;
            let extent = Extent::of(&pool, budget, times, setting.quick);
            let place = setting.data.join("case");
            cases.push(run_case(&place, &mut pool, &extent)?);
            std::fs::remove_dir_all(&place)?;
        }
    }
    Ok(Report {
        name: NAME,
        work: format!(
            "append at a full budget with pruning, rounds of 1/{ROUNDS_PER_BUDGET} budget, \
             {} of them",
            times * ROUNDS_PER_BUDGET
        ),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_raw",
    })
}

impl Extent {
    /// So many times the budget in payload bytes, after a warm-up that fills it.
    fn of(pool: &Pool, budget: u64, times: u64, quick: bool) -> Self {
        let group_bytes = pool.shape().bytes as u64 * pool.group() as u64;
        Self {
            budget,
            warm_up_groups: (budget + budget / 4).div_ceil(group_bytes),
            rounds: times * ROUNDS_PER_BUDGET,
            groups_per_round: (budget / ROUNDS_PER_BUDGET).div_ceil(group_bytes),
            at_most: quick.then_some(QUICK_CASE),
        }
    }
}

impl<'a> Side<'a> {
    /// A side whose budget is full.
    fn warm(
        contestant: &'a mut dyn Contestant,
        pool: &mut Pool,
        extent: &Extent,
        seed: u64,
    ) -> Result<Self> {
        let mut side = Self { contestant, feed: Feed::new(seed), total: Turn::default() };
        side.round(pool, extent.warm_up_groups)?;
        side.total = Turn::default();
        side.contestant.phases();
        Ok(side)
    }

    fn round(&mut self, pool: &mut Pool, groups: u64) -> Result<Turn> {
        let turn = Turn::take(self.contestant, &mut self.feed, pool, groups)?;
        self.total.add(&turn);
        Ok(turn)
    }

    fn line(&self) -> Line {
        let cpu_share = self.total.cpu_share();
        Line {
            identity: self.contestant.identity(),
            mb_per_second: self.total.throughput() / 1e6,
            write_amp: self.total.write_amp(),
            cpu_share,
            limited_by: if cpu_share >= 0.5 { "CPU" } else { "disk (write and sync)" },
        }
    }
}

fn run_case(place: &Path, pool: &mut Pool, extent: &Extent) -> Result<Case> {
    let began = Instant::now();
    let mut secateur = Secateur::create(&place.join("secateur"), extent.budget)?;
    let mut raw = RawBuffered::create(&place.join("raw"), extent.budget)?;
    let mut ours = Side::warm(&mut secateur, pool, extent, SEED + 1)?;
    let mut theirs = Side::warm(&mut raw, pool, extent, SEED + 2)?;
    let (mut rounds, mut arena) = (Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        arena.push(ours.contestant.standing()?.arena_bytes);
        let mine = ours.round(pool, extent.groups_per_round)?;
        let other = theirs.round(pool, extent.groups_per_round)?;
        rounds.push(share(mine.throughput(), other.throughput()));
        if extent.at_most.is_some_and(|most| began.elapsed() > most) {
            break;
        }
    }
    let arena_at_half = arena.get(arena.len() / 2).copied().unwrap_or(0);
    let standing = ours.contestant.standing()?;
    let kept_payload = standing.kept_blocks * pool.shape().bytes as u64;
    let total = ours.total;
    let wall = total.wall().as_secs_f64();
    let phases = ours.contestant.phases();
    let shares = phases.iter().map(|(name, time)| (*name, share(time.as_secs_f64(), wall)));
    Ok(Case {
        labels: vec![("size", pool.shape().label.to_owned()), ("group", pool.group().to_string())],
        figures: vec![
            ("vs_raw", Figure::Ratio(median(&rounds))),
            ("write_amp", Figure::Ratio(total.write_amp())),
            (
                "payload_share",
                Figure::Ratio(share(float(kept_payload), float(standing.used_bytes))),
            ),
            ("arena_growth", Figure::Bytes(standing.arena_bytes.saturating_sub(arena_at_half))),
            ("prune_share", Figure::Ratio(share(total.prune.as_secs_f64(), wall))),
        ],
        rounds,
        phases: shares.collect(),
        contestants: vec![ours.line(), theirs.line()],
    })
}
