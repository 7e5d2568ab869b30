//! Work that is nobody's call: sealing and pruning, one step in a message, and the timers that start it.
//!
//! An append only schedules it. A step that traps is undone and forgotten by the timers; whatever rings
//! next schedules another, which finds the store as it was.

use std::cell::Cell;
use std::time::Duration;

use ic_cdk_timers::TimerId;
use secateur_store::StoreError;

use crate::state;

thread_local! {
    /// Whether somebody rang since the last look.
    static RUNG: Cell<bool> = const { Cell::new(false) };
    /// The next step.
    static STEP: Cell<Option<TimerId>> = const { Cell::new(None) };
    /// Looks that come with time.
    static LOOKS: Cell<Option<TimerId>> = const { Cell::new(None) };
    /// Why the last step failed, if it did.
    static TROUBLE: Cell<u64> = const { Cell::new(0) };
}

/// The store's bell.
pub(crate) fn ring() {
    RUNG.set(true);
}

/// Steps that failed since this version was installed.
pub(crate) fn failures() -> u64 {
    TROUBLE.get()
}

/// After a call that may have left work: schedules it.
pub(crate) fn follow_up() {
    let seals = state::with(|store| Ok(store.seal_due())).unwrap_or(false);
    if RUNG.take() || seals {
        schedule();
    }
}

/// Sets the timer that looks when time has passed, as the policy says.
pub(crate) fn arm() {
    if let Some(timer) = LOOKS.take() {
        ic_cdk_timers::clear_timer(timer);
    }
    let millis = state::with(|store| Ok(store.policy().trigger.millis())).ok().flatten();
    if let Some(millis) = millis {
        let every = Duration::from_millis(millis);
        LOOKS.set(Some(ic_cdk_timers::set_timer_interval(every, || async { step() })));
    }
}

/// Lets the next step run in a message of its own. There is one at a time: a second takes the place
/// of the first, also of one that trapped.
pub(crate) fn schedule() {
    let timer = ic_cdk_timers::set_timer(Duration::ZERO, async { step() });
    if let Some(before) = STEP.replace(Some(timer)) {
        ic_cdk_timers::clear_timer(before);
    }
}

fn step() {
    match state::with(one_step) {
        Ok(true) => schedule(),
        Ok(false) => {}
        Err(error) => {
            TROUBLE.set(TROUBLE.get() + 1);
            ic_cdk::api::debug_print(format!("secateur: a step of its own failed: {error}"));
        }
    }
}

/// Seals an epoch, or prunes once, or frees what was cut. Whether there is more is the answer.
fn one_step(store: &state::History) -> Result<bool, StoreError> {
    if store.seal_due() && store.seal_one()? {
        return Ok(true);
    }
    match store.tick()? {
        Some(outcome) if outcome.more() => Ok(true),
        _ => {
            store.settle()?;
            Ok(store.seal_due())
        }
    }
}
