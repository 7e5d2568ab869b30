//! `append-prune`: sustained append at a full byte budget, pruning all the while.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Setting;
use super::side::{Side, line, warm_up};
use super::versus::{self, Times};
use crate::contestants::peers::Budget;
use crate::contestants::raw::{Buffered, Direct, Uring};
use crate::contestants::{Contestant, Secateur, Spent};
use crate::machine::Machine;
use crate::measure::{Turn, float, median, share};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Pool, Shape, Sizes};

/// Its name.
pub const NAME: &str = "append-prune";

const MIB: u64 = 1 << 20;
/// Epochs of ids in a full budget, ours and theirs.
const EPOCHS: u64 = 16;
const SEED: u64 = 20_260_101;
/// A turn writes this part of the budget, so that it holds several drains, or this many bytes.
const TURNS_PER_BUDGET: u64 = 2;
const TURN_BYTES: u64 = 512 * MIB;
/// A case begins no further round after this long: groups of 1, and a slow or busy disk, would
/// take hours for 10 times the budget.
const QUICK_ROUNDS: Duration = Duration::from_secs(6);
const FULL_ROUNDS: Duration = Duration::from_secs(25);

/// One size of block.
struct Work {
    label: &'static str,
    sizes: Sizes,
    groups: &'static [usize],
    /// The largest group must fit between the high and the hard water mark (5 % of the budget),
    /// or every drain would begin as an emergency.
    budget: u64,
    /// Whether the other stores take part.
    peers: bool,
}

const fn shape(bytes: usize, transactions: u32) -> Sizes {
    Sizes::Fixed(Shape { bytes, transactions })
}

const SMALL: Sizes = shape(20_000, 10);
const MIDDLE: Sizes = shape(200_000, 200);
const LARGE: Sizes = shape(2_000_000, 2_000);

const FULL: [Work; 3] = [
    Work { label: "20KB", sizes: SMALL, groups: &[1, 8, 32], budget: 256 * MIB, peers: false },
    Work { label: "200KB", sizes: MIDDLE, groups: &[1, 8, 32], budget: 1024 * MIB, peers: true },
    Work { label: "2MB", sizes: LARGE, groups: &[1, 8, 32], budget: 2048 * MIB, peers: false },
];

const QUICK: [Work; 3] = [
    Work { label: "20KB", sizes: SMALL, groups: &[32], budget: 64 * MIB, peers: false },
    Work { label: "200KB", sizes: MIDDLE, groups: &[8, 32], budget: 256 * MIB, peers: true },
    Work { label: "2MB", sizes: LARGE, groups: &[8], budget: 512 * MIB, peers: false },
];

/// How much is written in one case.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The byte budget.
    pub budget: u64,
    /// How often the budget is written once it is full.
    pub times: u64,
    /// No round begins after so long.
    pub at_most: Option<Duration>,
}

impl Extent {
    /// Payload bytes of one turn.
    pub fn turn_bytes(&self) -> u64 {
        (self.budget / TURNS_PER_BUDGET).min(TURN_BYTES)
    }

    fn rounds(&self) -> u64 {
        (self.budget * self.times).div_ceil(self.turn_bytes())
    }

    /// A pool of one turn.
    pub fn pool(&self, sizes: Sizes, group: usize) -> Result<Pool> {
        let group_bytes = sizes.mean_bytes() * group as u64;
        let groups = self.turn_bytes().div_ceil(group_bytes).max(2);
        Pool::new(sizes, group, usize::try_from(groups)?, SEED)
    }
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let works = if setting.quick { &QUICK } else { &FULL };
    let times = if setting.quick { 3 } else { 10 };
    let at_most = Some(if setting.quick { QUICK_ROUNDS } else { FULL_ROUNDS });
    let place = setting.data.join("case");
    let mut cases = Vec::new();
    for work in works {
        let extent = Extent { budget: work.budget, times, at_most };
        for group in work.groups {
            if !setting.wants(work.label, &format!("{}/{group}", work.label)) {
                continue;
            }
            eprintln!("{NAME}: {} in groups of {group} …", work.label);
            let labels = vec![("size", work.label.to_owned()), ("group", group.to_string())];
            let peers = work.peers.then(|| Times::new(setting.quick));
            let mut pool = extent.pool(work.sizes, *group)?;
            let budget = Budget {
                bytes: work.budget,
                epoch_bytes: work.budget / EPOCHS,
                block_bytes: work.sizes.mean_bytes(),
            };
            cases.push(run_case(&place, labels, &mut pool, &extent, &budget, peers)?);
            std::fs::remove_dir_all(&place)?;
        }
    }
    let budget = if setting.quick { 512 } else { 1024 } * MIB;
    let extent = Extent { budget, times, at_most };
    let shift = [(SMALL, 1), (LARGE, 2), (SMALL, times.min(3))];
    for (label, parts) in [("mixed", &[(Sizes::Mixed, times)][..]), ("shift", &shift)] {
        if setting.wants(label, label) {
            eprintln!("{NAME}: {label} sizes …");
            cases.push(run_alone(&place, label, parts, &extent)?);
            std::fs::remove_dir_all(&place)?;
        }
    }
    Ok(Report {
        name: NAME,
        work: format!("append at a full budget with pruning, {times} times the budget"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_raw",
    })
}

/// The raw writers in their turns, and how each of our rounds compares with theirs.
struct Raw {
    key: &'static str,
    line: Line,
    ratios: Vec<f64>,
    speed: f64,
}

fn run_case(
    place: &Path,
    labels: Vec<(&'static str, String)>,
    pool: &mut Pool,
    extent: &Extent,
    budget: &Budget,
    peers: Option<Times>,
) -> Result<Case> {
    let mut secateur = Secateur::create(&place.join("secateur"), extent.budget)?;
    let mut ours = Side::new(SEED + 1);
    warm_up(&mut ours, &mut secateur, pool, extent.budget)?;
    let mut arena = Vec::new();
    let mut raws = beside_raw(place, &mut ours, &mut secateur, pool, extent, &mut arena)?;
    raws.sort_by(|a, b| b.speed.total_cmp(&a.speed));
    let spent = secateur.spent();
    let total = ours.total;
    let own = own_figures(&ours, &secateur, &arena, &spent)?;
    let fastest = raws.first();
    let mut figures = vec![
        ("vs_raw", Figure::Ratio(fastest.map_or(0.0, |raw| median(&raw.ratios)))),
        ("raw", Figure::Word(fastest.map_or("none", |raw| raw.key))),
    ];
    let rounds = fastest.map(|raw| raw.ratios.clone()).unwrap_or_default();
    let ceiling = fastest.map_or(0.0, |raw| raw.speed);
    let mut contestants = vec![line(secateur.identity(), &total, ceiling)];
    if let Some(own) = contestants.first_mut() {
        let a_group = share(float(spent.commits), float(total.groups));
        own.reached.push(("commits a group", Figure::Ratio(a_group)));
    }
    contestants.extend(raws.into_iter().map(|raw| raw.line));
    if let Some(times) = peers {
        let peers = versus::run(place, &mut ours, &mut secateur, pool, budget, &times, ceiling)?;
        figures.extend(peers.figures);
        contestants.extend(peers.lines);
    }
    figures.extend(own);
    let phases = shares(&spent, &total);
    Ok(Case { labels, figures, rounds, contestants, phases })
}

/// Rounds of us and of the three raw writers, in turns.
fn beside_raw(
    place: &Path,
    ours: &mut Side,
    secateur: &mut Secateur,
    pool: &mut Pool,
    extent: &Extent,
    arena: &mut Vec<u64>,
) -> Result<Vec<Raw>> {
    let mut writers: Vec<(Side, Box<dyn Contestant>)> = vec![
        (Side::new(SEED + 2), Box::new(Buffered::create(&place.join("raw-1"), extent.budget)?)),
        (Side::new(SEED + 2), Box::new(Direct::create(&place.join("raw-2"), extent.budget)?)),
    ];
    match Uring::create(&place.join("raw-3"), extent.budget) {
        Ok(uring) => writers.push((Side::new(SEED + 2), Box::new(uring))),
        Err(error) => eprintln!("{NAME}: without io_uring: {error:#}"),
    }
    for (side, writer) in &mut writers {
        side.turn(writer.as_mut(), pool, None)?;
        side.forget();
    }
    let began = Instant::now();
    for _ in 0..extent.rounds() {
        arena.push(secateur.standing()?.arena_bytes);
        ours.turn(secateur, pool, None)?;
        for (side, writer) in &mut writers {
            side.turn(writer.as_mut(), pool, None)?;
        }
        if extent.at_most.is_some_and(|most| began.elapsed() > most) {
            break;
        }
    }
    let fastest = writers.iter().map(|(side, _)| median(&side.speeds)).fold(0.0, f64::max);
    let raws = writers.iter().map(|(side, writer)| Raw {
        key: writer.identity().key,
        line: line(writer.identity(), &side.total, fastest),
        ratios: ours.speeds.iter().zip(&side.speeds).map(|(our, raw)| share(*our, *raw)).collect(),
        speed: median(&side.speeds),
    });
    Ok(raws.collect())
}

/// Shifting and mixed sizes: only what the arena does about them.
fn run_alone(place: &Path, label: &str, parts: &[(Sizes, u64)], extent: &Extent) -> Result<Case> {
    const GROUP: usize = 8;
    let mut secateur = Secateur::create(&place.join("secateur"), extent.budget)?;
    let (mut ours, mut arena) = (Side::new(SEED + 1), Vec::new());
    for ((sizes, times), part) in parts.iter().zip(0..) {
        let mut pool = extent.pool(*sizes, GROUP)?;
        if part == 0 {
            warm_up(&mut ours, &mut secateur, &mut pool, extent.budget)?;
        }
        let rounds = Extent { times: *times, ..*extent }.rounds();
        let began = Instant::now();
        for _ in 0..rounds {
            arena.push(secateur.standing()?.arena_bytes);
            ours.turn(&mut secateur, &mut pool, None)?;
            if extent.at_most.is_some_and(|most| began.elapsed() > most) {
                break;
            }
        }
    }
    let spent = secateur.spent();
    let mut figures = own_figures(&ours, &secateur, &arena, &spent)?;
    let disk = secateur.standing()?.disk_bytes;
    figures.push(("disk_per_target", Figure::Ratio(share(float(disk), float(extent.budget)))));
    Ok(Case {
        labels: vec![("size", label.to_owned()), ("group", GROUP.to_string())],
        figures,
        rounds: Vec::new(),
        contestants: vec![line(secateur.identity(), &ours.total, 0.0)],
        phases: shares(&spent, &ours.total),
    })
}

/// Where our time went, as shares of the time on the wall.
fn shares(spent: &Spent, total: &Turn) -> Vec<(&'static str, f64)> {
    let wall = total.wall.as_secs_f64();
    spent.phases.iter().map(|(name, time)| (*name, share(time.as_secs_f64(), wall))).collect()
}

/// What is said of ourselves alone.
fn own_figures(
    ours: &Side,
    secateur: &Secateur,
    arena: &[u64],
    spent: &Spent,
) -> Result<Vec<(&'static str, Figure)>> {
    let standing = secateur.standing()?;
    let at_half = arena.get(arena.len() / 2).copied().unwrap_or(0);
    let cut = spent.cutting();
    let kept = ours.feed.newest_bytes(standing.kept_blocks);
    Ok(vec![
        ("write_amp", Figure::Ratio(ours.total.write_amp())),
        ("payload_share", Figure::Ratio(share(float(kept), float(standing.used_bytes)))),
        ("arena_growth", Figure::Count(standing.arena_bytes.saturating_sub(at_half))),
        ("cut_share", Figure::Ratio(share(cut.as_secs_f64(), ours.total.wall.as_secs_f64()))),
    ])
}
