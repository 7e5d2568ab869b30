//! Following a beacon node over a socket: what is honest is stored, what is not is refused and
//! counted, and asked for again.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use prometheus_client::registry::Registry;
use secateur_sidecar::engine::SidecarStore;
use secateur_sidecar::metrics::SidecarMetrics;
use secateur_sidecar::notice::{Signers, Validators, Verifier};
use secateur_sidecar::service::{ServiceOptions, Sidecars};
use secateur_sidecar::{EngineConfig, SidecarError, testdata};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Ground, SystemClock};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::api::Api;
use super::error::BeaconError;
use super::follower::Follower;
use super::liar::{Liar, Lie, Reply, honest, text};
use super::slots::Slots;
use super::{Origin, Standing, Teller, run};
use crate::config::{Beacon, Start};

type Memory = Sidecars<MemoryArena, MemoryIndex>;

/// A chain whose third slot has no block. The lies are about the fourth.
const CHAIN: [(u64, &[usize]); 4] = [(1, &[]), (2, &[0, 1]), (4, &[2, 3]), (5, &[])];
const BAD: &str = "/eth/v1/beacon/blobs/4";

fn config(url: &str, start: Start) -> Beacon {
    Beacon {
        url: url.to_owned(),
        execution_url: None,
        start,
        proposer: None,
        concurrency: 2,
        poll: Duration::from_millis(10),
        timeout: Duration::from_secs(1),
    }
}

struct Node {
    sidecars: Memory,
    registry: Registry,
}

impl Node {
    fn new(chain_id: u64) -> Self {
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        let clock = Arc::new(SystemClock);
        let config = EngineConfig::new(chain_id, [1; 16]);
        let store = Arc::new(SidecarStore::open(ground, config, clock.clone()).unwrap());
        let verifier = Verifier {
            chain_id,
            validators: Validators::new(&[]).unwrap(),
            signers: Signers::ProposerOnly,
            accept_v0: false,
        };
        let options = ServiceOptions {
            identity: None,
            min_copies: 1,
            at_once: 1,
            rebroadcast_blocks: 1,
            seed: 1,
        };
        let mut registry = Registry::default();
        let metrics = Arc::new(SidecarMetrics::new(&mut registry));
        let sidecars = Sidecars::new(store, Vec::new(), verifier, clock, metrics, options);
        Self { sidecars: sidecars.unwrap(), registry }
    }

    fn follower(&self, url: &str, start: Start) -> Follower<'_, MemoryArena, MemoryIndex> {
        let config = config(url, start);
        let (say, _) = watch::channel(Standing::default());
        let teller = Arc::new(Teller::new(say));
        let api = Api::new(&config.follow(url), 4, Arc::clone(&teller)).unwrap();
        let origin = Origin::Slots(Box::new(Slots::new(api)));
        Follower::new(&self.sidecars, origin, teller, config)
    }

    fn latest(&self) -> Option<u64> {
        self.sidecars.store().summary().unwrap().latest_decided
    }

    fn finalized(&self) -> Option<u64> {
        self.sidecars.store().summary().unwrap().finalized
    }

    /// The blobs of a height, by their places in the pool.
    fn blobs(&self, height: u64) -> Vec<usize> {
        let stored = self.sidecars.store().get(height).unwrap();
        let which = |blob: &bytes::Bytes| {
            (0..testdata::POOL).find(|at| testdata::pooled(*at).blob == *blob).unwrap()
        };
        stored.iter().map(|stored| which(&stored.blob)).collect()
    }

    fn failures(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find(|line| line.starts_with("secateur_sync_failures_total"));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A lie must be refused in these words; what was good before it is stored, and the rest when the
/// source is honest again.
async fn is_refused(lie: Lie, words: &str) {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    let mut follower = node.follower(&liar.url, Start::At(0));
    liar.lies(lie);
    let error = follower.round().await.unwrap_err();
    assert!(error.to_string().contains(words), "{words}: {error}");
    assert!(!matches!(error, BeaconError::Fatal(_)), "{error}");
    assert_eq!(node.failures(), 1, "{words}");
    assert_eq!(node.latest(), Some(2), "{words}: what was good before it is stored, and no more");
    liar.lies(honest);
    follower.round().await.unwrap();
    assert_eq!((node.latest(), node.finalized()), (Some(5), Some(5)), "{words}");
    assert_eq!((node.blobs(2), node.blobs(4)), (vec![0, 1], vec![2, 3]), "{words}");
    assert_eq!(node.failures(), 1, "{words}");
}

#[tokio::test]
async fn a_beacon_node_that_lies_shows_until_it_tells_the_truth() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    liar.lies(|path, reply| blobs_are(path, reply, &[3, 2]));
    let (say, mut standing) = watch::channel(Standing::default());
    let (stop, stopping) = watch::channel(false);
    let following = run(&node.sidecars, config(&liar.url, Start::At(0)), say, stopping);
    let watching = async {
        let shows = |one: &Standing| one.trouble.is_some() && one.source_head == Some(5);
        let seen = standing.wait_for(shows).await.unwrap().clone();
        assert!(seen.following && !seen.caught_up, "{seen:?}");
        liar.lies(honest);
        let over = |one: &Standing| one.trouble.is_none() && one.caught_up;
        standing.wait_for(over).await.unwrap();
        assert_eq!(node.latest(), Some(5));
        stop.send_replace(true);
    };
    let both = async { tokio::join!(following, watching) };
    let (ended, ()) = tokio::time::timeout(Duration::from_mins(1), both).await.unwrap();
    ended.unwrap();
}

fn blobs_are(path: &str, reply: Reply, which: &[usize]) -> Reply {
    let texts = || which.iter().map(|at| text(*at)).collect::<Vec<_>>();
    at(BAD, path, reply, || Reply::Json(json!({ "data": texts() })))
}

/// Another answer under one path.
fn at(wanted: &str, path: &str, reply: Reply, other: impl FnOnce() -> Reply) -> Reply {
    if path == wanted { other() } else { reply }
}

/// A changed answer under one path.
fn change(wanted: &str, path: &str, reply: Reply, change: impl FnOnce(&mut Value)) -> Reply {
    match reply {
        Reply::Json(mut answer) if path == wanted => {
            change(&mut answer);
            Reply::Json(answer)
        }
        other => other,
    }
}

#[tokio::test]
async fn finalised_slots_are_stored_with_their_blobs_and_those_without_as_empty() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    let mut follower = node.follower(&liar.url, Start::At(0));
    follower.round().await.unwrap();
    assert_eq!((node.latest(), node.finalized(), node.failures()), (Some(5), Some(5), 0));
    assert_eq!((node.blobs(1), node.blobs(2)), (vec![], vec![0, 1]));
    assert_eq!((node.blobs(4), node.blobs(5)), (vec![2, 3], vec![]));
    let unknown = node.sidecars.store().get(3);
    assert!(matches!(unknown, Err(SidecarError::Unknown(3))), "a slot without a block has nothing");
    let record = node.sidecars.store().height(4).unwrap().unwrap();
    assert_eq!(record.proposer.as_bytes(), 1_004u64.to_be_bytes());
    assert_eq!(record.signed_header.unwrap().len(), 208);
    let header: Value = serde_json::from_slice(&record.payload_header).unwrap();
    assert_eq!(header["block_number"], "3");
    assert!(header.get("transactions").is_none());
}

#[tokio::test]
async fn a_new_run_goes_on_behind_what_is_stored_and_asks_for_nothing_before() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    node.follower(&liar.url, Start::Finalized).round().await.unwrap();
    assert_eq!(node.latest(), Some(5));
    assert!(node.sidecars.store().height(4).unwrap().is_none(), "it began at what was final");
    liar.adds(7, &[4]);
    liar.asked();
    // Where a new store begins is of no account any more.
    node.follower(&liar.url, Start::At(0)).round().await.unwrap();
    assert_eq!((node.latest(), node.blobs(7)), (Some(7), vec![4]));
    let early = |path: &String| (0..=5).any(|slot| path.ends_with(&format!("/{slot}")));
    let asked = liar.asked();
    assert!(!asked.iter().any(early), "{asked:?}");
}

// The lies share a process: the trusted setup takes seconds to load.
#[tokio::test]
async fn blobs_that_are_not_what_the_block_names_are_refused_and_asked_for_again() {
    let lies: [(Lie, &str); 9] = [
        (|path, reply| blobs_are(path, reply, &[2, 9]), "blob 1 hashes to"),
        (|path, reply| blobs_are(path, reply, &[2]), "1 blobs came, and the block names 2"),
        (|path, reply| blobs_are(path, reply, &[]), "0 blobs came, and the block names 2"),
        (|path, reply| blobs_are(path, reply, &[2, 3, 3]), "longer than the"),
        (|path, reply| blobs_are(path, reply, &[3, 2]), "belongs to another place"),
        (
            |path, reply| {
                at(BAD, path, reply, || Reply::Json(json!({ "data": [text(2), "0x0102"] })))
            },
            "blobs cannot be read: invalid length 2",
        ),
        (
            |path, reply| {
                let none = || format!("0x{}", "ff".repeat(131_072));
                at(BAD, path, reply, || Reply::Json(json!({ "data": [text(2), none()] })))
            },
            "blob 1 is none",
        ),
        (|path, reply| at(BAD, path, reply, || Reply::Raw(vec![b' '; 8 << 20])), "longer than the"),
        (
            |path, reply| at(BAD, path, reply, || Reply::Raw(b"<html>no</html>".to_vec())),
            "blobs cannot be read",
        ),
    ];
    for (lie, words) in lies {
        is_refused(lie, words).await;
    }
}

#[tokio::test]
async fn a_source_that_does_not_have_the_blobs_fails_or_is_silent_is_asked_again_later() {
    let lies: [(Lie, &str); 3] = [
        (
            |path, reply| match path {
                BAD | "/eth/v1/beacon/blob_sidecars/4" => Reply::Status(404),
                _ => reply,
            },
            "names 2 blobs, and the source does not have them",
        ),
        (|path, reply| at(BAD, path, reply, || Reply::Status(500)), "it answered HTTP 500"),
        (|path, reply| at(BAD, path, reply, || Reply::Hang), "it was silent for 1 seconds"),
    ];
    for (lie, words) in lies {
        is_refused(lie, words).await;
    }
}

#[tokio::test]
async fn blobs_come_from_the_legacy_endpoint_where_there_is_no_other() {
    let (liar, node) = (Liar::start(&[(1, &[]), (2, &[6])]).await, Node::new(7));
    liar.lies(
        |path, reply| {
            if path.starts_with("/eth/v1/beacon/blobs/") { Reply::Status(405) } else { reply }
        },
    );
    node.follower(&liar.url, Start::At(1)).round().await.unwrap();
    assert_eq!(node.blobs(2), vec![6]);
    let meta = node.sidecars.store().blob_meta(2, 0).unwrap().unwrap();
    assert_eq!(meta.proof, Some(testdata::pooled(6).proof));
    assert_eq!(meta.inclusion.unwrap().proof.len(), 17);
}

#[tokio::test]
async fn legacy_sidecars_that_do_not_hold_are_refused() {
    let lies: [(Lie, &str); 4] = [
        (|_, reply| legacy(reply, "kzg_proof", text_of(7).1), "the proof of blob 0"),
        (|_, reply| legacy(reply, "kzg_commitment", text_of(7).0), "no transaction of the block"),
        (|_, reply| legacy(reply, "index", "1".into()), "sidecar 0 is of another block"),
        (
            |_, reply| legacy(reply, "kzg_commitment_inclusion_proof", json!([])),
            "the inclusion proof of sidecar 0 does not hold",
        ),
    ];
    for (lie, words) in lies {
        let (liar, node) = (Liar::start(&[(2, &[6])]).await, Node::new(7));
        liar.lies(lie);
        let error = node.follower(&liar.url, Start::At(1)).round().await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!((node.latest(), node.failures()), (None, 1));
    }
}

fn text_of(which: usize) -> (Value, Value) {
    let blob = testdata::pooled(which);
    (blob.commitment.to_string().into(), blob.proof.to_string().into())
}

/// Leaves only the legacy endpoint, and changes a field of its first sidecar.
fn legacy(reply: Reply, field: &str, value: Value) -> Reply {
    match reply {
        Reply::Json(mut answer) if answer["data"][0].is_string() => {
            answer["data"] = json!(null);
            Reply::Status(404)
        }
        Reply::Json(mut answer) if answer["data"][0].is_object() => {
            answer["data"][0][field] = value;
            Reply::Json(answer)
        }
        other => other,
    }
}

#[tokio::test]
async fn blocks_and_headers_that_do_not_fit_are_refused() {
    const BLOCK: &str = "/eth/v2/beacon/blocks/4";
    const HEADER: &str = "/eth/v1/beacon/headers/4";
    fn body(answer: &mut Value) -> &mut Value {
        &mut answer["data"]["message"]["body"]
    }
    let lies: [(Lie, &str); 8] = [
        (
            |path, reply| {
                change(BLOCK, path, reply, |block| {
                    body(block)["blob_kzg_commitments"][1] = text_of(9).0;
                })
            },
            "commitment 1 is not the one that the transactions name there",
        ),
        (
            |path, reply| {
                change(BLOCK, path, reply, |block| body(block)["blob_kzg_commitments"] = json!([]))
            },
            "the block has 0 commitments, and its transactions name 2 blobs",
        ),
        (
            |path, reply| {
                change(BLOCK, path, reply, |block| {
                    body(block)["execution_payload"]["transactions"] = json!(["0x03c0"]);
                })
            },
            "transaction 0 cannot be read",
        ),
        (
            |path, reply| change(BLOCK, path, reply, |block| block["version"] = json!("hereafter")),
            "the block is of fork `hereafter`",
        ),
        (
            |path, reply| {
                change(BLOCK, path, reply, |block| {
                    block["data"]["message"]["state_root"] = json!(B256::ZERO);
                })
            },
            "the block's state root is not its header's",
        ),
        (|path, reply| at(BLOCK, path, reply, || Reply::Status(404)), "header and not its block"),
        (
            |path, reply| {
                change(HEADER, path, reply, |header| {
                    header["data"]["header"]["message"]["proposer_index"] = json!("12");
                })
            },
            "the header is stated to have root",
        ),
        // A block that the source does not have is not taken for an empty slot.
        (
            |path, reply| at(HEADER, path, reply, || Reply::Status(404)),
            "the source lacks a block between",
        ),
    ];
    for (lie, words) in lies {
        is_refused(lie, words).await;
    }
}

#[tokio::test]
async fn a_finalised_slot_that_goes_backwards_changes_nothing() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    let mut follower = node.follower(&liar.url, Start::At(0));
    follower.round().await.unwrap();
    liar.finalizes(2);
    let error = follower.round().await.unwrap_err().to_string();
    assert!(error.contains("says that 2 is final, and 5 was final here before"), "{error}");
    assert_eq!((node.latest(), node.finalized(), node.failures()), (Some(5), Some(5), 1));
    liar.adds(6, &[5]);
    follower.round().await.unwrap();
    assert_eq!((node.latest(), node.blobs(6)), (Some(6), vec![5]));
}

#[tokio::test]
async fn more_blobs_than_a_height_may_have_are_not_even_asked_for() {
    let (liar, node) = (Liar::start(&[(1, &[0, 1, 2, 3, 4])]).await, Node::new(7));
    let error = node.follower(&liar.url, Start::At(0)).round().await.unwrap_err().to_string();
    assert!(error.contains("names 5 blobs, and a height has at most 4 here"), "{error}");
    assert!(!liar.asked().iter().any(|path| path.contains("blobs")));
}

#[tokio::test]
async fn a_source_of_another_chain_ends_it() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(8));
    let error = node.follower(&liar.url, Start::At(0)).round().await.unwrap_err();
    assert!(matches!(error, BeaconError::Fatal(_)), "{error}");
    assert!(error.to_string().contains("is of chain 7, this directory holds chain 8"), "{error}");
    assert_eq!(node.latest(), None);
}

/// Which chain it is of was asked once in the life of a process.
#[tokio::test]
async fn a_source_that_failed_to_answer_is_asked_again_which_chain_it_is_of() {
    const CHAIN_OF: &str = "/eth/v1/config/deposit_contract";
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    let mut follower = node.follower(&liar.url, Start::At(0));
    follower.round().await.unwrap();
    liar.asked();
    follower.round().await.unwrap();
    assert!(!liar.asked().iter().any(|path| path == CHAIN_OF), "it has answered all the time");
    liar.lies(|_, _| Reply::Status(503));
    follower.round().await.unwrap_err();
    liar.lies(|path, reply| {
        change(CHAIN_OF, path, reply, |answer| answer["data"]["chain_id"] = json!("9"))
    });
    let error = follower.round().await.unwrap_err();
    assert!(matches!(error, BeaconError::Fatal(_)), "{error}");
    assert!(error.to_string().contains("is of chain 9, this directory holds chain 7"), "{error}");
}

#[tokio::test]
async fn heights_of_two_kinds_are_not_mixed() {
    let (liar, node) = (Liar::start(&CHAIN).await, Node::new(7));
    let proposer = secateur_sidecar::ValidatorId::new(b"somebody").unwrap();
    let ingested = testdata::proposal(1, 0, &proposer, &[]);
    node.sidecars.store_decided(vec![ingested]).await.unwrap().remove(0).unwrap();
    let error = node.follower(&liar.url, Start::At(0)).round().await.unwrap_err();
    assert!(matches!(error, BeaconError::Fatal(_)), "{error}");
    assert!(error.to_string().contains("heights of two kinds are not mixed"), "{error}");
}
