//! What the log says of the budget: that it is draining, blocked or in an emergency, when that
//! begins and each minute that it lasts; and a line of figures each minute.
//!
//! What is said when is decided from a status and a number of seconds alone ([`PressureLog`]).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::{Height, HoldKind, PruneStatus, format_bytes};
use secateur_store::{Clock as _, SystemClock};
use tokio::task::spawn_blocking;
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

fn blocking_hold(status: &PruneStatus) -> Option<&str> {
    status.blocking_hold().map(|(hold, _)| hold)
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// It presses.
    Pressing {
        state: Pressing,
        used: String,
        held_by: String,
        /// None where it pressed already at this process's first look.
        since: Option<u64>,
        advice: String,
    },
    /// It presses no more.
    Over { state: Pressing, used: String, lasted: Option<u64> },
    /// The figures of this minute.
    Figures {
        head: Option<Height>,
        lag: Option<u64>,
        used: String,
        boundary: Option<Height>,
        held_by: String,
    },
}

/// One of the states: whether it lasts, and what was logged of it.
#[derive(Debug, Clone, Copy, Default)]
struct Episode {
    /// When it began, in seconds since 1970.
    since: Option<u64>,
    /// Whether this episode of it was logged.
    is_logged: bool,
    /// When any episode of it was logged last.
    logged: Option<u64>,
}

/// What was logged so far, and when.
#[derive(Debug, Default)]
struct PressureLog {
    /// None before the first look.
    state: Option<Pressing>,
    episodes: [Episode; 4],
    figures: Option<u64>,
}

impl PressureLog {
    /// What there is to log of a status at a moment.
    fn look(&mut self, status: &PruneStatus, lag: Option<u64>, now: u64) -> Vec<Line> {
        let (before, state) = (self.state.replace(Pressing::of(status)), Pressing::of(status));
        let mut lines = Vec::new();
        if before != Some(state) {
            lines.extend(before.and_then(|before| self.leave(before, state, status, now)));
            if let Some(episode) = self.episodes.get_mut(state.place()) {
                let since = before.map(|_| now);
                *episode = Episode { since, is_logged: false, ..*episode };
            }
        }
        lines.extend(self.warning(state, status, now));
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

    /// The end of a state, where its beginning was logged and nothing worse follows.
    fn leave(
        &self,
        before: Pressing,
        state: Pressing,
        status: &PruneStatus,
        now: u64,
    ) -> Option<Line> {
        let episode = self.episodes.get(before.place())?;
        (state < before && episode.is_logged).then(|| Line::Over {
            state: before,
            used: used(status),
            lasted: episode.since.map(|since| now.saturating_sub(since)),
        })
    }

    /// A state that presses: at its beginning, and each minute that it lasts. A budget that drains
    /// every few seconds is logged once a minute; an emergency is logged whenever it begins.
    fn warning(&mut self, state: Pressing, status: &PruneStatus, now: u64) -> Option<Line> {
        let episode = self.episodes.get_mut(state.place())?;
        let begins = state == Pressing::Emergency && !episode.is_logged;
        if state == Pressing::Steady || !(begins || is_time(episode.logged, now)) {
            return None;
        }
        *episode = Episode { is_logged: true, logged: Some(now), ..*episode };
        let (used, held_by, advice) = (used(status), held_by(status), advice(status));
        Some(Line::Pressing { state, used, held_by, since: episode.since, advice })
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
    let binding = match blocking_hold(status) {
        // A prune that is due and not stopped is held by nothing, whatever holds its end.
        None if status.need.need_prune && status.need.blocked_by.is_none() => None,
        None => status.binding_hold.as_deref(),
        blocking => blocking,
    };
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
            let since = since.map_or_else(|| "before this start".into(), moment);
            tracing::warn!(used, held_by, since, advice, "{}", state.begins());
        }
        Line::Over { state, used, lasted } => {
            let lasted = lasted.map_or_else(|| "since before this start".into(), span);
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
    let mut failed = None;
    let mut every = interval(LOOK_INTERVAL);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = node.stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return Ok(()),
            _ = every.tick() => {}
        }
        // Not in the queue of requests: an overloaded node is watched too.
        let store = Arc::clone(&node.store);
        let status = match spawn_blocking(move || store.get_prune_status()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => {
                let now = SystemClock.now_seconds();
                if is_time(failed, now) {
                    failed = Some(now);
                    tracing::warn!(%error, "the state of the budget cannot be read");
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
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

    use secateur_core::{
        Block, BlockHash, BlockMeta, Cause, Payloads, Pressure, PrunePolicy, StopReason, Strength,
    };
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

    fn states(lines: &[Line]) -> Vec<(Pressing, Option<u64>)> {
        let pressing = lines.iter().filter_map(|line| match line {
            Line::Pressing { state, since, .. } => Some((*state, *since)),
            _ => None,
        });
        pressing.collect()
    }

    /// A log that has seen a steady budget.
    fn begun() -> PressureLog {
        let mut log = PressureLog::default();
        assert!(log.look(&status(CALM, None, Cause::Retention), None, NOW).is_empty());
        log
    }

    #[test]
    fn a_state_from_before_the_start_has_no_beginning_that_is_known() {
        let mut log = PressureLog::default();
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        assert_eq!(states(&log.look(&held, None, NOW)), [(Pressing::Emergency, None)]);
        let steady = status(CALM, None, Cause::Retention);
        let over = Line::Over { state: Pressing::Emergency, used: used(&steady), lasted: None };
        assert_eq!(log.look(&steady, None, NOW + 9), [over]);
    }

    #[test]
    fn a_budget_that_drains_often_has_no_end_without_a_beginning_in_the_log() {
        let (mut log, steady) = (begun(), status(CALM, None, Cause::Retention));
        let draining = status(DRAINING, None, Cause::Capacity);
        let mut lines = Vec::new();
        for second in (0..60).step_by(4) {
            lines.extend(log.look(&draining, None, NOW + second));
            lines.extend(log.look(&steady, None, NOW + second + 2));
        }
        let [Line::Pressing { .. }, Line::Over { .. }] = lines.as_slice() else {
            panic!("{lines:?}");
        };
    }

    #[test]
    fn a_drain_that_no_hold_stops_is_held_by_nothing() {
        let draining = status(DRAINING, None, Cause::Capacity);
        assert_eq!(held_by(&draining), "nothing");
        assert_eq!(held_by(&status(CALM, None, Cause::Retention)), "min_keep");
    }

    #[test]
    fn an_emergency_is_logged_whenever_it_begins() {
        let (mut log, steady) = (begun(), status(CALM, None, Cause::Retention));
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        for second in [0, 4, 8] {
            let began = states(&log.look(&held, None, NOW + second));
            assert_eq!(began, [(Pressing::Emergency, Some(NOW + second))]);
            log.look(&steady, None, NOW + second + 2);
        }
    }

    #[test]
    fn an_emergency_is_a_warning_when_it_begins_and_each_minute_that_it_lasts() {
        let mut log = begun();
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        let mut warned = Vec::new();
        for second in 0..=180 {
            let lines = log.look(&held, None, NOW + second);
            warned.extend(states(&lines).into_iter().map(|said| (second, said)));
        }
        let said = (Pressing::Emergency, Some(NOW));
        assert_eq!(warned, [(0, said), (60, said), (120, said), (180, said)]);
    }

    #[test]
    fn a_warning_names_the_hold_since_when_and_what_to_do() {
        let mut log = begun();
        let held = status(EMERGENCY, Some("archive"), Cause::Emergency);
        let lines = log.look(&held, None, NOW);
        let [Line::Pressing { used, held_by, since, advice, .. }] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert_eq!((held_by.as_str(), *since), ("archive", Some(NOW)));
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
        assert_eq!(states_of(&mut log, &draining, 1), [(Pressing::Draining, Some(NOW + 1))]);
        assert_eq!(states_of(&mut log, &blocked, 2), [(Pressing::Blocked, Some(NOW + 2))]);
        assert_eq!(states_of(&mut log, &emergency, 3), [(Pressing::Emergency, Some(NOW + 3))]);
        let lines = log.look(&steady, None, NOW + 9);
        let over = Line::Over { state: Pressing::Emergency, used: used(&steady), lasted: Some(6) };
        assert_eq!(lines, [over]);
        // A budget that comes and goes does not fill the log: each state once a minute.
        assert_eq!(states_of(&mut log, &draining, 10), []);
        assert_eq!(states_of(&mut log, &draining, 61), [(Pressing::Draining, Some(NOW + 10))]);
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
