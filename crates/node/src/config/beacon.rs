//! `[beacon]`: the beacon node whose blobs are followed.

use std::time::Duration;

use secateur_sidecar::ValidatorId;

use super::{Layers, Start, fits, millis, number, positive, seconds, web_address};
use crate::error::NodeError;

/// How blobs are followed.
#[derive(Debug, Clone)]
pub(crate) struct Beacon {
    pub(crate) url: String,
    /// An EVM node whose blocks name the blobs, where there are no beacon blocks.
    pub(crate) execution_url: Option<String>,
    pub(crate) start: Start,
    /// Who may sign for what is followed.
    pub(crate) proposer: Option<ValidatorId>,
    pub(crate) concurrency: usize,
    pub(crate) poll: Duration,
    /// How long the source may be silent.
    pub(crate) timeout: Duration,
}

impl Beacon {
    /// What is configured; none where no beacon node is named.
    pub(super) fn of(layers: &Layers) -> Result<Option<Self>, NodeError> {
        let Some(url) = layers.read("beacon.url", web_address)? else { return Ok(None) };
        Ok(Some(Self {
            url,
            execution_url: layers.read("beacon.execution_url", web_address)?,
            start: layers.must("beacon.start", Start::of)?,
            proposer: layers.read("beacon.proposer", |text| {
                text.parse().map_err(|_| "1 to 32 bytes as 0x… are wanted".to_owned())
            })?,
            concurrency: layers.must("beacon.concurrency", |text| match positive(text)? {
                few @ 1..=16 => fits(few),
                _ => Err("at most 16 is allowed".into()),
            })?,
            poll: layers.must("beacon.poll_ms", millis)?,
            timeout: layers.must("beacon.timeout_seconds", seconds)?,
        }))
    }
}

impl Start {
    /// A number, or `finalized`.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        match text {
            "finalized" => Ok(Self::Finalized),
            text => number(text).map(Self::At),
        }
    }
}
