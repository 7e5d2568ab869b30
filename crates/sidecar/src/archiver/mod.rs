//! The archiver: works off the durable queue of blobs that this node has to archive.
//!
//! A job is a blob. Each has its own due time, so a slow or failing one never stands in another's
//! way; so many are under way at once; none is ever given up. A blob is archived once enough copies
//! were put **and read back**, and the record of it is durable; only then does anybody sign for it
//! (see `announcer`). After a crash the queue says what is left: every step can be done twice.
//!
//! What deliberately does not live here: which blobs are in the queue (the engine's, when a height
//! is decided), notices, and pruning.

mod attempt;
mod backoff;

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
use crate::engine::{ArchiveRecord, BlobKey, Job, Marked, RecordForm, SidecarStore};
use crate::provider::Provider;
use crate::{SidecarError, ValidatorId};

/// The queue is looked at this often even if nobody says that something came.
const LOOK: Duration = Duration::from_secs(5);

/// How archiving works.
#[derive(Debug, Clone)]
pub struct ArchiverOptions {
    /// The chain.
    pub chain_id: u64,
    /// Who this node is: it signs for what it archives.
    pub identity: ValidatorId,
    /// Copies that must have been read back, at different providers.
    pub min_copies: usize,
    /// Blobs under way at once.
    pub at_once: usize,
    /// When a job that failed is tried again.
    pub backoff: Backoff,
}

impl ArchiverOptions {
    /// The usual way.
    pub fn new(chain_id: u64, identity: ValidatorId) -> Self {
        Self { chain_id, identity, min_copies: 1, at_once: 8, backoff: Backoff::new(0) }
    }
}

/// Who hears what became of blobs.
pub trait ArchiverObserver: Send + Sync + 'static {
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
    providers: Arc<[Arc<dyn Provider>]>,
    options: ArchiverOptions,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn ArchiverObserver>,
    wakes: Wakes,
    /// Jobs that are under way.
    busy: Mutex<HashSet<BlobKey>>,
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
        store: Arc<SidecarStore<A, I>>,
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
        let (providers, busy) = (providers.into(), Mutex::default());
        Ok(Self { store, providers, options, clock, observer, wakes, busy })
    }

    /// Works until it is stopped, or the store fails. What is under way then is left; the queue
    /// still has it.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut stopped = stop;
        let mut attempts: JoinSet<Outcome> = JoinSet::new();
        loop {
            self.begin(&mut attempts).await?;
            let wait = self.until_next_due().await?;
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

    /// Begins what is due, as far as there is room.
    async fn begin(&self, attempts: &mut JoinSet<Outcome>) -> Result<(), SidecarError> {
        let room = self.options.at_once.max(1).saturating_sub(attempts.len());
        if room == 0 {
            return Ok(());
        }
        let (now, busy) = (self.clock.now_millis(), self.busy.lock().clone());
        let due =
            blocking(&self.store, move |store| store.jobs_due(now, room, |key| busy.contains(key)));
        for job in due.await? {
            self.busy.lock().insert(job.key);
            let attempt = attempt::Attempt {
                store: Arc::clone(&self.store),
                providers: Arc::clone(&self.providers),
                chain_id: self.options.chain_id,
                min_copies: self.options.min_copies,
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
    async fn until_next_due(&self) -> Result<Duration, SidecarError> {
        let due = blocking(&self.store, SidecarStore::next_due).await?;
        let wait = due
            .map_or(LOOK, |due| Duration::from_millis(due.saturating_sub(self.clock.now_millis())));
        // One that is due and under way, or has no room, is seen when an attempt ends.
        let full = !self.busy.lock().is_empty() && wait.is_zero();
        Ok(if full { LOOK } else { wait.min(LOOK) })
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
        let marked = blocking(&self.store, move |store| store.record_archived_all(&rows)).await?;
        for ((job, record), marked) in made.into_iter().zip(marked) {
            match marked {
                Ok(Marked::New | Marked::Added) => self.observer.archived(job.key, &record),
                // The engine has ended the job with it.
                Ok(Marked::Known | Marked::Enough) => {}
                // The record that is there is the one that is signed, whatever this attempt made.
                Err(error @ SidecarError::RecordConflict { .. }) => {
                    tracing::warn!(%error, ?job, "another record of ours is there already");
                    self.done(job).await?;
                }
                Err(error) => return Err(error),
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
        self.observer.failed(job.key, error, attempts, next_due);
        blocking(&self.store, move |store| store.job_failed(job.key, next_due, attempts)).await
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
