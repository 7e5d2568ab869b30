//! The rounds of a follower of blobs: ask what is final, bring in what is missing in the order of
//! heights, say that it is final, wait.

use std::sync::Arc;
use std::time::Duration;

use alloy_consensus::Header;
use alloy_primitives::{B256, keccak256};
use alloy_rlp::Decodable as _;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use secateur_core::Height;
use secateur_sidecar::engine::HeightRecord;
use secateur_sidecar::service::Sidecars;
use secateur_sidecar::{Proposal, Sidecar, SidecarError, ValidatorId};
use secateur_store::{Arena, Index};

use super::super::backoff::Backoff;
use super::super::progress::Catching;
use super::super::teller::Teller;
use super::error::{BeaconError, Refused};
use super::{Origin, ssz};
use crate::config::{Beacon, Start};
use crate::error::NodeError;

/// The first and the longest pause while something is wrong.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// What is followed was decided elsewhere; its rounds are not known.
const ROUND: secateur_sidecar::Round = 0;

/// A height that is final, and what names its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) height: Height,
    pub(super) id: B256,
}

/// A height whose blobs are the ones that its block names.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) sidecars: Vec<Sidecar>,
    pub(super) payload_header: Bytes,
    pub(super) signed_header: Option<Bytes>,
    /// Who proposed it, as the beacon chain counts validators.
    pub(super) proposer: u64,
    /// What names its block, and the one that it stands on.
    pub(super) id: B256,
    pub(super) parent: B256,
}

/// Where the store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ours {
    latest: Option<Tip>,
    finalized: Option<Height>,
}

/// A follower of blobs.
pub(super) struct Follower<'s, A, I> {
    sidecars: &'s Sidecars<A, I>,
    origin: Origin,
    teller: Arc<Teller>,
    config: Beacon,
    progress: Catching,
    /// Whether the source was asked which chain it is of, since it last failed to answer.
    knows_chain: bool,
    /// Whether it was said that the source does not say.
    said_unknown: bool,
    /// The last height that was stored in this run.
    seen: Option<Height>,
}

impl<'s, A: Arena, I: Index> Follower<'s, A, I> {
    pub(super) fn new(
        sidecars: &'s Sidecars<A, I>,
        origin: Origin,
        teller: Arc<Teller>,
        config: Beacon,
    ) -> Self {
        Self {
            sidecars,
            origin,
            teller,
            config,
            progress: Catching::default(),
            knows_chain: false,
            said_unknown: false,
            seen: None,
        }
    }

    /// Follows until something is wrong that waiting does not put right.
    pub(super) async fn follow(&mut self) -> anyhow::Error {
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let before = self.seen;
            let ended = self.round().await;
            if self.seen != before {
                pauses.reset();
            }
            match ended {
                Ok(()) => {
                    pauses.reset();
                    self.teller.well();
                    tokio::time::sleep(self.config.poll).await;
                }
                Err(BeaconError::Fatal(error)) => return error,
                Err(error) => {
                    let name = self.origin.name();
                    self.teller.deeper_trouble(&format!("{error}. The source is {name}"));
                    tokio::time::sleep(pauses.next_wait()).await;
                }
            }
        }
    }

    /// Brings in everything that is final and not here. A round that does not get that far counts.
    pub(super) async fn round(&mut self) -> Result<(), BeaconError> {
        let ended = self.bring().await;
        if matches!(&ended, Err(error) if !matches!(error, BeaconError::Fatal(_))) {
            self.sidecars.metrics().sync_failed();
        }
        ended
    }

    async fn bring(&mut self) -> Result<(), BeaconError> {
        self.check_chain().await?;
        let tip = self.origin.last_final().await?;
        let ours = self.ours().await?;
        self.teller.asked();
        self.teller.source_head(tip.height, ours.latest.map(|latest| latest.height));
        let highest = ours.latest.map(|latest| latest.height).max(ours.finalized);
        if let Some(ours) = highest.filter(|ours| tip.height < *ours) {
            return Err(BeaconError::Final(Refused::Backwards { found: tip.height, ours }));
        }
        let (next, mut last) = match (ours.latest, self.config.start) {
            (Some(latest), _) => (latest.height + 1, Some(latest.id)),
            (None, Start::At(height)) => (height, None),
            (None, Start::Finalized) => (tip.height, None),
        };
        if let Some(found) = ours.latest.filter(|latest| latest.height == tip.height)
            && found.id != tip.id
        {
            let refused = Refused::NotTheFinal { stated: tip.id, found: found.id };
            return Err(BeaconError::Final(refused));
        }
        self.progress.begin(next, tip.height);
        let origin = &self.origin;
        // Each in a box: what a closure over borrowed pieces returns is no sendable type.
        let asked = stream::iter(next..=tip.height)
            .map(|height| async move { (height, origin.fetch(height).await) }.boxed());
        let mut fetched = asked.buffered(self.config.concurrency);
        while let Some((height, found)) = fetched.next().await {
            let Some(found) = linked(height, found?, last, &tip)? else { continue };
            last = Some(found.id);
            let proposal = proposal(self.sidecars, &self.config, height, found)?;
            keep(self.sidecars, proposal).await?;
            self.seen = Some(height);
            self.progress.at(height, tip.height);
        }
        drop(fetched);
        self.progress.end(tip.height);
        self.teller.source_head(tip.height, Some(tip.height));
        Ok(())
    }

    /// A directory of another chain would bind its notices to the wrong one. What answers after a
    /// failure may be another node.
    async fn check_chain(&mut self) -> Result<(), BeaconError> {
        self.knows_chain &= !self.origin.was_interrupted();
        if self.knows_chain {
            return Ok(());
        }
        let ours = self.sidecars.store().config().chain_id;
        match self.origin.chain_id().await? {
            Some(theirs) if theirs != ours => {
                let text = format!(
                    "the source {} is of chain {theirs}, this directory holds chain {ours}. Name \
                     another source with --follow-beacon, or another directory with --data, \
                     whose chain is named with --chain-id",
                    self.origin.name()
                );
                return Err(BeaconError::Fatal(NodeError::Refused(text).into()));
            }
            Some(_) => {}
            None if self.said_unknown => {}
            None => {
                self.said_unknown = true;
                let source = self.origin.name();
                tracing::warn!(source, "the beacon node does not say which chain it is of");
            }
        }
        self.knows_chain = true;
        Ok(())
    }

    /// Where the store stands; nothing is scanned for it.
    async fn ours(&self) -> Result<Ours, BeaconError> {
        let store = Arc::clone(self.sidecars.store());
        let asked = tokio::task::spawn_blocking(move || {
            let summary = store.summary()?;
            let record = summary.latest_decided.map(|height| store.height(height)).transpose()?;
            Ok::<_, SidecarError>((summary.finalized, record.flatten()))
        });
        let (finalized, record) = asked.await.map_err(BeaconError::task)??;
        let latest = record.map(|record| self.origin.tip_of(&record)).transpose()?;
        Ok(Ours { latest, finalized })
    }
}

/// A height that stands on the last one; none where it has no block.
fn linked(
    height: Height,
    found: Option<Found>,
    last: Option<B256>,
    tip: &Tip,
) -> Result<Option<Found>, BeaconError> {
    let Some(found) = found else {
        // What is final has a block.
        return if height == tip.height { Err(Refused::NoBlock.at(height)) } else { Ok(None) };
    };
    if let Some(last) = last.filter(|last| *last != found.parent) {
        return Err(Refused::Unlinked { parent: found.parent, last }.at(height));
    }
    if height == tip.height && found.id != tip.id {
        return Err(Refused::NotTheFinal { stated: tip.id, found: found.id }.at(height));
    }
    Ok(Some(found))
}

/// What is stored. Its proposer is whoever may sign for its copies: the one that is configured, this
/// node itself if it signs, else the beacon chain's, who is nobody here.
fn proposal<A: Arena, I: Index>(
    sidecars: &Sidecars<A, I>,
    config: &Beacon,
    height: Height,
    found: Found,
) -> Result<Proposal, BeaconError> {
    let theirs = ValidatorId::new(&found.proposer.to_be_bytes());
    let theirs = theirs.map_err(|error| BeaconError::Fatal(error.into()))?;
    let proposer = config.proposer.as_ref().or_else(|| sidecars.identity()).cloned();
    let proposer = proposer.unwrap_or(theirs);
    let Found { sidecars, payload_header, signed_header, .. } = found;
    Ok(Proposal { height, round: ROUND, proposer, payload_header, signed_header, sidecars })
}

/// Stores one height, durably, and says that it is final. One at a time: a height that is refused
/// must not be passed by the next.
async fn keep<A: Arena, I: Index>(
    to: &Sidecars<A, I>,
    proposal: Proposal,
) -> Result<(), BeaconError> {
    let (height, blobs) = (proposal.height, proposal.sidecars.len());
    for decided in to.store_decided(vec![proposal]).await? {
        decided.map_err(|error| match error {
            SidecarError::Store(_) | SidecarError::Task { .. } => error.into(),
            refused => Refused::Store(Box::new(refused)).at(height),
        })?;
    }
    to.finalized(height).await?;
    tracing::debug!(height, blobs, "blobs are here");
    Ok(())
}

impl Origin {
    fn name(&self) -> &str {
        match self {
            Self::Slots(slots) => slots.api.name(),
            Self::Numbers(numbers) => numbers.api.name(),
        }
    }

    fn was_interrupted(&self) -> bool {
        match self {
            Self::Slots(slots) => slots.api.was_interrupted(),
            Self::Numbers(numbers) => numbers.was_interrupted(),
        }
    }

    async fn chain_id(&self) -> Result<Option<u64>, BeaconError> {
        match self {
            Self::Slots(slots) => slots.api.chain_id().await,
            Self::Numbers(numbers) => numbers.chain_id().await.map(Some),
        }
    }

    async fn last_final(&self) -> Result<Tip, BeaconError> {
        match self {
            Self::Slots(slots) => slots.last_final().await,
            Self::Numbers(numbers) => numbers.last_final().await,
        }
    }

    async fn fetch(&self, height: Height) -> Result<Option<Found>, BeaconError> {
        match self {
            Self::Slots(slots) => slots.fetch(height).await,
            Self::Numbers(numbers) => numbers.fetch(height).await.map(Some),
        }
    }

    /// What names the block of a stored height, if it came in this way.
    fn tip_of(&self, record: &HeightRecord) -> Result<Tip, BeaconError> {
        let id = match (self, &record.signed_header) {
            (Self::Slots(_), Some(header)) => ssz::root_of_kept(header),
            (Self::Numbers(_), None) => {
                let mut bytes = record.payload_header.as_ref();
                let header = Header::decode(&mut bytes).ok().filter(|_| bytes.is_empty());
                header.map(|_| keccak256(&record.payload_header))
            }
            _ => None,
        };
        let height = record.height;
        id.map(|id| Tip { height, id }).ok_or_else(|| {
            let text = format!(
                "height {height} of this directory did not come from such a source, and heights of \
                 two kinds are not mixed; nothing was changed. Follow what was followed before (a \
                 beacon node, or blocks with beacon.execution_url), or name another directory with \
                 --data"
            );
            BeaconError::Fatal(NodeError::Refused(text).into())
        })
    }
}
