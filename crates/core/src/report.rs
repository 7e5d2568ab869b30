//! Reports: what a prune did, kept in a bounded log so that `explain` can say when and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Height, Strength};

/// Why something is due to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Older than the retention asks for.
    Retention,
    /// The budget went over high water and is draining.
    Capacity,
    /// The budget went over hard water.
    Emergency,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retention => "retention",
            Self::Capacity => "capacity",
            Self::Emergency => "emergency",
        })
    }
}

/// Why a prune, or a plan of one, stopped where it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    /// Nothing more is due: at low water, and retention is met.
    Done,
    /// A hold covers the next block.
    Hold {
        /// The hold's name.
        hold: String,
        /// Whether it can give way.
        strength: Strength,
        /// The highest height that it allows to be cut.
        limit: Option<Height>,
    },
    /// The caller asked for nothing above its limit.
    Limit,
    /// The tick's operations are spent; the next tick goes on.
    MaxOps,
    /// There is no block.
    Empty,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("nothing more is due"),
            Self::Hold { hold, limit: Some(limit), .. } => {
                write!(f, "hold `{hold}` lets nothing above block {limit} be cut")
            }
            Self::Hold { hold, limit: None, .. } => write!(f, "hold `{hold}` lets nothing be cut"),
            Self::Limit => f.write_str("the limit that was asked for is reached"),
            Self::MaxOps => f.write_str("the tick's operations are spent"),
            Self::Empty => f.write_str("there is no block"),
        }
    }
}

/// Regions of one size class that a prune released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassBytes {
    /// The class, in bytes.
    pub class: u32,
    /// How many regions.
    pub regions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a prune did. Ticks that go on with one another's work share a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its number in the log.
    pub seq: u64,
    /// When its last tick ran, in seconds since 1970.
    pub at: u64,
    /// Who asked for it: `daemon` or `operator`.
    pub by: String,
    /// Why the first block of it was due.
    pub cause: Cause,
    /// The first height cut.
    pub first: Height,
    /// The last height cut.
    pub last: Height,
    /// Blocks cut.
    pub blocks: u64,
    /// Transactions cut with them.
    pub transactions: u64,
    /// Nominal operations spent.
    pub ops: u64,
    /// Ticks that this report covers.
    pub ticks: u64,
    /// Ticks whose one block was larger than the tick's operations.
    pub overruns: u64,
    /// Used bytes before.
    pub used_before: u64,
    /// Used bytes after.
    pub used_after: u64,
    /// Released bytes by class.
    pub by_class: Vec<ClassBytes>,
    /// Milliseconds spent on selecting and cutting; the commit that stores this report is not
    /// among them.
    pub millis: u64,
    /// Why it stopped.
    pub stop: StopReason,
}

impl Report {
    /// Whether `next` goes on with this report's unfinished work.
    pub fn continues_with(&self, next: &Self) -> bool {
        self.stop == StopReason::MaxOps
            && self.by == next.by
            && self.cause == next.cause
            && self.last.checked_add(1) == Some(next.first)
    }

    /// Takes `next` into this report.
    pub fn absorb(&mut self, next: &Self) {
        self.at = next.at;
        self.last = next.last;
        self.blocks += next.blocks;
        self.transactions += next.transactions;
        self.ops = self.ops.saturating_add(next.ops);
        self.ticks += next.ticks;
        self.overruns += next.overruns;
        self.used_after = next.used_after;
        self.millis = self.millis.saturating_add(next.millis);
        self.stop = next.stop.clone();
        for add in &next.by_class {
            match self.by_class.iter_mut().find(|have| have.class == add.class) {
                Some(have) => {
                    have.regions += add.regions;
                    have.bytes += add.bytes;
                }
                None => self.by_class.push(*add),
            }
        }
    }
}
