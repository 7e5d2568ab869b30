//! From the source into the store: blocks are fetched many at a time, taken in order, and handed
//! in as groups that become durable while the next ones are on their way.
//!
//! Everything is bounded: requests by `follow.concurrency`, blocks of a request by `follow.batch`
//! and by what blocks weigh, groups by count and bytes, groups that are not durable yet by a
//! number. A stage that is full makes the one before it wait.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use secateur_core::{Block, BlockHash, Height};
use secateur_store::{Appended, StoreError};

use super::FollowError;
use super::backoff::Backoff;
use super::fetch::{Chunk, Fetcher};
use super::ours::Ours;
use super::progress::Catching;
use super::teller::Teller;
use crate::config::Follow;

/// What one request should bring: 8 MiB. Blocks that weigh more are asked for in smaller requests.
const REQUEST_BYTES: usize = 8 << 20;
/// What all requests under way should bring: 96 MiB.
const UNDER_WAY_BYTES: usize = 96 << 20;
/// A group has at most so many blocks,
const GROUP_BLOCKS: usize = 256;
/// and no further ones once it has 8 MiB.
const GROUP_BYTES: u64 = 8 << 20;
/// Groups that are handed in and not durable yet.
const GROUPS: usize = 4;
/// The source is asked for its head and for finality again after so long.
const LEG: Duration = Duration::from_secs(30);
/// Finality moves up so often while blocks come in: it is a commit of its own.
const FINALIZE_EVERY: Duration = Duration::from_millis(250);
/// The first and the longest pause while the disk is full.
const FULL_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// What a leg works with.
#[derive(Debug)]
pub(super) struct Works<'a> {
    pub(super) fetcher: &'a Fetcher,
    pub(super) ours: &'a Ours,
    pub(super) teller: &'a Teller,
    pub(super) config: &'a Follow,
}

/// What a leg is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// The first block, and the block that it must stand on.
    pub(super) first: Height,
    pub(super) parent: Option<BlockHash>,
    /// The last block.
    pub(super) target: Height,
    /// The newest block that the source calls final, and which one it is, if it says so.
    pub(super) last_final: Option<Height>,
    pub(super) final_hash: Option<BlockHash>,
}

/// How a leg ended.
#[derive(Debug)]
pub(super) enum End {
    /// Everything is here, or it was time to look at the source again.
    Reached,
    /// A block does not stand on the one before it.
    Unlinked,
    /// It cannot go on now.
    Failed(FollowError),
}

/// One leg of the way to the source's head.
struct Leg<'a> {
    works: Works<'a>,
    task: Task,
    began: Instant,
    finalized: Instant,
    /// The next block to ask for.
    next: Height,
    /// What the next block to hand in must stand on.
    parent: Option<BlockHash>,
    fetching: FuturesOrdered<BoxFuture<'a, Chunk>>,
    blocks_under_way: u64,
    appending: FuturesOrdered<BoxFuture<'a, Result<Appended, FollowError>>>,
    durable: Option<Height>,
    end: Option<End>,
}

/// Brings blocks in until the target is reached, or something stands in the way.
pub(super) async fn run(works: Works<'_>, task: Task, progress: &mut Catching) -> End {
    let mut leg = Leg {
        works,
        task,
        began: Instant::now(),
        finalized: Instant::now(),
        next: task.first,
        parent: task.parent,
        fetching: FuturesOrdered::new(),
        blocks_under_way: 0,
        appending: FuturesOrdered::new(),
        durable: None,
        end: None,
    };
    loop {
        leg.ask_for_more();
        let room = leg.appending.len() < GROUPS;
        let stepped = tokio::select! {
            biased;
            Some(ended) = leg.appending.next() => leg.became_durable(ended, progress).await,
            Some(chunk) = leg.fetching.next(), if room => leg.take(chunk, progress).await,
            else => break,
        };
        if let Err(error) = stepped {
            leg.stop(End::Failed(error));
        }
    }
    let moved = leg.finalize().await;
    match leg.end.unwrap_or(End::Reached) {
        End::Reached => moved.map_or_else(End::Failed, |()| End::Reached),
        end => end,
    }
}

impl<'a> Leg<'a> {
    /// Begins requests while there is room for them.
    fn ask_for_more(&mut self) {
        let Follow { batch, concurrency, .. } = *self.works.config;
        while self.end.is_none()
            && self.next <= self.task.target
            && self.began.elapsed() < LEG
            && self.fetching.len() < concurrency
        {
            let weight = self.works.fetcher.bytes_per_block();
            let count = (REQUEST_BYTES / weight).clamp(1, batch) as u64;
            let count = count.min(self.task.target - self.next + 1);
            let under_way = (self.blocks_under_way + count).saturating_mul(weight as u64);
            if under_way > UNDER_WAY_BYTES as u64 && !self.fetching.is_empty() {
                return;
            }
            let (fetcher, first): (&'a Fetcher, _) = (self.works.fetcher, self.next);
            self.fetching.push_back(fetcher.fetch(first, count).boxed());
            self.blocks_under_way += count;
            self.next += count;
        }
    }

    /// Hands in what came, and what came behind it meanwhile.
    async fn take(&mut self, chunk: Chunk, progress: &mut Catching) -> Result<(), FollowError> {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut arrived = Some(chunk);
        while let Some(chunk) = arrived {
            self.blocks_under_way = self.blocks_under_way.saturating_sub(chunk.asked);
            bytes += chunk.blocks.iter().map(|block| block.payloads.total_len()).sum::<u64>();
            let end = chunk.end.map(End::Failed);
            let linked = self.link(chunk.blocks, &mut group);
            if let Some(end) = if linked { end } else { Some(End::Unlinked) } {
                self.stop(end);
                break;
            }
            if group.len() >= GROUP_BLOCKS || bytes >= GROUP_BYTES {
                break;
            }
            arrived = self.fetching.next().now_or_never().flatten();
        }
        if group.is_empty() { Ok(()) } else { self.hand_in(group, progress).await }
    }

    /// Adds blocks to the group as long as each stands on the one before it.
    fn link(&mut self, blocks: Vec<Block>, group: &mut Vec<Block>) -> bool {
        for block in blocks {
            if self.parent.is_some_and(|parent| parent != block.meta.parent_hash) {
                return false;
            }
            self.parent = Some(block.meta.hash);
            group.push(block);
        }
        true
    }

    /// Hands a group in. On a full disk it waits: pruning may free what is needed.
    async fn hand_in(
        &mut self,
        group: Vec<Block>,
        progress: &mut Catching,
    ) -> Result<(), FollowError> {
        let mut pauses = Backoff::new(FULL_PAUSES.0, FULL_PAUSES.1);
        let mut group = group;
        loop {
            let submit = self.works.ours.run(move |store| {
                let ticket = store.submit(&group);
                (ticket, group)
            });
            let (ticket, back) = submit.await?;
            match ticket {
                Ok(ticket) => {
                    self.works.teller.taken();
                    let ours = self.works.ours;
                    let wait = async move { Ok(ours.run(|store| store.wait(ticket)).await??) };
                    self.appending.push_back(wait.boxed());
                    return Ok(());
                }
                Err(error @ StoreError::DiskFull { .. })
                    if self.works.ours.0.poisoned().is_none() =>
                {
                    self.works.teller.disk_full(&error.to_string());
                    group = back;
                }
                Err(error) => return Err(error.into()),
            }
            // What is final may be pruned, and what is not durable is not final.
            while let Some(ended) = self.appending.next().await {
                self.became_durable(ended, progress).await?;
            }
            self.finalize().await?;
            tokio::time::sleep(pauses.next_wait()).await;
        }
    }

    async fn became_durable(
        &mut self,
        ended: Result<Appended, FollowError>,
        progress: &mut Catching,
    ) -> Result<(), FollowError> {
        let Appended { head, written } = ended?;
        if self.durable.is_none() && written > 0 {
            self.works.teller.began(self.task.first);
        }
        self.durable = Some(head);
        self.works.teller.reached(head);
        progress.at(head, self.task.target);
        if self.finalized.elapsed() >= FINALIZE_EVERY {
            self.finalized = Instant::now();
            self.finalize().await?;
        }
        Ok(())
    }

    /// What is durable and not above what the source calls final is final: each block stands on
    /// the one before it, and the source itself put the last of them where it is.
    async fn finalize(&mut self) -> Result<(), FollowError> {
        let (Some(durable), Some(last_final)) = (self.durable, self.task.last_final) else {
            return Ok(());
        };
        if durable >= last_final
            && let Some(theirs) = self.task.final_hash
            && self.works.ours.hash_at(last_final).await?.is_some_and(|here| here != theirs)
        {
            // It speaks of another branch: the next round looks where they part.
            return Ok(());
        }
        self.works.ours.finalize(durable.min(last_final)).await
    }

    /// Nothing more is fetched; what is handed in is still waited for.
    fn stop(&mut self, end: End) {
        self.fetching = FuturesOrdered::new();
        self.end.get_or_insert(end);
    }
}
