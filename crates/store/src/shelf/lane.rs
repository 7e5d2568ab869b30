//! The lane: what is staged is synced and committed, many batches at a time. Whoever waits first
//! carries everything that is there; the others wait for it. A failure ends the lane.

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::open::Shelf;
use crate::StoreError;
use crate::ground::{Arena, Index};
use crate::regions::alloc::Allocate;
use crate::regions::overlay::{Overlay, into_changes};

/// A batch whose bytes are written and whose rows are not committed.
pub(super) struct Job {
    pub number: u64,
    pub changes: Overlay,
    /// The journal entries that it makes.
    pub journal: Vec<u64>,
    /// It wrote bytes, which must be durable before its rows are.
    pub must_sync: bool,
}

#[derive(Default)]
struct Inner {
    waiting: Vec<Job>,
    /// Somebody is carrying.
    busy: bool,
    done: u64,
    failed: bool,
    /// What ended the lane; the first who asks gets the error itself.
    failure: Option<StoreError>,
}

/// The batches of one shelf.
#[derive(Default)]
pub(super) struct Lane {
    inner: Mutex<Inner>,
    moved: Condvar,
}

impl Lane {
    /// The newest batch that is durable.
    pub(super) fn done(&self) -> u64 {
        self.inner.lock().done
    }

    pub(super) fn push(&self, job: Job) {
        self.inner.lock().waiting.push(job);
    }
}

impl<A: Arena, I: Index> Shelf<A, I> {
    /// Waits until a batch is durable, and carries it there if nobody else does.
    pub(super) fn wait_for(&self, number: u64) -> Result<(), StoreError> {
        let mut inner = self.lane.inner.lock();
        loop {
            if inner.done >= number {
                return Ok(());
            }
            if inner.failed {
                return Err(inner.failure.take().unwrap_or_else(|| self.refusal()));
            }
            if inner.busy {
                self.lane.moved.wait(&mut inner);
                continue;
            }
            inner.busy = true;
            let jobs = std::mem::take(&mut inner.waiting);
            let last = jobs.last().map(|job| job.number);
            let carried = MutexGuard::unlocked(&mut inner, || self.carry(jobs));
            inner.busy = false;
            match (carried, last) {
                (Ok(()), Some(last)) => inner.done = last,
                (Ok(()), None) => {
                    // Nobody waits for a batch that was never staged.
                    self.lane.moved.notify_all();
                    return Err(StoreError::refused("wait", "there is no such batch"));
                }
                (Err(error), _) => {
                    self.poison(&error);
                    (inner.failed, inner.failure) = (true, Some(error));
                }
            }
            self.lane.moved.notify_all();
        }
    }

    /// Syncs, commits, and only then lets what was cut wait for its readers.
    fn carry(&self, jobs: Vec<Job>) -> Result<(), StoreError> {
        if jobs.iter().any(|job| job.must_sync) {
            self.arena.sync()?;
        }
        let mut merged = Overlay::new();
        let mut journal = Vec::new();
        for job in jobs {
            merged.extend(job.changes);
            journal.extend(job.journal);
        }
        self.index.commit(into_changes(merged))?;
        if !journal.is_empty() {
            let epoch = self.pins.raise();
            self.cuts.lock().extend(journal.into_iter().map(|seq| (seq, epoch)));
        }
        Ok(())
    }

    /// Frees everything that can be freed now, after what is staged is durable, and gives the space
    /// of free regions back to the file system as far as arena and index take more than `budget`
    /// bytes (0: no budget), or all of it where the disk is full. Returns whether nothing is left
    /// in quarantine.
    pub fn settle(&self, budget: u64) -> Result<bool, StoreError> {
        loop {
            let mut control = self.writer()?;
            self.wait_for(control.staged)?;
            let mut batch = self.begin(&mut control)?;
            let freed = batch.free_cuts()?;
            let over = if self.index.ensure_reserve()? {
                let taken = self.arena.space()?.given + self.index.bytes()? + batch.fresh_bytes();
                if budget == 0 { 0 } else { taken.saturating_sub(budget) }
            } else {
                u64::MAX
            };
            let punched = if over > 0 { batch.punch_free(&self.arena, over)? } else { 0 };
            if freed == 0 && punched == 0 {
                return Ok(self.cuts.lock().is_empty());
            }
            let number = self.stage(&mut control, batch)?;
            MutexGuard::unlock_fair(control);
            self.wait_for(number)?;
        }
    }
}
