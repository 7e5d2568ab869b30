//! Waiting: a little at first, twice as long each time, never longer than its limit.

use std::time::Duration;

/// How long to wait next.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(5);

    /// Nothing has gone wrong yet.
    pub fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// It works again.
    pub fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// It did not work: how long to wait now.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::MOST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_200_ms_to_5_s_and_begin_again() {
        let mut backoff = Backoff::new();
        let waits: Vec<u128> = (0..7).map(|_| backoff.wait().as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.wait(), Backoff::FIRST);
    }
}
