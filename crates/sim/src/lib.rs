//! Secateur's reliability programme: a simulated medium, the states a crash can leave on it, and
//! checkers that compare what a store says with what it promised.
//!
//! Test-only. Nothing depends on this crate but its own tests and its command
//! (`cargo run --release -p secateur-sim`). All randomness is seeded; a failure prints the
//! command that replays it.

pub mod budget;
pub mod chain;
mod clock;
pub mod corrupt;
pub mod crash;
pub mod enumerate;
pub mod faults;
pub mod grounds;
pub mod image;
pub mod kill;
pub mod model;
pub mod readers;
pub mod rng;
pub mod saboteurs;
pub mod script;
pub mod sidecar;
pub mod world;

pub use clock::SimClock;

/// Keeps redb's panics on damaged pages off the terminal: the store turns each into an error,
/// and a hundred thousand backtraces would help nobody. Other panics are shown as ever.
pub fn quiet_redb_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let in_redb = panic.location().is_some_and(|at| at.file().contains("/redb-"));
            if !in_redb {
                before(panic);
            }
        }));
    });
}

/// Runs `work` on every core at once and waits for all of them.
pub(crate) fn on_every_core(work: impl Fn() + Sync) {
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(&work);
        }
    });
}
