//! Those who do the work: one file each, all behind [`Contestant`].

mod meter;
mod raw_buffered;
mod secateur;

pub use raw_buffered::RawBuffered;
pub use secateur::Secateur;

use std::time::Duration;

use anyhow::Result;
use secateur_core::Block;
use serde::Serialize;

/// Who it is, for the results.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The settings it runs with.
    pub settings: String,
}

/// What a contestant holds at some moment.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Blocks that can still be read.
    pub kept_blocks: u64,
    /// Bytes that count against the budget.
    pub used_bytes: u64,
    /// How far its data file reaches.
    pub arena_bytes: u64,
}

/// Time by the phase it went into.
pub type Phases = Vec<(&'static str, Duration)>;

/// Somebody who keeps blocks inside a byte budget. Everything is timed from outside: `append`
/// and `prune` are, the rest is not.
pub trait Contestant {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// Takes in consecutive blocks; all of them are durable when it returns.
    fn append(&mut self, group: &[Block]) -> Result<()>;
    /// Does what is due to stay inside the budget.
    fn prune(&mut self) -> Result<()>;
    /// What it holds now.
    fn standing(&mut self) -> Result<Standing>;
    /// Where its time went since this was last called, as far as it can tell.
    fn phases(&mut self) -> Phases {
        Vec::new()
    }
}
