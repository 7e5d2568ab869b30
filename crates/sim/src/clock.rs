//! A clock that stands still until it is told.

use std::sync::atomic::{AtomicU64, Ordering};

use secateur_store::Clock;

/// A clock under the test's control.
#[derive(Debug)]
pub struct SimClock(AtomicU64);

impl SimClock {
    /// A clock that shows `seconds` since 1970.
    pub fn at(seconds: u64) -> Self {
        Self(AtomicU64::new(seconds * 1000))
    }

    /// Moves it to `seconds` since 1970.
    pub fn set(&self, seconds: u64) {
        self.0.store(seconds * 1000, Ordering::Release);
    }
}

impl Clock for SimClock {
    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
