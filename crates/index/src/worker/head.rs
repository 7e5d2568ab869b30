//! Looking for the head now and then, beside whatever else a worker does: it says how far behind the
//! index is, and whether the source answers at all.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::live::Live;
use super::observe::{Event, Observer};
use crate::source::Source;

/// How often the head is asked for.
const LOOK: Duration = Duration::from_secs(2);
/// How often a worker that is not ready says why.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// Asks for the head for as long as it is awaited, notes it, and says why the worker is not ready. However
/// long the source is silent, it is asked every few seconds: what readiness says must not wait for the worker's
/// pause.
pub async fn watch_head<S: Source>(source: &S, live: &Live, observer: &dyn Observer) -> Infallible {
    let mut backoff = Backoff::new();
    let (began, mut said) = (Instant::now(), None::<Instant>);
    loop {
        let wait = match source.head().await {
            Ok(head) => {
                live.answered(head, Instant::now());
                backoff.reset();
                LOOK
            }
            // The worker meets the same trouble, and tells it.
            Err(error) => {
                live.silent(&error);
                backoff.wait()
            }
        };
        let health = live.health(Instant::now());
        let due = said.is_none_or(|at| at.elapsed() >= SAY_AGAIN);
        // A start takes a moment.
        if !health.is_ready() && due && began.elapsed() >= super::STALLED_AFTER {
            said = Some(Instant::now());
            observer.event(&Event::Stalled { reasons: &health.reasons });
        }
        tokio::time::sleep(wait).await;
    }
}
