//! The archiver: works off the durable queue of blobs that this node has to archive.
//!
//! A job is a blob. Each has its own due time, so a slow or failing one never stands in another's
//! way; so many are under way at once; none is ever given up. A blob is archived once enough copies
//! were put **and read back**, and the signed record of it is durable; only then is anybody told
//! (see `announcer`). What this node may not sign for (`own`) waits in the queue and says why. After a crash the queue says what is left: every step can be done twice.
//!
//! What deliberately does not live here: which blobs are in the queue (the engine's, when a height
//! is decided), notices, and pruning.

mod attempt;
mod backoff;
mod hand;
mod made;
mod sent;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use secateur_core::Height;
use secateur_store::{Arena, Clock, Index};
use tokio::sync::{Notify, watch};

pub use attempt::AttemptError;
pub use backoff::Backoff;

use hand::{InHand, Outcome};

use crate::blocking::{blocking, told};
use crate::book::Book;
use crate::engine::{ArchiveRecord, BlobKey, Job, Marked, SidecarStore};
use crate::provider::Provider;
use crate::{SidecarError, ValidatorId};

/// The queue is looked at this often even if nobody says that something came.
const LOOK: Duration = Duration::from_secs(5);

/// How long the other providers have once there are enough copies.
const GRACE: Duration = Duration::from_secs(2);

/// How archiving works.
#[derive(Debug, Clone)]
pub struct ArchiverOptions {
    /// The chain.
    pub chain_id: u64,
    /// Who this node is: it signs for what it archives.
    pub identity: ValidatorId,
    /// Copies that must have been read back, at different providers.
    pub min_copies: usize,
    /// How long the other providers have once there are so many.
    pub grace: Duration,
    /// Blobs under way at once.
    pub at_once: usize,
    /// When a job that failed is tried again.
    pub backoff: Backoff,
}

impl ArchiverOptions {
    /// The usual way.
    pub fn new(chain_id: u64, identity: ValidatorId) -> Self {
        let backoff = Backoff::new(0);
        Self { chain_id, identity, min_copies: 1, grace: GRACE, at_once: 8, backoff }
    }
}

/// Who hears what became of blobs.
pub trait ArchiverObserver: Send + Sync + 'static {
    /// Nobody had signed for a blob before.
    fn first_record(&self, _key: BlobKey) {}
    /// A blob is archived, durably.
    fn archived(&self, key: BlobKey, record: &ArchiveRecord);
    /// An attempt failed; the next one is due then (milliseconds since 1970).
    fn failed(&self, key: BlobKey, error: &AttemptError, attempts: u32, next_due: u64);
}

/// What wakes whom.
#[derive(Debug, Clone, Default)]
pub struct Wakes {
    /// Rung by others when something may have come into the queue.
    pub own: Arc<Notify>,
    /// Rung here when there is something to announce,
    pub announcer: Arc<Notify>,
    /// and when something may be prunable.
    pub pruner: Arc<Notify>,
}

/// Archives blobs.
pub struct Archiver<A, I> {
    store: Arc<SidecarStore<A, I>>,
    /// Says for what this node may sign, and signs.
    book: Arc<Book<A, I>>,
    providers: Arc<[Arc<dyn Provider>]>,
    options: ArchiverOptions,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn ArchiverObserver>,
    wakes: Wakes,
    /// Where blobs were put that were not read back yet.
    sent: Arc<sent::Sent>,
}

impl<A, I> std::fmt::Debug for Archiver<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<A: Arena, I: Index> Archiver<A, I> {
    /// An archiver; nothing happens before it runs. Fewer providers than copies are refused.
    pub fn new(
        book: Arc<Book<A, I>>,
        providers: Vec<Arc<dyn Provider>>,
        options: ArchiverOptions,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn ArchiverObserver>,
        wakes: Wakes,
    ) -> Result<Self, SidecarError> {
        let refuse = |reason: String| SidecarError::Refused { what: "archiver", reason };
        if options.min_copies == 0 || options.min_copies > providers.len() {
            return Err(refuse(format!(
                "{} copies are wanted and there are {} providers",
                options.min_copies,
                providers.len()
            )));
        }
        let names: HashSet<&str> = providers.iter().map(|provider| provider.id()).collect();
        if names.len() < providers.len() {
            return Err(refuse("two providers have the same name".to_owned()));
        }
        let (providers, sent) = (providers.into(), Arc::default());
        let store = Arc::clone(&book.store);
        Ok(Self { store, book, providers, options, clock, observer, wakes, sent })
    }

    /// Works until it is stopped, or the store fails. What is under way then is left; the queue
    /// still has it.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut stopped = stop;
        let mut hand = InHand::default();
        let mut settling = None;
        // Whatever was decided by now may have been begun by a process that is no more.
        let summary = blocking(&self.store, SidecarStore::summary).await?;
        let begun = summary.latest_decided;
        loop {
            let mut wait = self.begin(begun, &mut hand).await?;
            match hand.ripe_in(self.options.at_once) {
                Some(Duration::ZERO) if settling.is_none() => {
                    settling = Some(Box::pin(self.settle(hand.take_ended())));
                }
                Some(soon) if settling.is_none() => wait = wait.min(soon),
                _ => {}
            }
            tokio::select! {
                biased;
                () = told(&mut stopped) => {
                    // What is being written down is archived: those who listen hear of it.
                    OptionFuture::from(settling).await.transpose()?;
                    return Ok(());
                }
                Some(settled) = OptionFuture::from(settling.as_mut()) => {
                    settling = None;
                    hand.let_go(&settled?);
                }
                Some(ended) = hand.attempts.join_next() => hand.end(ended)?,
                () = self.wakes.own.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins what is due, as far as there is room, and says how long nothing else will be. Heights
    /// up to `begun` may have been begun before.
    async fn begin(
        &self,
        begun: Option<Height>,
        hand: &mut InHand,
    ) -> Result<Duration, SidecarError> {
        let at_once = self.options.at_once.max(1);
        let room = hand.room(at_once);
        let mut wait = LOOK;
        if hand.ready.len() < room {
            // Some more than there is room for: the queue is not asked for each of them.
            let (most, busy) = (room + at_once, hand.keys.clone());
            let next = blocking(&self.store, move |store| {
                store.jobs_due(u64::MAX, most, |key| busy.contains(key))
            });
            let now = self.clock.now_millis();
            for job in next.await? {
                if job.due > now {
                    wait = wait.min(Duration::from_millis(job.due - now));
                    break;
                }
                hand.keys.insert(job.key);
                hand.ready.push_back(job);
            }
        }
        for job in hand.take(room) {
            let attempt = attempt::Attempt {
                book: Arc::clone(&self.book),
                signer: self.options.identity.clone(),
                providers: Arc::clone(&self.providers),
                sent: Arc::clone(&self.sent),
                chain_id: self.options.chain_id,
                min_copies: self.options.min_copies,
                grace: self.options.grace,
                again: job.attempts > 0 || Some(job.key.height) <= begun,
            };
            hand.attempts.spawn(async move { (job, attempt.make(&job).await) });
        }
        Ok(wait)
    }

    /// Compares what attempts have read back and writes down what became of them: their records share
    /// a commit. Meanwhile others go on.
    async fn settle(&self, ended: Vec<Outcome>) -> Result<Vec<BlobKey>, SidecarError> {
        let keys = ended.iter().map(|(job, _)| job.key).collect();
        let mut made = Vec::new();
        for (job, outcome) in ended {
            match outcome {
                Ok(copies) => made.push((job, copies)),
                Err(error) => self.fail(job, &error).await?,
            }
        }
        if made.is_empty() {
            return Ok(keys);
        }
        let (book, sent) = (Arc::clone(&self.book), Arc::clone(&self.sent));
        let terms = made::Terms {
            signer: self.options.identity.clone(),
            min_copies: self.options.min_copies,
            now: self.clock.now_seconds(),
        };
        let (judged, marked) = blocking(&self.store, move |_| {
            let judged = made::judge(made, &terms, &sent);
            let right =
                |(job, record): &made::Judged| Some((job.key, record.as_ref().ok()?.clone()));
            let marked = book.record_own(&judged.iter().filter_map(right).collect::<Vec<_>>())?;
            Ok((judged, marked))
        })
        .await?;
        let mut marked = marked.into_iter();
        for (job, record) in judged {
            match record {
                Ok(record) => {
                    let marked = marked.next().unwrap_or(Ok(Marked::Known));
                    self.recorded(job, &record, marked).await?;
                }
                Err(error) => self.fail(job, &error).await?,
            }
        }
        self.wakes.announcer.notify_one();
        self.wakes.pruner.notify_one();
        Ok(keys)
    }

    /// What became of a record.
    async fn recorded(
        &self,
        job: Job,
        record: &ArchiveRecord,
        marked: Result<Marked, SidecarError>,
    ) -> Result<(), SidecarError> {
        match marked {
            Ok(new @ (Marked::New | Marked::Added)) => {
                if new == Marked::New {
                    self.observer.first_record(job.key);
                }
                self.observer.archived(job.key, record);
                Ok(())
            }
            // The engine has ended the job with it.
            Ok(Marked::Known | Marked::Enough) => Ok(()),
            // The record that is there is the one that is signed, whatever this attempt made.
            Err(error @ SidecarError::RecordConflict { .. }) => {
                tracing::warn!(%error, blob = %job.key, "another record of ours is there already");
                self.done(job).await
            }
            Err(error) if error.is_gone() => self.fail(job, &AttemptError::Gone(error)).await,
            // The ground's own trouble came as an error of all of them.
            Err(error) => self.fail(job, &AttemptError::NotRecorded(error)).await,
        }
    }

    async fn done(&self, job: Job) -> Result<(), SidecarError> {
        blocking(&self.store, move |store| store.job_done(job.key).map(drop)).await
    }

    /// Puts a job off.
    async fn fail(&self, job: Job, error: &AttemptError) -> Result<(), SidecarError> {
        let attempts = job.attempts.saturating_add(1);
        let wait = self.options.backoff.wait(job.key, attempts);
        let next_due = self.clock.now_millis().saturating_add(wait);
        if let AttemptError::Gone(_) = error {
            // There is nothing to archive any more, and nothing that could come back.
            tracing::warn!(%error, blob = %job.key, "a job without bytes is dropped");
            return self.done(job).await;
        }
        let held = match error {
            AttemptError::Store(SidecarError::MayNotSign { why, .. })
            | AttemptError::NotRecorded(SidecarError::MayNotSign { why, .. }) => Some(*why),
            _ => None,
        };
        blocking(&self.store, move |store| match held {
            Some(why) => store.job_held(job.key, next_due, attempts, why),
            None => store.job_failed(job.key, next_due, attempts),
        })
        .await?;
        self.observer.failed(job.key, error, attempts, next_due);
        Ok(())
    }
}
