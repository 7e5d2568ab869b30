//! Time, as a seam: the store never asks the machine itself.

/// A wall clock.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn now_millis(&self) -> u64;

    /// Seconds since 1970.
    fn now_seconds(&self) -> u64 {
        self.now_millis() / 1000
    }
}

/// The machine's clock.
#[cfg(feature = "disk")]
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[cfg(feature = "disk")]
impl Clock for SystemClock {
    fn now_millis(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A machine whose clock stands before 1970 prunes nothing by time.
        since.map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}
