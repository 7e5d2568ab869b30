//! What a worker knows of its own progress: the last known head and how old that is, what is
//! written, and what hinders it. Lag, rates and readiness are computed when they are read, from that
//! and the clock: a source or a sink that hangs shows as a lag that grows and as a reason.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_core::{Height, format_duration};

use super::observe::Rate;
use crate::IndexError;

/// A source that was silent for longer, a failure that lasts longer, and blocks that wait for longer
/// without one being written are reasons not to be ready.
pub const STALLED_AFTER: Duration = Duration::from_secs(30);
/// A head that is older than this is taken to have moved on at its own rate.
const HEAD_FRESH: Duration = Duration::from_secs(10);
/// How far back the rate of the head looks.
const HEAD_WINDOW: Duration = Duration::from_mins(8);

/// How a worker is doing, as of one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Health {
    /// Why it is not ready; it is, if there is no reason.
    pub reasons: Vec<String>,
    /// The source's newest exportable block, as it was last known.
    pub head: Option<Height>,
    /// How long ago the source last said so; none if it has not answered since the start.
    pub head_age: Option<Duration>,
    /// Exportable blocks that the index does not have. While the source is silent its head is taken to
    /// have moved on at the rate it had; none before it has answered since the start.
    pub lag_blocks: Option<u64>,
    /// How long ago everything exportable was last known to be written; zero at the tip.
    pub lag: Duration,
    /// Blocks pulled a second, lately.
    pub pulled_per_second: f64,
    /// Blocks written a second, lately.
    pub written_per_second: f64,
    /// Whether the retry threshold was passed: attempts are far apart now. The archiver's count as well.
    pub paused: bool,
    /// Whether the source is silent for so long that it is a reason.
    pub source_down: bool,
}

impl Health {
    /// Whether there is no reason against it.
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// A failure that lasts.
#[derive(Debug)]
struct Failing {
    since: Instant,
    error: String,
    /// How far apart attempts are, once the retry threshold was passed.
    paused: Option<Duration>,
}

trait Fails {
    fn fails(&mut self, error: &IndexError, paused: Option<Duration>, now: Instant);
}

impl Fails for Option<Failing> {
    fn fails(&mut self, error: &IndexError, paused: Option<Duration>, now: Instant) {
        let since = self.as_ref().map_or(now, |failing| failing.since);
        *self = Some(Failing { since, error: error.to_string(), paused });
    }
}

impl Failing {
    /// Why this is a reason not to be ready, if it is one already.
    fn reason(&self, now: Instant) -> Option<String> {
        let Self { since: at, error, paused } = self;
        let lasts = since(now, *at);
        match paused {
            Some(pause) => Some(format!(
                "paused after failing for {}, tried again every {}: {error}",
                seconds(lasts),
                seconds(*pause)
            )),
            None => {
                (lasts > STALLED_AFTER).then(|| format!("failing for {}: {error}", seconds(lasts)))
            }
        }
    }
}

#[derive(Debug)]
struct Known {
    began: Instant,
    head: Option<Height>,
    heads: Rate,
    /// When the source last said where its head is.
    answered_at: Option<Instant>,
    /// Why it did not, the last time.
    silence: Option<String>,
    /// The first block that is not written.
    next: Height,
    /// When everything exportable was last known to be written.
    current_at: Instant,
    /// When a batch was last written, or the tip was found.
    moved_at: Instant,
    pulled: (Rate, u64),
    written: (Rate, u64),
    failing: Option<Failing>,
    /// The archiver beside the worker.
    archiving: Option<Failing>,
}

/// Shared by those who work and those who look.
#[derive(Debug)]
pub struct Live(Mutex<Known>);

impl Default for Live {
    fn default() -> Self {
        Self::new(Instant::now())
    }
}

impl Live {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Known {
            began: now,
            head: None,
            heads: Rate::over(HEAD_WINDOW),
            answered_at: None,
            silence: None,
            next: 0,
            current_at: now,
            moved_at: now,
            pulled: (Rate::default(), 0),
            written: (Rate::default(), 0),
            failing: None,
            archiving: None,
        }))
    }

    /// The newest exportable block, as it is known.
    pub fn head(&self) -> Option<Height> {
        self.0.lock().head
    }

    /// The newest exportable block, taken to have moved on while the source is silent; none before the
    /// source said anything.
    pub fn head_now(&self, now: Instant) -> Option<Height> {
        self.0.lock().head_now(now)
    }

    /// An index goes on at a block, once knew this head, and was written last at this time.
    pub fn resume(&self, next: Height, head: Option<Height>, written_at: Option<Instant>) {
        let mut known = self.0.lock();
        known.next = next;
        known.head = known.head.or(head);
        if let Some(at) = written_at {
            known.current_at = known.current_at.min(at);
        }
    }

    /// The source says where its head is; none if it has no block.
    pub fn answered(&self, head: Option<Height>, now: Instant) {
        let mut known = self.0.lock();
        known.answered_at = Some(now);
        known.silence = None;
        if let Some(head) = head {
            known.head = Some(head);
            known.heads.note(now, head);
        }
        known.see_whether_current(now);
    }

    /// The source did not say where its head is.
    pub fn silent(&self, error: &IndexError) {
        self.0.lock().silence = Some(error.to_string());
    }

    /// A block was pulled.
    pub(super) fn pulled(&self, height: Height, now: Instant) {
        let mut known = self.0.lock();
        known.head = known.head.max(Some(height));
        let Known { pulled: (rate, total), .. } = &mut *known;
        *total += 1;
        rate.note(now, *total);
    }

    /// Blocks were written; the index goes on at `next`.
    pub(super) fn wrote(&self, blocks: u64, next: Option<Height>, now: Instant) {
        let mut known = self.0.lock();
        let Known { written: (rate, total), .. } = &mut *known;
        *total += blocks;
        rate.note(now, *total);
        known.moved_at = now;
        known.failing = None;
        if let Some(next) = next {
            known.next = next;
            known.see_whether_current(now);
        }
    }

    /// The source has nothing behind what is written.
    pub(super) fn caught_up(&self, now: Instant) {
        let mut known = self.0.lock();
        known.moved_at = now;
        known.failing = None;
    }

    /// Where the index goes on, as seen from outside the worker.
    pub fn reached(&self, next: Height, now: Instant) {
        let mut known = self.0.lock();
        if known.next != next {
            known.next = next;
            known.moved_at = now;
        }
        known.see_whether_current(now);
    }

    /// A step failed and is tried again; once the threshold is passed, `paused` later.
    pub fn failed(&self, error: &IndexError, paused: Option<Duration>, now: Instant) {
        self.0.lock().failing.fails(error, paused, now);
    }

    /// A step that failed works again, before anything is written.
    pub fn passed(&self) {
        self.0.lock().failing = None;
    }

    /// The same of the archiver beside the worker.
    pub fn archive_failed(&self, error: &IndexError, paused: Option<Duration>, now: Instant) {
        self.0.lock().archiving.fails(error, paused, now);
    }

    /// The archiver works again.
    pub fn archive_passed(&self) {
        self.0.lock().archiving = None;
    }

    /// How it is doing now.
    pub fn health(&self, now: Instant) -> Health {
        self.0.lock().health(now)
    }
}

impl Known {
    /// Notes it if everything exportable is written, as far as is known.
    fn see_whether_current(&mut self, now: Instant) {
        if self.is_fresh(now) && self.head.is_none_or(|head| head < self.next) {
            self.current_at = now;
            // Nothing waits: the time in which something is to be written begins with the next block.
            self.moved_at = now;
        }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.answered_at.is_some_and(|at| now.duration_since(at) <= HEAD_FRESH)
    }

    /// Where the head is now. What an index remembers of it is old, and says nothing of now.
    fn head_now(&self, now: Instant) -> Option<Height> {
        let (head, at) = (self.head?, self.answered_at?);
        if self.is_fresh(now) {
            return Some(head);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, and never below zero"
        )]
        let moved = (self.heads.last() * since(now, at).as_secs_f64()) as u64;
        Some(head.saturating_add(moved))
    }

    fn lag_blocks(&self, now: Instant) -> Option<u64> {
        Some(self.head_now(now)?.saturating_add(1).saturating_sub(self.next))
    }

    fn health(&self, now: Instant) -> Health {
        let lag_blocks = self.lag_blocks(now);
        let is_current = self.is_fresh(now) && lag_blocks.unwrap_or(0) == 0;
        let lag = if is_current { Duration::ZERO } else { since(now, self.current_at) };
        Health {
            reasons: self.reasons(now, lag_blocks),
            head: self.head,
            head_age: self.answered_at.map(|at| since(now, at)),
            lag_blocks,
            lag,
            pulled_per_second: self.pulled.0.at(now),
            written_per_second: self.written.0.at(now),
            paused: [&self.failing, &self.archiving]
                .into_iter()
                .flatten()
                .any(|failing| failing.paused.is_some()),
            source_down: since(now, self.answered_at.unwrap_or(self.began)) > STALLED_AFTER,
        }
    }

    fn reasons(&self, now: Instant, lag_blocks: Option<u64>) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(self.failing.as_ref().and_then(|failing| failing.reason(now)));
        let archiving = self.archiving.as_ref().and_then(|failing| failing.reason(now));
        reasons.extend(archiving.map(|reason| format!("archiving: {reason}")));
        let why = self.silence.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        match self.answered_at {
            None => reasons.push(format!(
                "the source has not answered since the start, {} ago{why}",
                seconds(since(now, self.began))
            )),
            Some(at) if since(now, at) > STALLED_AFTER => reasons.push(format!(
                "the source has not said where its head is for {}{why}",
                seconds(since(now, at))
            )),
            Some(_) => {}
        }
        let still = since(now, self.moved_at);
        if let Some(blocks) = lag_blocks.filter(|blocks| *blocks > 0 && still > STALLED_AFTER) {
            reasons
                .push(format!("nothing was written for {}; blocks wait: {blocks}", seconds(still)));
        }
        reasons
    }
}

fn since(now: Instant, at: Instant) -> Duration {
    now.saturating_duration_since(at)
}

/// As people read it, without fractions of a second.
fn seconds(duration: Duration) -> String {
    format_duration(Duration::from_secs(duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn error() -> IndexError {
        IndexError::Net("connection refused".into())
    }

    /// A worker at the tip of a chain of ten blocks a second, after a minute.
    fn at_the_tip(start: Instant) -> Live {
        let live = Live::new(start);
        for second in 1..=60 {
            let (now, head) = (start + secs(second), second * 10);
            live.answered(Some(head), now);
            live.pulled(head, now);
            live.wrote(10, Some(head + 1), now);
        }
        live
    }

    #[test]
    fn at_the_tip_there_is_no_lag_and_no_reason() {
        let start = Instant::now();
        let health = at_the_tip(start).health(start + secs(60));
        assert_eq!((health.lag_blocks, health.lag), (Some(0), Duration::ZERO));
        assert!(health.is_ready(), "{health:?}");
        assert!((health.written_per_second - 10.0).abs() < 0.6, "{health:?}");
    }

    // The gauges were set when a batch was written or a block was pulled, and kept their last values
    // while neither happened: a locked sink looked like the tip for as long as it was locked.
    #[test]
    fn a_hung_sink_shows_as_a_growing_lag_and_a_reason_while_the_head_moves_on() {
        let start = Instant::now();
        let live = at_the_tip(start);
        for second in 61..=132 {
            live.answered(Some(second * 10), start + secs(second));
        }
        let health = live.health(start + secs(132));
        assert_eq!(health.lag_blocks, Some(720));
        assert_eq!(health.lag, secs(72));
        assert!(health.reasons[0].contains("nothing was written for 1 min 12 s"), "{health:?}");
        assert!(health.written_per_second < 0.001, "{health:?}");
        live.wrote(720, Some(1_321), start + secs(133));
        assert!(live.health(start + secs(133)).is_ready());
    }

    #[test]
    fn a_dead_source_shows_as_a_growing_lag_no_rate_and_a_reason() {
        let start = Instant::now();
        let live = at_the_tip(start);
        live.silent(&error());
        live.failed(&error(), None, start + secs(61));
        let health = live.health(start + secs(135));
        assert_eq!(health.lag, secs(75), "since the last answer");
        let blocks = health.lag_blocks.unwrap();
        assert!((740..=760).contains(&blocks), "at the rate that the head had: {blocks}");
        assert!(health.pulled_per_second < 0.001 && health.written_per_second < 0.001);
        let reasons = health.reasons.join("\n");
        assert!(
            reasons.contains("failing for 1 min 14 s: source: connection refused"),
            "{reasons}"
        );
        assert!(reasons.contains("has not said where its head is for 1 min 15 s"), "{reasons}");
        assert!(!live.health(start + secs(95)).is_ready());
    }

    #[test]
    fn a_source_that_never_answered_is_a_reason_and_no_lag_is_made_up() {
        let start = Instant::now();
        let live = Live::new(start);
        live.silent(&error());
        let health = live.health(start + secs(1));
        assert_eq!(health.lag_blocks, None);
        assert!(health.reasons[0].contains("not answered since the start, 1 s ago"), "{health:?}");
    }

    // An index that was at the tip when it was stopped was 0 blocks behind for as long as the source was
    // dead after its next start.
    #[test]
    fn after_a_restart_with_a_dead_source_the_lag_is_unknown_and_grows_in_time() {
        let stopped = Instant::now();
        let start = stopped + secs(3_600);
        let live = Live::new(start);
        live.resume(100, Some(99), Some(stopped));
        let health = live.health(start + secs(60));
        assert_eq!((health.lag_blocks, health.lag), (None, secs(3_660)));
        assert!(health.source_down && !health.is_ready(), "{health:?}");
        live.answered(Some(149), start + secs(61));
        let health = live.health(start + secs(61));
        assert_eq!((health.lag_blocks, health.lag), (Some(50), secs(3_661)));
        live.wrote(50, Some(150), start + secs(62));
        assert_eq!(live.health(start + secs(62)).lag, Duration::ZERO);
    }

    #[test]
    fn an_archiver_that_pauses_is_a_reason_until_it_works_again() {
        let start = Instant::now();
        let live = at_the_tip(start);
        live.archive_failed(&error(), Some(secs(86_400)), start + secs(60));
        live.wrote(1, Some(601), start + secs(60));
        let health = live.health(start + secs(60));
        let wanted = "archiving: paused after failing for 0 s, tried again every 1 d";
        assert!(health.paused && health.reasons[0].contains(wanted), "{health:?}");
        live.archive_passed();
        let health = live.health(start + secs(60));
        assert!(health.is_ready() && !health.paused, "{health:?}");
    }

    #[test]
    fn a_pause_is_a_reason_at_once() {
        let start = Instant::now();
        let live = at_the_tip(start);
        live.failed(&error(), Some(secs(60)), start + secs(61));
        let health = live.health(start + secs(61));
        assert!(health.paused);
        assert!(health.reasons[0].contains("tried again every 1 min"), "{health:?}");
    }

    #[test]
    fn an_idle_chain_is_no_stall() {
        let start = Instant::now();
        let live = at_the_tip(start);
        for second in (65..4_000).step_by(5) {
            live.answered(Some(600), start + secs(second));
            live.caught_up(start + secs(second));
        }
        let health = live.health(start + secs(3_999));
        assert_eq!((health.lag_blocks, health.is_ready()), (Some(0), true));
        // A block comes: it has the usual time to be written.
        live.answered(Some(601), start + secs(4_000));
        assert!(live.health(start + secs(4_001)).is_ready());
    }
}
