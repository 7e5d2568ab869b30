//! Following a beacon node: blobs of finalised slots are asked for, compared with what the blocks
//! name, and kept like blobs that were decided here.
//!
//! | files | what lives there |
//! | --- | --- |
//! | `api`, `wire` | the beacon node's HTTP interface: questions with bounds and patience; its JSON |
//! | `ssz` | the little of SSZ that is needed: roots of headers, branches |
//! | `fit` | whether blobs are the ones that a block names, in its order |
//! | `slots` | heights that are slots: a beacon node with blocks |
//! | `numbers` | heights that are block numbers: an EVM node that serves blobs, such as anvil |
//! | `follower` | rounds: what is final, what is missing, storing it |
//! | `error` | what is refused, and why |
//!
//! Nothing is believed of a blob: its commitment is computed here. What is believed is which block
//! is the finalised one of a slot, as far as headers link up; whoever does not trust a beacon node
//! with that names one of their own. What deliberately does not live here: what becomes of blobs
//! that are stored, which is the sidecar crate's.

mod api;
mod error;
mod fit;
mod follower;
#[cfg(test)]
mod liar;
mod numbers;
mod slots;
mod ssz;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use secateur_sidecar::service::Sidecars;
use secateur_store::{Arena, Index};
use tokio::sync::watch;

use api::Api;
use follower::Follower;
use numbers::Numbers;
use slots::Slots;

use super::Standing;
use super::source::Source;
use super::teller::Teller;
use crate::config::{Beacon, Follow};

/// Where finalised blobs come from.
enum Origin {
    Slots(Box<Slots>),
    Numbers(Box<Numbers>),
}

/// Follows until it is told to stop, or something is wrong that waiting does not put right.
pub(crate) async fn run<A: Arena, I: Index>(
    sidecars: &Sidecars<A, I>,
    config: Beacon,
    say: watch::Sender<Standing>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let teller = Arc::new(Teller::new(say));
    let most = sidecars.store().config().max_blobs;
    let api = Api::new(&config.follow(&config.url), most, Arc::clone(&teller))?;
    teller.follows(api.name(), Standing::patience(config.poll, config.timeout));
    tracing::info!(source = api.name(), "following blobs");
    let origin = match &config.execution_url {
        None => Origin::Slots(Box::new(Slots::new(api))),
        Some(url) => {
            let told = Arc::clone(&teller);
            let blocks = Source::new("beacon.execution_url", &config.follow(url), told)?;
            Origin::Numbers(Box::new(Numbers::new(api, blocks)))
        }
    };
    let mut follower = Follower::new(sidecars, origin, teller, config);
    tokio::select! {
        // Whoever would say stop is gone: that is a stop as well.
        _ = stopping.wait_for(|stop| *stop) => Ok(()),
        ended = follower.follow() => Err(ended),
    }
}

impl Beacon {
    /// How an address is asked, in the words of the follower of blocks.
    fn follow(&self, url: &str) -> Follow {
        Follow {
            url: url.to_owned(),
            start: self.start,
            confirmations: None,
            batch: 1,
            concurrency: self.concurrency,
            poll: self.poll,
            timeout: self.timeout,
        }
    }
}
