//! The lane: what is staged goes through it in order, written, synced, committed, acknowledged.
//!
//! Staging decides everything under the writer's lock; the lane then carries it out. Bytes of one
//! group are written while the group before is synced and committed. Whoever waits for a job
//! helps it along; with workers attached, they do it and the caller only waits. A failure in any
//! stage ends the lane: what was not acknowledged is unknown until the store is reopened.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use secateur_core::Height;

use super::buffer::Buffer;
use super::overlay::Overlay;
use super::runs::{BlockIds, LiveRun, RunRecord, SealLimits};
use super::store::{Control, Ends, Store};
use super::txn::{Mirrors, Txn};
use crate::ground::{Arena, Change, Index};
use crate::{Sabotage, StoreError};

/// Jobs that are on their way at most, before a caller must wait.
const MAX_JOBS: u64 = 16;
/// Bytes that are on their way at most.
const MAX_BYTES: u64 = 64 << 20;

/// Bytes for the arena: where each part of the buffer goes.
#[derive(Debug)]
pub(crate) struct Write {
    pub buffer: Buffer,
    /// Offsets in the arena, with the number of bytes of the buffer that go there, in order.
    pub pieces: Vec<(u64, u64)>,
}

/// What a job changes in the room of hashes, around its commit.
#[derive(Debug, Default)]
pub(crate) enum HashChange {
    /// Nothing.
    #[default]
    None,
    /// Blocks came.
    Insert(Vec<BlockIds>, SealLimits),
    /// Blocks up to a height were cut; these runs are left.
    Cut(Height, Arc<Vec<RunRecord>>),
    /// Blocks above a height were rolled back, or all of them.
    RollBack(Option<Height>),
    /// A run stands in for what was gathered up to its last block; these runs are left.
    Sealed(Arc<LiveRun>, Arc<Vec<RunRecord>>),
}

/// What goes with a batch into the lane.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Bytes that must be durable before the batch is committed.
    pub writes: Vec<Write>,
    /// How many of the durable cuts the batch frees.
    pub freed: usize,
    /// The journal entries that the batch makes.
    pub journal: Vec<u64>,
    pub hashes: HashChange,
}

struct Job {
    number: u64,
    staging: Staging,
    bytes: u64,
    changes: Overlay,
    ends: Ends,
}

/// What ended the lane; the first who asks gets the error itself.
struct Failure(Option<StoreError>);

#[derive(Default)]
struct Inner {
    to_write: VecDeque<Job>,
    to_sync: VecDeque<Job>,
    to_commit: VecDeque<Job>,
    /// Which stages are at work.
    writing: bool,
    syncing: bool,
    committing: bool,
    staged: u64,
    done: u64,
    bytes: u64,
    failure: Option<Failure>,
    attached: Attached,
    /// An epoch waits to be sealed.
    seal_due: bool,
}

/// The workers, as callers see them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Attached {
    /// Callers carry their own jobs.
    #[default]
    No,
    /// Workers carry them.
    Yes,
    /// Workers finish what is there and go.
    Closing,
}

/// The jobs of one store.
#[derive(Default)]
pub(crate) struct Lane {
    inner: Mutex<Inner>,
    moved: Condvar,
    seal: Condvar,
}

/// A group that is on its way. Waiting for it says whether it is durable.
#[derive(Debug)]
#[must_use = "a group is durable only once its ticket was waited for"]
pub struct Ticket {
    pub(crate) number: u64,
    pub(crate) appended: super::append::Appended,
}

/// Which stage a worker carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Write,
    Sync,
    Commit,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Write, Self::Sync, Self::Commit];
}

impl Lane {
    /// The newest job that is durable.
    pub(crate) fn done(&self) -> u64 {
        self.inner.lock().done
    }

    /// The newest job that was staged.
    pub(crate) fn staged(&self) -> u64 {
        self.inner.lock().staged
    }

    /// Whether workers carry the jobs.
    pub(crate) fn has_workers(&self) -> bool {
        self.inner.lock().attached == Attached::Yes
    }
}

#[cfg(feature = "disk")]
impl Lane {
    /// Lets workers carry the jobs from now on; false if there are some already.
    pub(crate) fn attach(&self) -> bool {
        let mut inner = self.inner.lock();
        let free = inner.attached == Attached::No;
        if free {
            inner.attached = Attached::Yes;
        }
        free
    }

    /// Tells workers to finish and go.
    pub(crate) fn close(&self) {
        self.inner.lock().attached = Attached::Closing;
        self.moved.notify_all();
        self.seal.notify_all();
    }

    /// A worker has gone: callers carry their own jobs again.
    pub(crate) fn detach(&self) {
        self.inner.lock().attached = Attached::No;
        self.moved.notify_all();
        self.seal.notify_all();
    }
}

impl Inner {
    fn can(&self, stage: Stage) -> bool {
        self.failure.is_none()
            && match stage {
                Stage::Write => !self.writing && !self.to_write.is_empty(),
                Stage::Sync => !self.syncing && !self.to_sync.is_empty(),
                Stage::Commit => !self.committing && !self.to_commit.is_empty(),
            }
    }

    fn idle(&self) -> bool {
        let queues = [&self.to_write, &self.to_sync, &self.to_commit];
        let working = self.writing || self.syncing || self.committing;
        queues.iter().all(|queue| queue.is_empty()) && !working
    }

    /// Jobs that go into the index as one batch: at most one of them waits for a sync, so a group
    /// is never made to wait for the bytes of the next; cuts ride along with it.
    fn take_batch(&mut self) -> Vec<Job> {
        let mut batch: Vec<Job> = Vec::new();
        let mut syncs = 0;
        while let Some(next) = self.to_commit.front() {
            syncs += usize::from(!next.staging.writes.is_empty());
            if syncs > 1 {
                break;
            }
            batch.extend(self.to_commit.pop_front());
        }
        batch
    }

    /// Ends the lane. The first failure stays.
    fn fail(&mut self, error: StoreError) {
        self.to_write.clear();
        self.to_sync.clear();
        self.to_commit.clear();
        self.bytes = 0;
        self.failure.get_or_insert(Failure(Some(error)));
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Hands a finished batch to the lane. From here on the writer works on its state; readers
    /// see it once it is committed.
    pub(crate) fn stage(
        &self,
        control: &mut Control,
        mut txn: Txn<'_, I::Snapshot>,
        staging: Staging,
    ) -> Result<u64, StoreError> {
        let used = txn.state.used_bytes(&self.header.classes);
        let policy = txn.mirrors.policy.as_ref().unwrap_or(&control.policy);
        txn.state.pressure = txn.state.pressure.observe(used, policy.water_marks());
        let (mut changes, state, runs, mirrors) = txn.finish();
        let mut inner = self.lane.inner.lock();
        if inner.failure.is_some() {
            return Err(self.refusal());
        }
        let number = inner.staged + 1;
        inner.staged = number;
        let ahead = Arc::make_mut(&mut control.ahead);
        for (key, row) in &mut changes {
            row.job = number;
            ahead.insert(key.clone(), row.clone());
        }
        control.adopt(state, runs, mirrors);
        self.cuts.lock().drain(..staging.freed);
        let bytes = staging.writes.iter().map(|write| write.buffer.len() as u64).sum();
        inner.bytes += bytes;
        inner.to_write.push_back(Job { number, staging, bytes, changes, ends: control.ends() });
        drop(inner);
        self.lane.moved.notify_all();
        Ok(number)
    }

    /// Waits until there is room for another group.
    pub(crate) fn wait_for_room(&self) -> Result<(), StoreError> {
        let full = |inner: &Inner| {
            inner.staged - inner.done >= MAX_JOBS || (inner.bytes >= MAX_BYTES && !inner.idle())
        };
        self.drive(|inner| (!full(inner)).then_some(()))
    }

    /// Waits until a job is durable.
    pub(crate) fn wait_for(&self, number: u64) -> Result<(), StoreError> {
        self.drive(|inner| (inner.done >= number).then_some(()))
    }

    /// Waits until everything that was staged is durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.wait_for(self.lane.staged())
    }

    /// Helps jobs along until `reached` says so.
    fn drive(&self, reached: impl Fn(&Inner) -> Option<()>) -> Result<(), StoreError> {
        loop {
            let mut inner = self.lane.inner.lock();
            if reached(&inner).is_some() {
                return Ok(());
            }
            if inner.failure.is_some() {
                let original = inner.failure.as_mut().and_then(|failure| failure.0.take());
                drop(inner);
                return Err(original.unwrap_or_else(|| self.refusal()));
            }
            let helps = inner.attached != Attached::Yes;
            let possible = Stage::ALL.into_iter().find(|stage| helps && inner.can(*stage));
            match possible {
                Some(stage) => {
                    drop(inner);
                    self.step(stage);
                }
                None => self.lane.moved.wait(&mut inner),
            }
        }
    }

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
            self.lane.moved.wait(&mut inner);
        }
    }

    /// The sealing worker's life. A run that finds no room is tried again with the next one.
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
            if let Err(error) = self.seal()
                && !matches!(error, StoreError::DiskFull { .. } | StoreError::Poisoned(_))
            {
                self.poison(&error);
            }
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
        let Some(mut job) = inner.to_write.pop_front() else { return false };
        inner.writing = true;
        drop(inner);
        let written = job.staging.writes.iter_mut().try_for_each(|write| self.write_out(write));
        let mut inner = self.lane.inner.lock();
        inner.writing = false;
        match written {
            Ok(()) if inner.failure.is_none() => {
                inner.bytes = inner.bytes.saturating_sub(job.bytes);
                inner.to_sync.push_back(job);
            }
            Ok(()) => {}
            Err(error) => {
                self.poison(&error);
                inner.fail(error);
            }
        }
        drop(inner);
        self.lane.moved.notify_all();
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

    fn step_sync(&self) -> bool {
        let mut inner = self.lane.inner.lock();
        if !inner.can(Stage::Sync) {
            return false;
        }
        let Some(job) = inner.to_sync.pop_front() else { return false };
        inner.syncing = true;
        drop(inner);
        let synced = if self.must_sync(&job.staging) { self.arena.sync() } else { Ok(()) };
        let mut inner = self.lane.inner.lock();
        inner.syncing = false;
        match synced {
            Ok(()) if inner.failure.is_none() => inner.to_commit.push_back(job),
            Ok(()) => {}
            Err(error) => {
                self.poison(&error);
                inner.fail(error);
            }
        }
        drop(inner);
        self.lane.moved.notify_all();
        true
    }

    fn step_commit(&self) -> bool {
        let mut inner = self.lane.inner.lock();
        if !inner.can(Stage::Commit) {
            return false;
        }
        let batch = inner.take_batch();
        inner.committing = true;
        drop(inner);
        let last = batch.last().map(|job| job.number);
        let committed = self.commit_batch(batch);
        let seal_due = self.lane.has_workers() && self.seal_due();
        let mut inner = self.lane.inner.lock();
        inner.committing = false;
        inner.seal_due |= seal_due;
        match committed {
            Ok(()) => inner.done = last.unwrap_or(inner.done),
            Err(error) => {
                self.poison(&error);
                inner.fail(error);
            }
        }
        drop(inner);
        self.lane.moved.notify_all();
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
        let changes = merged
            .into_iter()
            .map(|((table, key), row)| Change { table, key, value: row.value })
            .collect();
        self.index.commit(changes)?;
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
        let seals = matches!(staging.hashes, HashChange::Sealed(..));
        let skipped = self.sabotage.is(Sabotage::SkipArenaSync)
            || (seals && self.sabotage.is(Sabotage::SealBeforeSync));
        !staging.writes.is_empty() && !skipped
    }
}

impl Control {
    /// Takes over what a batch leads to.
    fn adopt(&mut self, state: super::state::State, runs: Arc<Vec<RunRecord>>, mirrors: Mirrors) {
        self.state = state;
        self.runs = runs;
        let Mirrors { policy, settings, queue } = mirrors;
        if let Some(policy) = policy {
            self.policy = policy;
        }
        if let Some(settings) = settings {
            self.settings = settings;
        }
        self.adopt_queue(queue);
    }
}
