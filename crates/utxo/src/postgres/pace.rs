//! How fast a prune goes: as fast as the server can while nobody else has work for it, and one chunk at
//! a time, with a rest after each, while somebody changes records through the same store. What other
//! programs do in the same database is not seen here.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

/// A rest beside steps, in times of the chunk before it. A prune then takes a quarter of one of the
/// server's processors, and still deletes several times what the writers can make.
const REST: u32 = 3;
/// It is never longer than this, however slow the server is.
const LONGEST: Duration = Duration::from_secs(1);

/// Who works on the database through one store.
#[derive(Debug)]
pub(super) struct Pace {
    /// A prune has half of the connections at most, so that others need not wait for it.
    sweeps: Semaphore,
    steps: AtomicUsize,
    /// Who sweeps beside steps.
    gentle: Mutex<()>,
}

/// A step that is under way.
pub(super) struct Step<'a>(&'a Pace);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            sweeps: Semaphore::new((connections / 2).max(1)),
            steps: AtomicUsize::new(0),
            gentle: Mutex::new(()),
        }
    }

    /// Somebody changes records.
    pub(super) fn step(&self) -> Step<'_> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        Step(self)
    }

    fn is_busy(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > 0
    }

    /// Does a piece of a prune when its turn comes.
    pub(super) async fn sweep<T>(&self, piece: impl Future<Output = T>) -> T {
        let _turn = self.sweeps.acquire().await;
        let gentle = if self.is_busy() { Some(self.gentle.lock().await) } else { None };
        let began = Instant::now();
        let value = piece.await;
        if gentle.is_some() && self.is_busy() {
            tokio::time::sleep((began.elapsed() * REST).min(LONGEST)).await;
        }
        value
    }
}
