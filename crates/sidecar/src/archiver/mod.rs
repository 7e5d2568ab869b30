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
mod sent;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::Height;
use secateur_store::{Arena, Clock, Index};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

pub use attempt::AttemptError;
pub use backoff::Backoff;

use crate::blocking::{blocking, told};
use crate::book::Book;
use crate::engine::{ArchiveRecord, BlobKey, Job, Marked, RecordForm, SidecarStore};
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
    /// Jobs that are under way.
    busy: Mutex<HashSet<BlobKey>>,
    /// Where blobs were put that were not read back yet.
    sent: Arc<sent::Sent>,
}

impl<A, I> std::fmt::Debug for Archiver<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What an attempt came to.
type Outcome = (Job, Result<ArchiveRecord, AttemptError>);

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
        let (providers, busy, sent) = (providers.into(), Mutex::default(), Arc::default());
        let store = Arc::clone(&book.store);
        Ok(Self { store, book, providers, options, clock, observer, wakes, busy, sent })
    }

    /// Works until it is stopped, or the store fails. What is under way then is left; the queue
    /// still has it.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut stopped = stop;
        let mut attempts: JoinSet<Outcome> = JoinSet::new();
        // Whatever was decided by now may have been begun by a process that is no more.
        let summary = blocking(&self.store, SidecarStore::summary).await?;
        let begun = summary.latest_decided;
        loop {
            self.begin(begun, &mut attempts).await?;
            let wait = self.until_next_due(&attempts).await?;
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                Some(ended) = attempts.join_next() => {
                    self.settle(ended, &mut attempts).await?;
                }
                () = self.wakes.own.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins what is due, as far as there is room. Heights up to `begun` may have been begun before.
    async fn begin(
        &self,
        begun: Option<Height>,
        attempts: &mut JoinSet<Outcome>,
    ) -> Result<(), SidecarError> {
        let room = self.options.at_once.max(1).saturating_sub(attempts.len());
        if room == 0 {
            return Ok(());
        }
        let (now, busy) = (self.clock.now_millis(), self.busy.lock().clone());
        let (book, us) = (Arc::clone(&self.book), self.options.identity.clone());
        let due = blocking(&self.store, move |store| {
            let due = store.jobs_due(now, room, |key| busy.contains(key))?.into_iter();
            Ok(due.map(|job| (job, book.may_sign(&us, job.key.height))).collect::<Vec<_>>())
        });
        for (job, allowed) in due.await? {
            // What nobody would believe is not even put anywhere.
            if let Err(error) = allowed {
                self.fail(job, &AttemptError::Store(error)).await?;
                continue;
            }
            self.busy.lock().insert(job.key);
            let attempt = attempt::Attempt {
                store: Arc::clone(&self.store),
                providers: Arc::clone(&self.providers),
                sent: Arc::clone(&self.sent),
                chain_id: self.options.chain_id,
                min_copies: self.options.min_copies,
                grace: self.options.grace,
                again: job.attempts > 0 || Some(job.key.height) <= begun,
            };
            let (signer, at) = (self.options.identity.clone(), self.clock.now_seconds());
            attempts.spawn(async move {
                let made = attempt.make(&job).await.map(|copies| ArchiveRecord {
                    signer,
                    form: RecordForm::Own,
                    locators: copies.locators,
                    archived_at_height: copies.at_height,
                    archived_at: at,
                    signature: None,
                });
                (job, made)
            });
        }
        Ok(())
    }

    /// How long until a job that is not under way is due.
    async fn until_next_due(&self, attempts: &JoinSet<Outcome>) -> Result<Duration, SidecarError> {
        if attempts.len() >= self.options.at_once.max(1) {
            // There is room when an attempt ends, and that is heard.
            return Ok(LOOK);
        }
        let busy = self.busy.lock().clone();
        let next = blocking(&self.store, move |store| {
            store.jobs_due(u64::MAX, 1, |key| busy.contains(key))
        });
        let due = next.await?.first().map(|job| job.due);
        let wait = due
            .map_or(LOOK, |due| Duration::from_millis(due.saturating_sub(self.clock.now_millis())));
        Ok(wait.min(LOOK))
    }

    /// Writes down what became of one attempt, and of all others that have ended by now: their
    /// records share a commit.
    async fn settle(
        &self,
        ended: Result<Outcome, tokio::task::JoinError>,
        attempts: &mut JoinSet<Outcome>,
    ) -> Result<(), SidecarError> {
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        let mut next = Some(ended);
        while let Some(ended) = next {
            let (job, outcome) = ended.map_err(|error| SidecarError::task("archiving", &error))?;
            self.busy.lock().remove(&job.key);
            match outcome {
                Ok(record) => made.push((job, record)),
                Err(error) => failed.push((job, error)),
            }
            next = attempts.try_join_next();
        }
        for (job, error) in failed {
            self.fail(job, &error).await?;
        }
        if made.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = made.iter().map(|(job, record)| (job.key, record.clone())).collect();
        let book = Arc::clone(&self.book);
        let marked = blocking(&self.store, move |_| book.record_own(&rows)).await?;
        for ((job, record), marked) in made.into_iter().zip(marked) {
            match marked {
                Ok(new @ (Marked::New | Marked::Added)) => {
                    if new == Marked::New {
                        self.observer.first_record(job.key);
                    }
                    self.observer.archived(job.key, &record);
                }
                // The engine has ended the job with it.
                Ok(Marked::Known | Marked::Enough) => {}
                // The record that is there is the one that is signed, whatever this attempt made.
                Err(error @ SidecarError::RecordConflict { .. }) => {
                    tracing::warn!(%error, ?job, "another record of ours is there already");
                    self.done(job).await?;
                }
                Err(error) if error.is_gone() => self.fail(job, &AttemptError::Gone(error)).await?,
                // The ground's own trouble came as an error of all of them.
                Err(error) => self.fail(job, &AttemptError::NotRecorded(error)).await?,
            }
        }
        self.wakes.announcer.notify_one();
        self.wakes.pruner.notify_one();
        Ok(())
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
            tracing::warn!(%error, ?job, "a job without bytes is dropped");
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

/// What an attempt made.
#[derive(Debug)]
pub(super) struct Made {
    /// Where they are, in the order of the providers.
    locators: Vec<secateur_core::Locator>,
    /// The chain's height meanwhile.
    at_height: Height,
}
