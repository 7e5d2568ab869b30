//! `/healthz` and `/readyz`: whether the process lives, and whether it is of use.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;
use secateur_core::{Height, format_bytes};
use serde::Serialize;
use tokio::time::Instant;

use super::v1::Answer;
use super::{App, answers};
use crate::follow::{RefusedPart, Standing};
use crate::service::{Node, Pressing};
use crate::ui::words::span;

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
    reasons: Vec<Cow<'static, str>>,
    /// What makes a node no less useful now and is to be looked at all the same.
    warnings: Vec<&'static str>,
    /// How the budget of the history stands: steady, draining, blocked or emergency.
    budget: &'static str,
    head: Option<Height>,
    following: bool,
    source_head: Option<Height>,
    caught_up: Option<bool>,
    /// Blocks that the source has and we have not, with those that it is likely to have made since it
    /// fell silent; none where that is not known.
    lag_blocks: Option<u64>,
    /// The block of the source that cannot be stored.
    refused_block: Option<Height>,
    /// Whether a beacon node's blobs are followed, what it calls final, and whether that is here.
    beacon: bool,
    beacon_head: Option<Height>,
    beacon_caught_up: Option<bool>,
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let node = &app.node;
    let (standing, beacon) = (node.standing.borrow().clone(), node.beacon.borrow().clone());
    let head = node.store.head();
    let now = Instant::now();
    let rest = Rest { now, head_for: app.progress.rests(head, now) };
    let ready = judge(stores(node), *node.stopping.borrow(), head, rest, &standing, &beacon);
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answers::json_with(status, &ready)
}

/// What the stores of the node do with writes.
#[derive(Debug, Clone, Copy, Default)]
struct Stores {
    /// One refuses them.
    poisoned: bool,
    /// The last blocks did not fit.
    blocks_full: bool,
    /// The last blobs did not fit.
    full: bool,
    /// How the budget of the history stands.
    pressing: Pressing,
}

fn stores(node: &Node) -> Stores {
    let blobs = node.blobs.as_ref();
    let poisoned =
        node.store.poisoned().is_some() || blobs.is_some_and(|blobs| blobs.is_poisoned());
    let blocks_full = node.store.is_full();
    let full = blobs.is_some_and(|blobs| blobs.is_full());
    Stores { poisoned, blocks_full, full, pressing: node.pressing.get() }
}

/// The moment of a look, and for how long the head has rested then.
#[derive(Debug, Clone, Copy)]
struct Rest {
    now: Instant,
    head_for: Duration,
}

/// What a follower that is not where its source is says, `source` being what it follows.
fn follower(standing: &Standing, now: Instant, source: &str) -> Vec<Cow<'static, str>> {
    if !standing.following || standing.is_caught_up(now) {
        return Vec::new();
    }
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    if let Some(silence) = standing.silence(now) {
        let silence = span(silence.as_secs());
        reasons.push(format!("{source} has not answered for {silence}").into());
    } else if standing.source_head.is_none() {
        reasons.push(format!("{source} has not said where it is yet").into());
    }
    if standing.source_is_behind {
        reasons.push(format!("{source} ends below what is final here").into());
    }
    if let Some(block) = &standing.refused {
        let (height, size) = (block.height, format_bytes(block.bytes));
        let hash = block.hash.map_or_else(String::new, |hash| format!(", {hash}"));
        let what = match block.part {
            RefusedPart::Whole => {
                format!("block {height} of {source} was refused and is not stored")
            }
            RefusedPart::Header => format!(
                "the header of block {height} of {source} was refused, so that it is not known where \
                 its chain parts from the one here"
            ),
        };
        reasons.push(format!("{what} ({size}{hash}); the log says why").into());
    } else if standing.trouble.is_some() {
        reasons.push(format!("{source} is in trouble; the log says which").into());
    }
    reasons
}

/// What is said of a budget that presses and is in no emergency. The node answers all that it did, and
/// takes blocks; who would let it go must be able to reach it.
fn pressing_warning(pressing: Pressing) -> Option<&'static str> {
    match pressing {
        Pressing::Draining => Some("the budget of the history is draining"),
        Pressing::Blocked => {
            Some("a hold stops a prune that is due; `secateur status` says which, and what helps")
        }
        // An emergency is a reason.
        Pressing::Steady | Pressing::Emergency => None,
    }
}

/// The reasons name no cause: this route is open, and causes name files and addresses.
fn judge(
    stores: Stores,
    stopping: bool,
    head: Option<Height>,
    rest: Rest,
    standing: &Standing,
    beacon: &Standing,
) -> Readiness {
    let Rest { now, head_for } = rest;
    let (caught_up, blobs_caught_up) = (standing.is_caught_up(now), beacon.is_caught_up(now));
    let stuck = standing.following && !caught_up && head_for >= STUCK;
    let mut reasons: Vec<Cow<'static, str>> = [
        (
            stores.poisoned,
            "a store refuses writes until the node is started again; the log says why",
        ),
        (
            stores.blocks_full,
            "the disk has no room for blocks; `secateur status` says how much is missing and what \
             helps",
        ),
        (stores.full, "the disk has no room for blobs; the log says how much is missing"),
        (
            stores.pressing == Pressing::Emergency,
            "the budget of the history is in an emergency; the log says what holds pruning back",
        ),
        (stopping, "the node is stopping"),
        (stuck && !stores.blocks_full, "the node is behind its source and brings no new block"),
    ]
    .into_iter()
    .filter_map(|(holds, reason)| holds.then_some(reason.into()))
    .collect();
    // While its blocks have no room the source is not asked, so its silence is not its own.
    if !stores.blocks_full {
        reasons.extend(follower(standing, now, "the source"));
    }
    reasons.extend(follower(beacon, now, "the beacon node"));
    Readiness {
        ready: reasons.is_empty(),
        reasons,
        warnings: pressing_warning(stores.pressing).into_iter().collect(),
        budget: stores.pressing.name(),
        head,
        following: standing.following,
        source_head: standing.source_head,
        caught_up: standing.following.then_some(caught_up),
        lag_blocks: standing.lag(head, now).filter(|_| standing.following),
        refused_block: standing.refused.as_ref().map(|block| block.height),
        beacon: beacon.following,
        beacon_head: beacon.source_head,
        beacon_caught_up: beacon.following.then_some(blobs_caught_up),
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::BlockHash;

    use super::*;
    use crate::follow::RefusedBlock;

    const SOUND: Stores =
        Stores { poisoned: false, blocks_full: false, full: false, pressing: Pressing::Steady };

    fn following(source_head: Option<Height>, caught_up: bool) -> Standing {
        Standing { following: true, source_head, caught_up, ..Standing::default() }
    }

    fn resting(head_for: Duration) -> Rest {
        Rest { now: Instant::now(), head_for }
    }

    #[test]
    fn a_node_is_ready_while_its_store_takes_writes_and_its_follower_gets_on() {
        let alone = Standing::default();
        let ask = |standing: &Standing, rests| {
            judge(SOUND, false, Some(3), resting(rests), standing, &alone)
        };
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
            assert!(!judge(stores, false, None, resting(Duration::ZERO), &alone, &alone).ready);
        }
        assert!(!judge(SOUND, true, None, resting(Duration::ZERO), &alone, &alone).ready);
    }

    /// A follower that cannot store blocks falls behind, and the reasons accused the source.
    #[test]
    fn a_full_disk_is_the_only_reason_of_a_node_that_is_behind_for_it() {
        let full = Stores { blocks_full: true, ..SOUND };
        let standing = Standing { trouble: Some("x".into()), ..following(Some(9), false) };
        let answer =
            judge(full, false, Some(3), resting(STUCK * 2), &standing, &Standing::default());
        assert_eq!(answer.reasons.len(), 1, "{answer:?}");
        assert!(answer.reasons[0].contains("no room for blocks"), "{answer:?}");
    }

    #[test]
    fn an_emergency_of_the_budget_is_a_reason_and_draining_or_a_hold_is_a_warning() {
        let alone = Standing::default();
        let ask = |pressing| {
            let stores = Stores { pressing, ..SOUND };
            judge(stores, false, Some(3), resting(Duration::ZERO), &alone, &alone)
        };
        let emergency = ask(Pressing::Emergency);
        assert!(!emergency.ready && emergency.reasons[0].contains("emergency"), "{emergency:?}");
        assert_eq!(emergency.warnings, [""; 0]);
        for (pressing, name, words) in [
            (Pressing::Steady, "steady", None),
            (Pressing::Draining, "draining", Some("draining")),
            (Pressing::Blocked, "blocked", Some("a hold stops a prune")),
        ] {
            let answer = ask(pressing);
            assert!(answer.ready && answer.budget == name, "{answer:?}");
            let warning = answer.warnings.first();
            assert_eq!(warning.is_some(), words.is_some(), "{answer:?}");
            assert!(words.is_none_or(|words| warning.unwrap().contains(words)), "{answer:?}");
        }
    }

    #[test]
    fn a_node_is_not_ready_while_its_beacon_node_is_in_trouble_and_blobs_are_missing() {
        let ask = |beacon: &Standing| {
            judge(SOUND, false, Some(3), resting(Duration::ZERO), &Standing::default(), beacon)
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

    /// A source that was dead for 100 s was "caught up" with a lag of 0, and the node ready.
    #[test]
    fn a_node_whose_source_fell_silent_is_not_ready_and_its_lag_grows() {
        let start = Instant::now();
        let patience = Duration::from_secs(33);
        let standing = Standing {
            heard: Some(start),
            asked: Some(start),
            patience,
            block_millis: Some(2_000),
            ..following(Some(3), true)
        };
        let ask = |after| {
            let rest = Rest { now: start + after, head_for: Duration::ZERO };
            judge(SOUND, false, Some(3), rest, &standing, &Standing::default())
        };
        let soon = ask(patience);
        assert_eq!((soon.ready, soon.caught_up, soon.lag_blocks), (true, Some(true), Some(0)));
        let late = ask(Duration::from_secs(100));
        assert_eq!((late.ready, late.caught_up, late.lag_blocks), (false, Some(false), Some(50)));
        assert_eq!(late.reasons, ["the source has not answered for 1 min 40 s"]);
    }

    #[test]
    fn readiness_names_the_block_that_was_refused_and_not_why() {
        let block = RefusedBlock {
            part: RefusedPart::Whole,
            height: 2,
            hash: Some(BlockHash([0xab; 32])),
            bytes: 21_000_000,
            reason: "a secret".into(),
        };
        let standing = Standing {
            trouble: Some("a secret".into()),
            refused: Some(block),
            ..following(Some(9), false)
        };
        let answer =
            judge(SOUND, false, Some(1), resting(Duration::ZERO), &standing, &Standing::default());
        assert_eq!((answer.ready, answer.refused_block), (false, Some(2)));
        let reason = &answer.reasons[0];
        for part in ["block 2 of the source was refused", "20.0 MiB", "0xabab"] {
            assert!(reason.contains(part), "no {part} in {reason}");
        }
        assert!(!serde_json::to_string(&answer).unwrap().contains("secret"), "{answer:?}");
        // A header of a block that is here is refused by a node that has all heights of its source.
        let block = standing.refused.clone();
        let block = block.map(|block| RefusedBlock { part: RefusedPart::Header, ..block });
        let standing = Standing { refused: block, ..following(Some(9), true) };
        let answer =
            judge(SOUND, false, Some(9), resting(Duration::ZERO), &standing, &Standing::default());
        assert_eq!((answer.ready, answer.caught_up), (false, Some(false)));
        assert!(answer.reasons[0].contains("header of block 2 of the source"), "{answer:?}");
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
