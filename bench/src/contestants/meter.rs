//! A ground that times the calls that go through it, so that the store's time can be told apart
//! without a profiler. Two clock readings a call cost far less than any of the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use secateur_store::{Arena, Change, Ground, Index, Space, StoreError, Table};

/// Time by kind of call since it was last taken.
#[derive(Debug, Default)]
pub struct Meter {
    write: AtomicU64,
    sync: AtomicU64,
    space: AtomicU64,
    commit: AtomicU64,
    cut_commit: AtomicU64,
    reads: AtomicU64,
    commits: AtomicU64,
}

/// What a meter has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// Writing payloads into the arena.
    pub write: Duration,
    /// Syncing the arena.
    pub sync: Duration,
    /// Growing the arena, giving space back, asking for free space.
    pub space: Duration,
    /// Committing to the index, its syncs included.
    pub commit: Duration,
    /// In those of them that carry neither a block nor a run: cuts that went alone.
    pub cut_commit: Duration,
    /// How many commits.
    pub commits: u64,
}

impl Meter {
    /// Reads of the arena since the beginning.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What was counted since the last time; the count starts anew.
    pub fn take(&self) -> Reading {
        let take = |counter: &AtomicU64| Duration::from_nanos(counter.swap(0, Ordering::Relaxed));
        Reading {
            write: take(&self.write),
            sync: take(&self.sync),
            space: take(&self.space),
            commit: take(&self.commit),
            cut_commit: take(&self.cut_commit),
            commits: self.commits.swap(0, Ordering::Relaxed),
        }
    }
}

fn timed<T>(counter: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let answer = call();
    let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(nanos, Ordering::Relaxed);
    answer
}

/// An arena or an index with a meter.
#[derive(Debug)]
pub struct Metered<T> {
    inner: T,
    meter: Arc<Meter>,
}

/// Puts a meter on both halves of a ground.
pub fn metered<A, I>(ground: Ground<A, I>, meter: &Arc<Meter>) -> Ground<Metered<A>, Metered<I>> {
    Ground {
        arena: Metered { inner: ground.arena, meter: Arc::clone(meter) },
        index: Metered { inner: ground.index, meter: Arc::clone(meter) },
    }
}

impl<A: Arena> Arena for Metered<A> {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.meter.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        timed(&self.meter.write, || self.inner.write_at(offset, bytes))
    }

    fn grow(&self, len: u64) -> Result<(), StoreError> {
        timed(&self.meter.space, || self.inner.grow(len))
    }

    fn sync(&self) -> Result<(), StoreError> {
        timed(&self.meter.sync, || self.inner.sync())
    }

    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
        timed(&self.meter.space, || self.inner.release(offset, len))
    }

    fn space(&self) -> Result<Space, StoreError> {
        timed(&self.meter.space, || self.inner.space())
    }
}

impl<I: Index> Index for Metered<I> {
    type Snapshot = I::Snapshot;

    fn snapshot(&self) -> Result<I::Snapshot, StoreError> {
        self.inner.snapshot()
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.meter.commits.fetch_add(1, Ordering::Relaxed);
        let brings = |change: &Change| {
            matches!(change.table, Table::Blocks | Table::Runs) && change.value.is_some()
        };
        let commit = |changes| timed(&self.meter.commit, || self.inner.commit(changes));
        if changes.iter().any(brings) {
            commit(changes)
        } else {
            timed(&self.meter.cut_commit, || commit(changes))
        }
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.inner.ensure_reserve()
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.inner.check()
    }
}
