//! Workers: the threads that carry a store's jobs while callers make the next ones ready. One
//! writes bytes, one syncs them, one commits, one seals full epochs into runs.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::lane::Stage;
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

/// The niceness of the worker that seals.
const BEHIND_OTHERS: i32 = 10;

/// The running workers of a store. Dropping them finishes what is on its way and ends the
/// threads; the store goes on without them, each caller carrying its own jobs.
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
    end: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    /// Starts the workers of a store; it has at most one set of them.
    pub fn start<A: Arena, I: Index>(store: &Arc<Store<A, I>>) -> Result<Self, StoreError> {
        store.build_hashes()?;
        if !store.lane.attach() {
            return Err(StoreError::refused("workers", "this store has workers already"));
        }
        let ended = Arc::clone(store);
        let end = Box::new(move || ended.lane.close());
        let mut workers = Self { threads: Vec::new(), end };
        workers.spawn("secateur-write", store, |store| store.work(Stage::Write))?;
        workers.spawn("secateur-sync", store, |store| store.work(Stage::Sync))?;
        workers.spawn("secateur-commit", store, |store| store.work(Stage::Commit))?;
        workers.spawn("secateur-seal", store, |store| {
            // Nobody waits for a run, so it gives way to those who carry groups. Where that is
            // not allowed it only costs speed.
            rustix::process::setpriority_process(None, BEHIND_OTHERS).unwrap_or_default();
            store.work_seal();
        })?;
        Ok(workers)
    }

    fn spawn<A: Arena, I: Index>(
        &mut self,
        name: &str,
        store: &Arc<Store<A, I>>,
        life: impl FnOnce(&Store<A, I>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let store = Arc::clone(store);
        store.lane.enter();
        let gone = Gone(Arc::clone(&store));
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _gone = gone;
                life(&store);
            })
            .map_err(|source| StoreError::io("starting a worker", source))?;
        self.threads.push(thread);
        Ok(())
    }
}

/// However a thread ends, or if it never begins, nobody may wait for it for ever.
struct Gone<A: Arena, I: Index>(Arc<Store<A, I>>);

impl<A: Arena, I: Index> Drop for Gone<A, I> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up("a worker panicked");
        }
        self.0.lane.leave();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        (self.end)();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                // A panic was printed by the panic hook already.
            }
        }
    }
}
