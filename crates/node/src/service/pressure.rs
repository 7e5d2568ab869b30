//! What the log says of the budget: that it is draining, blocked or in an emergency, when that
//! begins and each minute that it lasts; and a line of figures each minute.
//!
//! What is said when is decided from a status and a number of seconds alone ([`PressureLog`]).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::{Cause, Height, HoldKind, PruneStatus, StopReason, format_bytes};
use secateur_store::{Clock as _, SystemClock};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Node;
use crate::ui::words::{moment, span};

/// How often the status is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds after which what lasts is said again.
const REPEAT_SECONDS: u64 = 60;

/// How the budget stands; the later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Pressing {
    /// Nothing is pressing.
    #[default]
    Steady,
    /// Over high water, and not at low water yet.
    Draining,
    /// A prune is due, and a hold stops it before its first block.
    Blocked,
    /// Over hard water, and not at low water yet.
    Emergency,
}

impl Pressing {
    /// How a status stands.
    pub(crate) fn of(status: &PruneStatus) -> Self {
        if status.pressure.emergency {
            Self::Emergency
        } else if blocking_hold(status).is_some() {
            Self::Blocked
        } else if status.pressure.draining {
            Self::Draining
        } else {
            Self::Steady
        }
    }

    /// Its name in logs and in `/readyz`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Draining => "draining",
            Self::Blocked => "blocked",
            Self::Emergency => "emergency",
        }
    }

    const fn begins(self) -> &'static str {
        match self {
            Self::Steady => "the budget is steady",
            Self::Draining => "the budget is draining",
            Self::Blocked => "a hold blocks a prune that is due",
            Self::Emergency => "the budget is in an emergency",
        }
    }

    const fn ends(self) -> &'static str {
        match self {
            Self::Steady => "the budget is no longer steady",
            Self::Draining => "the budget is no longer draining",
            Self::Blocked => "no hold blocks a prune that is due any longer",
            Self::Emergency => "the budget's emergency is over",
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Steady => 0,
            Self::Draining => 1,
            Self::Blocked => 2,
            Self::Emergency => 3,
        }
    }
}

/// The hold that stops a prune which is due, if it is worth a warning. That retention waits for the
/// chain itself is not: what is not final yet will be.
fn blocking_hold(status: &PruneStatus) -> Option<&str> {
    let Some(StopReason::Hold { hold, .. }) = &status.need.blocked_by else { return None };
    let own = |kind: HoldKind| *hold == kind.to_string();
    let chains_own = own(HoldKind::Finalized) || own(HoldKind::MinKeep);
    let waits = status.need.cause == Some(Cause::Retention) && chains_own;
    (!waits).then_some(hold)
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// It presses.
    Pressing { state: Pressing, used: String, held_by: String, since: u64, advice: String },
    /// It presses no more.
    Over { state: Pressing, used: String, lasted: u64 },
    /// The figures of this minute.
    Figures {
        head: Option<Height>,
        lag: Option<u64>,
        used: String,
        boundary: Option<Height>,
        held_by: String,
    },
}

/// What was said so far, and when.
#[derive(Debug, Default)]
struct PressureLog {
    state: Pressing,
    /// Since when each state lasts, or lasted last; in seconds since 1970.
    since: [u64; 4],
    /// When each was said last.
    said: [Option<u64>; 4],
    figures: Option<u64>,
}

impl PressureLog {
    /// What there is to say of a status at a moment.
    fn look(&mut self, status: &PruneStatus, lag: Option<u64>, now: u64) -> Vec<Line> {
        let (before, state) = (self.state, Pressing::of(status));
        let mut lines = Vec::new();
        if state != before {
            if state < before
                && let Some(said) = self.said.get_mut(before.place())
                && said.is_some()
            {
                let since = self.since.get(before.place()).copied().unwrap_or(now);
                let (used, lasted) = (used(status), now.saturating_sub(since));
                lines.push(Line::Over { state: before, used, lasted });
            }
            if let Some(since) = self.since.get_mut(state.place()) {
                *since = now;
            }
            self.state = state;
        }
        if state > Pressing::Steady
            && let (Some(said), Some(since)) =
                (self.said.get_mut(state.place()), self.since.get(state.place()))
            && is_time(*said, now)
        {
            *said = Some(now);
            let (used, held_by, advice) = (used(status), held_by(status), advice(status));
            lines.push(Line::Pressing { state, used, held_by, since: *since, advice });
        }
        if is_time(*self.figures.get_or_insert(now), now) {
            self.figures = Some(now);
            lines.push(Line::Figures {
                head: status.head,
                lag,
                used: used(status),
                boundary: status.pruned_before_block,
                held_by: held_by(status),
            });
        }
        lines
    }
}

/// Whether a minute has passed. A clock that was set back counts as one, so that nothing is silent
/// until the clock has caught up.
fn is_time(last: impl Into<Option<u64>>, now: u64) -> bool {
    last.into().is_none_or(|last| now < last || now - last >= REPEAT_SECONDS)
}

fn used(status: &PruneStatus) -> String {
    let used = format_bytes(status.used_bytes);
    match status.target_bytes {
        0 => used,
        target => format!("{used} of {}", format_bytes(target)),
    }
}

/// What keeps blocks from being cut: the kill switch, where something is due, else the binding hold.
fn held_by(status: &PruneStatus) -> String {
    if status.need.need_prune && !status.pruning_enabled {
        return "pruning is off".into();
    }
    let binding = blocking_hold(status).or(status.binding_hold.as_deref());
    binding.unwrap_or("nothing").to_owned()
}

/// What an operator can do about it.
fn advice(status: &PruneStatus) -> String {
    if !status.pruning_enabled {
        return "`secateur plan` shows what is due, `secateur pruning on` cuts it".into();
    }
    let Some(hold) = blocking_hold(status) else {
        return "pruning is at work; if it does not keep up, raise policy.max_ops_per_tick or the \
                budget"
            .into();
    };
    let budget = "or raise the budget with `secateur policy set target_bytes=…`";
    match hold.parse() {
        Ok(HoldKind::Archive) => format!(
            "the archiver is behind or stopped: start `secateur index --archive` again, {budget}"
        ),
        Ok(HoldKind::Export(name)) => format!(
            "start the consumer `{name}` again, or let go of its blocks with `secateur holds remove \
             {name}`, {budget}"
        ),
        Ok(HoldKind::Finalized) => {
            format!("blocks do not become final: look at the chain and its source, {budget}")
        }
        Ok(HoldKind::MinKeep) => format!("lower policy.min_keep_blocks, {budget}"),
        _ => format!("`secateur holds` shows what it waits for; {budget}"),
    }
}

fn say(line: &Line) {
    match line {
        Line::Pressing { state, used, held_by, since, advice } => {
            let since = moment(*since);
            tracing::warn!(used, held_by, since, advice, "{}", state.begins());
        }
        Line::Over { state, used, lasted } => {
            let lasted = span(*lasted);
            tracing::info!(used, lasted, "{}", state.ends());
        }
        Line::Figures { head, lag, used, boundary, held_by } => {
            tracing::info!(head, lag, used, boundary, held_by, "status");
        }
    }
}

/// How the budget stood when it was looked at last, for readers that may not wait.
#[derive(Debug, Default)]
pub(crate) struct LastPressing(Mutex<Pressing>);

impl LastPressing {
    /// The last look.
    pub(crate) fn get(&self) -> Pressing {
        *self.0.lock()
    }
}

/// Looks and says until the node stops.
pub(super) async fn run(node: Arc<Node>) -> Result<(), anyhow::Error> {
    let mut log = PressureLog::default();
    let mut every = interval(LOOK_INTERVAL);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = node.stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return Ok(()),
            _ = every.tick() => {}
        }
        // Where nothing can be asked now, the next look is a second away.
        let Ok(status) = node.ask(|store| Ok(store.get_prune_status()?)).await else { continue };
        *node.pressing.0.lock() = Pressing::of(&status);
        let lag = node.standing.borrow().lag(status.head, Instant::now());
        for line in log.look(&status, lag, SystemClock.now_seconds()) {
            say(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use secateur_core::{Block, BlockHash, BlockMeta, Payloads, Pressure, PrunePolicy, Strength};
    use secateur_store::ground::{MemoryArena, MemoryIndex};
    use secateur_store::{Ground, Store, StoreConfig};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// A real status, with what presses put into it.
    fn status(pressure: Pressure, hold: Option<&str>, cause: Cause) -> PruneStatus {
        let mut config = StoreConfig::new(7, [1; 16]);
        config.policy = PrunePolicy { target_bytes: 64 << 20, ..PrunePolicy::default() };
        config.pruning_enabled = true;
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        let store = Store::create(ground, config, Arc::new(SystemClock)).unwrap();
        let (hash, parent_hash) = (BlockHash([2; 32]), BlockHash([1; 32]));
        let meta = BlockMeta { height: 9, hash, parent_hash, timestamp: 1 };
        store.append(&Block { meta, payloads: Payloads::default() }).unwrap();
        let mut status = store.get_prune_status().unwrap();
        status.pressure = pressure;
        status.need.need_prune = hold.is_some() || pressure.draining;
        status.need.cause = Some(cause);
        status.need.blocked_by = hold.map(|hold| StopReason::Hold {
            hold: hold.into(),
            strength: Strength::Hard,
            limit: None,
        });
        status
    }

    const CALM: Pressure = Pressure { draining: false, emergency: false };
    const DRAINING: Pressure = Pressure { draining: true, emergency: false };
    const EMERGENCY: Pressure = Pressure { draining: true, emergency: true };

    fn states(lines: &[Line]) -> Vec<(Pressing, u64)> {
        let pressing = lines.iter().filter_map(|line| match line {
            Line::Pressing { state, since, .. } => Some((*state, *since)),
            _ => None,
        });
        pressing.collect()
    }

    #[test]
    fn an_emergency_is_a_warning_when_it_begins_and_each_minute_that_it_lasts() {
        let mut log = PressureLog::default();
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        let mut warned = Vec::new();
        for second in 0..=180 {
            let lines = log.look(&held, None, NOW + second);
            warned.extend(states(&lines).into_iter().map(|said| (second, said)));
        }
        let said = (Pressing::Emergency, NOW);
        assert_eq!(warned, [(0, said), (60, said), (120, said), (180, said)]);
    }

    #[test]
    fn a_warning_names_the_hold_since_when_and_what_to_do() {
        let mut log = PressureLog::default();
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        let lines = log.look(&held, None, NOW);
        let [Line::Pressing { used, held_by, since, advice, .. }] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert_eq!((held_by.as_str(), *since), ("archive", NOW));
        assert!(used.ends_with(" of 64.0 MiB"), "{used}");
        assert!(advice.contains("secateur index --archive"), "{advice}");
        let consumer = status(EMERGENCY, Some("export:main"), Cause::Emergency);
        assert!(advice_to(&consumer).contains("holds remove main"));
        let mut off = consumer;
        off.pruning_enabled = false;
        assert!(advice_to(&off).contains("pruning on"));
        assert_eq!(super::held_by(&off), "pruning is off");
    }

    fn advice_to(status: &PruneStatus) -> String {
        advice(status)
    }

    #[test]
    fn each_state_that_is_entered_is_said_at_once_and_its_end_too() {
        let mut log = PressureLog::default();
        let steady = status(CALM, None, Cause::Retention);
        assert!(log.look(&steady, None, NOW).is_empty());
        let states_of = |log: &mut PressureLog, status: &PruneStatus, second| {
            states(&log.look(status, None, NOW + second))
        };
        let draining = status(DRAINING, None, Cause::Capacity);
        let blocked = status(DRAINING, Some("archive"), Cause::Capacity);
        let emergency = status(EMERGENCY, Some("archive"), Cause::Emergency);
        assert_eq!(states_of(&mut log, &draining, 1), [(Pressing::Draining, NOW + 1)]);
        assert_eq!(states_of(&mut log, &blocked, 2), [(Pressing::Blocked, NOW + 2)]);
        assert_eq!(states_of(&mut log, &emergency, 3), [(Pressing::Emergency, NOW + 3)]);
        let lines = log.look(&steady, None, NOW + 9);
        let over = Line::Over { state: Pressing::Emergency, used: used(&steady), lasted: 6 };
        assert_eq!(lines, [over]);
        // A budget that comes and goes does not fill the log: each state once a minute.
        assert_eq!(states_of(&mut log, &draining, 10), []);
        assert_eq!(states_of(&mut log, &draining, 61), [(Pressing::Draining, NOW + 10)]);
    }

    #[test]
    fn retention_that_waits_for_finality_presses_nobody_and_an_archive_that_stops_it_does() {
        let waits = status(CALM, Some("finalized"), Cause::Retention);
        assert_eq!(Pressing::of(&waits), Pressing::Steady);
        let stops = status(CALM, Some("archive"), Cause::Retention);
        assert_eq!(Pressing::of(&stops), Pressing::Blocked);
        let stuck = status(DRAINING, Some("finalized"), Cause::Capacity);
        assert_eq!(Pressing::of(&stuck), Pressing::Blocked);
    }

    #[test]
    fn figures_are_logged_once_a_minute_with_head_lag_boundary_and_hold() {
        let mut log = PressureLog::default();
        let steady = status(CALM, None, Cause::Retention);
        let mut logged = Vec::new();
        for second in 0..=130 {
            logged
                .extend(log.look(&steady, Some(3), NOW + second).into_iter().map(|l| (second, l)));
        }
        let [(60, line), (120, _)] = logged.as_slice() else { panic!("{logged:?}") };
        let Line::Figures { head, lag, boundary, held_by, .. } = line else { panic!("{line:?}") };
        assert_eq!(
            (*head, *lag, *boundary, held_by.as_str()),
            (Some(9), Some(3), None, "min_keep")
        );
    }
}
