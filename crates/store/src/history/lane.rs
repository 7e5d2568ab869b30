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

use super::runs::{BlockIds, LiveRun, RunRecord, SealLimits};
use super::store::{Control, Ends, Store};
use super::txn::{Mirrors, Txn};
use crate::StoreError;
use crate::ground::{Arena, Index};
use crate::regions::buffer::Buffer;
use crate::regions::overlay::Overlay;

/// Jobs that are on their way at most, before a caller must wait.
const MAX_JOBS: u64 = 64;
/// Groups among them at most.
const MAX_GROUPS: u64 = 16;
/// Bytes that are on their way at most: a cut goes through the lane behind them, and until it has
/// passed they take new space.
const MAX_BYTES: u64 = 32 << 20;
/// So many groups may be on their way however large they are, one for each stage.
const FEW_GROUPS: u64 = 3;

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
    /// Blocks up to a height were cut, and these runs are left. What of their ids was not sealed
    /// yet was sealed along with it.
    Cut(Height, Arc<Vec<RunRecord>>, Vec<Arc<LiveRun>>),
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

pub(super) struct Job {
    pub(super) number: u64,
    pub(super) staging: Staging,
    pub(super) bytes: u64,
    pub(super) changes: Overlay,
    pub(super) ends: Ends,
}

/// What ended the lane; the first who asks gets the error itself.
pub(super) struct Failure(Option<StoreError>);

/// The jobs that wait for a stage, and whether it is at work on one.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<Job>,
    pub(super) busy: bool,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) write: Queue,
    pub(super) sync: Queue,
    pub(super) commit: Queue,
    pub(super) staged: u64,
    pub(super) done: u64,
    /// The newest job that somebody waits for.
    pub(super) wanted: u64,
    /// Bytes that are not written yet.
    pub(super) unwritten: u64,
    /// Groups that are not committed yet, and their bytes.
    pub(super) groups: u64,
    pub(super) uncommitted: u64,
    pub(super) failure: Option<Failure>,
    pub(super) attached: Attached,
    /// Threads that carry jobs.
    #[cfg(feature = "disk")]
    pub(super) workers: usize,
    /// An epoch waits to be sealed.
    pub(super) seal_due: bool,
}

/// The workers, as callers see them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only the disk has workers"))]
pub(super) enum Attached {
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
    pub(super) inner: Mutex<Inner>,
    /// Who waits is told apart, so that a step wakes nobody for nothing.
    pub(super) stages: [Condvar; Stage::ALL.len()],
    /// For whoever waits for a job or for room.
    pub(super) done: Condvar,
    /// For the worker that seals.
    pub(super) seal: Condvar,
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
    pub(super) const ALL: [Self; 3] = [Self::Write, Self::Sync, Self::Commit];
}

impl Lane {
    pub(super) fn stage(&self, stage: Stage) -> &Condvar {
        let [write, sync, commit] = &self.stages;
        match stage {
            Stage::Write => write,
            Stage::Sync => sync,
            Stage::Commit => commit,
        }
    }

    /// Wakes whoever can do the next thing: the worker of a stage, and callers, who help where
    /// there are no workers.
    pub(super) fn wake(&self, inner: &Inner, stage: Stage) {
        if inner.attached == Attached::Yes {
            self.stage(stage).notify_one();
        } else {
            self.wake_all();
        }
    }

    pub(super) fn wake_all(&self) {
        self.stages.iter().for_each(|stage| {
            stage.notify_all();
        });
        self.done.notify_all();
        self.seal.notify_all();
    }

    /// The newest job that is durable.
    pub(crate) fn done(&self) -> u64 {
        self.inner.lock().done
    }

    /// Bytes that are staged and not written yet.
    pub(crate) fn unwritten(&self) -> u64 {
        self.inner.lock().unwritten
    }

    /// The newest job that was staged.
    pub(crate) fn staged(&self) -> u64 {
        self.inner.lock().staged
    }

    /// Waits until no stage is at work: after a failure nothing new begins.
    pub(crate) fn wait_until_still(&self) {
        let mut inner = self.inner.lock();
        while Stage::ALL.into_iter().any(|stage| inner.queue(stage).busy) {
            self.done.wait(&mut inner);
        }
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
        let free = inner.attached == Attached::No && inner.workers == 0;
        if free {
            inner.attached = Attached::Yes;
        }
        free
    }

    /// Tells workers to finish and go.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.attached = if inner.workers > 0 { Attached::Closing } else { Attached::No };
        drop(inner);
        self.wake_all();
    }

    /// A worker begins.
    pub(crate) fn enter(&self) {
        self.inner.lock().workers += 1;
    }

    /// A worker has gone; with the last one, callers carry their own jobs again.
    pub(crate) fn leave(&self) {
        let mut inner = self.inner.lock();
        inner.workers -= 1;
        inner.attached = if inner.workers == 0 { Attached::No } else { Attached::Closing };
        self.wake_all();
    }
}

impl Inner {
    fn queue(&self, stage: Stage) -> &Queue {
        match stage {
            Stage::Write => &self.write,
            Stage::Sync => &self.sync,
            Stage::Commit => &self.commit,
        }
    }

    pub(super) fn can(&self, stage: Stage) -> bool {
        let queue = self.queue(stage);
        let ready = self.failure.is_none() && !queue.busy && !queue.jobs.is_empty();
        ready && (stage != Stage::Commit || self.is_worth_a_commit())
    }

    /// A commit costs a sync, so cuts that nobody waits for ride along with the next group, unless
    /// the lane is full or about to close.
    fn is_worth_a_commit(&self) -> bool {
        let pressing = |job: &Job| job.bytes > 0 || job.number <= self.wanted;
        self.commit.jobs.iter().any(pressing)
            || self.staged - self.done >= MAX_JOBS
            || self.attached == Attached::Closing
    }

    #[cfg(feature = "disk")]
    pub(super) fn idle(&self) -> bool {
        let still = |queue: &Queue| queue.jobs.is_empty() && !queue.busy;
        Stage::ALL.into_iter().all(|stage| still(self.queue(stage)))
    }

    /// Jobs that go into the index as one commit: everything that is synced by now, because the
    /// sync of the index is the dearest step of a small group. A rollback ends it: ids come in
    /// before their commit and go after it, and those of blocks that come after a rollback must
    /// not go with it.
    pub(super) fn take_batch(&mut self) -> Vec<Job> {
        let rolls_back = |job: &Job| matches!(job.staging.hashes, HashChange::RollBack(_));
        let jobs = &mut self.commit.jobs;
        let end = jobs.iter().position(rolls_back).map_or(jobs.len(), |at| at + 1);
        jobs.drain(..end).collect()
    }

    /// Ends the lane. The first failure stays.
    pub(super) fn fail(&mut self, error: StoreError) {
        for queue in [&mut self.write, &mut self.sync, &mut self.commit] {
            queue.jobs.clear();
        }
        (self.unwritten, self.groups, self.uncommitted) = (0, 0, 0);
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
        inner.unwritten += bytes;
        inner.groups += u64::from(bytes > 0);
        inner.uncommitted += bytes;
        inner.write.jobs.push_back(Job { number, staging, bytes, changes, ends: control.ends() });
        self.lane.wake(&inner, Stage::Write);
        Ok(number)
    }

    /// Waits until there is room for another group.
    pub(crate) fn wait_for_room(&self) -> Result<(), StoreError> {
        let full = |inner: &Inner| {
            inner.staged - inner.done >= MAX_JOBS
                || inner.groups >= MAX_GROUPS
                || (inner.uncommitted >= MAX_BYTES && inner.groups >= FEW_GROUPS)
        };
        self.drive(|inner| (!full(inner)).then_some(()))
    }

    /// Waits until a job is durable.
    pub(crate) fn wait_for(&self, number: u64) -> Result<(), StoreError> {
        {
            let mut inner = self.lane.inner.lock();
            inner.wanted = inner.wanted.max(number);
            self.lane.wake(&inner, Stage::Commit);
        }
        self.drive(|inner| (inner.done >= number).then_some(()))
    }

    /// Waits until groups that come by have made cuts durable, up to a job, and have freed them:
    /// then they cost no sync of their own. False once no group is on its way.
    pub(crate) fn settled_along(&self, number: u64) -> Result<bool, StoreError> {
        let along = |inner: &Inner| inner.done >= number && self.cuts.lock().is_empty();
        self.drive(|inner| (inner.groups == 0 || along(inner)).then_some(()))?;
        Ok(along(&self.lane.inner.lock()))
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
            if inner.failure.is_some() && inner.commit.busy {
                // It may be durable after all, and two who ask must not hear two things.
                self.lane.done.wait(&mut inner);
                continue;
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
                None => self.lane.done.wait(&mut inner),
            }
        }
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
