//! Phase 2: records that are due go, chunk by chunk.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::OptionFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use secateur_core::Height;
use tokio::time::Instant;

use super::{Ended, Limits, Phase, Pruner, Settings};
use crate::UtxoError;
use crate::files::Removed;
use crate::store::{Doomed, Fate, Kept, Page, Sweep, UtxoStore};

/// External files that are removed at the same time in one chunk.
const FILES_AT_ONCE: usize = 16;

/// Records whose spenders are looked at together in defensive mode, unless a chunk has more: neighbours have
/// children in common, and each of those is asked for once.
const LOOKED_AT_TOGETHER: usize = 32_000;

/// Records whose chunks go together, unless one has more: their keys and fates are all in memory.
const GO_TOGETHER: usize = 256_000;

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
                let page = (chunk_size * together).min(GO_TOGETHER.max(chunk_size));
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
        let due = self.store.counts(height).await?.due;
        self.board.enter(Phase::Delete, due);
        let sweep = Sweep { height, external: self.is_right_place(height).await? };
        self.finish_doomed(sweep.external, limits).await?;
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
                    running.push(self.chunk(chunk, sweep, limits));
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
    /// the run may end.
    async fn chunk(
        &self,
        mut keys: Vec<S::Key>,
        sweep: Sweep,
        limits: &Limits,
    ) -> Result<(), Ended> {
        loop {
            let done = self.step(keys.clone(), sweep).await?;
            keys.drain(..done.min(keys.len()));
            if keys.is_empty() {
                return Ok(());
            }
            if done == 0 {
                return Err(UtxoError::store("it deleted nothing of what was asked for").into());
            }
            limits.check()?;
        }
    }

    /// One step; answers for how many records.
    async fn step(&self, keys: Vec<S::Key>, sweep: Sweep) -> Result<usize, UtxoError> {
        let began = Instant::now();
        let fates = self.store.delete(keys, sweep).await?;
        let answered = fates.len();
        let mut doomed = Vec::new();
        self.board.count(|done| {
            for fate in fates {
                match fate {
                    Fate::Deleted => done.deleted += 1,
                    Fate::Kept(why) => done.keep(why, 1),
                    Fate::Cut(record) => doomed.push(*record),
                    Fate::Gone => {}
                }
            }
        });
        self.remove(doomed).await?;
        self.metrics.chunk(began.elapsed());
        Ok(answered)
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
            tracing::debug!(unstable, "records stay: a spender of theirs is not settled");
            self.board.count(|done| done.keep(Kept::Unstable, unstable));
        }
        Ok(settled)
    }

    /// Removes files, then the records whose files are gone.
    async fn remove(&self, doomed: Vec<Doomed<S::Key>>) -> Result<(), UtxoError> {
        if doomed.is_empty() {
            return Ok(());
        }
        let removed: Vec<_> = stream::iter(doomed)
            .map(|record| self.remove_file(record))
            .buffer_unordered(FILES_AT_ONCE)
            .collect()
            .await;
        let (mut ready, mut stay, mut misplaced) =
            (Vec::with_capacity(removed.len()), Vec::new(), 0);
        for (record, removed) in removed {
            match removed {
                Ok(Some(removed)) => {
                    self.board.count(|done| match removed {
                        Removed::Deleted => done.files_deleted += 1,
                        Removed::Missing => done.files_missing += 1,
                    });
                    ready.push(record.key);
                }
                Ok(None) if record.external.is_none() => ready.push(record.key),
                Ok(None) => misplaced += 1,
                Err(error) => stay.push((record.txid, error)),
            }
        }
        let (gone, staying) = (ready.len() as u64, stay.len() as u64);
        if let Some((txid, error)) = stay.first() {
            let told = "external files could not be removed, so their records stay";
            tracing::warn!(staying, %txid, %error, "{told}; the first of them");
        }
        self.store.finish(ready).await?;
        self.board.count(|done| {
            done.deleted += gone;
            done.keep(Kept::FileStays, staying);
            done.keep(Kept::FilesMissing, misplaced);
        });
        Ok(())
    }

    /// Removes the file of a record, if it has one. Nothing is the answer where the place is not the right
    /// one any more: a file that is not there is believed only while the place carries the mark, and is
    /// looked for once more after that was seen.
    async fn remove_file(
        &self,
        record: Doomed<S::Key>,
    ) -> (Doomed<S::Key>, Result<Option<Removed>, UtxoError>) {
        let removing = async {
            let Some(kind) = record.external else { return Ok(None) };
            let none = || UtxoError::Setting("no place of external files is set".into());
            let files = self.files.as_ref().ok_or_else(none)?;
            if files.remove(record.txid, kind).await? == Removed::Deleted {
                return Ok(Some(Removed::Deleted));
            }
            if !self.is_marked(files).await? {
                return Ok(None);
            }
            files.remove(record.txid, kind).await.map(Some)
        };
        let removed = removing.await;
        (record, removed)
    }

    /// Goes on where a run was cut off between a record's cut and its end; what has a file only if its place is
    /// the right one.
    async fn finish_doomed(&self, external: bool, limits: &Limits) -> Result<(), Ended> {
        let mut after = None;
        loop {
            limits.check()?;
            let page = self.store.doomed(after, self.settings.chunk_size).await?;
            let may_go = |record: &Doomed<_>| external || record.external.is_none();
            let (go, stay): (Vec<_>, Vec<_>) = page.items.into_iter().partition(may_go);
            self.board.count(|done| done.keep(Kept::FilesMissing, stay.len() as u64));
            self.remove(go).await?;
            // What cannot be removed now is passed over, and tried again by the next run.
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
