//! Everything put together: one store of blobs, the archiver, the announcer, the pruner and the book
//! that gossip asks, as tasks that live and end together.

use std::sync::Arc;

use parking_lot::Mutex;
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
    /// Where the next look for heights to stand in for begins.
    round: Mutex<Height>,
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
    fn first_record(&self, key: BlobKey) {
        BookObserver::first_record(&*self.metrics, key);
    }

    fn recorded(&self, key: BlobKey, record: &ArchiveRecord) {
        self.metrics.recorded(key, record);
        self.prune.notify_one();
    }

    fn rejected(&self, rejection: &Rejection) {
        self.metrics.rejected(rejection);
    }

    fn equivocated(&self, key: BlobKey, signer: &ValidatorId) {
        self.metrics.equivocated(key, signer);
    }

    fn early(&self, why: &Rejection) {
        self.metrics.early(why);
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
        let book = Arc::new(book);
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
                    Arc::clone(&book),
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
        let round = Mutex::default();
        Ok(Self { store, book, archiver, pruner, metrics, bells, options, verifier, clock, round })
    }

    /// The store.
    pub fn store(&self) -> &Arc<SidecarStore<A, I>> {
        &self.store
    }

    /// What gossip asks.
    pub fn book(&self) -> &Arc<Book<A, I>> {
        &self.book
    }

    /// Who believes notices, and whose.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
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
        self.came(vec![height]).await?;
        Ok(decided)
    }

    /// Stores heights that come with their decision: from a peer, or from a beacon node. Each has
    /// an answer of its own, in their order.
    pub async fn store_decided(
        &self,
        proposals: Vec<Proposal>,
    ) -> Result<Vec<Result<Decided, SidecarError>>, SidecarError> {
        let us = self.options.identity.as_ref().map(|identity| identity.id.clone());
        let heights: Vec<Height> = proposals.iter().map(|proposal| proposal.height).collect();
        let decided = blocking(&self.store, move |store| {
            let role = |proposal: &Proposal| match &us {
                Some(us) if *us == proposal.proposer => Role::Proposer,
                _ => Role::Follower,
            };
            store.store_decided_all(&proposals, role)
        })
        .await?;
        // One that was refused, whatever height it named, says nothing of the chain.
        let known = heights.into_iter().zip(&decided).filter(|(_, decided)| decided.is_ok());
        self.came(known.map(|(height, _)| height).collect()).await?;
        Ok(decided)
    }

    /// The chain has grown: there may be notices that waited for it, and something to archive, to
    /// tell again, or to stand in for.
    async fn came(&self, heights: Vec<Height>) -> Result<(), SidecarError> {
        if heights.is_empty() {
            return Ok(());
        }
        let book = Arc::clone(&self.book);
        blocking(&self.store, move |_| book.decided(&heights)).await?;
        self.stand_in().await?;
        self.bells.archive.notify_one();
        self.bells.announce.notify_one();
        Ok(())
    }

    /// Queues heights that nobody has signed for and whose turn is ours. So many are looked at each
    /// time; the next look goes on behind them and begins anew at the end, so that heights for which
    /// nothing can be done here do not hide the others.
    async fn stand_in(&self) -> Result<(), SidecarError> {
        let Some(identity) = &self.options.identity else { return Ok(()) };
        if self.verifier.signers == Signers::ProposerOnly {
            return Ok(());
        }
        let (us, book) = (identity.id.clone(), Arc::clone(&self.book));
        let (now, from) = (self.clock.now_millis(), *self.round.lock());
        let next = blocking(&self.store, move |store| {
            let mut found = store.heights_without_notice(from, STAND_INS)?;
            if found.is_empty() && from > 0 {
                found = store.heights_without_notice(0, STAND_INS)?;
            }
            for height in &found {
                match stand_in(store, &book, &us, *height, now) {
                    Err(SidecarError::Store(error)) if error.is_corruption() => {
                        tracing::warn!(%error, height, "a height cannot be stood in for");
                    }
                    done => done?,
                }
            }
            let full = found.last().filter(|_| found.len() >= STAND_INS);
            Ok(full.and_then(|last| last.checked_add(1)).unwrap_or(0))
        })
        .await?;
        *self.round.lock() = next;
        Ok(())
    }

    /// Everything up to a height is final.
    pub async fn finalized(&self, height: Height) -> Result<(), SidecarError> {
        blocking(&self.store, move |store| {
            store.set_finalized(height)?;
            store.drop_left_rounds()
        })
        .await?;
        self.bells.prune.notify_one();
        Ok(())
    }

    /// Tries a height again at once, whatever its jobs wait for. Gives back how many there are. What
    /// this node may not sign for is refused, and everything where it has no identity.
    pub async fn retry(&self, height: Height) -> Result<usize, SidecarError> {
        let now = self.clock.now_millis();
        let (us, book) = (self.identity().cloned(), Arc::clone(&self.book));
        let again = move |_: &_| book.queue_again(us.as_ref(), height, now);
        let enqueued = blocking(&self.store, again).await?;
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
        blocking(&self.store, SidecarStore::drop_left_rounds).await?;
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

/// Queues a height if it is our turn to sign for it.
fn stand_in<A: Arena, I: Index>(
    store: &SidecarStore<A, I>,
    book: &Book<A, I>,
    us: &ValidatorId,
    height: Height,
    now: u64,
) -> Result<(), SidecarError> {
    let Some(record) = store.height(height)? else { return Ok(()) };
    let Verifier { signers, validators, .. } = &*book.verifier;
    let ours = turn(*signers, validators, us, &record.proposer, height);
    if ours.is_some_and(|from| book.head().is_ok_and(|head| head >= from)) {
        match book.may_sign(us, height) {
            Err(SidecarError::MayNotSign { .. }) => {}
            allowed => {
                allowed?;
                store.enqueue_absent(height, now)?;
            }
        }
    }
    Ok(())
}
