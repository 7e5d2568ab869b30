//! Blobs of a real EVM node, all the way: sent in transactions, served by anvil as a beacon node
//! does, compared with the transactions' versioned hashes, archived into a directory, pruned, and
//! fetched back through the beacon interface of our own node.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alloy_primitives::{B256, hex};
use secateur_sidecar::notice::keygen;
use secateur_sidecar::testdata;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::anvil::Anvil;
use crate::http_client::{get, start_with};
use crate::node::Node;
use crate::proxy::{Manner, Proxy};
use crate::tool::files;
use crate::wallet::Wallet;

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Who the node is.
const VALIDATOR: &str = "0x5ecab1e0";

/// A place for a node that follows, archives and prunes.
struct Place {
    directory: TempDir,
    config: String,
}

impl Place {
    fn new(anvil: &Anvil, blocks: &str) -> Self {
        let directory = tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let key = keygen(Path::new(&at("key"))).unwrap().public_key();
        let config = format!(
            "[chain]\nid = 31337\n\
             [beacon]\nurl = \"{}\"\nexecution_url = \"{blocks}\"\nstart = 0\npoll_ms = 50\n\
             timeout_seconds = 5\n\
             [sidecar]\nenabled = true\nread_through = true\nidentity = \"{VALIDATOR}\"\n\
             key_file = \"{}\"\n\
             validators = [{{ id = \"{VALIDATOR}\", public_key = \"{key}\" }}]\n\
             providers = [{{ kind = \"fs\", name = \"here\", path = \"{}\" }}]\n",
            anvil.url,
            at("key"),
            at("archive"),
        );
        Self { directory, config }
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn start(&self) -> Node {
        start_with(&self.directory.path().join("data"), &self.config)
    }
}

/// Waits until a counter or gauge of a node is what it should be.
#[track_caller]
fn wait_for(node: &Node, metric: &str, wanted: impl Fn(u64) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = String::from_utf8(get(node, "/metrics").is(200).body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        let value = line.and_then(|value| value.parse().ok());
        if value.is_some_and(&wanted) {
            return;
        }
        assert!(Instant::now() < until, "{metric} stays {value:?}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The blobs that a node serves for a height.
#[track_caller]
fn served(node: &Node, id: &str) -> Vec<Value> {
    let answer = get(node, &format!("/eth/v1/beacon/blobs/{id}")).is(200).json();
    answer["data"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn pooled(which: &[usize]) -> Vec<Value> {
    let text = |at: &usize| hex::encode_prefixed(&testdata::pooled(*at).blob).into();
    which.iter().map(text).collect()
}

/// Blocks 1 (three blobs in two transactions) and 3 (one blob), both final.
fn chain(anvil: &Anvil) -> Vec<B256> {
    let mut wallet = Wallet::default();
    let hashes = wallet.blobs(anvil, &[0, 1]);
    wallet.legacy(anvil, 7);
    wallet.blobs(anvil, &[2]);
    anvil.mine(2);
    wallet.blobs(anvil, &[3]);
    anvil.mine(4);
    hashes
}

#[test]
fn blobs_of_real_transactions_are_verified_archived_pruned_and_fetched_back() {
    let anvil = Anvil::with_blobs();
    let hashes = chain(&anvil);
    let place = Place::new(&anvil, &anvil.url);
    let node = place.start();
    wait_for(&node, "secateur_blob_pruned_total", |pruned| pruned == 4);
    wait_for(&node, "secateur_blob_used_bytes", |used| used == 0);
    let copies = files(&place.archive());
    for at in 0..4 {
        let blob = &testdata::pooled(at).blob;
        assert_eq!(copies.values().filter(|copy| *copy == blob).count(), 1, "blob {at}");
    }
    assert_eq!(served(&node, "1"), pooled(&[0, 1, 2]));
    assert_eq!(served(&node, "3"), pooled(&[3]));
    assert_eq!(served(&node, &format!("1?versioned_hashes={}", hashes[1])), pooled(&[1]));
    assert_eq!(served(&node, "2"), Vec::<Value>::new(), "a block without blobs has none");
    get(&node, "/eth/v1/beacon/blobs/99").is(404);
    node.stop();

    // Another run goes on where this one ended.
    let mut wallet = Wallet::at(4);
    wallet.blobs(&anvil, &[4]);
    anvil.mine(3);
    let node = place.start();
    wait_for(&node, "secateur_blob_pruned_total", |pruned| pruned == 1);
    assert_eq!(served(&node, "7"), pooled(&[4]));
    assert_eq!(served(&node, "1"), pooled(&[0, 1, 2]));
    wait_for(&node, "secateur_sync_failures_total", |failures| failures == 0);
    node.stop();
}

#[test]
fn a_transaction_that_names_other_blobs_than_its_block_is_refused() {
    let anvil = Anvil::with_blobs();
    chain(&anvil);
    let lie = Manner::Change(|method, result| {
        let hash = result.pointer_mut("/transactions/0/blobVersionedHashes/0");
        if let (Some(hash), "eth_getBlockByNumber") = (hash, method) {
            *hash = json!(format!("0x01{}", "ab".repeat(31)));
        }
    });
    let proxy = Proxy::start(&anvil.url, lie);
    let place = Place::new(&anvil, &proxy.url);
    let node = place.start();
    wait_for(&node, "secateur_sync_failures_total", |failures| failures >= 2);
    get(&node, "/eth/v1/beacon/blobs/1").is(404);
    assert_eq!(served(&node, "0"), Vec::<Value>::new(), "what was good before it is stored");
    assert!(files(&place.archive()).is_empty());
    proxy.set(Manner::Honest);
    wait_for(&node, "secateur_blob_pruned_total", |pruned| pruned == 4);
    assert_eq!(served(&node, "1"), pooled(&[0, 1, 2]));
    node.stop();
}
