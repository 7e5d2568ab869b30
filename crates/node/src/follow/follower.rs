//! The rounds of a follower: look where the source stands, bring in what is missing, take back
//! what the source took back, move finality, wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use secateur_core::Height;
use secateur_store::ground::disk::DiskStore;

use super::backoff::Backoff;
use super::chain::{Final, Heads, heads};
use super::error::Misfit;
use super::fetch::Fetcher;
use super::identity::{Compared, Identity};
use super::ours::{Ours, Tip};
use super::pipeline::{self, End, Task, Works};
use super::progress::Catching;
use super::reorg::{self, Outcome};
use super::source::Source;
use super::teller::Teller;
use super::{FollowError, RefusedBlock, RefusedPart};
use crate::config::{Follow, Start};
use crate::error::NodeError;

/// The first and the longest pause while something is wrong.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// What would end the node is looked at so often before it does: one of several machines behind
/// an address may only be confused.
const LOOKS: u32 = 3;

/// What comes after a round.
enum Pace {
    /// The next one, at once.
    Again,
    /// A wait for news.
    Wait,
}

/// A follower.
pub(super) struct Follower {
    fetcher: Fetcher,
    ours: Ours,
    teller: Arc<Teller>,
    config: Follow,
    progress: Catching,
    identity: Identity,
    /// Whether what answers was found to be of the chain that is here, since it last failed to answer.
    is_known: bool,
    /// How often in a row the source contradicted us.
    contradicted: u32,
    /// Whether it was said that the source knows no finality.
    said_no_finality: bool,
    /// The newest block at the end of the last round.
    seen: Option<Tip>,
}

impl Follower {
    pub(super) fn new(
        store: Arc<DiskStore>,
        source: Source,
        teller: Arc<Teller>,
        identity: Identity,
        config: Follow,
    ) -> Self {
        let chain_id = store.header().chain_id;
        Self {
            fetcher: Fetcher::new(source, chain_id),
            ours: Ours(store),
            teller,
            config,
            progress: Catching::default(),
            identity,
            is_known: false,
            contradicted: 0,
            said_no_finality: false,
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
                Ok(pace) => {
                    self.contradicted = 0;
                    pauses.reset();
                    self.teller.well();
                    if let Pace::Wait = pace {
                        tokio::time::sleep(self.config.poll).await;
                    }
                }
                Err(FollowError::Fatal(error)) => return error,
                Err(FollowError::Full(text)) => {
                    self.teller.disk_full(&text);
                    tokio::time::sleep(pauses.next_wait()).await;
                }
                Err(error) => {
                    self.tell(error);
                    tokio::time::sleep(pauses.next_wait()).await;
                }
            }
        }
    }

    fn tell(&self, error: FollowError) {
        let (part, misfit) = match error {
            FollowError::Block(misfit) => (RefusedPart::Whole, *misfit),
            FollowError::Header(misfit) => (RefusedPart::Header, *misfit),
            error => return self.teller.deeper_trouble(&error.to_string()),
        };
        let Misfit { height, hash, bytes, reason } = misfit;
        let block = RefusedBlock { part, height, hash, bytes, reason: reason.to_string() };
        self.teller.refused(block, self.fetcher.source.name());
    }

    async fn round(&mut self) -> Result<Pace, FollowError> {
        let heads = heads(&self.fetcher.source, self.config.confirmations).await?;
        let ours = self.ours.tip().await?;
        let newest = &heads.newest;
        self.teller.heads(newest.height, newest.timestamp, ours.map(|tip| tip.height));
        if heads.chain_id != self.fetcher.chain_id {
            let text = format!(
                "the source {} is of chain {}, this directory holds chain {}. Name another source \
                 with --follow, or another directory with --data",
                self.fetcher.source.name(),
                heads.chain_id,
                self.fetcher.chain_id
            );
            return self.contradiction(text);
        }
        if let Some(text) = self.other_chain(ours, &heads).await? {
            return self.contradiction(text);
        }
        self.say_finality(&heads.last_final);
        match ours {
            None => self.begin(&heads).await,
            Some(tip) if heads.newest.height > tip.height => {
                self.advance(tip.height + 1, Some(tip), &heads).await
            }
            Some(tip) => self.compare(tip, &heads).await,
        }
    }

    /// Whether the source is of another chain, and how that is known. It is compared when it first
    /// answers and whenever it answers again; and while nothing that is here says whether it is the
    /// same, because all of it is below what is kept.
    async fn other_chain(
        &mut self,
        ours: Option<Tip>,
        heads: &Heads,
    ) -> Result<Option<String>, FollowError> {
        let newest = heads.newest.height;
        let behind = self.ours.last_final().is_some_and(|last_final| newest < last_final);
        self.teller.source_is_behind(behind);
        self.is_known &= !self.fetcher.source.was_interrupted();
        if ours.is_none() || (self.is_known && !behind) {
            return Ok(None);
        }
        match self.identity.compare(&self.fetcher.source, &self.ours, newest).await? {
            Compared::Other { height, ours, theirs } => {
                let (source, last_final) = (&self.fetcher.source, self.ours.last_final());
                return Ok(Some(reorg::contradiction(source, last_final, height, &ours, &theirs)));
            }
            Compared::Same => self.is_known = true,
            // Nothing is final yet, or the source prunes: blocks link to ours, or they do not.
            Compared::Unknown => {}
        }
        Ok(None)
    }

    /// The first blocks of a store that is new.
    async fn begin(&mut self, heads: &Heads) -> Result<Pace, FollowError> {
        let first = match self.config.start {
            Start::At(height) => height,
            Start::Finalized => heads.last_final.height().ok_or_else(|| {
                let name = self.fetcher.source.name();
                FollowError::trouble(format!(
                    "follow.start is `finalized`, and the source {name} has no final block"
                ))
            })?,
        };
        if first > heads.newest.height {
            let newest = heads.newest.height;
            tracing::debug!(first, newest, "the first block is still to come");
            return Ok(Pace::Wait);
        }
        self.advance(first, None, heads).await
    }

    /// Brings in what the source has and we have not.
    async fn advance(
        &mut self,
        first: Height,
        tip: Option<Tip>,
        heads: &Heads,
    ) -> Result<Pace, FollowError> {
        let (target, last_final) = (heads.newest.height, heads.last_final.height());
        let began = Instant::now();
        self.progress.begin(first, target);
        let works = Works {
            fetcher: &self.fetcher,
            ours: &self.ours,
            teller: &self.teller,
            config: &self.config,
        };
        let parent = tip.map(|tip| tip.hash);
        let task = Task { first, parent, target, last_final, final_hash: heads.last_final.hash() };
        let ended = pipeline::run(works, task, &mut self.progress).await;
        let now = self.ours.tip().await?;
        self.see(now, target);
        match (ended, now) {
            (End::Failed(error), _) => Err(error),
            (End::Unlinked, Some(tip)) => self.part(tip).await,
            (End::Unlinked, None) => Err(self.inconsistent()),
            (End::Reached, Some(tip)) if tip.height >= target => {
                self.progress.end(tip.height);
                self.finalize(tip, heads).await?;
                // What took long leaves news behind.
                let news = began.elapsed() > self.config.poll;
                Ok(if news { Pace::Again } else { Pace::Wait })
            }
            (End::Reached, _) => Ok(Pace::Again),
        }
    }

    /// The source has no block that is new by its height.
    async fn compare(&mut self, tip: Tip, heads: &Heads) -> Result<Pace, FollowError> {
        let here = self.ours.hash_at(heads.newest.height).await?;
        if here.is_some_and(|here| here != heads.newest.hash) {
            return self.part(tip).await;
        }
        // A source that has less of the same chain will have more again.
        self.see(Some(tip), heads.newest.height);
        self.progress.end(tip.height);
        self.finalize(tip, heads).await?;
        Ok(Pace::Wait)
    }

    /// The two chains part somewhere below. Where the source stands is asked anew: it may have
    /// changed its mind since, and be shorter now.
    async fn part(&mut self, tip: Tip) -> Result<Pace, FollowError> {
        let heads = heads(&self.fetcher.source, self.config.confirmations).await?;
        let newest = heads.newest.height;
        match reorg::resolve(&self.fetcher.source, &self.ours, tip, newest).await? {
            Outcome::RolledBack => Ok(Pace::Again),
            Outcome::Agreed => Err(self.inconsistent()),
            Outcome::Contradiction(text) => self.contradiction(text),
        }
    }

    /// Moves finality up to what the source says, where it speaks of a block that is ours.
    async fn finalize(&mut self, tip: Tip, heads: &Heads) -> Result<(), FollowError> {
        let Some(height) = heads.last_final.height() else { return Ok(()) };
        if let Final::Block(meta) = &heads.last_final
            && let Some(here) = self.ours.hash_at(height).await?
            && here != meta.hash
        {
            return self.part(tip).await.map(|_| ());
        }
        self.ours.finalize(height.min(tip.height)).await
    }

    fn see(&mut self, tip: Option<Tip>, source_head: Height) {
        if self.seen != tip
            && let Some(tip) = tip
        {
            tracing::debug!(head = tip.height, hash = %tip.hash, source_head, "here");
        }
        self.seen = tip;
        self.teller.source_head(source_head, tip.map(|tip| tip.height));
    }

    fn inconsistent(&self) -> FollowError {
        FollowError::trouble(format!(
            "the source {} gives blocks that do not stand on each other; none of them was stored",
            self.fetcher.source.name()
        ))
    }

    /// Ends the node when the source contradicts it again and again.
    fn contradiction(&mut self, text: String) -> Result<Pace, FollowError> {
        self.contradicted += 1;
        if self.contradicted >= LOOKS {
            return Err(FollowError::Fatal(NodeError::Refused(text).into()));
        }
        Err(FollowError::Trouble(text))
    }

    /// Says once what it means when the source knows no finality.
    fn say_finality(&mut self, last_final: &Final) {
        if let Final::Unknown(reason) = last_final
            && !self.said_no_finality
        {
            self.said_no_finality = true;
            tracing::warn!(
                "the source {} does not know a final block ({reason}): nothing is final here, so \
                 that nothing is exported or pruned. Set follow.confirmations if so many blocks \
                 are enough",
                self.fetcher.source.name()
            );
        }
    }
}
