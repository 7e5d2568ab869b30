//! Following a real EVM node.

use std::sync::Arc;

use secateur_core::Height;
use tokio::sync::watch;

use crate::config::Follow;
use crate::service::Node;

/// Where the follower stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether a chain is followed at all.
    pub(crate) following: bool,
    /// The first block that this run ingested.
    pub(crate) from: Option<Height>,
    /// The source's newest block.
    pub(crate) source_head: Option<Height>,
    /// Whether everything that the source has is here.
    pub(crate) caught_up: bool,
    /// What is wrong with the source at the moment.
    pub(crate) trouble: Option<String>,
}

/// Follows until the node stops.
pub(crate) async fn run(
    _node: Arc<Node>,
    _config: Follow,
    _say: watch::Sender<Standing>,
) -> Result<(), anyhow::Error> {
    anyhow::bail!("not written yet")
}

/// Asks a source which chain it is of.
pub(crate) fn ask_chain_id(_config: &Follow) -> Result<u64, anyhow::Error> {
    anyhow::bail!("not written yet")
}
