//! Trouble that may pass: how long to wait, when to raise the alarm, and from when on to pause.

use std::time::{Duration, Instant};

use super::backoff::Backoff;

/// Counts how long a step has failed.
#[derive(Debug)]
pub struct Retry {
    /// Trouble that lasts longer is an alarm, and attempts are further apart from then on.
    alarm_after: Duration,
    /// How far apart.
    pause: Duration,
    since: Option<Instant>,
    backoff: Backoff,
    alarmed: bool,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// How long to wait before the next attempt.
    pub wait: Duration,
    /// How long it has failed.
    pub since: Duration,
    /// Whether the threshold is passed.
    pub paused: bool,
    /// Whether it was passed with this failure: the alarm is raised once.
    pub alarm: bool,
}

impl Retry {
    /// With a threshold, and with what is waited between attempts behind it.
    pub fn new(alarm_after: Duration, pause: Duration) -> Self {
        Self { alarm_after, pause, since: None, backoff: Backoff::new(), alarmed: false }
    }

    /// A step failed.
    pub fn failed(&mut self, now: Instant) -> Failed {
        let since = now.saturating_duration_since(*self.since.get_or_insert(now));
        let paused = since >= self.alarm_after;
        let alarm = paused && !self.alarmed;
        self.alarmed |= paused;
        let backoff = self.backoff.wait();
        let wait = if paused { self.pause.max(backoff) } else { backoff };
        Failed { wait, since, paused, alarm }
    }

    /// It works again; whether there was an alarm is the answer.
    pub fn passed(&mut self) -> bool {
        let alarmed = self.alarmed;
        *self = Self::new(self.alarm_after, self.pause);
        alarmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The alarm was raised and attempts went on every 5 s for ever: nothing paused.
    #[test]
    fn behind_the_threshold_attempts_pause_and_the_alarm_is_raised_once() {
        let (start, minute) = (Instant::now(), Duration::from_mins(1));
        let mut retry = Retry::new(Duration::from_secs(20), minute);
        let (mut now, mut seen) = (start, Vec::new());
        for _ in 0..10 {
            let failed = retry.failed(now);
            seen.push((failed.wait.as_millis(), failed.paused, failed.alarm));
            now += failed.wait;
        }
        let waits: Vec<u128> = seen.iter().map(|(wait, ..)| *wait).collect();
        let paused = seen.iter().position(|(_, paused, _)| *paused).unwrap();
        assert_eq!(&waits[..6], [200, 400, 800, 1_600, 3_200, 5_000]);
        assert!(waits[paused..].iter().all(|wait| *wait == 60_000), "{waits:?}");
        assert!(paused >= 7, "{seen:?}");
        assert_eq!(seen.iter().filter(|(.., alarm)| *alarm).count(), 1, "{seen:?}");
        assert!(retry.passed());
        assert_eq!(retry.failed(now).wait, Duration::from_millis(200), "from the beginning");
        assert!(!retry.passed());
    }
}
