//! The bounded way from async interfaces to the store, whose calls block, and the time by which the
//! request that is being answered must have its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::ApiError;
use crate::config::Limits;

/// No request takes longer than a year, so that moments can be computed.
const MAX_TIMEOUT: Duration = Duration::from_hours(365 * 24);

tokio::task_local! {
    static DUE: Instant;
}

/// Does a part of a request that must be answered by a given time.
pub(crate) async fn until<T>(due: Instant, part: impl Future<Output = T>) -> T {
    DUE.scope(due, part).await
}

/// When the present request must be answered: who waits for something beyond this node gives up
/// before, and can say for what.
pub(crate) fn due() -> Option<Instant> {
    DUE.try_with(|due| *due).ok()
}

/// Lets so many ask at once and so many wait; refuses the rest.
#[derive(Debug)]
pub(crate) struct Reading {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
    timeout: Duration,
}

/// Counts one who waits, however the waiting ends.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reading {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.concurrency.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            most_waiting: limits.waiting,
            timeout: limits.timeout,
        }
    }

    /// Runs a blocking question when there is a place for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let own = Instant::now() + self.timeout.min(MAX_TIMEOUT);
        let due = due().map_or(own, |outer| outer.min(own));
        let asked = self.run_whenever(move || DUE.sync_scope(due, question));
        tokio::time::timeout_at(due, asked).await.unwrap_or(Err(ApiError::Timeout))
    }

    async fn run_whenever<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.most_waiting {
            drop(Waiting(&self.waiting));
            return Err(ApiError::Overloaded);
        }
        let waiting = Waiting(&self.waiting);
        let place = Arc::clone(&self.places).acquire_owned().await;
        drop(waiting);
        let Ok(place) = place else { return Err(ApiError::Overloaded) };
        let answer = tokio::task::spawn_blocking(move || {
            // Given back when the work ends, not when whoever asked has gone.
            let _place = place;
            question()
        });
        answer.await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
    }
}
