//! How long to wait before something is tried again: twice as long every time, up to a limit, and
//! never exactly as long as another node waits.

use std::time::{Duration, SystemTime};

/// The waits of one thing that is tried again and again.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
    /// The state of a small generator; what it draws need not be secret.
    jitter: u64,
}

impl Backoff {
    /// Waits that begin with `first` and end with `most`.
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(now.subsec_nanos()) ^ now.as_secs().rotate_left(32);
        Self::seeded(first, most, seed ^ u64::from(std::process::id()))
    }

    fn seeded(first: Duration, most: Duration, seed: u64) -> Self {
        Self { first, most, failures: 0, jitter: seed | 1 }
    }

    /// It worked: the next wait is a short one again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How often it has failed since it last worked.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// It failed: how long to wait now. It is between half of the present length and all of it.
    pub(super) fn next_wait(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1u32 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let whole = doubled.min(self.most);
        whole / 2 + (whole / 2).mul_f64(self.draw())
    }

    /// A number from 0 up to 1.
    fn draw(&mut self) -> f64 {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let top = u32::try_from(self.jitter >> 32).unwrap_or_default();
        f64::from(top) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_begin_anew_after_a_success() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(2));
        let mut backoff = Backoff::seeded(first, most, 7);
        let mut whole = first;
        for _ in 0..40 {
            let wait = backoff.next_wait();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            whole = (whole * 2).min(most);
        }
        assert_eq!(backoff.failures(), 40);
        backoff.reset();
        assert!(backoff.next_wait() <= first);
    }

    #[test]
    fn two_nodes_do_not_wait_equally_long() {
        let waits = |seed| {
            let mut backoff = Backoff::seeded(Duration::from_secs(1), Duration::from_secs(1), seed);
            (0..8).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        assert_ne!(waits(1), waits(2));
    }
}
