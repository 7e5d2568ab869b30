//! The stages of the lane: write, sync, commit. Each takes the jobs in their order, and each is at
//! work on one thing at a time.

use super::lane::{Attached, HashChange, Inner, Job, Stage, Staging, Write};
use super::store::Store;
use crate::ground::{Arena, Index};
use crate::regions::overlay::{Overlay, into_changes};
use crate::{Sabotage, StoreError};

impl<A: Arena, I: Index> Store<A, I> {
    /// A worker's life: one stage, until the workers are to go and nothing is left.
    #[cfg(feature = "disk")]
    pub(crate) fn work(&self, stage: Stage) {
        loop {
            if self.step(stage) {
                continue;
            }
            let mut inner = self.lane.inner.lock();
            if inner.can(stage) {
                continue;
            }
            let over = inner.idle() || inner.failure.is_some();
            if inner.attached != Attached::Yes && over {
                return;
            }
            self.lane.stage(stage).wait(&mut inner);
        }
    }

    /// The sealing worker's life.
    #[cfg(feature = "disk")]
    pub(crate) fn work_seal(&self) {
        loop {
            {
                let mut inner = self.lane.inner.lock();
                if inner.attached != Attached::Yes || inner.failure.is_some() {
                    return;
                }
                if !std::mem::take(&mut inner.seal_due) {
                    self.lane.seal.wait(&mut inner);
                    continue;
                }
            }
            // The status tells why it failed; the next commit asks again.
            self.seal().unwrap_or_default();
        }
    }

    /// Carries out one step of a stage; whether there was one is the answer.
    pub(crate) fn step(&self, stage: Stage) -> bool {
        match stage {
            Stage::Write => self.step_write(),
            Stage::Sync => self.step_sync(),
            Stage::Commit => self.step_commit(),
        }
    }

    fn step_write(&self) -> bool {
        let mut inner = self.lane.inner.lock();
        if !inner.can(Stage::Write) {
            return false;
        }
        let Some(mut job) = inner.write.jobs.pop_front() else { return false };
        inner.write.busy = true;
        drop(inner);
        let written = job.staging.writes.iter_mut().try_for_each(|write| self.write_out(write));
        let mut inner = self.lane.inner.lock();
        inner.write.busy = false;
        match written {
            Ok(()) if inner.failure.is_none() => {
                inner.unwritten = inner.unwritten.saturating_sub(job.bytes);
                inner.sync.jobs.push_back(job);
                self.lane.wake(&inner, Stage::Sync);
            }
            Ok(()) => self.lane.wake_all(),
            Err(error) => self.end_lane(&mut inner, error),
        }
        true
    }

    fn write_out(&self, write: &mut Write) -> Result<(), StoreError> {
        let mut rest = write.buffer.as_slice();
        for (offset, len) in &write.pieces {
            let len = usize::try_from(*len).unwrap_or(usize::MAX);
            let (now, later) = rest
                .split_at_checked(len)
                .ok_or_else(|| StoreError::corrupt("alloc", "regions exceed the bytes"))?;
            self.arena.write_at(*offset, now)?;
            rest = later;
        }
        self.buffers.give_back(std::mem::take(&mut write.buffer));
        Ok(())
    }

    /// Ends the lane because nobody carries on what was begun.
    #[cfg(feature = "disk")]
    pub(crate) fn give_up(&self, why: &str) {
        let mut inner = self.lane.inner.lock();
        // Whoever waits for a stage to come to rest would wait for the one that is gone.
        (inner.write.busy, inner.sync.busy, inner.commit.busy) = (false, false, false);
        self.end_lane(&mut inner, StoreError::Poisoned(why.into()));
    }

    fn end_lane(&self, inner: &mut Inner, error: StoreError) {
        self.poison(&error);
        inner.fail(error);
        self.lane.wake_all();
    }

    fn step_sync(&self) -> bool {
        let mut inner = self.lane.inner.lock();
        if !inner.can(Stage::Sync) {
            return false;
        }
        let Some(job) = inner.sync.jobs.pop_front() else { return false };
        inner.sync.busy = true;
        drop(inner);
        let synced = if self.must_sync(&job.staging) { self.arena.sync() } else { Ok(()) };
        let mut inner = self.lane.inner.lock();
        inner.sync.busy = false;
        match synced {
            Ok(()) if inner.failure.is_none() => {
                inner.commit.jobs.push_back(job);
                self.lane.wake(&inner, Stage::Commit);
            }
            Ok(()) => self.lane.wake_all(),
            Err(error) => self.end_lane(&mut inner, error),
        }
        true
    }

    fn step_commit(&self) -> bool {
        let mut inner = self.lane.inner.lock();
        if !inner.can(Stage::Commit) {
            return false;
        }
        let batch = inner.take_batch();
        inner.commit.busy = true;
        drop(inner);
        let last = batch.last().map(|job| job.number);
        let groups = batch.iter().filter(|job| job.bytes > 0).count() as u64;
        let bytes: u64 = batch.iter().map(|job| job.bytes).sum();
        let committed = self.commit_batch(batch);
        let seal_due = self.lane.has_workers() && self.seal_due();
        let mut inner = self.lane.inner.lock();
        inner.commit.busy = false;
        inner.seal_due |= seal_due;
        match committed {
            Ok(()) => {
                inner.done = last.unwrap_or(inner.done);
                inner.groups = inner.groups.saturating_sub(groups);
                inner.uncommitted = inner.uncommitted.saturating_sub(bytes);
                self.lane.done.notify_all();
            }
            Err(error) => self.end_lane(&mut inner, error),
        }
        if inner.attached != Attached::Yes {
            // Workers that wait for the end must look again.
            self.lane.wake_all();
        }
        if seal_due {
            self.lane.seal.notify_one();
        }
        true
    }

    /// Commits, and only then moves what readers see.
    fn commit_batch(&self, batch: Vec<Job>) -> Result<(), StoreError> {
        let mut merged = Overlay::new();
        let mut after = Vec::with_capacity(batch.len());
        for job in batch {
            merged.extend(job.changes);
            let mut hashes = job.staging.hashes;
            if let HashChange::Insert(blocks, limits) = &mut hashes {
                // Before the commit, so that no reader meets a block whose ids are nowhere: an id
                // that points at a block which is not there yet is as good as unknown.
                self.hashes.insert_blocks(blocks, *limits);
                blocks.clear();
            }
            after.push((job.ends, job.staging.journal, hashes));
        }
        self.index.commit(into_changes(merged))?;
        for (ends, journal, hashes) in after {
            self.set_ends(ends);
            if !journal.is_empty() {
                let epoch = self.pins.raise();
                self.cuts.lock().extend(journal.into_iter().map(|seq| (seq, epoch)));
            }
            self.hashes.adopt(hashes);
        }
        Ok(())
    }

    fn must_sync(&self, staging: &Staging) -> bool {
        let seals = match &staging.hashes {
            HashChange::Sealed(..) => true,
            HashChange::Cut(.., sealed) => !sealed.is_empty(),
            _ => false,
        };
        let skipped = self.sabotage.is(Sabotage::SkipArenaSync)
            || (seals && self.sabotage.is(Sabotage::SealBeforeSync));
        !staging.writes.is_empty() && !skipped
    }
}
