//! `/healthz` and `/readyz`: whether the process lives, and whether it is of use.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;
use secateur_core::Height;
use serde::Serialize;
use tokio::time::Instant;

use super::v1::Answer;
use super::{App, answers};
use crate::follow::Standing;
use crate::service::Node;

/// A follower that is behind and brings no block for so long is stuck.
const STUCK: Duration = Duration::from_mins(2);

#[derive(Debug, Serialize)]
struct Alive {
    alive: bool,
    version: &'static str,
}

pub(super) async fn live() -> Answer {
    Ok(answers::json(&Alive { alive: true, version: env!("CARGO_PKG_VERSION") }))
}

/// When the head was last seen to move.
#[derive(Debug, Default)]
pub(super) struct Progress {
    seen: Mutex<Option<(Option<Height>, Instant)>>,
}

impl Progress {
    /// How long the head has been where it is, as far as anybody looked.
    fn rests(&self, head: Option<Height>, now: Instant) -> Duration {
        let mut seen = self.seen.lock();
        match *seen {
            Some((before, since)) if before == head => now.duration_since(since),
            _ => {
                *seen = Some((head, now));
                Duration::ZERO
            }
        }
    }
}

/// Whether the node is of use, and if not, why not.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Readiness {
    ready: bool,
    reasons: Vec<&'static str>,
    head: Option<Height>,
    following: bool,
    source_head: Option<Height>,
    caught_up: Option<bool>,
    /// Whether a beacon node's blobs are followed, what it calls final, and whether that is here.
    beacon: bool,
    beacon_head: Option<Height>,
    beacon_caught_up: Option<bool>,
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let node = &app.node;
    let (standing, beacon) = (node.standing.borrow().clone(), node.beacon.borrow().clone());
    let head = node.store.head();
    let rests = app.progress.rests(head, Instant::now());
    let ready = judge(stores(node), *node.stopping.borrow(), head, rests, &standing, &beacon);
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answers::json_with(status, &ready)
}

/// What the stores of the node do with writes.
#[derive(Debug, Clone, Copy, Default)]
struct Stores {
    /// One refuses them.
    poisoned: bool,
    /// The last blobs did not fit.
    full: bool,
}

fn stores(node: &Node) -> Stores {
    let blobs = node.blobs.as_ref();
    let poisoned =
        node.store.poisoned().is_some() || blobs.is_some_and(|blobs| blobs.is_poisoned());
    Stores { poisoned, full: blobs.is_some_and(|blobs| blobs.is_full()) }
}

/// The reasons name no cause: this route is open, and causes name files and addresses.
fn judge(
    stores: Stores,
    stopping: bool,
    head: Option<Height>,
    rests: Duration,
    standing: &Standing,
    beacon: &Standing,
) -> Readiness {
    let behind = standing.following && !standing.caught_up;
    let blobs_behind = beacon.following && !beacon.caught_up;
    let stuck = behind && rests >= STUCK;
    let reasons: Vec<_> = [
        (
            stores.poisoned,
            "a store refuses writes until the node is started again; the log says why",
        ),
        (stores.full, "the disk has no room for blobs; the log says how much is missing"),
        (stopping, "the node is stopping"),
        (behind && standing.source_head.is_none(), "the source has not said where it is yet"),
        (behind && standing.trouble.is_some(), "the source is in trouble; the log says which"),
        (stuck, "the node is behind its source and brings no new block"),
        (
            blobs_behind && beacon.source_head.is_none(),
            "the beacon node has not said what is final yet",
        ),
        (
            blobs_behind && beacon.trouble.is_some(),
            "the beacon node is in trouble, and blobs are missing; the log says which",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, reason)| holds.then_some(reason))
    .collect();
    Readiness {
        ready: reasons.is_empty(),
        reasons,
        head,
        following: standing.following,
        source_head: standing.source_head,
        caught_up: standing.following.then_some(standing.caught_up),
        beacon: beacon.following,
        beacon_head: beacon.source_head,
        beacon_caught_up: beacon.following.then_some(beacon.caught_up),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Stores = Stores { poisoned: false, full: false };

    fn following(source_head: Option<Height>, caught_up: bool) -> Standing {
        Standing { following: true, source_head, caught_up, ..Standing::default() }
    }

    #[test]
    fn a_node_is_ready_while_its_store_takes_writes_and_its_follower_gets_on() {
        let alone = Standing::default();
        let ask =
            |standing: &Standing, rests| judge(SOUND, false, Some(3), rests, standing, &alone);
        assert!(ask(&alone, STUCK * 2).ready, "nothing is followed, so nothing need move");
        assert!(ask(&following(Some(9), true), STUCK * 2).ready, "no new block to bring");
        assert!(ask(&following(Some(9), false), STUCK / 2).ready, "it catches up");
        assert!(!ask(&following(Some(9), false), STUCK).ready, "it does not get on");
        assert!(!ask(&following(None, false), Duration::ZERO).ready, "the source is silent");
        let troubled = Standing {
            trouble: Some("http://key@host is down".into()),
            ..following(Some(9), false)
        };
        let answer = ask(&troubled, Duration::ZERO);
        assert!(!answer.ready);
        assert!(!serde_json::to_string(&answer).unwrap().contains("key"), "{answer:?}");
        for stores in [Stores { poisoned: true, ..SOUND }, Stores { full: true, ..SOUND }] {
            assert!(!judge(stores, false, None, Duration::ZERO, &alone, &alone).ready);
        }
        assert!(!judge(SOUND, true, None, Duration::ZERO, &alone, &alone).ready);
    }

    #[test]
    fn a_node_is_not_ready_while_its_beacon_node_is_in_trouble_and_blobs_are_missing() {
        let ask = |beacon: &Standing| {
            judge(SOUND, false, Some(3), Duration::ZERO, &Standing::default(), beacon)
        };
        assert!(ask(&following(Some(9), false)).ready, "it catches up");
        assert!(!ask(&following(None, false)).ready, "nobody knows what is final");
        let in_trouble = |standing| Standing { trouble: Some("a secret".into()), ..standing };
        assert!(ask(&in_trouble(following(Some(9), true))).ready, "nothing is missing");
        let answer = ask(&in_trouble(following(Some(9), false)));
        assert!(!answer.ready);
        assert_eq!((answer.beacon_head, answer.beacon_caught_up), (Some(9), Some(false)));
        assert!(!serde_json::to_string(&answer).unwrap().contains("secret"), "{answer:?}");
    }

    #[test]
    fn a_head_that_moves_does_not_rest() {
        let progress = Progress::default();
        let start = Instant::now();
        assert_eq!(progress.rests(Some(1), start), Duration::ZERO);
        assert_eq!(progress.rests(Some(1), start + STUCK), STUCK);
        assert_eq!(progress.rests(Some(2), start + STUCK), Duration::ZERO);
    }
}
