//! A pruner at work: events come in, the latest height is pruned, one run at a time.

mod feed;
mod follow;
mod heights;
mod persister;
mod room;
mod standing;
mod trouble;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::Height;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::UtxoError;
use crate::events::{Event, Latest, Watch};
use crate::files::ExternalFiles;
use crate::metrics::Metrics;
use crate::pruner::{Job, Outcome, Plan, Pruner, Skip, Trigger};
use crate::store::{Counts, UtxoStore};
use crate::types::{Record, TxId};

use follow::alarm;
use heights::height_note;
use persister::doubt_note;
pub(crate) use standing::Silence;
pub use standing::{Following, Standing, Status, Subscribed};
use standing::{State, lag};

/// Under this name the store keeps the height that is processed.
const PROCESSED: &str = "processed_height";
/// Under this name the store keeps how far the chain was seen.
const SEEN_HEIGHT: &str = "seen_height";
/// Under this name the store keeps what a persister last reported.
const PERSISTED: &str = "persisted_height";
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
    /// Whether the store says that there is a persister of which nobody knows how far it is.
    doubt: tokio::sync::Mutex<Option<bool>>,
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
        let seen = height_note(pruner.store(), SEEN_HEIGHT).await?;
        let mut state = State { processed, ran, seen, ..State::default() };
        // One that is said to be processed no more was at a wrong height.
        let told = |job: &&Job| job.outcome != Outcome::Completed || Some(job.height) <= processed;
        jobs.iter().rev().filter(told).for_each(|job| state.learn(job));
        let doubt = doubt_note(pruner.store()).await?;
        let mut watch = following.watch(persisted, processed);
        // Who does not hear the chain asks the store before each run: others may know more by then.
        let listens = following.subscribed == Subscribed::Here;
        watch.doubt_persister(listens && doubt.unwrap_or(true));
        if let Some(stale) = watch.stale() {
            alarm(stale);
        }
        let service = Self(Arc::new(Inner {
            pruner,
            following,
            metrics,
            watch: Mutex::new(watch),
            state: Mutex::new(state),
            waiting: Latest::new(),
            turn: tokio::sync::Mutex::default(),
            noted: tokio::sync::Mutex::new(persisted),
            doubt: tokio::sync::Mutex::new(doubt),
            standing: watch::Sender::default(),
        }));
        service.show();
        Ok(service)
    }

    /// Its pruner.
    pub fn pruner(&self) -> &Pruner<S> {
        &self.0.pruner
    }

    /// How it follows events.
    pub fn following(&self) -> &Following {
        &self.0.following
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Where it stands, now and from now on.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Keeps in mind whether the store answers, for those who ask whether the service is ready.
    async fn look_after_store(&self) -> Infallible {
        // A look at a directory that has not ended: its thread waits also without us, and another one would too.
        let mut look = None;
        let stays = self.0.pruner.files().is_some_and(ExternalFiles::is_directory);
        loop {
            let down = match timeout(LOOK.1, height_note(self.0.pruner.store(), PROCESSED)).await {
                Ok(Ok(stored)) => {
                    self.0.state.lock().stored = stored;
                    None
                }
                Ok(Err(error)) => Some(error.bare()),
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
                self.look_for_room().await;
                self.keep_in_mind().await;
                let under_way = look.get_or_insert_with(|| Box::pin(self.0.pruner.look_at_place()));
                let seen = timeout(LOOK.1, under_way).await;
                if seen.is_ok() || !stays {
                    look = None;
                }
                self.note_place(seen);
            }
            self.show();
            tokio::time::sleep(LOOK.0).await;
        }
    }

    /// A subscribed chain says where it is, or does not.
    pub(crate) fn chain_stands(&self, silent: Option<Silence>) {
        {
            let mut state = self.0.state.lock();
            state.chain.once |= silent.is_none();
            state.chain.silence = silent;
        }
        self.show();
    }

    /// Keeps in mind whether new external files may go to their place.
    fn note_place(&self, seen: Result<Result<(), UtxoError>, Elapsed>) {
        let wrong = match seen {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.bare()),
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
            Ok(trigger) => {
                // Before the run: a crash in it must not make its records look as if they were not due.
                if let Err(error) = self.note_pruned_at(trigger.height).await {
                    tracing::warn!(%error, "how far the chain is could not be noted");
                }
                self.0.pruner.run(trigger, stop).await
            }
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

    /// A trigger as it is by the time its run begins, if it can be right: not above the chain's top, which may have
    /// gone back or been told wrong, and with what another service on the same store knows of a persister.
    async fn vetted(&self, trigger: Trigger) -> Result<Trigger, Skip> {
        if self.too_far(trigger.height).await.is_some() {
            return Err(Skip::TooFar);
        }
        let top = self.0.watch.lock().told().unwrap_or(trigger.height);
        let trigger = Trigger { height: trigger.height.min(top), ..trigger };
        if self.0.following.persister_absent {
            return Ok(trigger);
        }
        if let Some(told) = trigger.persisted {
            // It may have been told to begin anew since.
            let now = self.0.watch.lock().persisted().unwrap_or(told);
            return Ok(Trigger { persisted: Some(told.min(now)), ..trigger });
        }
        let Ok((trigger, awaited)) = self.informed(trigger).await.inspect_err(|error| {
            tracing::warn!(%error, "nothing is pruned while what a persister reported is not known");
        }) else {
            return Err(Skip::StoreUnreachable);
        };
        if let Some(height) = trigger.persisted {
            *self.0.noted.lock().await = Some(height);
            self.listen(Event::Persisted { height });
        }
        awaited.map_or(Ok(trigger), Err)
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
                kept = job.done.kept_words(),
                preserved = job.done.preserved,
                millis = job.millis,
                "pruned UTXO records"
            );
        }
        let completed = error.is_none();
        let watch = self.0.watch.lock().clone();
        // A prune by hand may be at a lower height than one before; what cannot have been processed is forgotten.
        let can_be = |before: &Height| !self.0.following.is_above(&watch, *before);
        let processed = self.0.state.lock().done().filter(can_be).max(Some(job.height));
        let kept = match processed.filter(|_| completed) {
            // Before it is shown: a height that was seen to be processed outlives a kill.
            Some(processed) => store.set_note(PROCESSED, &processed.to_string()).await,
            None => Ok(()),
        };
        {
            let mut state = self.0.state.lock();
            state.last_error = error;
            if completed {
                state.last_skip = None;
                state.processed = processed;
                state.swept = state.swept.filter(can_be);
                state.stored = state.processed;
            }
            state.learn(job);
        }
        self.show();
        let noted = async {
            kept?;
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
        let (head, told) = {
            let watch = self.0.watch.lock();
            (watch.head(), watch.told())
        };
        let (processed, ran, seen) = {
            let state = self.0.state.lock();
            (state.done(), state.ran, state.seen)
        };
        // Who has heard of no chain since the start knows at least how far it was seen before, and a run was to go.
        let seen = told.or(head.max(ran).max(seen)).max(processed);
        let counts = self.0.pruner.store().counts(seen.unwrap_or(0)).await?;
        self.0.metrics.counts(&counts);
        self.saw_records(counts.records > 0);
        Ok(counts)
    }

    /// What a run at a height, or at the head, would know.
    pub fn trigger_at(&self, height: Option<Height>) -> Option<Trigger> {
        let watch = self.0.watch.lock();
        height.or_else(|| watch.head()).map(|height| watch.at(height))
    }

    /// What a run would do.
    pub async fn plan(&self, trigger: Trigger) -> Result<Plan, UtxoError> {
        let (trigger, awaited) = self.informed(trigger).await?;
        let safe = self.up_to(trigger, awaited);
        let plan = self.0.pruner.plan_up_to(trigger.height, safe).await?;
        Ok(Plan { skip: plan.skip.or(awaited.map(Skip::name)), ..plan })
    }

    /// How it stands.
    pub async fn status(&self) -> Result<Status, UtxoError> {
        let (head, persisted, stale_persister) = {
            let watch = self.0.watch.lock();
            (watch.head(), watch.persisted(), watch.stale())
        };
        let pruner = &self.0.pruner;
        self.look_for_room().await;
        let counts = self.count().await?;
        // Where nobody runs it, as in a command, nobody has looked; and whoever only asks changes nothing.
        let is_seen = self.0.state.lock().place_seen;
        if !is_seen {
            self.note_place(timeout(LOOK.1, pruner.peek_at_place()).await);
            self.show();
        }
        let watch = self.0.watch.lock().clone();
        let state = self.0.state.lock();
        let unfed = state.unfed(&self.0.following, &watch);
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
            room: state.room.clone(),
            counts,
            warnings: unfed.iter().map(ToString::to_string).collect(),
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
            Ok(None) => error,
            // Which of the two it is has to be asked again.
            Err(failed) => failed,
        }
    }

    fn show(&self) {
        // Looked at inside, so that of two who tell at the same time the later one tells the latest.
        self.0.standing.send_if_modified(|known| {
            let watch = self.0.watch.lock().clone();
            let (heard, processed, not_ready, is_unfed) = {
                let state = self.0.state.lock();
                let is_unfed = state.unfed(&self.0.following, &watch).is_some();
                (state.heard, state.done(), state.not_ready(&self.0.following, &watch), is_unfed)
            };
            self.0.metrics.unfed(is_unfed);
            let (head, persisted) = (watch.head(), watch.persisted());
            self.0.metrics.chain(lag(head, processed), processed, watch.stale().is_some());
            let now = Standing { head, heard, persisted, processed, not_ready };
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}
