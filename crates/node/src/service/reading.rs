//! The bounded way from async interfaces to the store, whose calls block, and the time by which the
//! request that is being answered must have its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::ApiError;
use crate::config::Limits;

/// No request takes longer than a year, so that moments can be computed.
const MAX_TIMEOUT: Duration = Duration::from_hours(365 * 24);

tokio::task_local! {
    static DUE: Due;
}

/// When a request must be answered, and whether the archive was silent while it was.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    silent: Arc<AtomicBool>,
}

impl Due {
    /// That of a request which nothing was asked for yet.
    pub(crate) fn at(at: Instant) -> Self {
        Self { at, silent: Arc::default() }
    }

    /// The archive did not answer a part of this request.
    pub(crate) fn archive_is_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Whether it did not.
    pub(crate) fn archive_was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }
}

/// Does a part of a request that must be answered by a given time.
pub(crate) async fn until<T>(due: Due, part: impl Future<Output = T>) -> T {
    DUE.scope(due, part).await
}

/// When the present request must be answered: who waits for something beyond this node gives up
/// before, and can say for what.
pub(crate) fn due() -> Option<Due> {
    DUE.try_with(Due::clone).ok()
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
        let mut due = due().unwrap_or_else(|| Due::at(own));
        due.at = due.at.min(own);
        let at = due.at;
        let asked = self.run_whenever(move || DUE.sync_scope(due, question));
        tokio::time::timeout_at(at, asked).await.unwrap_or(Err(ApiError::Timeout))
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
