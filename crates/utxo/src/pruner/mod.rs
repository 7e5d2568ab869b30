//! The two-phase pruner: parents of old unmined transactions are preserved first, and only if every
//! one of them is safe do records go.
//!
//! What lives here: one run, from its guards to the job that tells of it. What deliberately does not:
//! what sets a run off, which is [`crate::Watch`]'s, and that one runs at a time, which is
//! [`crate::Service`]'s.

mod delete;
mod guard;
mod job;
mod place;
mod preserve;
mod remove;
mod settings;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use secateur_core::Height;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

pub use guard::{Assembly, AssemblyState, Skip};
pub(crate) use job::Board;
pub use job::{Done, Job, Outcome, Phase, Progress};
pub use settings::{SafeMode, Settings, Trigger};

use crate::UtxoError;
use crate::files::ExternalFiles;
use crate::metrics::{Metrics, Timed};
use crate::store::{Counts, UtxoStore};

/// How long a step that is under way may go on after a run was told to end.
const GRACE: Duration = Duration::from_secs(30);
/// Jobs that are remembered until the store takes them.
const MOST_UNNOTED: usize = 10;

/// Prunes one store.
#[derive(Debug)]
pub struct Pruner<S> {
    store: S,
    files: Option<ExternalFiles>,
    settings: Settings,
    assembly: Option<Arc<dyn Assembly>>,
    metrics: Arc<Metrics>,
    board: Board,
    /// Jobs that ended while the store did not take them, oldest first.
    unnoted: tokio::sync::Mutex<VecDeque<Job>>,
    /// When the place of external files was last seen to be the right one.
    place_seen: Mutex<Option<Instant>>,
}

/// What a run at a height would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The run's height.
    pub height: Height,
    /// Up to which height records would go.
    pub safe_height: Height,
    /// Why it would not begin.
    pub skip: Option<&'static str>,
    /// Whether records would be deleted at all.
    pub deletes: bool,
    /// What is there; `due` are those up to the safe height, some of which may be held.
    pub counts: Counts,
}

/// Why a run ended before its time.
#[derive(Debug)]
pub(crate) enum Ended {
    Failed(UtxoError),
    TimedOut,
    Cancelled,
}

impl From<UtxoError> for Ended {
    fn from(error: UtxoError) -> Self {
        Self::Failed(error)
    }
}

/// Until when a run may go on. Looked at between steps, each of which is atomic.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    deadline: Instant,
    stop: watch::Receiver<bool>,
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), Ended> {
        if *self.stop.borrow() {
            return Err(Ended::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Err(Ended::TimedOut);
        }
        Ok(())
    }

    /// Waits until a step that does not end has had its time.
    async fn overrun(mut self) -> Ended {
        let stopped = async {
            // A sender that is gone stops nothing.
            if self.stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            () = tokio::time::sleep_until(self.deadline) => Ended::TimedOut,
            () = stopped => Ended::Cancelled,
        };
        tokio::time::sleep(GRACE).await;
        ended
    }
}

impl<S: UtxoStore> Pruner<S> {
    /// A pruner of a store.
    pub fn new(
        store: S,
        files: Option<ExternalFiles>,
        settings: Settings,
        assembly: Option<Arc<dyn Assembly>>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, UtxoError> {
        settings.check()?;
        let (board, unnoted, place_seen) =
            (Board::default(), tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { store, files, settings, assembly, metrics, board, unnoted, place_seen })
    }

    /// Its store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The place of external files.
    pub const fn files(&self) -> Option<&ExternalFiles> {
        self.files.as_ref()
    }

    /// How it works.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How far the run is that is under way.
    pub fn progress(&self) -> Option<Progress> {
        self.board.look()
    }

    /// What a run would do.
    pub async fn plan(&self, trigger: Trigger) -> Result<Plan, UtxoError> {
        let safe_height = self.settings.safe_height(&self.store.rules(), trigger);
        self.plan_up_to(trigger.height, safe_height).await
    }

    /// The same where records go up to a height that somebody else decided.
    pub(crate) async fn plan_up_to(
        &self,
        height: Height,
        safe_height: Height,
    ) -> Result<Plan, UtxoError> {
        let guard = guard::check(self.assembly.as_deref(), height).await;
        Ok(Plan {
            height,
            safe_height,
            skip: guard.err().map(Skip::name),
            deletes: self.settings.delete,
            counts: self.store.counts(safe_height).await?,
        })
    }

    /// Runs, unless a guard says no. Answers the job, and what failed if something did. One run at a
    /// time: the caller sees to it.
    pub async fn run(
        &self,
        trigger: Trigger,
        stop: watch::Receiver<bool>,
    ) -> Result<(Job, Option<UtxoError>), Skip> {
        guard::check(self.assembly.as_deref(), trigger.height).await?;
        let started = Instant::now();
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let limits = Limits { deadline: started + self.settings.job_timeout, stop };
        let safe_height = self.settings.safe_height(&self.store.rules(), trigger);
        self.board.begin(trigger.height);
        let ended = tokio::select! {
            ended = self.phases(trigger, safe_height, &limits) => ended,
            ended = limits.clone().overrun() => Err(ended),
            never = self.tell() => match never {},
        };
        let done = self.board.end();
        self.metrics.done(&done);
        let (outcome, error) = match ended {
            Ok(()) => (Outcome::Completed, None),
            Err(Ended::Failed(error)) => (Outcome::Failed(error.to_string()), Some(error)),
            Err(Ended::TimedOut) => (Outcome::TimedOut, None),
            Err(Ended::Cancelled) => (Outcome::Cancelled, None),
        };
        self.metrics.ran(&outcome);
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let job = Job { height: trigger.height, safe_height, started_at, millis, outcome, done };
        self.note(job.clone()).await;
        Ok((job, error))
    }

    /// Notes a job, after those that could not be noted when they ended.
    async fn note(&self, job: Job) {
        let mut unnoted = self.unnoted.lock().await;
        unnoted.push_back(job);
        while let Some(job) = unnoted.front() {
            if let Err(error) = self.store.add_job(job).await {
                tracing::warn!(%error, "a job could not be noted; it is noted with the next one");
                break;
            }
            unnoted.pop_front();
        }
        if unnoted.len() > MOST_UNNOTED {
            unnoted.pop_front();
        }
    }

    async fn phases(
        &self,
        trigger: Trigger,
        safe_height: Height,
        limits: &Limits,
    ) -> Result<(), Ended> {
        let began = Instant::now();
        let preserved = self.preserve_parents(trigger.height, limits).await;
        self.metrics.took(Timed::PreserveParents, began.elapsed());
        if matches!(preserved, Err(Ended::Failed(_))) {
            self.metrics.failed(Timed::PreserveParents);
        }
        preserved?;
        if self.settings.delete {
            let began = Instant::now();
            let deleted = self.delete_due(safe_height, limits).await;
            self.metrics.took(Timed::Delete, began.elapsed());
            deleted.map_err(|ended| self.interrupted(trigger.height, ended))?;
        }
        Ok(())
    }

    /// What failed, with what was done before it did.
    fn interrupted(&self, height: Height, ended: Ended) -> Ended {
        let Ended::Failed(error) = ended else { return ended };
        self.metrics.failed(Timed::Delete);
        let deleted = self.board.look().map_or(0, |progress| progress.done.deleted);
        Ended::Failed(UtxoError::Interrupted { height, deleted, source: Box::new(error) })
    }

    /// Says from time to time how far the run is.
    async fn tell(&self) -> std::convert::Infallible {
        if self.settings.progress_interval.is_zero() {
            std::future::pending::<()>().await;
        }
        loop {
            tokio::time::sleep(self.settings.progress_interval).await;
            let Some(progress) = self.board.look() else { continue };
            tracing::info!(
                height = progress.height,
                phase = progress.phase.name(),
                deleted = progress.done.deleted,
                due = progress.due,
                per_second = progress.rate(),
                seconds_left = progress.eta().map(|left| left.as_secs()),
                "pruning UTXO records"
            );
        }
    }
}
