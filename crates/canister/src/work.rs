//! Work that is nobody's call: sealing and pruning, one step in a message, and the timers that start it.
//!
//! An append only schedules it. A step that traps is undone, and forgotten by the timers; but that it was
//! scheduled is not, so that the next call or look finds it out and schedules it again. A look comes with
//! time, whatever the policy says, so that nothing waits for a call that does not come. A step that fails is
//! tried again after a pause, or each call until then would pay for a message that fails as well.

use std::cell::Cell;
use std::time::Duration;

use ic_cdk_timers::TimerId;
use secateur_store::StoreError;

use crate::metrics::counted;
use crate::state;
use crate::types::MAX_MILLIS;

/// How often the canister looks where the policy names no time: for steps that were lost, and for what a
/// budget that drains waits for. Retention is pruned when the policy says, and at no other time.
const LOOK: Duration = Duration::from_mins(10);
/// A step that was to run at once and has not run after this time trapped.
const LOST: Duration = Duration::from_secs(10);

/// The first pause after a step that failed; each further one is twice as long, up to [`LOOK`].
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// What is waited for after a step that failed: until then no call and no look schedules another one.
#[derive(Clone, Copy)]
struct Pause {
    /// When it ends, in nanoseconds.
    until: u64,
    len: Duration,
    /// Schedules the step that tries again.
    timer: TimerId,
}

/// A step that is to run.
#[derive(Clone, Copy)]
struct Scheduled {
    timer: TimerId,
    /// When it was, in nanoseconds.
    at: u64,
}

impl Scheduled {
    fn is_lost(self) -> bool {
        Duration::from_nanos(ic_cdk::api::time().saturating_sub(self.at)) >= LOST
    }
}

thread_local! {
    /// Whether the next step prunes: somebody rang, or it is time.
    static TICK: Cell<bool> = const { Cell::new(false) };
    /// The next step.
    static STEP: Cell<Option<Scheduled>> = const { Cell::new(None) };
    /// Looks that come with time.
    static LOOKS: Cell<Option<TimerId>> = const { Cell::new(None) };
    /// The pause after the last step, if that failed.
    static PAUSE: Cell<Option<Pause>> = const { Cell::new(None) };
    /// Steps that failed or trapped.
    static FAILURES: Cell<u64> = const { Cell::new(0) };
}

/// The store's bell.
pub(crate) fn ring() {
    TICK.set(true);
}

/// Steps that failed or trapped since this version was installed.
pub(crate) fn failures() -> u64 {
    FAILURES.get()
}

fn failed() {
    FAILURES.set(FAILURES.get() + 1);
}

/// Whether the last step failed, and it is too early to try again.
fn is_pausing() -> bool {
    PAUSE.get().is_some_and(|pause| ic_cdk::api::time() < pause.until)
}

/// Ends the pause, and says how long it was.
fn end_pause() -> Option<Duration> {
    let pause = PAUSE.take()?;
    ic_cdk_timers::clear_timer(pause.timer);
    Some(pause.len)
}

/// Waits, longer than the last time if that failed too, and tries again.
fn pause() {
    let len = end_pause().map_or(FIRST_PAUSE, |len| (2 * len).min(LOOK));
    let timer = ic_cdk_timers::set_timer(len, async { schedule() });
    let nanos = u64::try_from(len.as_nanos()).unwrap_or(u64::MAX);
    let until = ic_cdk::api::time().saturating_add(nanos);
    PAUSE.set(Some(Pause { until, len, timer }));
}

/// After a call that may have left work: schedules it.
pub(crate) fn follow_up() {
    if is_pausing() {
        return;
    }
    let seals = state::with(|store| Ok(store.seal_due())).unwrap_or(false);
    if TICK.get() || seals || STEP.get().is_some_and(Scheduled::is_lost) {
        schedule();
    }
}

/// Sets the timer that looks when time has passed, as the policy says.
pub(crate) fn arm() {
    if let Some(timer) = LOOKS.take() {
        ic_cdk_timers::clear_timer(timer);
    }
    let millis = state::with(|store| Ok(store.policy().trigger.millis())).ok().flatten();
    let every = millis.map_or(LOOK, |millis| Duration::from_millis(millis.min(MAX_MILLIS)));
    LOOKS.set(Some(ic_cdk_timers::set_timer_interval(every, || async { look() })));
}

/// Schedules a step if there is something for it to do. It is a message of its own: one that traps does
/// not take this one with it.
fn look() {
    let due = state::with(|store| {
        let is_time = store.policy().trigger.millis().is_some() || store.is_draining();
        if is_time && store.need_prune()?.need_prune {
            TICK.set(true);
        }
        Ok(store.seal_due())
    });
    if is_pausing() {
        return;
    }
    if due.unwrap_or(true) || TICK.get() || STEP.get().is_some_and(Scheduled::is_lost) {
        schedule();
    }
}

/// Lets the next step run in a message of its own. There is one at a time: a second takes the place
/// of the first, also of one that trapped.
pub(crate) fn schedule() {
    let timer = ic_cdk_timers::set_timer(Duration::ZERO, async { step() });
    let scheduled = Scheduled { timer, at: ic_cdk::api::time() };
    if let Some(before) = STEP.replace(Some(scheduled)) {
        ic_cdk_timers::clear_timer(before.timer);
        if before.is_lost() {
            failed();
        }
    }
}

/// Schedules a step that prunes.
pub(crate) fn schedule_prune() {
    TICK.set(true);
    schedule();
}

fn step() {
    STEP.set(None);
    let done = state::with(one_step);
    if done.is_ok() {
        end_pause();
    }
    match done {
        Ok(true) => schedule(),
        Ok(false) => {}
        Err(error) => {
            failed();
            pause();
            ic_cdk::api::debug_print(format!("secateur: a step of its own failed: {error}"));
        }
    }
}

/// Seals an epoch, or prunes once where that is asked for, and frees what was cut. Whether there is more is
/// the answer: a budget that drains goes on at once, and retention waits for the next trigger.
fn one_step(store: &state::History) -> Result<bool, StoreError> {
    let sealed = if store.seal_due() { store.seal_one() } else { Ok(false) };
    if let Ok(true) = sealed {
        return Ok(true);
    }
    // Where there is no room for a run there is all the more reason to cut.
    if TICK.get() {
        let outcome = counted(|| store.tick(), |outcome| outcome.as_ref().map(|done| done.totals))?;
        if outcome.is_some_and(|outcome| outcome.drains_on()) {
            return Ok(true);
        }
        TICK.set(false);
    }
    store.settle()?;
    sealed?;
    Ok(store.seal_due())
}
