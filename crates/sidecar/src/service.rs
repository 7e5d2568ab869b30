//! Everything put together: one store of blobs, the archiver, the announcer, the pruner and the book
//! that gossip asks, as tasks that live and end together.

use std::sync::Arc;

use secateur_core::Height;
use secateur_store::{Arena, Clock, Index};
use tokio::sync::{Notify, watch};

use crate::announcer::Announcer;
use crate::archiver::{Archiver, ArchiverOptions};
use crate::blocking::blocking;
use crate::book::{Book, BookObserver};
use crate::copies::Copies;
use crate::engine::{ArchiveRecord, BlobKey, Decided, Role, SidecarStore, Stored};
use crate::gossip::Gossip;
use crate::metrics::SidecarMetrics;
use crate::notice::{NoticeKey, Rejection, Signers, Verifier};
use crate::provider::Provider;
use crate::pruner::Pruner;
use crate::standin::turn;
use crate::{Proposal, Round, SidecarError, ValidatorId};

/// Heights without a notice that are looked at when the chain grows.
const STAND_INS: usize = 64;

/// Who this node is, if it proposes.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name among the validators.
    pub id: ValidatorId,
    /// What it signs with.
    pub key: Arc<NoticeKey>,
}

/// How a node treats its blobs.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Who it is; a node without a name archives nothing and only follows notices.
    pub identity: Option<Identity>,
    /// How it archives.
    pub min_copies: usize,
    /// Blobs that are archived at once.
    pub at_once: usize,
    /// Blocks after which a notice that not everybody has is told again.
    pub rebroadcast_blocks: u64,
    /// What the jitter of its waits is drawn from.
    pub seed: u64,
}

/// A node's blobs.
pub struct Sidecars<A, I> {
    store: Arc<SidecarStore<A, I>>,
    book: Arc<Book<A, I>>,
    archiver: Option<Archiver<A, I>>,
    pruner: Pruner<A, I>,
    metrics: Arc<SidecarMetrics>,
    bells: Bells,
    options: ServiceOptions,
    verifier: Arc<Verifier>,
    clock: Arc<dyn Clock>,
}

impl<A, I> std::fmt::Debug for Sidecars<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sidecars").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What wakes the tasks.
#[derive(Debug, Clone, Default)]
struct Bells {
    archive: Arc<Notify>,
    announce: Arc<Notify>,
    prune: Arc<Notify>,
}

/// Hears of notices: counts them, and wakes the pruner.
struct Ears {
    metrics: Arc<SidecarMetrics>,
    prune: Arc<Notify>,
}

impl BookObserver for Ears {
    fn recorded(&self, key: BlobKey, record: &ArchiveRecord) {
        self.metrics.recorded(key, record);
        self.prune.notify_one();
    }

    fn rejected(&self, rejection: &Rejection) {
        self.metrics.rejected(rejection);
    }
}

impl<A: Arena, I: Index> Sidecars<A, I> {
    /// Puts a node's parts together; nothing happens before it runs.
    pub fn new(
        store: Arc<SidecarStore<A, I>>,
        providers: Vec<Arc<dyn Provider>>,
        verifier: Verifier,
        clock: Arc<dyn Clock>,
        metrics: Arc<SidecarMetrics>,
        options: ServiceOptions,
    ) -> Result<Self, SidecarError> {
        let bells = Bells::default();
        let ears =
            Arc::new(Ears { metrics: Arc::clone(&metrics), prune: Arc::clone(&bells.prune) });
        let verifier = Arc::new(verifier);
        let key = options.identity.as_ref().map(|identity| Arc::clone(&identity.key));
        let book = Book::new(Arc::clone(&store), Arc::clone(&verifier), key, ears);
        let pruner = Pruner::new(
            Arc::clone(&store),
            Copies::new(&providers),
            Arc::clone(&metrics) as _,
            Arc::clone(&bells.prune),
        );
        let archiver = match &options.identity {
            Some(identity) => {
                let mut how = ArchiverOptions::new(store.config().chain_id, identity.id.clone());
                (how.min_copies, how.at_once) = (options.min_copies, options.at_once);
                how.backoff = crate::archiver::Backoff::new(options.seed);
                Some(Archiver::new(
                    Arc::clone(&store),
                    providers,
                    how,
                    Arc::clone(&clock),
                    Arc::clone(&metrics) as _,
                    crate::archiver::Wakes {
                        own: Arc::clone(&bells.archive),
                        announcer: Arc::clone(&bells.announce),
                        pruner: Arc::clone(&bells.prune),
                    },
                )?)
            }
            None => None,
        };
        let book = Arc::new(book);
        Ok(Self { store, book, archiver, pruner, metrics, bells, options, verifier, clock })
    }

    /// The store.
    pub fn store(&self) -> &Arc<SidecarStore<A, I>> {
        &self.store
    }

    /// What gossip asks.
    pub fn book(&self) -> &Arc<Book<A, I>> {
        &self.book
    }

    /// Its name among the validators, if it has one.
    pub fn identity(&self) -> Option<&ValidatorId> {
        self.options.identity.as_ref().map(|identity| &identity.id)
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<SidecarMetrics> {
        &self.metrics
    }

    /// Stores a proposal whose commitments hold.
    pub async fn store_proposal(&self, proposal: Proposal) -> Result<Stored, SidecarError> {
        blocking(&self.store, move |store| store.verify_and_store(&proposal)).await
    }

    /// A round was decided. If this node proposed it, its blobs are archived from now on.
    pub async fn decided(&self, height: Height, round: Round) -> Result<Decided, SidecarError> {
        let us = self.options.identity.as_ref().map(|identity| identity.id.clone());
        let decided = blocking(&self.store, move |store| {
            let proposer = store.proposer(height, round)?;
            let ours = us.is_some() && proposer == us;
            store.mark_decided(height, round, if ours { Role::Proposer } else { Role::Follower })
        })
        .await?;
        self.came(height).await?;
        Ok(decided)
    }

    /// Stores heights that come with their decision: from a peer, or from a beacon node. Each has
    /// an answer of its own, in their order.
    pub async fn store_decided(
        &self,
        proposals: Vec<Proposal>,
    ) -> Result<Vec<Result<Decided, SidecarError>>, SidecarError> {
        let us = self.options.identity.as_ref().map(|identity| identity.id.clone());
        let highest = proposals.iter().map(|proposal| proposal.height).max();
        let decided = blocking(&self.store, move |store| {
            let role = |proposal: &Proposal| match &us {
                Some(us) if *us == proposal.proposer => Role::Proposer,
                _ => Role::Follower,
            };
            store.store_decided_all(&proposals, role)
        })
        .await?;
        if let Some(height) = highest {
            self.came(height).await?;
        }
        Ok(decided)
    }

    /// The chain has grown to a height: there may be something to archive, to tell again, or to
    /// stand in for.
    async fn came(&self, head: Height) -> Result<(), SidecarError> {
        self.stand_in(head).await?;
        self.bells.archive.notify_one();
        self.bells.announce.notify_one();
        Ok(())
    }

    /// Queues the oldest heights that nobody has signed for and whose turn is ours.
    async fn stand_in(&self, head: Height) -> Result<(), SidecarError> {
        let Some(identity) = &self.options.identity else { return Ok(()) };
        if self.verifier.signers == Signers::ProposerOnly {
            return Ok(());
        }
        let (us, verifier) = (identity.id.clone(), self.verifier.clone());
        let now = self.clock.now_millis();
        blocking(&self.store, move |store| {
            for height in store.heights_without_notice(0, STAND_INS)? {
                let Some(record) = store.height(height)? else { continue };
                let Verifier { signers, validators, .. } = &*verifier;
                let ours = turn(*signers, validators, &us, &record.proposer, height);
                if ours.is_some_and(|from| head >= from) {
                    store.enqueue_absent(height, now)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Everything up to a height is final.
    pub async fn finalized(&self, height: Height) -> Result<(), SidecarError> {
        blocking(&self.store, move |store| store.set_finalized(height)).await?;
        self.bells.prune.notify_one();
        Ok(())
    }

    /// Tries a height again at once, whatever its jobs wait for. Gives back how many there are.
    pub async fn retry(&self, height: Height) -> Result<usize, SidecarError> {
        let now = self.clock.now_millis();
        let enqueued = blocking(&self.store, move |store| store.enqueue(height, now)).await?;
        self.bells.archive.notify_one();
        Ok(enqueued)
    }

    /// Tells a height's own notices again, whoever has acknowledged them. Gives back how many.
    pub async fn rebroadcast(&self, height: Height) -> Result<usize, SidecarError> {
        let told = blocking(&self.store, move |store| store.reannounce(height)).await?;
        self.bells.announce.notify_one();
        Ok(told)
    }

    /// Works until it is stopped, or the store fails.
    pub async fn run(
        &self,
        gossip: Arc<dyn Gossip>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), SidecarError> {
        let announcer = Announcer::new(
            Arc::clone(&self.store),
            Arc::clone(&self.book),
            gossip,
            self.options.rebroadcast_blocks,
            Arc::clone(&self.bells.announce),
        );
        let archiving = async {
            match &self.archiver {
                Some(archiver) => archiver.run(stop.clone()).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(archiving, announcer.run(stop.clone()), self.pruner.run(stop.clone()))?;
        Ok(())
    }
}
