//! What there is to show while the demo runs, and the shape of everything that shows it.

use std::net::SocketAddr;
use std::time::Duration;

use secateur_core::{PruneStatus, Report};

use super::blobs::Figures;
use super::indexing::Reached;
use super::tally::Counts;
use super::utxo;

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A tick cut blocks; its report, if the log has one.
    Pruned(Option<Box<Report>>),
    /// A tick failed.
    Trouble(String),
    /// Appending ended.
    Ended,
}

/// The state of everything at one moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) status: PruneStatus,
    pub(super) counts: Counts,
    /// Blocks a second, in tenths.
    pub(super) rate_tenths: u64,
    pub(super) elapsed: Duration,
    /// How far the index is; none where there is none.
    pub(super) indexed: Option<Reached>,
    /// What became of each validator's blobs; empty where there are none.
    pub(super) blobs: Vec<Figures>,
    /// What became of UTXO records; none where there are none.
    pub(super) utxo: Option<utxo::Figures>,
}

impl Moment {
    /// Blocks that are kept.
    pub(super) fn kept(&self) -> u64 {
        kept_blocks(&self.status)
    }
}

/// Blocks from the oldest kept one to the head.
pub(super) fn kept_blocks(status: &PruneStatus) -> u64 {
    match (status.oldest_kept_block, status.head) {
        (Some(oldest), Some(head)) => (head + 1).saturating_sub(oldest),
        _ => 0,
    }
}

/// A way to show the demo.
pub(super) trait Show {
    /// Shows where the node answers.
    fn listening(&mut self, http: SocketAddr, grpc: SocketAddr) -> Result<(), anyhow::Error>;
    /// How often it wants to see a moment.
    fn rhythm(&self) -> Duration;
    /// Shows the state.
    fn moment(&mut self, moment: &Moment) -> Result<(), anyhow::Error>;
    /// Shows that something happened.
    fn event(&mut self, event: &Event) -> Result<(), anyhow::Error>;
}
