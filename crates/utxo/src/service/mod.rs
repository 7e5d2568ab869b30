//! A pruner at work: events come in, the latest height is pruned, one run at a time.

mod heights;
mod standing;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::Height;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::UtxoError;
use crate::events::{Event, Heard, Latest, StalePersister, Watch};
use crate::metrics::{Metrics, Unheard};
use crate::pruner::{Job, Outcome, Plan, Pruner, Skip, Trigger};
use crate::store::{Counts, Kept, UtxoStore};
use crate::types::{Record, TxId};

use heights::height_note;
pub use standing::{Following, Standing, Status};
use standing::{State, lag};

/// Under this name the store keeps the height that is processed.
const PROCESSED: &str = "processed_height";
/// Under this name the store keeps what a persister last reported.
const PERSISTED: &str = "persisted_height";
/// How long a failed run waits before it is tried again, at first and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// How long the store is left alone between two looks whether it answers, and how long it has to.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// A pruner that follows a chain. Clones share it.
#[derive(Debug, Clone)]
pub struct Service<S>(Arc<Inner<S>>);

#[derive(Debug)]
struct Inner<S> {
    pruner: Pruner<S>,
    following: Following,
    metrics: Arc<Metrics>,
    watch: Mutex<Watch>,
    state: Mutex<State>,
    waiting: Latest<Trigger>,
    turn: tokio::sync::Mutex<()>,
    /// What the store says of a persister.
    noted: tokio::sync::Mutex<Option<Height>>,
    standing: watch::Sender<Standing>,
}

impl<S: UtxoStore> Service<S> {
    /// Begins where the store says that it ended.
    pub async fn open(
        pruner: Pruner<S>,
        following: Following,
        metrics: Arc<Metrics>,
    ) -> Result<Self, UtxoError> {
        let processed = height_note(pruner.store(), PROCESSED).await?;
        let persisted = height_note(pruner.store(), PERSISTED).await?;
        let jobs = pruner.store().jobs().await?;
        let ran = jobs.first().map(|job| job.height);
        let completed = jobs.iter().filter(|job| job.outcome == Outcome::Completed);
        let swept = completed.map(|job| job.safe_height).max();
        let watch = following.watch(persisted, processed);
        let service = Self(Arc::new(Inner {
            pruner,
            following,
            metrics,
            watch: Mutex::new(watch),
            state: Mutex::new(State { processed, swept, ran, ..State::default() }),
            waiting: Latest::new(),
            turn: tokio::sync::Mutex::default(),
            noted: tokio::sync::Mutex::new(persisted),
            standing: watch::Sender::default(),
        }));
        service.show();
        Ok(service)
    }

    /// Its pruner.
    pub fn pruner(&self) -> &Pruner<S> {
        &self.0.pruner
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Where it stands, now and from now on.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Takes an event in; whoever runs the service does the rest. An event whose work is done, or which is to set
    /// nothing off, is noted. What keeps records back is in the store before anything is decided from it: a restart
    /// must not forget it.
    pub async fn hear(&self, event: Event) -> Result<Heard, UtxoError> {
        let (Event::Block { height, .. } | Event::Persisted { height }) = event;
        if let Some(known) = self.too_far(height).await {
            self.0.metrics.unheard(Unheard::TooFar);
            self.0.state.lock().doubted = Some(height);
            self.show();
            return Ok(Heard::TooFar { known });
        }
        // Two who report at the same time are noted and heard in one order.
        let mut noted = self.0.noted.lock().await;
        if let Event::Persisted { height } = event
            && !self.0.following.persister_absent
            // A height that is noted too low only keeps more.
            && noted.is_none_or(|noted| height < noted)
        {
            self.0.pruner.store().set_note(PERSISTED, &height.to_string()).await?;
            *noted = Some(height);
        }
        Ok(self.take_in(event))
    }

    fn take_in(&self, event: Event) -> Heard {
        self.0.state.lock().doubted = None;
        let (heard, stale) = {
            let mut watch = self.0.watch.lock();
            let was_stale = watch.stale().is_some();
            (watch.hear(event), watch.stale().filter(|_| !was_stale))
        };
        if let Some(StalePersister { head, persisted }) = stale {
            tracing::error!(
                head,
                persisted,
                "the block persister has fallen behind, and records go only up to what it has written: \
                 check it, or set its absence in the configuration if it is gone for good"
            );
        }
        self.0.state.lock().heard = true;
        let sets_off = match heard {
            // Asked before it is offered: then its run may be over at any moment.
            Heard::Trigger(trigger) if self.0.following.enabled => {
                let is_ahead = self.is_ahead(trigger);
                if self.0.waiting.offer(trigger).is_some() {
                    self.0.metrics.replaced();
                }
                is_ahead
            }
            _ => false,
        };
        self.show();
        if sets_off { heard } else { Heard::Noted }
    }

    /// Prunes what events ask for, until it is told to stop, and looks meanwhile whether the store answers.
    /// A run that failed is tried again, soon if the reason may pass by itself, unless a later height comes
    /// first.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = self.follow(stop) => {}
            never = self.look_after_store() => match never {},
        }
    }

    /// Keeps in mind whether the store answers, for those who ask whether the service is ready.
    async fn look_after_store(&self) -> Infallible {
        loop {
            let down = match timeout(LOOK.1, height_note(self.0.pruner.store(), PROCESSED)).await {
                Ok(Ok(stored)) => {
                    self.0.state.lock().stored = stored;
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("nothing came within {} s", LOOK.1.as_secs())),
            };
            let was_down =
                std::mem::replace(&mut self.0.state.lock().store_down, down.clone()).is_some();
            match &down {
                Some(reason) if !was_down => {
                    tracing::warn!(reason, "the UTXO store does not answer");
                }
                None if was_down => tracing::info!("the UTXO store answers again"),
                _ => {}
            }
            if down.is_none() {
                self.look_after_place(self.0.pruner.look_at_place()).await;
            }
            self.show();
            tokio::time::sleep(LOOK.0).await;
        }
    }

    /// Keeps in mind whether new external files may go to their place.
    async fn look_after_place(&self, look: impl Future<Output = Result<(), UtxoError>>) {
        let wrong = match timeout(LOOK.1, look).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("nothing came within {} s", LOOK.1.as_secs())),
        };
        let mut state = self.0.state.lock();
        match (&wrong, &state.place_wrong) {
            (Some(reason), None) => {
                tracing::warn!(reason, "external files cannot be written");
            }
            // The next run finds what this one left.
            (None, Some(_)) => state.misplaced = 0,
            _ => {}
        }
        state.place_wrong = wrong;
        state.place_seen = true;
    }

    async fn follow(&self, mut stop: watch::Receiver<bool>) {
        let mut pause = PATIENCE.0;
        let mut again: Option<Trigger> = None;
        loop {
            let trigger = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                trigger = self.0.waiting.take() => trigger,
                trigger = after(pause, again) => trigger,
            };
            again = None;
            if !self.is_ahead(trigger) {
                self.skip(Skip::NotAhead);
                continue;
            }
            let soon = match self.prune(trigger, stop.clone()).await {
                // Files may be removed by then.
                Ok((job, None)) => (job.done.left_by_files() > 0).then_some(false),
                Ok((_, Some(error))) => Some(error.is_retryable()),
                Err(skip) => skip.is_retryable().then_some(true),
            };
            again = soon.map(|_| trigger);
            pause = match soon {
                None => PATIENCE.0,
                Some(true) => (pause * 2).min(PATIENCE.1),
                Some(false) => PATIENCE.1,
            };
        }
    }

    /// Whether a run would come to a height that is not processed, or delete further than before (a persister
    /// that was behind a prune at the head catches up below it), or find what the last one had to leave.
    fn is_ahead(&self, trigger: Trigger) -> bool {
        let pruner = &self.0.pruner;
        let safe = pruner.settings().safe_height(&pruner.store().rules(), trigger);
        let state = self.0.state.lock();
        state.processed < Some(trigger.height) || state.swept < Some(safe) || state.unfinished
    }

    fn skip(&self, why: Skip) {
        self.0.metrics.skipped(why);
        self.0.state.lock().last_skip = Some(why);
    }

    /// One run, now, whatever was processed before; it waits for the one that is under way.
    pub async fn prune(
        &self,
        trigger: Trigger,
        stop: watch::Receiver<bool>,
    ) -> Result<(Job, Option<UtxoError>), Skip> {
        let _turn = self.0.turn.lock().await;
        let ran = match self.vetted(trigger).await {
            Ok(trigger) => self.0.pruner.run(trigger, stop).await,
            Err(skip) => Err(skip),
        };
        match &ran {
            Err(why) => {
                let (height, reason) = (trigger.height, why.name());
                tracing::warn!(
                    height,
                    reason,
                    "a prune did not begin; one that an event set off is tried again by itself"
                );
                self.skip(*why);
            }
            Ok((job, _)) => self.note(job).await,
        }
        self.show();
        ran
    }

    /// A trigger with what another service on the same store knows of a persister, if it can be right.
    async fn vetted(&self, trigger: Trigger) -> Result<Trigger, Skip> {
        if self.too_far(trigger.height).await.is_some() {
            return Err(Skip::TooFar);
        }
        if trigger.persisted.is_some() || self.0.following.persister_absent {
            return Ok(trigger);
        }
        match height_note(self.0.pruner.store(), PERSISTED).await {
            Ok(None) => Ok(trigger),
            Ok(Some(height)) => {
                *self.0.noted.lock().await = Some(height);
                self.take_in(Event::Persisted { height });
                Ok(Trigger { persisted: Some(height), ..trigger })
            }
            Err(error) => {
                tracing::warn!(%error, "nothing is pruned while what a persister reported is not known");
                Err(Skip::StoreUnreachable)
            }
        }
    }

    /// Keeps what a run leaves: the height counts as processed only if both phases are done.
    async fn note(&self, job: &Job) {
        let store = self.0.pruner.store();
        let error = match &job.outcome {
            Outcome::Completed => None,
            Outcome::Failed(reason) => Some(reason.clone()),
            Outcome::TimedOut => Some(format!("the run at height {} took too long", job.height)),
            Outcome::Cancelled => Some(format!("the run at height {} was stopped", job.height)),
        };
        if let Some(error) = &error {
            tracing::warn!(height = job.height, error, "a prune did not end");
        } else {
            tracing::info!(
                height = job.height,
                safe_height = job.safe_height,
                deleted = job.done.deleted,
                kept = ?job.done.kept,
                preserved = job.done.preserved,
                millis = job.millis,
                "pruned UTXO records"
            );
        }
        let completed = error.is_none();
        let head = self.0.watch.lock().head();
        // A prune by hand may be at a lower height than one before.
        let processed = {
            let mut state = self.0.state.lock();
            state.last_error = error;
            state.misplaced = job.done.stays(Kept::FilesMissing);
            state.stuck = job.done.stays(Kept::FileStays);
            state.unfinished = job.done.left_by_files() > 0;
            if completed {
                state.last_skip = None;
                // What cannot have been processed is forgotten.
                let before =
                    state.done().filter(|before| !self.0.following.is_beyond(head, *before));
                state.processed = before.max(Some(job.height));
                let before = state.swept.filter(|swept| !self.0.following.is_beyond(head, *swept));
                state.swept = before.max(Some(job.safe_height));
                state.stored = state.processed;
            }
            state.processed.filter(|_| completed)
        };
        self.show();
        let noted = async {
            if let Some(processed) = processed {
                store.set_note(PROCESSED, &processed.to_string()).await?;
            }
            let mut noted = self.0.noted.lock().await;
            let persisted = self.0.watch.lock().persisted();
            if let Some(height) = persisted.filter(|_| persisted != *noted) {
                store.set_note(PERSISTED, &height.to_string()).await?;
                *noted = persisted;
            }
            drop(noted);
            self.count().await.map(drop)
        };
        if let Err(error) = noted.await {
            tracing::warn!(%error, "what a run left could not be noted");
        }
    }

    /// Counts what is there, as seen from the head.
    async fn count(&self) -> Result<Counts, UtxoError> {
        let head = self.0.watch.lock().head();
        let (processed, ran) = {
            let state = self.0.state.lock();
            (state.done(), state.ran)
        };
        // Who hears of no chain knows at least how far a run was to go.
        let seen = head.or(ran).max(processed);
        let counts = self.0.pruner.store().counts(seen.unwrap_or(0)).await?;
        self.0.metrics.counts(&counts);
        Ok(counts)
    }

    /// What a run at a height, or at the head, would know.
    pub fn trigger_at(&self, height: Option<Height>) -> Option<Trigger> {
        let watch = self.0.watch.lock();
        height.or_else(|| watch.head()).map(|height| watch.at(height))
    }

    /// What a run would do.
    pub async fn plan(&self, trigger: Trigger) -> Result<Plan, UtxoError> {
        self.0.pruner.plan(trigger).await
    }

    /// How it stands.
    pub async fn status(&self) -> Result<Status, UtxoError> {
        let (head, persisted, stale_persister) = {
            let watch = self.0.watch.lock();
            (watch.head(), watch.persisted(), watch.stale())
        };
        let pruner = &self.0.pruner;
        let counts = self.count().await?;
        // Where nobody runs it, as in a command, nobody has looked; and whoever only asks changes nothing.
        let is_seen = self.0.state.lock().place_seen;
        if !is_seen {
            self.look_after_place(pruner.peek_at_place()).await;
            self.show();
        }
        let state = self.0.state.lock();
        Ok(Status {
            store: pruner.store().address(),
            files: pruner.files().map(|files| files.address().to_owned()),
            enabled: self.0.following.enabled,
            mode: self.0.following.mode,
            head,
            persisted,
            processed: state.done(),
            lag_blocks: lag(head, state.done()),
            stale_persister,
            last_skip: state.last_skip.map(Skip::name),
            last_error: state.last_error.clone(),
            running: pruner.progress(),
            counts,
        })
    }

    /// Whether its store answers, its chain was heard, and it keeps up; if not, why.
    pub fn ready(&self) -> Result<(), String> {
        self.0.standing.borrow().not_ready.clone().map_or(Ok(()), Err)
    }

    /// Everything about one transaction.
    pub async fn explain(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        self.0.pruner.store().get(txid).await
    }

    /// At which height a record was pruned, if the store remembers it.
    pub async fn pruned_at(&self, txid: TxId) -> Result<Option<Height>, UtxoError> {
        self.0.pruner.store().pruned_at(txid).await
    }

    /// An error of a step, which calls a transaction pruned and not unknown if the store remembers that it is.
    pub async fn plainly(&self, error: UtxoError) -> UtxoError {
        let UtxoError::Unknown { txid } = error else { return error };
        match self.pruned_at(txid).await {
            Ok(Some(_)) => UtxoError::Pruned { txid },
            // What is known is told all the same.
            Ok(None) | Err(_) => error,
        }
    }

    fn show(&self) {
        // Looked at inside, so that of two who tell at the same time the later one tells the latest.
        self.0.standing.send_if_modified(|known| {
            let (head, persisted, stale) = {
                let watch = self.0.watch.lock();
                (watch.head(), watch.persisted(), watch.stale().is_some())
            };
            let (heard, processed, not_ready) = {
                let state = self.0.state.lock();
                (state.heard, state.done(), state.not_ready(&self.0.following, head))
            };
            self.0.metrics.chain(lag(head, processed), processed, stale);
            let now = Standing { head, heard, persisted, processed, not_ready };
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}

async fn after(pause: Duration, trigger: Option<Trigger>) -> Trigger {
    match trigger {
        None => std::future::pending().await,
        Some(trigger) => {
            tokio::time::sleep(pause).await;
            trigger
        }
    }
}
