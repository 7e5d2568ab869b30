//! Phase 2: records that are due go, chunk by chunk.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::OptionFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use secateur_core::Height;
use tokio::time::Instant;

use super::remove::Patience;
use super::{Ended, Limits, Phase, Pruner, Settings};
use crate::UtxoError;
use crate::store::{Fate, Kept, Page, Sweep, UtxoStore};

/// Records whose spenders are looked at together in defensive mode, unless a chunk has more: neighbours have
/// children in common, and each of those is asked for once.
const LOOKED_AT_TOGETHER: usize = 32_000;

/// Records whose chunks go together, unless one has more: their keys and fates are all in memory.
const GO_TOGETHER: usize = 256_000;

/// What the deleting steps of a run have in common.
struct Pass<'a> {
    sweep: Sweep,
    limits: &'a Limits,
    files: Patience,
}

impl Pass<'_> {
    /// What a step may take by now.
    fn now(&self) -> Sweep {
        Sweep { external: self.sweep.external && !self.files.is_over(), ..self.sweep }
    }
}

/// How records flow through a run: listed in pages, looked at, and deleted in chunks.
struct Flow {
    /// Records in a page.
    page: usize,
    /// Records in a chunk.
    chunk: usize,
    /// Chunks that go beside each other.
    beside: usize,
}

impl<S: UtxoStore> Pruner<S> {
    fn flow(&self) -> Flow {
        let Settings { chunk_size, chunk_group_limit, defensive, .. } = self.settings;
        match self.store.chunks_together() {
            together if together > 1 && chunk_group_limit > 1 => {
                let most = if defensive { LOOKED_AT_TOGETHER } else { GO_TOGETHER };
                let page = (chunk_size * together).min(most.max(chunk_size));
                Flow { page, chunk: page, beside: 1 }
            }
            _ => {
                let chunks = if defensive { (LOOKED_AT_TOGETHER / chunk_size).max(1) } else { 1 };
                Flow { page: chunk_size * chunks, chunk: chunk_size, beside: chunk_group_limit }
            }
        }
    }

    /// Deletes what is due up to a height.
    pub(super) async fn delete_due(&self, height: Height, limits: &Limits) -> Result<(), Ended> {
        // Only told, so that it keeps nothing back.
        let due = self.store.counts(height).await.map_or_else(
            |error| {
                tracing::warn!(%error, "how many records are due could not be counted");
                0
            },
            |counts| counts.due,
        );
        self.board.enter(Phase::Delete, due);
        let sweep = Sweep { height, external: self.is_right_place(height).await? };
        self.finish_doomed(sweep.external, limits).await?;
        let pass = &Pass { sweep, limits, files: Patience::new(self.settings.files_patience()) };
        let flow = self.flow();
        let list = |after| self.list(sweep, after, &flow);
        let mut running = FuturesUnordered::new();
        let mut ended = Ok(());
        // The next page is listed and looked at while chunks are under way, and waits until there is room for it.
        let mut listing = pin!(OptionFuture::from(Some(list(None))));
        let mut listed: Option<Page<_, _>> = None;
        let mut chunks = VecDeque::new();
        loop {
            if let Some(page) = listed.take_if(|_| chunks.is_empty()) {
                // Also where nothing of a page may go.
                ended = ended.and_then(|()| limits.check());
                listing.set(page.next.map(|next| list(Some(next))).into());
                chunks.extend(page.items);
            }
            while ended.is_ok() && running.len() < flow.beside {
                let Some(chunk) = chunks.pop_front() else { break };
                ended = limits.check();
                if ended.is_ok() {
                    running.push(self.chunk(chunk, pass));
                }
            }
            if ended.is_err() {
                // Nobody goes on with it, and it may have a turn that what is under way waits for.
                listing.set(None.into());
            }
            tokio::select! {
                // What is under way ends in order even when something else failed.
                Some(done) = running.next() => match done {
                    Err(why) if ended.is_ok() => ended = Err(why),
                    Err(Ended::Failed(error)) => tracing::warn!(%error, "another chunk failed too"),
                    Err(Ended::TimedOut | Ended::Cancelled) | Ok(()) => {}
                },
                Some(page) = &mut listing, if ended.is_ok() && listed.is_none() => match page {
                    Ok(page) => listed = Some(page),
                    Err(error) => ended = Err(error.into()),
                },
                else => return ended,
            }
        }
    }

    /// A page of records that are due, in chunks; in defensive mode without those that have an unsettled
    /// spender. A chunk is what stands together, however much of it is left.
    async fn list(
        &self,
        sweep: Sweep,
        after: Option<S::Mark>,
        flow: &Flow,
    ) -> Result<Page<Vec<S::Key>, S::Mark>, UtxoError> {
        let Page { items, next } = self.store.due(sweep.height, after, flow.page).await?;
        let settled = if self.settings.defensive {
            self.settled(&items, sweep).await?
        } else {
            vec![true; items.len()]
        };
        let chunks = items.chunks(flow.chunk).zip(settled.chunks(flow.chunk));
        let chunks = chunks.map(|(keys, settled)| {
            let goes = keys.iter().zip(settled).filter(|(_, settled)| **settled);
            goes.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        });
        Ok(Page { items: chunks.filter(|chunk| !chunk.is_empty()).collect(), next })
    }

    /// Deletes a chunk, in as many steps as the store takes for it: after each of them what went is counted, and
    /// the run may end. What does not go at once is cut then, a chunk at a time.
    async fn chunk(&self, mut keys: Vec<S::Key>, pass: &Pass<'_>) -> Result<(), Ended> {
        let mut left = Vec::new();
        loop {
            let began = Instant::now();
            let fates = self.store.delete(keys.clone(), pass.now()).await?;
            if fates.is_empty() {
                return Err(UtxoError::store("it deleted nothing of what was asked for").into());
            }
            let done = keys.drain(..fates.len().min(keys.len()));
            left.extend(done.zip(&fates).filter(|(_, fate)| **fate == Fate::Left).map(|one| one.0));
            self.settle(fates, began, pass).await?;
            if keys.is_empty() {
                break;
            }
            pass.limits.check()?;
        }
        for some in left.chunks(self.settings.chunk_size) {
            pass.limits.check()?;
            let began = Instant::now();
            let fates = self.store.cut(some.to_vec(), pass.now()).await?;
            self.settle(fates, began, pass).await?;
        }
        Ok(())
    }

    /// Counts what went and what stays, and removes what is cut.
    async fn settle(
        &self,
        fates: Vec<Fate<S::Key>>,
        began: Instant,
        pass: &Pass<'_>,
    ) -> Result<(), Ended> {
        let mut doomed = Vec::new();
        self.board.count(|done| {
            for fate in fates {
                match fate {
                    Fate::Deleted => done.deleted += 1,
                    // Its place is the right one; it is left alone.
                    Fate::Kept(Kept::FilesMissing) if pass.sweep.external => {
                        done.keep(Kept::FileStays, 1);
                    }
                    Fate::Kept(why) => done.keep(why, 1),
                    Fate::Cut(record) => doomed.push(*record),
                    Fate::Left | Fate::Gone => {}
                }
            }
        });
        self.remove(doomed, &pass.files, pass.limits).await?;
        self.metrics.chunk(began.elapsed());
        Ok(())
    }

    /// Whether the spenders of each are all settled.
    async fn settled(&self, keys: &[S::Key], sweep: Sweep) -> Result<Vec<bool>, UtxoError> {
        let retention = self.store.rules().block_height_retention;
        let deep = sweep.height.checked_sub(retention);
        let batch = self.settings.defensive_batch_read;
        let mut marks = self.store.unstable(keys.to_vec(), deep, batch).await?.into_iter();
        // What a store says nothing of stays.
        let settled: Vec<bool> = keys.iter().map(|_| !marks.next().unwrap_or(true)).collect();
        let unstable = settled.iter().filter(|settled| !**settled).count() as u64;
        if unstable > 0 {
            tracing::info!(unstable, "records stay: a spender of theirs is not settled");
            self.board.count(|done| done.keep(Kept::Unstable, unstable));
        }
        Ok(settled)
    }
}
