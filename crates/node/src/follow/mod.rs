//! Following a real EVM node: its chain is read over JSON-RPC, every block is checked against its
//! own hash, and only what fits is stored.
//!
//! | files | what lives there |
//! | --- | --- |
//! | `client`, `envelope`, `source`, `backoff` | asking: HTTP, JSON-RPC, batches and patience |
//! | `chain`, `blocks` | what is asked: heads and headers; whole blocks |
//! | `convert`, `fields`, `fetch` | from JSON to checked blocks |
//! | `pipeline` | many requests at once, in order into the store |
//! | `follower`, `reorg`, `ours` | rounds: where the source stands, where we stand, what to do |
//! | `identity` | whether the source is still of the chain that is here |
//! | `teller`, `standing`, `progress` | what is told meanwhile |
//! | `beacon` | blobs of finalised slots, from a beacon node |
//!
//! What deliberately does not live here: executing blocks. A source that invents a chain whose
//! hashes fit is believed, up to what is final here: that is never taken back.

mod backoff;
pub(crate) mod beacon;
mod blocks;
mod chain;
mod client;
mod convert;
#[cfg(test)]
mod convert_tests;
mod envelope;
mod error;
mod fetch;
mod fields;
mod follower;
mod identity;
mod ours;
mod pipeline;
mod progress;
mod reorg;
mod source;
mod standing;
mod teller;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;

pub(crate) use client::check_url;
use error::FollowError;
use follower::Follower;
use identity::Identity;
use source::Source;
pub(crate) use standing::{RefusedBlock, RefusedPart, Standing};
use teller::Teller;

use crate::config::Follow;
use crate::error::NodeError;
use crate::service::Node;

/// Follows until the node stops.
pub(crate) async fn run(
    node: Arc<Node>,
    config: Follow,
    say: watch::Sender<Standing>,
) -> Result<(), anyhow::Error> {
    let mut stopping = node.stopping.clone();
    let teller = Arc::new(Teller::new(say));
    let source = Source::new("follow.url", &config, Arc::clone(&teller))?;
    teller.follows(source.name(), Standing::patience(config.poll, config.timeout));
    tracing::info!(source = source.name(), "following");
    let identity = Identity::open(&node.path)?;
    let mut follower = Follower::new(Arc::clone(&node.store), source, teller, identity, config);
    tokio::select! {
        // Whoever would say stop is gone: that is a stop as well.
        _ = stopping.wait_for(|stop| *stop) => Ok(()),
        ended = follower.follow() => Err(ended),
    }
}

/// Asks a source which chain it is of. It has a while to answer.
pub(crate) fn ask_chain_id(config: &Follow) -> Result<u64, anyhow::Error> {
    let (say, _) = watch::channel(Standing::default());
    let source = Source::new("follow.url", config, Arc::new(Teller::new(say)))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the thread that asks the source")?;
    runtime.block_on(chain::chain_id(&source)).map_err(|error| {
        let advice = format!(
            "the chain of a new directory is asked from its source, and {error}. Start the source \
             first, or name the chain with --chain-id"
        );
        NodeError::Failed(advice).into()
    })
}
