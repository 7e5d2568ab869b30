//! `/v1/events`: the status every second and every report of a prune, as server-sent events. One
//! task asks the store for all who listen, and nobody for none.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use secateur_core::{PruneStatus, Report};
use secateur_store::ground::disk::DiskStore;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio::time::{MissedTickBehavior, interval};

use super::v1::Answer;
use super::{App, answers, told_to_stop};
use crate::service::{ApiError, Node};

pub(super) const KIND: &str = "text/event-stream";
/// How often the status is told.
const EVERY: Duration = Duration::from_secs(1);
/// Listeners at once, and never more than a quarter of all connections.
const MOST_LISTENERS: usize = 64;
/// Events that a slow listener may be behind; then it misses some.
const BEHIND: usize = 16;
/// Reports of one moment that are told at most; the rest is at `/v1/reports`.
const MOST_REPORTS: usize = 8;
/// What a listener reads first: when to come again after the connection broke.
const HELLO: &[u8] = b"retry: 2000\n\n";

/// Those who listen, and what they are told.
#[derive(Debug)]
pub(super) struct Events {
    say: broadcast::Sender<Bytes>,
    places: Arc<Semaphore>,
    /// Rings when somebody new listens.
    arrived: Notify,
}

impl Events {
    pub(super) fn new(most_connections: usize) -> Self {
        let places = MOST_LISTENERS.min(most_connections / 4).max(1);
        Self {
            say: broadcast::Sender::new(BEHIND),
            places: Arc::new(Semaphore::new(places)),
            arrived: Notify::new(),
        }
    }

    /// Tells whoever listens what there is to tell, until the node stops.
    pub(super) async fn run(&self, node: &Arc<Node>) {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = told_to_stop(node.stopping.clone());
        tokio::pin!(stop);
        let mut told = None;
        loop {
            tokio::select! {
                () = &mut stop => return,
                _ = every.tick() => {}
                () = self.arrived.notified() => {}
            }
            if self.say.receiver_count() == 0 {
                told = None;
                continue;
            }
            let before = told.clone();
            match node.ask(move |store| look(store, before.as_ref())).await {
                Ok((status, reports)) => {
                    self.tell("status", &status);
                    for report in &reports {
                        self.tell("report", report);
                    }
                    told = Some(status.last_report);
                }
                Err(error) => tracing::warn!(%error, "no status for those who listen to events"),
            }
        }
    }

    fn tell<T: Serialize>(&self, name: &str, value: &T) {
        // Compact JSON has no line breaks, so it is one line of data.
        match serde_json::to_string(value) {
            Ok(data) => {
                let event = format!("event: {name}\ndata: {data}\n\n");
                // Nobody may be left to hear it.
                self.say.send(event.into()).map(drop).unwrap_or_default();
            }
            Err(error) => tracing::error!(%error, "an event cannot be written as JSON"),
        }
    }

    /// Everything that is told from now on, until the node stops.
    fn listen(&self, node: &Node) -> Result<Body, ApiError> {
        let place = Arc::clone(&self.places);
        let place = place.try_acquire_owned().map_err(|_| ApiError::Overloaded)?;
        let heard = self.say.subscribe();
        let stop = Box::pin(told_to_stop(node.stopping.clone()));
        let events = stream::unfold((heard, stop, place), |(mut heard, mut stop, place)| async {
            loop {
                let event = tokio::select! {
                    () = &mut stop => return None,
                    event = heard.recv() => event,
                };
                match event {
                    Ok(event) => return Some((event, (heard, stop, place))),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        self.arrived.notify_one();
        let hello = stream::iter([Bytes::from_static(HELLO)]);
        Ok(Body::from_stream(hello.chain(events).map(Ok::<_, Infallible>)))
    }
}

/// The status, and the reports that are new or have grown since the last one that was told.
fn look(
    store: &DiskStore,
    told: Option<&Option<Report>>,
) -> Result<(PruneStatus, Vec<Report>), ApiError> {
    let status = store.get_prune_status()?;
    let reports = match told {
        Some(told) if *told != status.last_report => since(store.reports()?, told.as_ref()),
        // Whoever has just come finds the last one in the status.
        _ => Vec::new(),
    };
    Ok((status, reports))
}

fn since(mut reports: Vec<Report>, told: Option<&Report>) -> Vec<Report> {
    reports.retain(|report| told.is_none_or(|told| report.seq >= told.seq && report != told));
    reports.split_off(reports.len().saturating_sub(MOST_REPORTS))
}

pub(super) async fn listen(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::body(StatusCode::OK, KIND, app.events.listen(&app.node)?))
}

#[cfg(test)]
mod tests {
    use secateur_core::{Cause, StopReason};

    use super::*;

    fn report(seq: u64, blocks: u64) -> Report {
        Report {
            seq,
            at: 0,
            by: "daemon".into(),
            cause: Cause::Capacity,
            first: 0,
            last: 0,
            blocks,
            transactions: 0,
            ops: 0,
            ticks: 0,
            overruns: 0,
            used_before: 0,
            used_after: 0,
            by_class: Vec::new(),
            millis: 0,
            stop: StopReason::Done,
        }
    }

    #[test]
    fn a_report_is_told_when_it_is_new_and_when_it_has_grown() {
        let log = || vec![report(1, 5), report(2, 5), report(3, 5)];
        assert_eq!(since(log(), Some(&report(3, 5))), []);
        assert_eq!(since(log(), Some(&report(2, 5))), [report(3, 5)]);
        assert_eq!(since(log(), Some(&report(2, 4))), [report(2, 5), report(3, 5)]);
        assert_eq!(since(log(), None).len(), 3, "there was none before");
        let many: Vec<_> = (0..100).map(|seq| report(seq, 1)).collect();
        let told = since(many, Some(&report(1, 1)));
        assert_eq!(told.len(), MOST_REPORTS);
        assert_eq!(told.last().unwrap().seq, 99, "the newest are told");
    }
}
