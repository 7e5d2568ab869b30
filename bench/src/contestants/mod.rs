//! Those who do the work: one file each, all behind [`Contestant`].

pub mod finders;
mod meter;
pub mod peers;
pub mod raw;
mod secateur;

pub use secateur::{Secateur, Spent};

use std::time::Duration;

use anyhow::Result;
use secateur_core::Block;
use serde::Serialize;

/// Groups that a pipelined contestant may have in flight at most.
pub const IN_FLIGHT: usize = 8;

/// Who it is, for the results.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    /// Its short name, as in the lines for machines.
    pub key: &'static str,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The settings it runs with.
    pub settings: String,
}

/// Time by the phase it went into.
pub type Phases = Vec<(&'static str, Duration)>;

/// Somebody who keeps blocks inside a byte budget. It is timed from outside, from the first
/// `append` of a turn to the return of `finish`.
pub trait Contestant {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// Takes in consecutive blocks as one durable commit of their own. It may return before they
    /// are durable, with at most [`IN_FLIGHT`] groups under way; the blocks are not borrowed any
    /// longer then.
    fn append(&mut self, group: &[Block]) -> Result<()>;
    /// Does what is due to stay inside the budget.
    fn prune(&mut self) -> Result<()>;
    /// Waits until every group is durable.
    fn finish(&mut self) -> Result<()>;
}
