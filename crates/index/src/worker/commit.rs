//! Writing: rows are gathered into batches, and a batch is one transaction of the sink. How many
//! rows a batch has follows how long writing takes.

use std::time::{Duration, Instant};

use secateur_core::{BlockHash, Cursor, Height, SECONDS_PER_DAY};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::metrics::{Cut, Metrics, signed};
use super::observe::{Event, Observer, Progress, Rate};
use super::pull::{Decoded, Ready, Step};
use super::trouble::Retry;
use super::{WorkerOptions, unix_now};
use crate::source::Source;
use crate::{Batch, BlockRow, GapRow, IndexError, Rows, Sink};

/// A batch that is not full waits no longer than this for more. At the tip it does not wait at all.
const PATIENCE: Duration = Duration::from_millis(500);
/// Acknowledgements are no more frequent than this, except at the tip.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// How often a sink is maintained.
const MAINTAIN_EVERY: Duration = Duration::from_secs(30);
/// Blocks that one step of retention removes.
const RETAIN_BLOCKS: u32 = 512;

/// How many rows a batch has: fewer when writing takes too long, and more again when it does not.
#[derive(Debug)]
pub(super) struct BatchSize {
    rows: usize,
    least: usize,
    most: usize,
    limit: Duration,
}

impl BatchSize {
    pub(super) fn new(options: &WorkerOptions) -> Self {
        let most = options.max_batch_rows.max(1);
        let least = options.min_batch_rows.clamp(1, most);
        Self { rows: most, least, most, limit: options.write_limit }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Learns from a batch.
    pub(super) fn learn(&mut self, took: Duration, rows: usize) {
        if took > self.limit {
            self.rows = (self.rows / 2).max(self.least);
        } else if rows >= self.rows && took < self.limit / 2 {
            self.rows = (self.rows + self.rows / 4 + 1).min(self.most);
        }
    }
}

/// The writing half of a session.
pub(super) struct Writer<'a, S, K> {
    pub(super) source: &'a S,
    pub(super) sink: &'a K,
    pub(super) options: &'a WorkerOptions,
    pub(super) metrics: &'a Metrics,
    pub(super) observer: &'a dyn Observer,
    /// Whether pulling waits for room.
    pub(super) is_short: watch::Receiver<bool>,
    pub(super) state: &'a mut State,
}

/// What outlives a session.
#[derive(Debug)]
pub(super) struct State {
    pub(super) progress: Progress,
    pub(super) size: BatchSize,
    pub(super) rate: Rate,
    /// The hash that the next block stands on, if it is known.
    tip: Option<BlockHash>,
    /// Whether that hash was read from the sink: then another one means another chain.
    resumed: bool,
    /// The time of the newest block.
    newest: Option<u64>,
    pub(super) acked: Option<Height>,
    pub(super) acked_at: Option<Instant>,
    maintained_at: Instant,
    retain_more: bool,
    pub(super) trouble: Retry,
    /// Whether the index has nothing yet: where it begins is to be noted.
    is_empty: bool,
}

impl State {
    pub(super) fn new(options: &WorkerOptions) -> Self {
        Self {
            progress: Progress::default(),
            size: BatchSize::new(options),
            rate: Rate::default(),
            tip: None,
            resumed: false,
            newest: None,
            acked: None,
            acked_at: None,
            maintained_at: Instant::now(),
            retain_more: false,
            trouble: Retry::new(options.alarm_after, options.pause),
            is_empty: false,
        }
    }

    /// A session begins behind this block.
    pub(super) fn resume(&mut self, tip: Option<BlockRow>, next: Option<Height>) {
        self.tip = tip.as_ref().and_then(|tip| tip.hash);
        self.newest = tip.and_then(|tip| tip.ts).or(self.newest);
        self.resumed = true;
        self.progress.next = next.unwrap_or(0);
        self.is_empty = next.is_none();
    }

    /// Rows of blocks below this time go. By the chain's own clock, so that a source that stands
    /// still keeps its rows.
    fn cutoff(&self, options: &WorkerOptions) -> Option<u64> {
        let kept = u64::from(options.retention_days?).saturating_mul(SECONDS_PER_DAY);
        Some(self.newest?.saturating_sub(kept))
    }

    /// Removes whatever is due, step by step, unless it is asked to stop.
    pub(super) async fn retain_all(
        &self,
        sink: &impl Sink,
        options: &WorkerOptions,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), IndexError> {
        let Some(cutoff) = self.cutoff(options) else { return Ok(()) };
        loop {
            let stopped = *stop.borrow();
            if stopped || !sink.retain(cutoff, RETAIN_BLOCKS).await?.more {
                return Ok(());
            }
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    rows: Rows,
    /// Of each block.
    raw_bytes: Vec<u64>,
    /// About what the rows take.
    weight: u64,
    permits: Vec<OwnedSemaphorePermit>,
    since: Option<Instant>,
}

impl<S: Source, K: Sink> Writer<'_, S, K> {
    /// Writes everything that comes, until nothing more does.
    pub(super) async fn run(mut self, mut from: mpsc::Receiver<Step>) -> Result<(), IndexError> {
        let mut pending = Pending::default();
        loop {
            let step = match pending.since {
                None => from.recv().await,
                Some(since) => tokio::select! {
                    biased;
                    step = from.recv() => step,
                    () = lack(self.is_short.clone()) => {
                        self.commit(&mut pending, Cut::Room).await?;
                        continue;
                    }
                    () = tokio::time::sleep_until((since + PATIENCE).into()) => {
                        self.commit(&mut pending, Cut::Waited).await?;
                        continue;
                    }
                },
            };
            match step {
                Some(Step::Group(decoding)) => {
                    let decoded = decoding
                        .await
                        .map_err(|error| IndexError::decode(0, format!("a thread: {error}")))?;
                    match decoded {
                        Ok(ready) => self.take(ready, &mut pending).await?,
                        Err(error) => {
                            // What came before it is good.
                            self.commit(&mut pending, Cut::End).await?;
                            return Err(error);
                        }
                    }
                }
                Some(Step::CaughtUp) => {
                    self.commit(&mut pending, Cut::Tip).await?;
                    self.pass();
                    self.metrics.live.caught_up(Instant::now());
                    self.ack(true).await?;
                    self.keep_house().await?;
                    let next = self.state.progress.next;
                    self.observer.event(&Event::CaughtUp { next });
                }
                None => {
                    self.commit(&mut pending, Cut::End).await?;
                    return self.ack(true).await;
                }
            }
        }
    }

    /// Puts blocks to the batch, and writes it whenever it is full.
    async fn take(
        &mut self,
        Ready { blocks, room }: Ready,
        pending: &mut Pending,
    ) -> Result<(), IndexError> {
        pending.permits.push(room);
        // What waits to be written must not keep what would fill the batch from coming.
        let heavy = self.options.budget_bytes / 2;
        for Decoded { rows, raw_bytes } in blocks {
            if let Err(error) = self.check_link(&rows) {
                self.commit(pending, Cut::End).await?;
                return Err(error);
            }
            pending.weight += rows.weight();
            pending.rows.append(rows);
            pending.raw_bytes.push(raw_bytes);
            pending.since.get_or_insert_with(Instant::now);
            if pending.rows.len() >= self.state.size.rows() || pending.weight >= heavy {
                // The group's own memory is accounted for until all of it is written.
                let group = pending.permits.pop();
                self.commit(pending, Cut::Full).await?;
                pending.permits.extend(group);
            }
        }
        if pending.rows.is_empty() {
            pending.permits.clear();
        }
        Ok(())
    }

    /// Every block stands on the one below it.
    fn check_link(&mut self, rows: &Rows) -> Result<(), IndexError> {
        for block in &rows.blocks {
            if let (Some(tip), Some(parent)) = (self.state.tip, block.parent_hash)
                && tip != parent
            {
                let number = block.number;
                return Err(if self.state.resumed {
                    IndexError::Refused(format!(
                        "block {number} of the source stands on {parent}, and the index ends with \
                         {tip}: the index is of another chain. Use another index, or another source"
                    ))
                } else {
                    let reason = format!("it stands on {parent}, and the block below it is {tip}");
                    IndexError::decode(number, reason)
                });
            }
            self.state.tip = block.hash;
            self.state.resumed = false;
            self.state.newest = block.ts.or(self.state.newest);
        }
        Ok(())
    }

    async fn commit(&mut self, pending: &mut Pending, cut: Cut) -> Result<(), IndexError> {
        let Pending { rows, raw_bytes, permits, .. } = std::mem::take(pending);
        let Some(last) = rows.blocks.last().map(|block| block.number) else { return Ok(()) };
        let (count, at) = (rows.len(), unix_now());
        let next = last.saturating_add(1);
        let counted = (rows.blocks.len() as u64, rows.txs.len() as u64, rows.logs.len() as u64);
        let raw: u64 = raw_bytes.iter().sum();
        let head = self.metrics.live.head();
        let batch = Batch { rows, next: Cursor::at_block(next), raw_bytes, head, at };
        let begun = Instant::now();
        self.begin_at(batch.rows.blocks.first().map_or(next, |block| block.number)).await?;
        self.sink.commit(batch).await?;
        drop(permits);
        let took = begun.elapsed();
        self.pass();
        self.state.size.learn(took, count);
        self.metrics.wrote(cut, took, count, raw, at);
        self.tell(next, head, counted, raw);
        self.ack(false).await?;
        if self.state.maintained_at.elapsed() >= MAINTAIN_EVERY || self.state.retain_more {
            self.keep_house().await?;
        }
        Ok(())
    }

    /// It works again.
    fn pass(&mut self) {
        if self.state.trouble.passed() {
            self.observer.event(&Event::Recovered);
        }
    }

    /// An index that has nothing and begins above block 0 has a gap below.
    async fn begin_at(&mut self, first: Height) -> Result<(), IndexError> {
        if !std::mem::take(&mut self.state.is_empty) {
            return Ok(());
        }
        let Some(gap) = begins_above(first) else { return Ok(()) };
        if let Err(error) = self.sink.record_gap(gap, Cursor::at_block(first)).await {
            self.state.is_empty = true;
            return Err(error);
        }
        self.observer.event(&Event::Begins { first });
        Ok(())
    }

    fn tell(
        &mut self,
        next: Height,
        head: Option<Height>,
        (blocks, txs, logs): (u64, u64, u64),
        raw_bytes: u64,
    ) {
        let State { progress, rate, .. } = self.state;
        progress.next = next;
        progress.head = head;
        progress.blocks += blocks;
        progress.txs += txs;
        progress.logs += logs;
        progress.raw_bytes += raw_bytes;
        progress.blocks_per_second = rate.note(Instant::now(), progress.blocks);
        #[expect(clippy::cast_precision_loss, reason = "an estimate is shown, not counted with")]
        let seconds = progress.lag() as f64 / progress.blocks_per_second;
        progress.eta = (progress.lag() > 0 && seconds.is_finite())
            .then(|| Duration::try_from_secs_f64(seconds).ok())
            .flatten();
        // The place in one of several leases is not the index's.
        let cursor = (!self.options.is_shared).then_some(next);
        self.metrics.live.wrote(blocks, cursor, Instant::now());
        if let Some(next) = cursor {
            self.metrics.cursor.set(signed(next));
        }
        self.observer.progress(progress);
    }

    /// Tells the source what is written, if this is a registered consumer: now and then, or now.
    async fn ack(&mut self, now: bool) -> Result<(), IndexError> {
        let Some(consumer) = self.options.consumer.as_deref() else { return Ok(()) };
        let written = self.state.progress.next.checked_sub(1);
        let due = now || self.state.acked_at.is_none_or(|at| at.elapsed() >= ACK_EVERY);
        let Some(height) = written.filter(|height| due && Some(*height) != self.state.acked) else {
            return Ok(());
        };
        match self.source.ack_exported(consumer, height).await {
            Ok(()) => {
                (self.state.acked, self.state.acked_at) = (Some(height), Some(Instant::now()));
                Ok(())
            }
            // The next one says the same and more.
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, height, "the source did not take an acknowledgement");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A step of retention; and from time to time whatever the sink needs.
    async fn keep_house(&mut self) -> Result<(), IndexError> {
        if let Some(cutoff) = self.state.cutoff(self.options) {
            let step = self.sink.retain(cutoff, RETAIN_BLOCKS).await?;
            self.state.retain_more = step.more;
        }
        if self.state.maintained_at.elapsed() >= MAINTAIN_EVERY {
            self.state.maintained_at = Instant::now();
            maintain(self.sink, self.metrics).await?;
        }
        Ok(())
    }
}

/// The gap below an index that begins at this block.
pub fn begins_above(first: Height) -> Option<GapRow> {
    Some(GapRow {
        block_from: 0,
        block_to: first.checked_sub(1)?,
        reason: "below the first block that the source had when the index began".into(),
        noted_at: unix_now(),
    })
}

/// Comes back once pulling waits for room; never if nobody pulls any more.
async fn lack(mut is_short: watch::Receiver<bool>) {
    if is_short.wait_for(|short| *short).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Whatever a sink needs from time to time.
pub(super) async fn maintain(sink: &impl Sink, metrics: &Metrics) -> Result<(), IndexError> {
    let at = unix_now();
    sink.maintain(at).await?;
    metrics.sized(sink.size_bytes().await?, at);
    Ok(())
}
