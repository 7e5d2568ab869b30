//! The prune daemon: a thread that ticks when blocks were appended, when time has passed, and at
//! once while there is more to do.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::prune::PruneOutcome;
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

/// How long the daemon rests when no timer is set and after a failed tick.
const IDLE: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct Bell {
    rung: bool,
    stop: bool,
}

type Shared = Arc<(Mutex<Bell>, Condvar)>;

/// A running prune daemon. Stopping it, or dropping it, ends the thread after its tick.
#[derive(Debug)]
pub struct Daemon {
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts the daemon of a store. `observe` hears of every tick that ran and every failure.
    pub fn start<A: Arena, I: Index>(
        store: Arc<Store<A, I>>,
        mut observe: impl FnMut(Result<&PruneOutcome, &StoreError>) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let shared = Shared::default();
        let bell = Arc::clone(&shared);
        let first = store.on_prune_due(move || {
            bell.0.lock().rung = true;
            bell.1.notify_one();
        });
        if !first {
            return Err(StoreError::refused("daemon", "this store has a daemon already"));
        }
        let waiting = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("secateur-prune".into())
            .spawn(move || {
                // However the thread ends, another daemon may take its place.
                let _place = Place(&store);
                while wait(&waiting, &store) {
                    run_until_done(&waiting, &store, &mut observe);
                }
            })
            .map_err(|source| StoreError::io("starting the prune daemon", source))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ends the thread and waits for it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.0.lock().stop = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // A panic in the observer was printed by the panic hook already.
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// The daemon's place at the store's bell.
struct Place<'a, A: Arena, I: Index>(&'a Store<A, I>);

impl<A: Arena, I: Index> Drop for Place<'_, A, I> {
    fn drop(&mut self) {
        self.0.forget_prune_due();
    }
}

/// Waits for the bell or the timer; false means stop.
fn wait<A: Arena, I: Index>(shared: &Shared, store: &Store<A, I>) -> bool {
    let rest = store.policy().trigger.millis().map_or(IDLE, Duration::from_millis);
    let mut bell = shared.0.lock();
    if !bell.rung && !bell.stop {
        shared.1.wait_for(&mut bell, rest);
    }
    bell.rung = false;
    !bell.stop
}

/// Ticks until nothing is left to do at once, then frees what was cut.
fn run_until_done<A: Arena, I: Index>(
    shared: &Shared,
    store: &Store<A, I>,
    observe: &mut impl FnMut(Result<&PruneOutcome, &StoreError>),
) {
    let drained = store.drain(|outcome| {
        if outcome.totals.blocks > 0 {
            observe(Ok(outcome));
        }
        !shared.0.lock().stop
    });
    if let Err(error) = drained {
        observe(Err(&error));
    }
}
