//! `growth`: our own costs at 1, 4 and 16 times the data. A cost that grows with what is stored
//! would show here long before it hurts anybody.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use secateur_core::TxId;

use super::Setting;
use super::append_prune::Extent;
use super::side::{Side, line, warm_up};
use crate::contestants::{Contestant, Secateur};
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Pool, Shape, Sizes};

/// Its name.
pub const NAME: &str = "growth";

const SEED: u64 = 20_260_301;
const SCALES: [u64; 3] = [1, 4, 16];
const GROUP: usize = 32;
const SIZES: Sizes = Sizes::Fixed(Shape { bytes: 20_000, transactions: 100 });
/// Ids that are remembered of each turn, to be looked up later.
const REMEMBERED: usize = 512;
const LOOKUPS: u64 = 20_000;

/// One scale: its store, and what everything cost in each round.
struct Scale {
    store: Secateur,
    side: Side,
    at: PathBuf,
    ids: Vec<TxId>,
    append: Vec<f64>,
    cut: Vec<f64>,
    lookup: Vec<f64>,
}

/// Runs it.
pub fn run(setting: &Setting) -> Result<Report> {
    let base = if setting.quick { 32 } else { 256 } << 20;
    let rounds = if setting.quick { 4 } else { 10 };
    let extent = Extent { budget: base, times: 1, at_most: None };
    let mut pool = extent.pool(SIZES, GROUP)?;
    let mut scales = Vec::new();
    for scale in SCALES {
        eprintln!("{NAME}: filling {scale} times {} MiB …", base >> 20);
        let at = setting.data.join(format!("scale-{scale}"));
        scales.push(Scale::fill(at, base * scale, &mut pool)?);
    }
    for _ in 0..rounds {
        for scale in &mut scales {
            scale.round(&mut pool)?;
        }
    }
    let lines: Vec<Line> = scales
        .iter()
        .map(|scale| line(Contestant::identity(&scale.store), &scale.side.total, 0.0))
        .collect();
    let mut costs = vec![
        ("append", "ns_per_block", scales.iter().map(|s| s.append.clone()).collect()),
        ("cut", "ns_per_block", scales.iter().map(|s| s.cut.clone()).collect()),
        ("lookup", "ns", scales.iter().map(|s| s.lookup.clone()).collect::<Vec<_>>()),
    ];
    let mut open = Vec::new();
    for scale in scales {
        open.push(scale.reopen()?);
    }
    costs.push(("open", "ns_per_block", open));
    let cases = costs.into_iter().map(|(cost, unit, rounds)| case(cost, unit, &rounds, &lines));
    Ok(Report {
        name: NAME,
        work: format!("our costs at 1, 4 and 16 times {} MiB, 20 KB x 100 tx", base >> 20),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases: cases.collect(),
        plotted: "ratio_16x",
    })
}

impl Scale {
    fn fill(at: PathBuf, budget: u64, pool: &mut Pool) -> Result<Self> {
        let mut store = Secateur::create(&at, budget)?;
        let mut side = Side::new(SEED);
        warm_up(&mut side, &mut store, pool, budget)?;
        let (append, cut, lookup) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { store, side, at, ids: Vec::new(), append, cut, lookup })
    }

    fn round(&mut self, pool: &mut Pool) -> Result<()> {
        let turn = self.side.turn(&mut self.store, pool, None)?;
        let blocks = float(turn.groups * GROUP as u64);
        self.append.push(share(turn.wall.as_secs_f64() * 1e9, blocks));
        let cut = self.store.spent().cutting();
        self.cut.push(share(cut.as_secs_f64() * 1e9, blocks));
        self.remember(pool)?;
        let began = Instant::now();
        for id in self.ids.iter().cycle().take(usize::try_from(LOOKUPS)?) {
            self.store.has_receipt(id)?;
        }
        self.lookup.push(share(began.elapsed().as_secs_f64() * 1e9, float(LOOKUPS)));
        Ok(())
    }

    /// Takes ids of the turn before, as far as they are still there.
    fn remember(&mut self, pool: &Pool) -> Result<()> {
        let blocks: Vec<&[u8]> =
            pool.groups().flatten().map(|block| block.payloads.tx_index.as_slice()).collect();
        self.ids.clear();
        for index in blocks.iter().step_by((blocks.len() / REMEMBERED).max(1)) {
            let id = index.first_chunk().map(|id| TxId(*id));
            if let Some(id) = id
                && self.store.has_receipt(&id)?
            {
                self.ids.push(id);
            }
        }
        Ok(())
    }

    /// Closes and opens it again, three times; what a kept block cost.
    fn reopen(self) -> Result<Vec<f64>> {
        let blocks = float(self.store.standing()?.kept_blocks);
        let Self { store, at, .. } = self;
        drop(store);
        let opened = (0..3).map(|_| open_once(&at, blocks)).collect();
        std::fs::remove_dir_all(&at)?;
        opened
    }
}

fn open_once(at: &Path, blocks: f64) -> Result<f64> {
    let began = Instant::now();
    let store = Secateur::open(at)?;
    store.has_receipt(&TxId([0; 32]))?;
    Ok(share(began.elapsed().as_secs_f64() * 1e9, blocks))
}

/// One cost at all scales.
fn case(cost: &str, unit: &str, rounds: &[Vec<f64>], lines: &[Line]) -> Case {
    let at = |n: usize| rounds.get(n).map_or(0.0, |rounds| median(rounds));
    let ratios = match (rounds.first(), rounds.last()) {
        (Some(small), Some(large)) => {
            small.iter().zip(large).map(|(small, large)| share(*large, *small)).collect()
        }
        _ => Vec::new(),
    };
    Case {
        labels: vec![("cost", cost.to_owned()), ("unit", unit.to_owned())],
        figures: vec![
            ("at_1x", Figure::Ratio(at(0))),
            ("at_4x", Figure::Ratio(at(1))),
            ("at_16x", Figure::Ratio(at(2))),
            ("ratio_16x", Figure::Ratio(median(&ratios))),
        ],
        rounds: ratios,
        contestants: if cost == "append" { lines.to_vec() } else { Vec::new() },
        phases: Vec::new(),
    }
}
