//! One side of a comparison: where it is on its chain and what its turns took.

use std::time::Duration;

use anyhow::Result;

use crate::contestants::{Contestant, Identity, Secateur};
use crate::measure::{Turn, share};
use crate::results::{Figure, Line};
use crate::workload::{Feed, Pool};

/// A contestant's figures; the contestant itself is handed in for each turn.
pub struct Side {
    /// Its chain.
    pub feed: Feed,
    /// All its turns.
    pub total: Turn,
    /// Payload bytes a second, turn by turn.
    pub speeds: Vec<f64>,
}

impl Side {
    /// At the start of its chain.
    pub fn new(seed: u64) -> Self {
        Self { feed: Feed::new(seed), total: Turn::default(), speeds: Vec::new() }
    }

    /// Takes a turn.
    pub fn turn(
        &mut self,
        contestant: &mut dyn Contestant,
        pool: &mut Pool,
        at_most: Option<Duration>,
    ) -> Result<Turn> {
        let turn = Turn::take(contestant, &mut self.feed, pool, at_most)?;
        self.total.add(&turn);
        self.speeds.push(turn.throughput());
        Ok(turn)
    }

    /// Forgets what the turns took so far: it was warm-up.
    pub fn forget(&mut self) {
        self.total = Turn::default();
        self.speeds.clear();
    }
}

/// Fills our budget, so that everything after is steady.
pub fn warm_up(side: &mut Side, store: &mut Secateur, pool: &mut Pool, budget: u64) -> Result<()> {
    while side.total.bytes < budget + budget / 4 {
        side.turn(store, pool, None)?;
    }
    side.forget();
    store.spent();
    Ok(())
}

/// A contestant's line in the results. `ceiling` is what the disk gave the fastest raw writer.
pub fn line(identity: Identity, total: &Turn, ceiling: f64) -> Line {
    let cores = total.cores();
    let to_disk = total.throughput() * total.write_amp();
    let limited_by = if ceiling > 0.0 && to_disk >= 0.7 * ceiling {
        "disk"
    } else if cores >= 0.8 {
        "CPU"
    } else {
        "sync (waiting for the disk)"
    };
    let reached = vec![
        ("MB/s", Figure::Ratio(total.throughput() / 1e6)),
        ("bytes written a byte", Figure::Ratio(total.write_amp())),
        ("cores", Figure::Ratio(cores)),
        ("CPU s/GB", Figure::Ratio(share(total.cpu.as_secs_f64(), total.gigabytes()))),
    ];
    Line { identity, reached, limited_by }
}
