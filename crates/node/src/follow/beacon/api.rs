//! Questions to a beacon node, each with a bound for its answer and some patience. Long answers are
//! taken apart beside the threads that serve sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use secateur_core::Height;
use secateur_sidecar::BLOB_LEN;
use serde::de::DeserializeOwned;

use super::super::backoff::Backoff;
use super::super::client::{Client, Failure};
use super::super::teller::Teller;
use super::error::{BeaconError, Refused, words};
use super::ssz;
use super::wire::{
    Answer, BlobText, BlockAnswer, DepositContract, HeaderData, LegacySidecar, SignedHeader,
};
use crate::config::Follow;

/// The first and the longest pause before a request is sent again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));
/// A request is sent so often before its slot is given up for a while.
const ATTEMPTS: u32 = 4;
/// The longest answer that is a few fields: 64 KiB.
const SHORT: usize = 64 << 10;
/// The longest block: the protocol allows 10 MiB, which are twice as many digits, and some more.
const BLOCK: usize = 32 << 20;
/// What stands in JSON around a blob.
const AROUND: usize = 16;
/// What stands in JSON around a sidecar's blob: commitment, proof, branch, header.
const AROUND_SIDECAR: usize = 8 << 10;

/// Blobs in either of the two forms in which they come.
pub(super) enum Blobs {
    /// Nothing but blobs.
    Plain(Vec<Bytes>),
    /// With what the legacy endpoint says of them.
    Sidecars(Vec<LegacySidecar>),
}

/// A beacon node.
pub(super) struct Api {
    client: Client,
    teller: Arc<Teller>,
    /// Blobs that a height may have.
    pub(super) most: u32,
    /// Whether a request failed since this was last asked.
    interrupted: AtomicBool,
}

impl Api {
    /// Prepares the way to it; nothing is sent yet.
    pub(super) fn new(
        config: &Follow,
        most: u32,
        teller: Arc<Teller>,
    ) -> Result<Self, anyhow::Error> {
        let client = Client::new("beacon.url", config)?;
        Ok(Self { client, teller, most, interrupted: AtomicBool::new(false) })
    }

    /// Whether a request failed since this was asked last: what answers now may be another node.
    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted.swap(false, Ordering::Relaxed)
    }

    /// Its name for logs.
    pub(super) fn name(&self) -> &str {
        self.client.name()
    }

    /// The chain that it is of, where it says so.
    pub(super) async fn chain_id(&self) -> Result<Option<u64>, BeaconError> {
        let Some(body) = self.get("/eth/v1/config/deposit_contract", SHORT).await? else {
            return Ok(None);
        };
        let answer: Answer<DepositContract> =
            read("deposit contract", body).await?.map_err(BeaconError::Final)?;
        Ok(Some(answer.data.chain_id))
    }

    /// The header of the newest block that is final.
    pub(super) async fn finalized(&self) -> Result<SignedHeader, BeaconError> {
        let Some(body) = self.get("/eth/v1/beacon/headers/finalized", SHORT).await? else {
            let text = format!(
                "the beacon node {} has no finalised header. If it has no beacon blocks at all, as \
                 development nodes, name an EVM node with beacon.execution_url",
                self.name()
            );
            return Err(BeaconError::Trouble(text));
        };
        read("finalised header", body).await?.and_then(checked).map_err(BeaconError::Final)
    }

    /// The header of a slot; none where the slot has no block.
    pub(super) async fn header(&self, slot: Height) -> Result<Option<SignedHeader>, BeaconError> {
        let path = format!("/eth/v1/beacon/headers/{slot}");
        let Some(body) = self.get(&path, SHORT).await? else { return Ok(None) };
        let header = read("header", body).await?.and_then(checked);
        let header = header.map_err(|refused| refused.at(slot))?;
        let found = header.message.slot;
        if found != slot {
            return Err(Refused::Other { asked: slot, found }.at(slot));
        }
        Ok(Some(header))
    }

    /// The block of a slot that has one.
    pub(super) async fn block(&self, slot: Height) -> Result<BlockAnswer, BeaconError> {
        let path = format!("/eth/v2/beacon/blocks/{slot}");
        let body = self.get(&path, BLOCK).await?.ok_or_else(|| Refused::NoBlock.at(slot))?;
        read("block", body).await?.map_err(|refused| refused.at(slot))
    }

    /// The blobs of a block, which names so many: in the present way, or in the legacy one.
    pub(super) async fn blobs(&self, height: Height, named: usize) -> Result<Blobs, BeaconError> {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        if named > most {
            return Err(Refused::TooMany { named, most: self.most }.at(height));
        }
        let limit = |around: usize| named.saturating_mul(2 * BLOB_LEN + around) + SHORT;
        let path = format!("/eth/v1/beacon/blobs/{height}");
        if let Some(body) = self.get_at(height, &path, limit(AROUND)).await? {
            let answer = read::<Answer<Vec<BlobText>>>("blobs", body).await?;
            let blobs = answer.map_err(|refused| refused.at(height))?.data;
            return Ok(Blobs::Plain(blobs.into_iter().map(|blob| blob.0).collect()));
        }
        let path = format!("/eth/v1/beacon/blob_sidecars/{height}");
        let body = self.get_at(height, &path, limit(AROUND_SIDECAR)).await?;
        let body = body.ok_or_else(|| Refused::NoBlobs(named).at(height))?;
        let answer = read::<Answer<Vec<LegacySidecar>>>("blob sidecars", body).await?;
        Ok(Blobs::Sidecars(answer.map_err(|refused| refused.at(height))?.data))
    }

    /// [`get`](Self::get), where an answer that is too long is the height's fault.
    async fn get_at(
        &self,
        height: Height,
        path: &str,
        limit: usize,
    ) -> Result<Option<Bytes>, BeaconError> {
        match self.ask(path, limit).await {
            Err(Failure::TooLong { limit }) => Err(Refused::TooLong { limit }.at(height)),
            asked => asked.map_err(|failure| self.trouble(&failure)),
        }
    }

    async fn get(&self, path: &str, limit: usize) -> Result<Option<Bytes>, BeaconError> {
        self.ask(path, limit).await.map_err(|failure| self.trouble(&failure))
    }

    fn trouble(&self, failure: &Failure) -> BeaconError {
        let text = words(failure);
        BeaconError::Trouble(format!("the beacon node {} does not answer: {text}", self.name()))
    }

    /// Asks, and asks again after a while until patience is at its end.
    async fn ask(&self, path: &str, limit: usize) -> Result<Option<Bytes>, Failure> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            match self.client.get(path, limit).await {
                Ok(body) => {
                    self.teller.answered();
                    return Ok(body);
                }
                Err(Failure::Transient { reason, pause }) => {
                    self.interrupted.store(true, Ordering::Relaxed);
                    let text = format!("the beacon node {} does not answer: {reason}", self.name());
                    self.teller.source_trouble(&text);
                    let wait = backoff.next_wait().max(pause.unwrap_or_default());
                    if backoff.failures() >= ATTEMPTS {
                        return Err(Failure::Transient { reason, pause });
                    }
                    tokio::time::sleep(wait).await;
                }
                // The same would come again.
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// A header that has the root that is stated.
fn checked(answer: Answer<HeaderData>) -> Result<SignedHeader, Refused> {
    let HeaderData { root: stated, header } = answer.data;
    let computed = ssz::root(&header.message);
    if stated != computed {
        return Err(Refused::Root { stated, computed });
    }
    Ok(header)
}

async fn read<T: DeserializeOwned + Send + 'static>(
    what: &'static str,
    body: Bytes,
) -> Result<Result<T, Refused>, BeaconError> {
    let read = move || serde_json::from_slice(&body).map_err(Refused::json(what));
    tokio::task::spawn_blocking(read).await.map_err(BeaconError::task)
}
