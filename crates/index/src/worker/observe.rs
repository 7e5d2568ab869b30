//! What a worker tells whoever looks on: a progress bar, a log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use secateur_core::Height;

use crate::IndexError;

/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(20);
/// Readings that a rate keeps.
const READINGS: usize = 256;

/// How far a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// The first block that is not written yet.
    pub next: Height,
    /// The source's newest exportable block.
    pub head: Option<Height>,
    /// Blocks written since the start.
    pub blocks: u64,
    /// Transactions written since the start.
    pub txs: u64,
    /// Logs written since the start.
    pub logs: u64,
    /// Payload bytes behind them.
    pub raw_bytes: u64,
    /// Blocks a second, lately.
    pub blocks_per_second: f64,
    /// Until the head is reached at that rate; none if that is not known, or reached.
    pub eta: Option<Duration>,
}

impl Progress {
    /// Blocks that are exportable and not written.
    pub fn lag(&self) -> u64 {
        self.head.map_or(0, |head| head.saturating_add(1).saturating_sub(self.next))
    }
}

/// What happens to a worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step failed and is tried again.
    Retrying {
        /// Why.
        error: &'a IndexError,
        /// When.
        wait: Duration,
    },
    /// Steps have failed for so long that somebody should look.
    Alarm {
        /// The last failure.
        error: &'a IndexError,
        /// Since when.
        since: Duration,
    },
    /// It works again.
    Recovered,
    /// Blocks were left out, because the source had cut them.
    Gap {
        /// The first of them.
        from: Height,
        /// The last of them.
        to: Height,
    },
    /// An index that had nothing begins above block 0; the blocks below are a gap.
    Begins {
        /// Its first block.
        first: Height,
    },
    /// It is not ready: told at first, and again each minute.
    Stalled {
        /// Why.
        reasons: &'a [String],
    },
    /// Everything exportable is written.
    CaughtUp {
        /// The first block that is not there yet.
        next: Height,
    },
}

/// Who looks on. Both are called often and must not block.
pub trait Observer: Send + Sync + 'static {
    /// A batch was written.
    fn progress(&self, _progress: &Progress) {}
    /// Something happened.
    fn event(&self, _event: &Event<'_>) {}
}

/// Nobody looks on.
impl Observer for () {}

/// A rate over the last while.
#[derive(Debug)]
pub(crate) struct Rate {
    readings: VecDeque<(Instant, u64)>,
    window: Duration,
}

impl Default for Rate {
    fn default() -> Self {
        Self::over(WINDOW)
    }
}

impl Rate {
    /// One that looks back so far.
    pub(crate) fn over(window: Duration) -> Self {
        Self { readings: VecDeque::new(), window }
    }

    /// Notes a total, and says how fast it grew lately, in a second.
    pub(crate) fn note(&mut self, now: Instant, total: u64) -> f64 {
        self.readings.push_back((now, total));
        while self.readings.len() > 2
            && (self.readings.len() > READINGS
                || self.readings.front().is_some_and(|(at, _)| now - *at > self.window))
        {
            self.readings.pop_front();
        }
        self.last()
    }

    /// How fast it grew when it was last noted.
    pub(crate) fn last(&self) -> f64 {
        match (self.readings.front(), self.readings.back()) {
            (Some((from, before)), Some((to, total))) => per_second(*total, *before, *to - *from),
            _ => 0.0,
        }
    }

    /// How fast it grows now: what was not noted did not happen.
    pub(crate) fn at(&self, now: Instant) -> f64 {
        let Some((_, total)) = self.readings.back() else { return 0.0 };
        let age = |at: Instant| now.saturating_duration_since(at);
        // The last reading before the window, or the first one in it.
        let older = self.readings.iter().rev().find(|(at, _)| age(*at) >= self.window);
        let Some((at, before)) = older.or(self.readings.front()) else { return 0.0 };
        per_second(*total, *before, age(*at).min(self.window))
    }
}

fn per_second(total: u64, before: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown, not counted with")]
    let grown = total.saturating_sub(before) as f64;
    if seconds > 0.0 { grown / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_looks_back_no_further_than_its_window() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for second in 0..=100u64 {
            // Ten a second at first, then one.
            let total = if second <= 50 { second * 10 } else { 500 + second - 50 };
            let found = rate.note(start + Duration::from_secs(second), total);
            if second == 50 {
                assert!((found - 10.0).abs() < 0.01, "{found}");
            }
            if second == 100 {
                assert!((found - 1.0).abs() < 0.01, "{found}");
            }
        }
    }

    #[test]
    fn a_rate_that_is_not_noted_any_more_falls_to_nothing() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for second in 0..=60u64 {
            rate.note(start + Duration::from_secs(second), second * 10);
        }
        let at = |second| rate.at(start + Duration::from_secs(second));
        assert!((at(60) - 10.0).abs() < 0.6, "{}", at(60));
        assert!((at(70) - 5.0).abs() < 0.6, "{}", at(70));
        assert!(at(81) < 0.001, "{}", at(81));
        assert!((rate.last() - 10.0).abs() < 0.6);
    }
}
