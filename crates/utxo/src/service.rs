//! A pruner at work: events come in, the latest height is pruned, one run at a time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::Height;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::UtxoError;
use crate::events::{Event, Heard, Latest, StalePersister, TriggerMode, Watch};
use crate::metrics::Metrics;
use crate::pruner::{Job, Outcome, Plan, Progress, Pruner, Skip, Trigger};
use crate::store::{Counts, UtxoStore};
use crate::types::{Record, TxId};

/// Under this name the store keeps the height that is processed.
const PROCESSED: &str = "processed_height";
/// Under this name the store keeps what a persister last reported.
const PERSISTED: &str = "persisted_height";
/// How long a failed run waits before it is tried again, at first and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// How long the store is left alone between two looks whether it answers, and how long it has to.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// How events are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Following {
    /// Whether events set prunes off at all.
    pub enabled: bool,
    /// Which events do.
    pub mode: TriggerMode,
    /// Whether there is no block persister.
    pub persister_absent: bool,
    /// Blocks behind the head after which a persister that reported once is an alarm.
    pub persister_stale_blocks: Height,
    /// Blocks behind the head after which the service is not ready.
    pub max_lag_blocks: Height,
    /// Whether a chain is subscribed to: until something is heard of it, the service is not ready.
    pub awaits_chain: bool,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: TriggerMode::Auto,
            persister_absent: false,
            persister_stale_blocks: 100,
            max_lag_blocks: 144,
            awaits_chain: false,
        }
    }
}

/// How a service stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// What the database is.
    pub store: String,
    /// The place of external files.
    pub files: Option<String>,
    /// Whether events set prunes off.
    pub enabled: bool,
    /// Which events do.
    pub mode: TriggerMode,
    /// The top of the chain, as far as it is known.
    pub head: Option<Height>,
    /// What a persister last reported.
    pub persisted: Option<Height>,
    /// The last height that is processed.
    pub processed: Option<Height>,
    /// Blocks between the two.
    pub lag_blocks: Option<Height>,
    /// A persister that has fallen behind.
    pub stale_persister: Option<StalePersister>,
    /// Why the last run did not begin.
    pub last_skip: Option<&'static str>,
    /// What failed last; nothing once a run completed.
    pub last_error: Option<String>,
    /// The run that is under way.
    pub running: Option<Progress>,
    /// What the store holds; due is what is past its delete-at-height at the head, also where a
    /// persister keeps it back.
    pub counts: Counts,
}

/// Where a service stands towards its chain; whoever waits for a change holds on to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The top of the chain, as far as it is known.
    pub head: Option<Height>,
    /// What a persister last reported.
    pub persisted: Option<Height>,
    /// The last height that is processed.
    pub processed: Option<Height>,
    /// Why it is not ready: its store does not answer, its chain was not heard, or it does not keep up.
    pub not_ready: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    processed: Option<Height>,
    last_skip: Option<Skip>,
    last_error: Option<String>,
    /// Whether anything was heard of the chain since the start.
    heard: bool,
    /// Why the store did not answer when it was last looked at.
    store_down: Option<String>,
}

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
        let watch = Watch::new(
            following.mode,
            following.persister_absent,
            following.persister_stale_blocks,
            persisted,
        );
        let service = Self(Arc::new(Inner {
            pruner,
            following,
            metrics,
            watch: Mutex::new(watch),
            state: Mutex::new(State { processed, ..State::default() }),
            waiting: Latest::new(),
            turn: tokio::sync::Mutex::default(),
            standing: watch::Sender::default(),
        }));
        service.show();
        Ok(service)
    }

    /// Its pruner.
    pub fn pruner(&self) -> &Pruner<S> {
        &self.0.pruner
    }

    /// Whether events set prunes off.
    pub fn is_enabled(&self) -> bool {
        self.0.following.enabled
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Where it stands, now and from now on.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Takes an event in; whoever runs the service does the rest.
    pub fn hear(&self, event: Event) -> Heard {
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
        if let Heard::Trigger(trigger) = heard
            && self.0.following.enabled
            && self.0.waiting.offer(trigger).is_some()
        {
            self.0.metrics.replaced();
        }
        self.show();
        heard
    }

    /// Prunes what events ask for, until it is told to stop, and looks meanwhile whether the store answers.
    /// A run that failed for a reason that may pass is tried again, unless a later height comes first.
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
            let down = match timeout(LOOK.1, self.0.pruner.store().note(PROCESSED)).await {
                Ok(Ok(_)) => None,
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
            self.show();
            tokio::time::sleep(LOOK.0).await;
        }
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
            if self.0.state.lock().processed >= Some(trigger.height) {
                self.skip(Skip::NotAhead);
                continue;
            }
            let retryable = match self.prune(trigger, stop.clone()).await {
                Ok((_, error)) => error.is_some_and(|error| error.is_retryable()),
                Err(skip) => skip != Skip::NotAhead,
            };
            if retryable {
                again = Some(trigger);
                pause = (pause * 2).min(PATIENCE.1);
            } else {
                pause = PATIENCE.0;
            }
        }
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
        let ran = self.0.pruner.run(trigger, stop).await;
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
            Ok((job, _)) => self.note(trigger, job).await,
        }
        self.show();
        ran
    }

    /// Keeps what a run leaves: the height counts as processed only if both phases are done.
    async fn note(&self, trigger: Trigger, job: &Job) {
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
        // A prune by hand may be at a lower height than one before.
        let processed = {
            let mut state = self.0.state.lock();
            state.last_error = error;
            if completed {
                state.last_skip = None;
                state.processed = state.processed.max(Some(job.height));
            }
            state.processed.filter(|_| completed)
        };
        self.show();
        let noted = async {
            if let Some(processed) = processed {
                store.set_note(PROCESSED, &processed.to_string()).await?;
            }
            if let Some(persisted) = trigger.persisted {
                store.set_note(PERSISTED, &persisted.to_string()).await?;
            }
            self.count().await.map(drop)
        };
        if let Err(error) = noted.await {
            tracing::warn!(%error, "what a run left could not be noted");
        }
    }

    /// Counts what is there, as seen from the head.
    async fn count(&self) -> Result<Counts, UtxoError> {
        let head = self.0.watch.lock().head();
        let processed = self.0.state.lock().processed;
        let counts = self.0.pruner.store().counts(head.max(processed).unwrap_or(0)).await?;
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
        let state = self.0.state.lock();
        Ok(Status {
            store: pruner.store().address(),
            files: pruner.files().map(|files| files.address().to_owned()),
            enabled: self.0.following.enabled,
            mode: self.0.following.mode,
            head,
            persisted,
            processed: state.processed,
            lag_blocks: lag(head, state.processed),
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

    fn show(&self) {
        // Looked at inside, so that of two who tell at the same time the later one tells the latest.
        self.0.standing.send_if_modified(|known| {
            let (head, persisted, stale) = {
                let watch = self.0.watch.lock();
                (watch.head(), watch.persisted(), watch.stale().is_some())
            };
            let (processed, not_ready) = {
                let state = self.0.state.lock();
                (state.processed, not_ready(&self.0.following, &state, head))
            };
            self.0.metrics.chain(lag(head, processed), processed, stale);
            let now = Standing { head, persisted, processed, not_ready };
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}

/// What keeps a service from being ready.
fn not_ready(following: &Following, state: &State, head: Option<Height>) -> Option<String> {
    if let Some(reason) = &state.store_down {
        return Some(format!("the store does not answer: {reason}"));
    }
    if !following.enabled {
        return None;
    }
    if following.awaits_chain && !state.heard {
        return Some("nothing was heard of the chain since the start".into());
    }
    let most = following.max_lag_blocks;
    let behind = lag(head, state.processed).filter(|behind| *behind > most)?;
    Some(format!("{behind} blocks behind the head; at most {most} are allowed"))
}

fn lag(head: Option<Height>, processed: Option<Height>) -> Option<Height> {
    // A chain's first block has height 0, so that nothing processed is one more.
    head.map(|head| processed.map_or(head.saturating_add(1), |done| head.saturating_sub(done)))
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

async fn height_note(store: &impl UtxoStore, name: &str) -> Result<Option<Height>, UtxoError> {
    let Some(text) = store.note(name).await? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| UtxoError::damaged(name, "it is no height"))
}
