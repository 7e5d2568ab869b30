//! Filling ranges below an index's cursor: blocks that were cut before they were pulled, logs that are wanted
//! since, and rows that are to be decoded anew.
//!
//! A range is pulled by an ordinary [`Worker`], into a sink whose cursor is the place in the range. What
//! deliberately does not live here: which source a range comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::registry::Registry;
use secateur_core::{Cursor, Height, SECONDS_PER_DAY};
use tokio::sync::watch;

use crate::codec::Codec;
use crate::sink::{Identity, Note, Retained};
use crate::source::{Blocks as _, Source, status_of};
use crate::worker::{End, Metrics, OnPruned, Worker, WorkerOptions, unix_now};
use crate::{Batch, BlockRow, ErrorClass, GapRow, IndexError, PartRow, Rows, Sink};

/// A range of fewer blocks is pulled without looking at how old they are.
const WORTH_LOOKING: u64 = 32;

/// How a range is filled.
pub struct Refill<S, K> {
    /// Where its blocks come from.
    pub source: Arc<S>,
    /// The index.
    pub sink: Arc<K>,
    /// Blocks into rows.
    pub codec: Arc<dyn Codec>,
    /// The worker's options; what a range needs otherwise is set here.
    pub options: WorkerOptions,
}

impl<S, K> std::fmt::Debug for Refill<S, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refill").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What filling a range did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refilled {
    /// Blocks whose rows were written.
    pub written: u64,
    /// Those of them that were not there before.
    pub new: u64,
    /// Blocks that are older than the retention: their rows were left out, or removed.
    pub too_old: u64,
    /// Ranges that the source does not have, first and last block.
    pub missing: Vec<(Height, Height)>,
    /// It was asked to stop before the end.
    pub stopped: bool,
}

impl<S: Source, K: Sink> Refill<S, K> {
    /// Fills the blocks from `first` to `last` as far as the source has them, in order, each batch and what it
    /// takes out of `gaps` in one transaction. `at` is told how far it is.
    pub async fn run(
        &self,
        first: Height,
        last: Height,
        stop: watch::Receiver<bool>,
        at: Arc<dyn Fn(Height) + Send + Sync>,
    ) -> Result<Refilled, IndexError> {
        let range = Range {
            sink: Arc::clone(&self.sink),
            next: Arc::new(AtomicU64::new(first)),
            counts: Arc::default(),
            cutoff: self.cutoff().await?,
            at,
        };
        self.pass_over(&range, first, last).await?;
        let mut missing = Vec::new();
        let mut stopped = false;
        while range.place() <= last && !stopped {
            let absent = match self.worker(range.clone(), last).run(stop.clone()).await {
                Ok(End::Stopped) => {
                    stopped = true;
                    continue;
                }
                // If there is a rest all the same, the source ends before the range does.
                Ok(End::Until | End::CaughtUp) => last,
                Err(IndexError::Pruned { pruned_before_block, .. }) => {
                    pruned_before_block.min(last)
                }
                Err(error) => return Err(error),
            };
            let from = range.place();
            if from > last {
                break;
            }
            // A source that does not say where it goes on has nothing.
            let to = if absent < from { last } else { absent };
            missing.push((from, to));
            range.next.store(to.saturating_add(1), Ordering::Relaxed);
        }
        if missing.is_empty() && !stopped {
            let past = last.saturating_add(1);
            self.sink.logs_filled(&self.options.logs, first, past).await?;
        }
        let Counts { written, new, too_old } = &*range.counts;
        let [written, new, too_old] =
            [written, new, too_old].map(|count| count.load(Ordering::Relaxed));
        Ok(Refilled { written, new, too_old, missing, stopped })
    }

    /// Passes over the blocks at the beginning that are older than the retention, without pulling them: years
    /// of an archive may be.
    async fn pass_over(
        &self,
        range: &Range<K>,
        first: Height,
        last: Height,
    ) -> Result<(), IndexError> {
        let Some(cutoff) = range.cutoff.filter(|_| last.saturating_sub(first) >= WORTH_LOOKING)
        else {
            return Ok(());
        };
        match status_of(self.source.as_ref(), self.options.chain_id).await {
            Ok(_) => {}
            // The worker waits for it.
            Err(error) if error.is_retryable() => return Ok(()),
            Err(error) => return Err(error),
        }
        let next = self.first_since(cutoff, first, last).await;
        if next <= first {
            return Ok(());
        }
        let (rows, at) = (Rows::default(), unix_now());
        let next = Cursor::at_block(next);
        let batch = Batch { rows, next, raw_bytes: Vec::new(), head: None, at };
        let too_old = next.block_number.saturating_sub(first);
        self.sink.check(&self.identity()).await?;
        range.commit(batch).await?;
        range.counts.too_old.fetch_add(too_old, Ordering::Relaxed);
        Ok(())
    }

    /// The first block that is not older than a time, as far as looking at some of them tells; times do not
    /// go back. Where one is not there or has no time, that is the first one of all.
    async fn first_since(&self, cutoff: u64, first: Height, last: Height) -> Height {
        let (mut low, mut past) = (first, last.saturating_add(1));
        while low < past {
            let middle = low + (past - low) / 2;
            let mut blocks = self.source.blocks(Some(middle), true);
            let Ok(Some(block)) = blocks.next().await else { return first };
            match self.codec.meta(&block) {
                Ok(meta) if block.height != middle || meta.timestamp == 0 => return first,
                Ok(meta) if meta.timestamp < cutoff => low = middle + 1,
                Ok(_) => past = middle,
                Err(_) => return first,
            }
        }
        low
    }

    fn identity(&self) -> Identity {
        Identity {
            chain_id: self.options.chain_id,
            codec: self.codec.name().to_owned(),
            logs: self.options.logs.clone(),
        }
    }

    fn worker(&self, range: Range<K>, last: Height) -> Worker<S, Range<K>> {
        let options = WorkerOptions {
            consumer: None,
            on_pruned: OnPruned::Stop,
            until: Some(last),
            follow: false,
            retention_days: None,
            ..self.options.clone()
        };
        // Gauges speak of the one who follows the head, which this is not.
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let (source, codec) = (Arc::clone(&self.source), Arc::clone(&self.codec));
        Worker::new(source, Arc::new(range), codec, options, metrics, Arc::new(()))
    }

    /// The time below which retention would remove at once what is written.
    async fn cutoff(&self) -> Result<Option<u64>, IndexError> {
        let Some(days) = self.options.retention_days else { return Ok(None) };
        let newest = self.sink.tip().await?.and_then(|tip| tip.ts);
        Ok(newest.map(|ts| ts.saturating_sub(u64::from(days).saturating_mul(SECONDS_PER_DAY))))
    }
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    new: AtomicU64,
    too_old: AtomicU64,
}

/// A range of an index as a worker's sink: its cursor is the place in the range.
struct Range<K> {
    sink: Arc<K>,
    next: Arc<AtomicU64>,
    counts: Arc<Counts>,
    cutoff: Option<u64>,
    at: Arc<dyn Fn(Height) + Send + Sync>,
}

impl<K> Clone for Range<K> {
    fn clone(&self) -> Self {
        Self {
            sink: Arc::clone(&self.sink),
            next: Arc::clone(&self.next),
            counts: Arc::clone(&self.counts),
            cutoff: self.cutoff,
            at: Arc::clone(&self.at),
        }
    }
}

impl<K> Range<K> {
    fn place(&self) -> Height {
        self.next.load(Ordering::Relaxed)
    }
}

/// Takes the rows of blocks below a time out of a batch; how many blocks those were is the answer.
fn leave_out(batch: &mut Batch, cutoff: u64) -> u64 {
    let old = |row: &BlockRow| row.ts.is_some_and(|ts| ts < cutoff);
    let gone: std::collections::BTreeSet<Height> =
        batch.rows.blocks.iter().filter(|row| old(row)).map(|row| row.number).collect();
    if gone.is_empty() {
        return 0;
    }
    let kept = batch.rows.blocks.iter().map(|row| !old(row));
    let raw = batch.raw_bytes.iter().zip(kept).filter_map(|(raw, kept)| kept.then_some(*raw));
    batch.raw_bytes = raw.collect();
    batch.rows.blocks.retain(|row| !gone.contains(&row.number));
    batch.rows.txs.retain(|row| !gone.contains(&row.block_number));
    batch.rows.logs.retain(|row| !gone.contains(&row.block_number));
    gone.len() as u64
}

impl<K: Sink> Sink for Range<K> {
    async fn bind(&self, identity: &Identity) -> Result<(), IndexError> {
        // Which logs the index keeps is its worker's to change.
        self.sink.check(identity).await
    }

    async fn check(&self, identity: &Identity) -> Result<(), IndexError> {
        self.sink.check(identity).await
    }

    async fn cursor(&self) -> Result<Option<Cursor>, IndexError> {
        Ok(Some(Cursor::at_block(self.place())))
    }

    async fn tip(&self) -> Result<Option<BlockRow>, IndexError> {
        match self.place().checked_sub(1) {
            Some(below) => self.sink.row_at(below).await,
            None => Ok(None),
        }
    }

    async fn row_at(&self, number: Height) -> Result<Option<BlockRow>, IndexError> {
        self.sink.row_at(number).await
    }

    async fn commit(&self, mut batch: Batch) -> Result<(), IndexError> {
        let next = batch.next.block_number;
        let too_old = self.cutoff.map_or(0, |cutoff| leave_out(&mut batch, cutoff));
        let written = batch.rows.blocks.len() as u64;
        let new = self.sink.refill(self.place(), batch).await?;
        self.next.store(next, Ordering::Relaxed);
        let Counts { written: all, new: fresh, too_old: old } = &*self.counts;
        for (count, more) in [(all, written), (fresh, new), (old, too_old)] {
            count.fetch_add(more, Ordering::Relaxed);
        }
        (self.at)(next);
        Ok(())
    }

    async fn refill(&self, first: Height, batch: Batch) -> Result<u64, IndexError> {
        self.sink.refill(first, batch).await
    }

    async fn logs_filled(&self, logs: &str, first: Height, past: Height) -> Result<(), IndexError> {
        self.sink.logs_filled(logs, first, past).await
    }

    async fn record_gap(&self, gap: GapRow, _next: Cursor) -> Result<(), IndexError> {
        let (from, to) = (gap.block_from, gap.block_to);
        Err(IndexError::sink(format!("blocks {from} to {to} are a gap already")))
    }

    async fn note(&self, mut note: Note) -> Result<(), IndexError> {
        // The head is the worker's to note; what the source does not have is the answer, and no trouble.
        note.head = None;
        note.error = note.error.filter(|(class, _)| *class != ErrorClass::Pruned);
        if note.error.is_none() {
            return Ok(());
        }
        self.sink.note(note).await
    }

    async fn add_part(&self, part: PartRow, at: u64) -> Result<(), IndexError> {
        self.sink.add_part(part, at).await
    }

    async fn forget_part(&self, block_from: Height) -> Result<(), IndexError> {
        self.sink.forget_part(block_from).await
    }

    async fn parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        self.sink.parts(from, limit).await
    }

    async fn last_part(&self) -> Result<Option<PartRow>, IndexError> {
        self.sink.last_part().await
    }

    async fn retain(&self, _cutoff: u64, _max_blocks: u32) -> Result<Retained, IndexError> {
        Ok(Retained::default())
    }

    async fn maintain(&self, at: u64) -> Result<(), IndexError> {
        self.sink.maintain(at).await
    }

    async fn size_bytes(&self) -> Result<u64, IndexError> {
        self.sink.size_bytes().await
    }
}
