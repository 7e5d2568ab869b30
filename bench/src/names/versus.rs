//! The other stores, one after the other, each between two turns of ours.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::side::{Side, line};
use crate::contestants::Secateur;
use crate::contestants::peers::{self, Budget, Kind};
use crate::measure::{Turn, share};
use crate::results::{Figure, Line};
use crate::workload::Pool;

const MIB: u64 = 1 << 20;
const SEED: u64 = 20_260_201;

/// How long a peer works. Slow ones would need minutes to write as much as we do, so each has a
/// smaller budget and a time.
pub struct Times {
    budget: u64,
    warm_up: Duration,
    measured: Duration,
}

impl Times {
    /// The times of a mode.
    pub fn new(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        if quick {
            Self { budget: 128 * MIB, warm_up: seconds(2), measured: Duration::from_millis(1500) }
        } else {
            Self { budget: 512 * MIB, warm_up: seconds(8), measured: seconds(4) }
        }
    }
}

/// What came of it.
pub struct Versus {
    /// Ratios to the best store and to flat files.
    pub figures: Vec<(&'static str, Figure)>,
    /// What each reached.
    pub lines: Vec<Line>,
}

/// Runs them all.
pub fn run(
    place: &Path,
    ours: &mut Side,
    secateur: &mut Secateur,
    pool: &mut Pool,
    budget: &Budget,
    times: &Times,
    ceiling: f64,
) -> Result<Versus> {
    let budget = Budget { bytes: budget.bytes.min(times.budget), ..*budget };
    let mut lines = Vec::new();
    let (mut best, mut flat): (Option<(&'static str, f64)>, f64) = (None, 0.0);
    let mut before = ours.turn(secateur, pool, Some(times.measured))?;
    for kind in peers::KINDS {
        let (total, identity) = run_peer(&place.join(kind.key), kind, pool, &budget, times)
            .with_context(|| format!("running {}", kind.key))?;
        let after = ours.turn(secateur, pool, Some(times.measured))?;
        let our = f64::midpoint(before.throughput(), after.throughput());
        before = after;
        let ratio = share(our, total.throughput());
        if !kind.is_store {
            flat = ratio;
        } else if best.is_none_or(|(_, least)| ratio < least) {
            best = Some((kind.key, ratio));
        }
        let mut line = line(identity, &total, ceiling);
        line.reached.push(("ours is faster by", Figure::Ratio(ratio)));
        lines.push(line);
    }
    let figures = vec![
        ("vs_best_peer", Figure::Ratio(best.map_or(0.0, |(_, ratio)| ratio))),
        ("peer", Figure::Word(best.map_or("none", |(key, _)| key))),
        ("vs_flat_fjall", Figure::Ratio(flat)),
    ];
    Ok(Versus { figures, lines })
}

fn run_peer(
    place: &Path,
    kind: &Kind,
    pool: &mut Pool,
    budget: &Budget,
    times: &Times,
) -> Result<(Turn, crate::contestants::Identity)> {
    let mut peer = (kind.create)(place, budget)?;
    let mut side = Side::new(SEED);
    let began = Instant::now();
    while side.total.bytes < budget.bytes + budget.bytes / 4 {
        let Some(rest) = times.warm_up.checked_sub(began.elapsed()) else { break };
        side.turn(peer.as_mut(), pool, Some(rest))?;
    }
    side.forget();
    while let Some(rest) = times.measured.checked_sub(side.total.wall) {
        side.turn(peer.as_mut(), pool, Some(rest))?;
    }
    let newest = side.feed.height();
    if let Some(block) = pool.groups().flatten().find(|block| block.meta.height == newest) {
        peers::check_newest(peer.as_mut(), block)?;
    }
    let identity = peer.identity();
    drop(peer);
    std::fs::remove_dir_all(place)?;
    Ok((side.total, identity))
}
