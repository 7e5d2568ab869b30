//! The prune daemon: a thread that ticks when the policy's trigger says so, and at once while the
//! budget drains and there is more to do.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use secateur_core::Plan;

use super::prune::PruneOutcome;
use super::store::Store;
use super::tick::Drained;
use crate::StoreError;
use crate::ground::{Arena, Index};

/// How long the daemon rests at most while the budget drains: what it waits for may need no append
/// and no acknowledgement, but time.
const DRAINING: Duration = Duration::from_mins(1);
/// The first pause after a tick that failed; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);

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
        observe: impl FnMut(Result<&PruneOutcome, &StoreError>) + Send + 'static,
    ) -> Result<Self, StoreError> {
        Self::start_with(store, |_| {}, observe)
    }

    /// The same; `announce` gets the plan of the first prune that this store ever makes by itself,
    /// before anything of it is cut. If that plan cannot be made nothing is cut.
    pub fn start_with<A: Arena, I: Index>(
        store: Arc<Store<A, I>>,
        mut announce: impl FnMut(&Plan) + Send + 'static,
        mut observe: impl FnMut(Result<&PruneOutcome, &StoreError>) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let shared = Shared::default();
        // A budget may drain already, by a policy that was changed before the daemon came.
        shared.0.lock().rung = store.is_draining();
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
                let (mut announced, mut pause) = (false, None);
                while wait(&waiting, rest(&store, pause)) {
                    let done = loop {
                        match run_until_done(&waiting, &store, announced, &mut observe) {
                            Ok(Drained::Unannounced) => {}
                            done => break done,
                        }
                        match store.prune_plan() {
                            // It is no longer due.
                            Ok(plan) if plan.totals.blocks == 0 => break Ok(Drained::Done),
                            Ok(plan) => announce(&plan),
                            Err(error) => break Err(error),
                        }
                        announced = true;
                    };
                    pause = match done {
                        Ok(_) => None,
                        Err(error) => {
                            observe(Err(&error));
                            Some(next_pause(pause))
                        }
                    };
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

/// How long to wait for the bell: no time at all is set where only appended blocks are a trigger.
fn rest<A: Arena, I: Index>(store: &Store<A, I>, pause: Option<Duration>) -> Option<Duration> {
    let timer = store.policy().trigger.millis().map(Duration::from_millis);
    let draining = store.is_draining().then_some(DRAINING);
    [timer, draining, pause].into_iter().flatten().min()
}

fn next_pause(pause: Option<Duration>) -> Duration {
    pause.map_or(FIRST_PAUSE, |pause| (2 * pause).min(LAST_PAUSE))
}

/// Waits for the bell, and no longer than that; false means stop.
fn wait(shared: &Shared, rest: Option<Duration>) -> bool {
    let mut bell = shared.0.lock();
    if !bell.rung && !bell.stop {
        match rest {
            Some(rest) => {
                shared.1.wait_for(&mut bell, rest);
            }
            None => shared.1.wait(&mut bell),
        }
    }
    bell.rung = false;
    !bell.stop
}

/// Ticks as the trigger grants, then frees what was cut. The first cut of a store waits until it was
/// announced.
fn run_until_done<A: Arena, I: Index>(
    shared: &Shared,
    store: &Store<A, I>,
    announced: bool,
    observe: &mut impl FnMut(Result<&PruneOutcome, &StoreError>),
) -> Result<Drained, StoreError> {
    let heard = |outcome: &PruneOutcome| {
        if outcome.totals.blocks > 0 {
            observe(Ok(outcome));
        }
        true
    };
    store.drain_while(announced, heard, || !shared.0.lock().stop)
}

#[cfg(test)]
mod tests {
    use secateur_core::{PrunePolicy, Trigger};

    use super::*;
    use crate::ground::{Ground, MemoryArena, MemoryIndex};
    use crate::{StoreConfig, SystemClock};

    fn store(trigger: Trigger) -> Store<MemoryArena, MemoryIndex> {
        let mut config = StoreConfig::new(7, [1; 16]);
        config.policy = PrunePolicy { trigger, ..PrunePolicy::default() };
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        Store::create(ground, config, Arc::new(SystemClock)).unwrap()
    }

    #[test]
    fn a_trigger_that_counts_blocks_waits_for_no_time() {
        let minute = Duration::from_mins(1);
        assert_eq!(rest(&store(Trigger::EveryNBlocks(84)), None), None);
        assert_eq!(rest(&store(Trigger::Timer(5000)), None), Some(Duration::from_secs(5)));
        let both = store(Trigger::Both { blocks: 84, millis: 60_000 });
        assert_eq!(rest(&both, None), Some(minute));
    }

    #[test]
    fn while_the_budget_drains_there_is_a_look_every_minute_whatever_the_trigger() {
        let store = store(Trigger::EveryNBlocks(84));
        store.control.lock().state.pressure.draining = true;
        assert_eq!(rest(&store, None), Some(Duration::from_mins(1)));
    }

    #[test]
    fn a_tick_that_failed_is_tried_again_after_pauses_that_grow_to_a_minute() {
        let store = store(Trigger::EveryNBlocks(84));
        let mut pause = None;
        let mut seconds = Vec::new();
        for _ in 0..8 {
            pause = Some(next_pause(pause));
            seconds.extend(rest(&store, pause).map(|rest| rest.as_secs()));
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    /// A start that lowered the budget rang before there was a daemon, and nothing was pruned for a minute.
    #[test]
    fn a_budget_that_drains_at_the_start_is_pruned_at_once() {
        let store = Arc::new(store(Trigger::EveryNBlocks(84)));
        store.set_pruning_enabled(true).unwrap();
        store.control.lock().state.pressure.draining = true;
        store.poison(&StoreError::Foreign("the medium is gone".into()));
        let (told, heard) = std::sync::mpsc::channel();
        let daemon = Daemon::start(Arc::clone(&store), move |tick| {
            told.send(tick.map(drop).map_err(ToString::to_string)).unwrap_or_default();
        })
        .unwrap();
        // Well before the look that comes with time.
        let failed = heard.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
        assert!(failed.contains("the medium is gone"), "{failed}");
        daemon.stop();
    }

    #[test]
    fn a_tick_that_failed_is_tried_again_though_nothing_rings() {
        let store = Arc::new(store(Trigger::EveryNBlocks(84)));
        store.set_pruning_enabled(true).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let daemon = Daemon::start(Arc::clone(&store), move |tick| {
            told.send(tick.map(drop).map_err(ToString::to_string)).unwrap_or_default();
        })
        .unwrap();
        store.poison(&StoreError::Foreign("the medium is gone".into()));
        store.ring();
        for _ in 0..2 {
            let failed = heard.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
            assert!(failed.contains("the medium is gone"), "{failed}");
        }
        daemon.stop();
    }
}
