//! The archiving task: blocks from a source into parts, each noted in the index and acknowledged to
//! the source once it was read back.
//!
//! Its place comes from the archive itself, never from the index's cursor: indexing and archiving
//! do not wait for one another. Every step can be done twice, so after a crash it begins with what
//! it finds: parts in the archive that the index does not know, parts that the index knows and the
//! archive does not have, gaps, parts that the source does not know, and finished parts in the stage.

mod acks;
mod chain;
mod metrics;
mod notes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use secateur_archive::{
    Archive, ArchiveError, Archiver, ArchiverOptions, Check, Codec as PartCodec, Grain,
};
use secateur_core::{Block, Height, Locator, Part, format_bytes};
use tokio::sync::watch;

pub use metrics::ArchiveMetrics;

use crate::codec::Codec;
use crate::source::{Blocks, Source, SourceBlock, SourceStatus, status_of};
use crate::worker::{Backoff, End, Event, Metrics, Observer, OnPruned, Retry, stopped, unix_now};
use crate::{ErrorClass, IndexError, PartRow, Sink};

/// How often the head is asked for.
const LOOK: Duration = Duration::from_secs(2);

/// How archiving works.
#[derive(Debug, Clone)]
pub struct ArchivingOptions {
    /// The chain's id.
    pub chain_id: u64,
    /// How its blocks are read.
    pub codec: PartCodec,
    /// A directory for parts in the making.
    pub stage: PathBuf,
    /// Where parts end.
    pub grain: Grain,
    /// How far a block is checked before it is written.
    pub check: Check,
    /// Where a new archive begins; none means at the source's oldest block.
    pub first: Option<Height>,
    /// The last block; none to go on. A part that would need one above it is not finished.
    pub until: Option<Height>,
    /// What to do when the next block is cut at the source.
    pub on_pruned: OnPruned,
    /// Whether parts are acknowledged to the source.
    pub ack: bool,
    /// Whether to wait for new blocks at the tip.
    pub follow: bool,
    /// Trouble that lasts longer than this is an alarm: attempts are `pause` apart from then on, and one
    /// that is not to `follow` ends with the error.
    pub alarm_after: Duration,
    /// How long it pauses between attempts.
    pub pause: Duration,
}

impl ArchivingOptions {
    /// The usual way.
    pub fn new(chain_id: u64, codec: PartCodec, stage: impl Into<PathBuf>) -> Self {
        Self {
            chain_id,
            codec,
            stage: stage.into(),
            grain: Grain::default(),
            check: Check::default(),
            first: None,
            until: None,
            on_pruned: OnPruned::Stop,
            ack: true,
            follow: true,
            alarm_after: Duration::from_mins(5),
            pause: Duration::from_mins(1),
        }
    }
}

impl ArchivingOptions {
    /// The source's budget, if it holds less than a part may and parts are acknowledged to it.
    fn budget_below_part(&self, status: &SourceStatus) -> Option<u64> {
        status.high_water_bytes.filter(|high| self.ack && *high < self.grain.max_bytes)
    }
}

/// Archives a chain's history.
pub struct Archiving<S, K> {
    /// Where blocks come from, and parts are acknowledged to.
    pub source: Arc<S>,
    /// Where parts are noted.
    pub sink: Arc<K>,
    /// Where parts go.
    pub archive: Archive,
    /// What names a block whose source does not say it.
    pub codec: Arc<dyn Codec>,
    /// How it works.
    pub options: ArchivingOptions,
    /// What it counts.
    pub metrics: Arc<ArchiveMetrics>,
    /// The index worker's counters, for the bytes of the day.
    pub totals: Option<Arc<Metrics>>,
    /// Who looks on.
    pub observer: Arc<dyn Observer>,
}

impl<S, K> std::fmt::Debug for Archiving<S, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiving").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What is remembered from one look at the archive to the next.
#[derive(Debug, Default)]
struct Memory {
    /// Whether the archive has any part.
    begun: bool,
    /// Parts that the index noted and the archive does not have, by their first block, with their
    /// last one. Their rows stay for as long as nothing is listed in their place.
    gone: BTreeMap<Height, Height>,
    /// How many of those were told of.
    told_gone: usize,
    /// Where parts ended that the index noted and the archive does not have.
    ends: BTreeSet<Height>,
    /// The last block of a part that the source is to know, and does not have the blocks of yet.
    awaited: Option<Height>,
    /// Whether it was told how a part and the source's budget go together.
    told_budget: bool,
    /// Gaps that were told of.
    told: HashSet<RangeInclusive<Height>>,
    /// The next block that the archiver wants.
    next: Height,
    /// What failed last, until it is passed.
    failed: Option<FailedAt>,
}

/// Where archiving failed.
#[derive(Debug, Clone, Copy)]
struct FailedAt {
    /// Whether the source is what failed. Then its next answer is the end of it; else the same block has to
    /// come through.
    of_source: bool,
    next: Height,
}

/// How far archiving came.
#[derive(Debug, Clone, Copy)]
enum Passed {
    /// Everything that is there is archived, or staged.
    All,
    /// Everything below this block is staged.
    UpTo(Height),
}

/// What an error of the archive means to a worker.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(crate) fn explain(error: ArchiveError) -> IndexError {
    let retryable = error.is_retryable();
    match &error {
        ArchiveError::Block { height, .. } => IndexError::decode(*height, error.to_string()),
        _ => IndexError::ArchiveIo { reason: error.to_string(), retryable },
    }
}

/// A row as a node knows its part.
fn part_of(row: &PartRow) -> Part {
    Part {
        first: row.block_from,
        last: row.block_to,
        parent_hash: row.parent_hash,
        last_hash: row.last_hash,
        locator: Locator { provider: row.provider.clone(), key: row.object_key.clone() },
        sha256: alloy_primitives::hex::encode(row.sha256),
        size: row.size_bytes,
    }
}

/// A part as the index notes it.
fn row_of(part: &Part) -> Result<PartRow, IndexError> {
    let mut sha256 = [0u8; 32];
    alloy_primitives::hex::decode_to_slice(&part.sha256, &mut sha256).map_err(|error| {
        let reason = format!("part {} has no SHA-256: {error}", part.locator.key);
        IndexError::ArchiveIo { reason, retryable: false }
    })?;
    Ok(PartRow {
        block_from: part.first,
        block_to: part.last,
        provider: part.locator.provider.clone(),
        object_key: part.locator.key.clone(),
        codec: "zstd".into(),
        size_bytes: part.size,
        sha256,
        parent_hash: part.parent_hash,
        last_hash: part.last_hash,
    })
}

impl<S: Source, K: Sink> Archiving<S, K> {
    /// Archives until it is stopped, done, or cannot go on. An unfinished part stays unfinished;
    /// it is made again, the same, the next time.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<End, IndexError> {
        let mut first = self.options.first;
        let mut retry = Retry::new(self.options.alarm_after, self.options.pause);
        let mut memory = Memory::default();
        loop {
            let error = match self.session(first, &stop, &mut retry, &mut memory).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) if *stop.borrow() => return Ok(End::Stopped),
                Ok(None) => continue,
                Err(error) => error,
            };
            self.metrics.failed();
            if let IndexError::Pruned { pruned_before_block, .. } = error
                && self.options.on_pruned == OnPruned::Rebase
            {
                first = pruned_before_block.checked_add(1);
                continue;
            }
            if !error.is_retryable() {
                return Err(error);
            }
            let of_source = !matches!(error.class(), ErrorClass::ArchiveIo | ErrorClass::Sink);
            memory.failed = Some(FailedAt { of_source, next: memory.next });
            let now = Instant::now();
            let failed = retry.failed(now);
            self.metrics.trouble(&error, failed.paused.then_some(failed.wait), now);
            if failed.alarm {
                self.metrics.stalled(true);
                self.observer.event(&Event::Alarm { error: &error, since: failed.since });
            }
            if failed.paused && !self.options.follow {
                return Err(error);
            }
            self.observer.event(&Event::Retrying { error: &error, wait: failed.wait });
            tokio::select! {
                () = stopped(stop.clone()) => return Ok(End::Stopped),
                () = tokio::time::sleep(failed.wait) => {}
            }
        }
    }

    /// Archives until there is a reason to end; none means that a gap is filled, and that the place
    /// is to be looked for again.
    async fn session(
        &self,
        first: Option<Height>,
        stop: &watch::Receiver<bool>,
        retry: &mut Retry,
        memory: &mut Memory,
    ) -> Result<Option<End>, IndexError> {
        let status = status_of(self.source.as_ref(), self.options.chain_id).await?;
        if !std::mem::replace(&mut memory.told_budget, true) {
            self.tell_budget(&status);
        }
        self.same_chain(&status).await?;
        self.agree_with_archive(memory).await?;
        self.acknowledge_again(&status, stop, memory).await?;
        let mut archiver = self.open(first, &status, memory).await?;
        let mut blocks = self.source.blocks(Some(archiver.next_height()), true);
        let (mut idle, mut looked) = (Backoff::new(), Instant::now());
        self.publish(&mut archiver, stop, memory).await?;
        loop {
            memory.next = archiver.next_height();
            if archiver.is_filled() {
                self.pass(Passed::All, retry, memory);
                return Ok(None);
            }
            if self.options.until.is_some_and(|until| archiver.next_height() > until) {
                return Ok(Some(End::Until));
            }
            let next = tokio::select! {
                biased;
                () = stopped(stop.clone()) => return Ok(Some(End::Stopped)),
                next = blocks.next() => next?,
            };
            if looked.elapsed() >= LOOK || next.is_none() {
                looked = Instant::now();
                self.look(&mut archiver, stop, memory).await?;
            }
            let Some(block) = next else {
                self.pass(Passed::All, retry, memory);
                if !self.options.follow {
                    return Ok(Some(End::CaughtUp));
                }
                tokio::select! {
                    () = stopped(stop.clone()) => return Ok(Some(End::Stopped)),
                    () = tokio::time::sleep(idle.wait()) => continue,
                }
            };
            idle.reset();
            let block = self.whole(block)?;
            archiver.push(&block).await.map_err(|error| self.explain_push(error))?;
            self.pass(Passed::UpTo(archiver.next_height()), retry, memory);
            if archiver.waiting() > 0 {
                self.publish(&mut archiver, stop, memory).await?;
            }
        }
    }

    /// It works again, if what failed last is passed. A part takes a day: a worker that goes on is not
    /// one that has failed since the last one.
    fn pass(&self, passed: Passed, retry: &mut Retry, memory: &mut Memory) {
        let is_over = |failed: &mut FailedAt| match passed {
            Passed::All => true,
            Passed::UpTo(next) => failed.of_source || next > failed.next,
        };
        if memory.failed.take_if(is_over).is_none() {
            return;
        }
        self.metrics.passed();
        if retry.passed() {
            self.observer.event(&Event::Recovered);
        }
    }

    /// What is due now and then, between blocks.
    async fn look(
        &self,
        archiver: &mut Archiver,
        stop: &watch::Receiver<bool>,
        memory: &mut Memory,
    ) -> Result<(), IndexError> {
        let Some(head) = self.source.head().await? else { return Ok(()) };
        self.metrics.look(&archiver.metrics().snapshot(), head);
        let awaits = memory.awaited.is_some_and(|last| last <= head);
        if !self.options.ack && !awaits {
            return Ok(());
        }
        let status = status_of(self.source.as_ref(), self.options.chain_id).await?;
        if awaits {
            self.acknowledge_again(&status, stop, memory).await?;
        }
        // A budget that drains cannot wait for a day to end.
        let next = archiver.next_height();
        if self.options.ack
            && status.waits_for_archive
            && archiver.close().await.map_err(explain)?
        {
            let told =
                "the source's budget drains and waits for the archive: a part is closed early";
            tracing::warn!(last = next.saturating_sub(1), "{told}");
            self.publish(archiver, stop, memory).await?;
        }
        Ok(())
    }

    /// Says at the start what a budget that holds less than a part means.
    fn tell_budget(&self, status: &SourceStatus) {
        let most = self.options.grain.max_bytes;
        let Some(high) = self.options.budget_below_part(status) else { return };
        let (budget, part) = (format_bytes(high), format_bytes(most));
        let told = "the source's budget is smaller than a part may be; where the source waits for the \
                    archive, parts are closed early";
        tracing::warn!(budget, part, "{told}");
    }

    /// Opens the archiver where it goes on: in the first gap that the source can fill, or at the
    /// archive's end, even if the source has cut those blocks: that is told.
    async fn open(
        &self,
        first: Option<Height>,
        status: &SourceStatus,
        memory: &mut Memory,
    ) -> Result<Archiver, IndexError> {
        let oldest = status.oldest.unwrap_or(0);
        let first = first.unwrap_or(if memory.begun { 0 } else { oldest });
        let mut options = ArchiverOptions::new(
            self.options.stage.clone(),
            self.options.chain_id,
            self.options.codec,
            first,
        );
        options.oldest = oldest;
        options.grain = self.options.grain;
        options.check = self.options.check;
        options.ends.clone_from(&memory.ends);
        if self.options.ack {
            // What the source knows of ends here: a part across it would be refused.
            options.ends.extend(status.archived);
        }
        let archiver = Archiver::open(self.archive.clone(), options).await.map_err(explain)?;
        self.tell_gaps(&archiver, &mut memory.told);
        Ok(archiver)
    }

    /// Tells once of every gap, whether it is filled or stays.
    fn tell_gaps(&self, archiver: &Archiver, told: &mut HashSet<RangeInclusive<Height>>) {
        let (gap, left) = (archiver.gap(), archiver.gaps_left());
        let missing = gap.iter().chain(left);
        self.metrics.gaps(missing.map(|gap| (gap.end() - gap.start()).saturating_add(1)).sum());
        for gap in left.iter().filter(|gap| told.insert((*gap).clone())) {
            let (first, last) = (gap.start(), gap.end());
            tracing::warn!(first, last, "the archive has a gap that the source cannot fill");
        }
        if let Some(gap) = gap.filter(|gap| told.insert(gap.clone())) {
            let (first, last) = (gap.start(), gap.end());
            if self.options.until.is_some_and(|until| until < *first) {
                let told =
                    "the archive has a gap above the last wanted block; it is not filled now";
                tracing::warn!(first, last, "{told}");
            } else {
                tracing::warn!(first, last, "the archive has a gap; it is filled");
            }
        }
    }

    /// A block with what names it.
    fn whole(&self, block: SourceBlock) -> Result<Block, IndexError> {
        let meta = self.codec.meta(&block)?;
        Ok(Block { meta, payloads: block.payloads })
    }

    /// Uploads, notes and acknowledges whatever is finished. One that is not acknowledged because it
    /// was asked to stop stays in the stage.
    async fn publish(
        &self,
        archiver: &mut Archiver,
        stop: &watch::Receiver<bool>,
        memory: &mut Memory,
    ) -> Result<(), IndexError> {
        while let Some(part) = archiver.publish().await.map_err(explain)? {
            let (row, at) = (row_of(&part)?, unix_now());
            self.replace_gone(&row, memory).await?;
            self.sink.add_part(row, at).await?;
            if self.options.ack {
                let taken = tokio::select! {
                    () = stopped(stop.clone()) => return Ok(()),
                    taken = self.acknowledge(&part) => taken?,
                };
                if !taken {
                    // Its row is what it is acknowledged from, later.
                    memory.awaited.get_or_insert(part.last);
                }
            }
            archiver.settled(&part).await.map_err(explain)?;
            self.metrics.wrote(&archiver.metrics().snapshot());
            if let Some(totals) = &self.totals {
                totals.archived(part.size, at);
            }
            tracing::info!(
                first = part.first,
                last = part.last,
                size = format_bytes(part.size),
                key = part.locator.key,
                "a part is archived"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_below_a_part_is_told_where_parts_are_acknowledged() {
        let mut options = ArchivingOptions::new(1, PartCodec::Evm, "/nonexistent");
        options.grain.max_bytes = 100;
        let told = |options: &ArchivingOptions, high_water_bytes| {
            let status = SourceStatus { high_water_bytes, ..SourceStatus::default() };
            options.budget_below_part(&status)
        };
        assert_eq!(told(&options, Some(99)), Some(99));
        assert_eq!((told(&options, Some(100)), told(&options, None)), (None, None));
        options.ack = false;
        assert_eq!(told(&options, Some(99)), None);
    }
}
