//! The worker: pull, check, decode, write, acknowledge, and again; what to do when something goes
//! wrong; and when to end.
//!
//! A session pulls and writes side by side until it ends or fails. The worker decides what comes
//! after a failure: trouble that may pass is waited out, a pruned block is an end or a gap, and
//! everything else is an end.

mod backoff;
mod commit;
mod head;
mod live;
mod metrics;
mod observe;
mod pull;
mod trouble;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use secateur_core::{Cursor, Height, Strength};
use tokio::sync::{Semaphore, mpsc, watch};

pub use backoff::Backoff;
pub use commit::begins_above;
pub use head::watch_head;
pub use live::{Health, Live, STALLED_AFTER};
pub use metrics::Metrics;
pub use observe::{Event, Observer, Progress};
pub use trouble::{Failed, Retry};

use crate::codec::Codec;
use crate::sink::{Identity, Note};
use crate::source::{Blocks as _, Source, SourceStatus, status_of};
use crate::{GapRow, IndexError, Sink};
use commit::{State, Writer};
use pull::Puller;

/// What to do when the next block is cut at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnPruned {
    /// End with the error.
    #[default]
    Stop,
    /// Go on above the boundary, and leave a row in `gaps`.
    Rebase,
}

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The chain's id.
    pub chain_id: u64,
    /// Which logs are kept, for `meta`; the codec does the choosing.
    pub logs: String,
    /// The consumer that is registered at the source, if any: nothing is cut before it has it.
    pub consumer: Option<String>,
    /// How strong that hold is.
    pub strength: Strength,
    /// What to do when the next block is cut.
    pub on_pruned: OnPruned,
    /// The last block; none to go on.
    pub until: Option<Height>,
    /// Whether to wait for new blocks at the tip.
    pub follow: bool,
    /// Rows of blocks older than the newest by so many days go.
    pub retention_days: Option<u32>,
    /// Rows of a batch, at least, however slow writing is.
    pub min_batch_rows: usize,
    /// Rows of a batch, at most.
    pub max_batch_rows: usize,
    /// A batch that takes longer to write is followed by a smaller one.
    pub write_limit: Duration,
    /// Payload bytes in flight between source and sink.
    pub budget_bytes: u64,
    /// Groups of blocks that are decoded side by side.
    pub decoders: usize,
    /// Trouble that lasts longer than this is an alarm, and the worker pauses: attempts are `pause`
    /// apart from then on. One that is not to `follow` ends with the error instead.
    pub alarm_after: Duration,
    /// How long it pauses between attempts.
    pub pause: Duration,
    /// Whether this is one of several workers, and its cursor the place in a range that it leased.
    pub is_shared: bool,
    /// Whether the head is looked for beside the work; where several work side by side, once for all.
    pub looks_for_head: bool,
}

impl WorkerOptions {
    /// The usual way, for a chain.
    pub fn new(chain_id: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            chain_id,
            logs: crate::LogFilter::Off.to_string(),
            consumer: None,
            strength: Strength::Soft,
            on_pruned: OnPruned::Stop,
            until: None,
            follow: true,
            retention_days: Some(90),
            min_batch_rows: 64,
            max_batch_rows: 16_384,
            write_limit: Duration::from_secs(1),
            budget_bytes: 16 * 1024 * 1024,
            decoders: threads.clamp(1, 16),
            alarm_after: Duration::from_mins(1),
            pause: Duration::from_mins(1),
            is_shared: false,
            looks_for_head: true,
        }
    }
}

/// Why a worker ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// Everything is written, and it was not to wait for more.
    CaughtUp,
    /// The last block that it was to write is written.
    Until,
}

/// Pulls a chain's history from a source into a sink.
pub struct Worker<S, K> {
    source: Arc<S>,
    sink: Arc<K>,
    codec: Arc<dyn Codec>,
    options: WorkerOptions,
    metrics: Arc<Metrics>,
    observer: Arc<dyn Observer>,
}

impl<S, K> std::fmt::Debug for Worker<S, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<S: Source, K: Sink> Worker<S, K> {
    /// A worker; nothing happens before it runs.
    pub fn new(
        source: Arc<S>,
        sink: Arc<K>,
        codec: Arc<dyn Codec>,
        options: WorkerOptions,
        metrics: Arc<Metrics>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { source, sink, codec, options, metrics, observer }
    }

    /// Works until it is stopped, done, or cannot go on. What was pulled by then is written.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<End, IndexError> {
        if !self.options.looks_for_head {
            return self.work(stop).await;
        }
        tokio::select! {
            ended = self.work(stop) => ended,
            // Beside every session, so that a sink that hangs does not hide where the head is.
            never = watch_head(self.source.as_ref(), self.metrics.live(), self.observer.as_ref()) => {
                match never {}
            }
        }
    }

    async fn work(&self, stop: watch::Receiver<bool>) -> Result<End, IndexError> {
        let mut state = State::new(&self.options);
        let mut admitted = false;
        loop {
            let ended = self.attempt(&mut state, &mut admitted, &stop).await;
            let error = match ended {
                Ok(end) => return self.close(end, &state, &stop).await,
                Err(error) => error,
            };
            self.note(&error).await;
            if self.rebase(&error).await? {
                continue;
            }
            if !error.is_retryable() {
                return Err(error);
            }
            let Some(wait) = self.wait_after(&error, &mut state.trouble) else { return Err(error) };
            tokio::select! {
                () = stopped(stop.clone()) => {}
                () = tokio::time::sleep(wait) => {}
            }
            if *stop.borrow() {
                return Ok(End::Stopped);
            }
        }
    }

    /// How long to wait before the next attempt; none if there is to be none.
    fn wait_after(&self, error: &IndexError, trouble: &mut Retry) -> Option<Duration> {
        let now = Instant::now();
        let failed = trouble.failed(now);
        self.metrics.live.failed(error, failed.paused.then_some(failed.wait), now);
        if failed.alarm {
            self.observer.event(&Event::Alarm { error, since: failed.since });
        }
        if failed.paused && !self.options.follow {
            return None;
        }
        self.observer.event(&Event::Retrying { error, wait: failed.wait });
        Some(failed.wait)
    }

    /// Runs a session. Index and source are told whose this worker is before the first one, and
    /// neither of them before it is known that the source has the chain.
    async fn attempt(
        &self,
        state: &mut State,
        admitted: &mut bool,
        stop: &watch::Receiver<bool>,
    ) -> Result<End, IndexError> {
        let status = status_of(self.source.as_ref(), self.options.chain_id).await?;
        if status.head.is_some() {
            self.metrics.live.answered(status.head, Instant::now());
        }
        if !*admitted {
            let identity = Identity {
                chain_id: self.options.chain_id,
                codec: self.codec.name().to_owned(),
                logs: self.options.logs.clone(),
            };
            self.sink.bind(&identity).await?;
            if let Some(consumer) = self.options.consumer.as_deref() {
                self.source.register(consumer, self.options.strength).await?;
            }
            *admitted = true;
        }
        self.session(status, state, stop).await
    }

    /// What is due before a worker ends that was not interrupted.
    async fn close(
        &self,
        end: End,
        state: &State,
        stop: &watch::Receiver<bool>,
    ) -> Result<End, IndexError> {
        if end != End::Stopped {
            state.retain_all(self.sink.as_ref(), &self.options, stop).await?;
        }
        commit::maintain(self.sink.as_ref(), &self.metrics).await?;
        Ok(end)
    }

    async fn session(
        &self,
        status: SourceStatus,
        state: &mut State,
        stop: &watch::Receiver<bool>,
    ) -> Result<End, IndexError> {
        let from = self.sink.cursor().await?.map(|cursor| cursor.block_number);
        if let (Some(head), Some(from)) = (status.head, from)
            && from > head.saturating_add(1)
        {
            self.compare_at(head).await?;
            tracing::warn!(head, next = from, "the source is behind the index; it is waited for");
        }
        state.resume(self.sink.tip().await?, from);
        if let Some(next) = from.filter(|_| !self.options.is_shared) {
            self.metrics.live.reached(next, Instant::now());
        }
        let (short, is_short) = watch::channel(false);
        let (into, steps) = mpsc::channel(pull::GROUPS);
        let puller = Puller {
            source: self.source.as_ref(),
            codec: Arc::clone(&self.codec),
            metrics: &self.metrics,
            budget: pull::budget(self.options.budget_bytes),
            decoders: Arc::new(Semaphore::new(self.options.decoders.max(1))),
            short,
            into,
            until: self.options.until,
            follow: self.options.follow,
            stop: stop.clone(),
        };
        let writer = Writer {
            source: self.source.as_ref(),
            sink: self.sink.as_ref(),
            options: &self.options,
            metrics: &self.metrics,
            observer: self.observer.as_ref(),
            is_short,
            state,
        };
        let (pulled, written) = tokio::join!(puller.run(from), writer.run(steps));
        // Whoever fails first ends the other; the writer's trouble is the nearer one.
        written?;
        pulled
    }

    /// Refuses a source that is behind the index and ends with another block than the index has
    /// there: waiting for it would be waiting for another chain.
    async fn compare_at(&self, head: Height) -> Result<(), IndexError> {
        let Some(ours) = self.sink.row_at(head).await?.and_then(|row| row.hash) else {
            return Ok(());
        };
        let mut blocks = self.source.blocks(Some(head), true);
        let Some(block) = blocks.next().await?.filter(|block| block.height == head) else {
            return Ok(());
        };
        let theirs = self.codec.meta(&block)?.hash;
        if theirs == ours {
            return Ok(());
        }
        Err(IndexError::Refused(format!(
            "block {head} of the source, its last one, is {theirs}, and the index has {ours}: the \
             index is of another chain. Use another index, or another source"
        )))
    }

    /// Notes an error where it is looked for. The index may be what failed.
    async fn note(&self, error: &IndexError) {
        self.metrics.error(error.class());
        let note =
            Note { head: None, error: Some((error.class(), error.to_string())), at: unix_now() };
        if let Err(second) = self.sink.note(note).await {
            tracing::warn!(%error, %second, "the index does not take note of an error");
        }
    }

    /// Goes on above what was cut, if that is what happened and is wanted.
    async fn rebase(&self, error: &IndexError) -> Result<bool, IndexError> {
        let IndexError::Pruned { pruned_before_block, .. } = *error else { return Ok(false) };
        if self.options.on_pruned != OnPruned::Rebase {
            return Ok(false);
        }
        // Nothing is missing in an index that has nothing: it begins at the oldest block, unless that
        // is above the last wanted one.
        let Some(cursor) = self.sink.cursor().await? else {
            return Ok(self.options.until.is_none_or(|until| until > pruned_before_block));
        };
        let (from, to) = (cursor.block_number, pruned_before_block);
        if from > to {
            return Ok(false);
        }
        let gap = GapRow {
            block_from: from,
            block_to: to,
            reason: "pruned at the source before it was pulled".into(),
            noted_at: unix_now(),
        };
        self.sink.record_gap(gap, Cursor::at_block(to.saturating_add(1))).await?;
        self.observer.event(&Event::Gap { from, to });
        Ok(true)
    }
}

/// Comes back once the worker is asked to stop.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // Whoever could ask has gone: that is an order too.
    drop(stop.wait_for(|stop| *stop).await);
}

/// The clock, in seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
