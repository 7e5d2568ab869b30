//! The driver of a shared backfill: takes leases one after another, hands each to whoever pulls
//! blocks, and renews it meanwhile. Any number of tasks and processes run it against one index.
//! What deliberately does not live here: pulling, and making the plan.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::lease::{Lease, LeaseQueue};
use super::leased::LeasedSink;
use crate::IndexError;

/// How long to wait at most before looking whether a lease became free.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// And at least.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// What one driver did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backfilled {
    /// Leases that it finished.
    pub leases: u64,
    /// Leases that another worker took over from it.
    pub lost: u64,
}

/// How a lease ended.
enum End {
    Done,
    Lost,
}

/// Works on leases until none is left to do, also none that another worker holds and may yet drop.
///
/// `pull` is called with a sink for each lease; it commits into it, from the sink's cursor up to
/// [`LeasedSink::until`], and returns. An error of it ends the driver: the lease is given back, and
/// what was committed of it stays. If the future is dropped, the lease expires by itself.
pub async fn backfill<P, F>(queue: &LeaseQueue, pull: P) -> Result<Backfilled, IndexError>
where
    P: Fn(LeasedSink) -> F,
    F: Future<Output = Result<(), IndexError>>,
{
    let mut done = Backfilled::default();
    loop {
        let Some(lease) = queue.take().await? else {
            let backlog = queue.backlog().await?;
            if backlog.open == 0 {
                return Ok(done);
            }
            // Others hold them. One may drop its own before it expires, so not longer than a while.
            let wait = backlog.expires_in.unwrap_or(LOOK_SOON);
            sleep(wait.clamp(LOOK_SOON, LOOK_AGAIN)).await;
            continue;
        };
        match work(queue, lease, &pull).await? {
            End::Done => done.leases = done.leases.saturating_add(1),
            End::Lost => {
                tracing::warn!(
                    first = lease.first,
                    past = lease.past,
                    "another worker took the lease over; going on with the next"
                );
                done.lost = done.lost.saturating_add(1);
            }
        }
    }
}

/// Renews a lease three times in its time; ends when it is not this worker's any more.
async fn keep(queue: &LeaseQueue, lease: &Lease, sink: &LeasedSink) -> Result<End, IndexError> {
    let period = (queue.held() / 3).max(Duration::from_millis(1));
    let mut ticks = interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match queue.renew(lease).await {
            Ok(true) => {}
            // It is done: there is nothing to keep, and whoever pulls may finish in peace.
            Ok(false) if sink.lease().is_some_and(|now| now.next >= now.past) => pending().await,
            Ok(false) => return Ok(End::Lost),
            // The commits say whether it is still held; a renewal is tried again.
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "a lease could not be renewed");
            }
            Err(error) => return Err(error),
        }
    }
}

/// Works on one lease while it is renewed.
async fn work<P, F>(queue: &LeaseQueue, lease: Lease, pull: &P) -> Result<End, IndexError>
where
    P: Fn(LeasedSink) -> F,
    F: Future<Output = Result<(), IndexError>>,
{
    let sink = LeasedSink::range(queue, lease);
    let result = tokio::select! {
        result = pull(sink.clone()) => result,
        end = keep(queue, &lease, &sink) => return end,
    };
    if sink.is_lost() {
        return Ok(End::Lost);
    }
    let unfinished = sink.lease().filter(|now| now.next < now.past);
    if result.is_err() || unfinished.is_some() {
        // If this fails too, it expires.
        if let Err(error) = queue.release(&lease).await {
            tracing::warn!(%error, "a lease could not be given back; it expires by itself");
        }
    }
    result?;
    match unfinished {
        None => Ok(End::Done),
        Some(now) => Err(IndexError::InvalidCursor(format!(
            "the worker stopped at block {} of a lease that ends before block {}",
            now.next, now.past
        ))),
    }
}
