//! What the tests of this room share: a node value over a real store, and calls.

use std::sync::Arc;
use std::time::Duration;

use secateur_core::{Block, BlockHash};
use secateur_store::ground::disk::{DiskStore, FsVolume, RESERVE_BYTES, open_ground};
use secateur_store::{Finality, Sabotage, Settings, StoreConfig, SystemClock};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Cache;
use crate::config::{Chain, Limits};
use crate::follow::Standing;
use crate::http::metrics::Metrics;
use crate::service::{LastPressing, Node, Reading, Rooms};
use secateur_evm::{ChainSpec, Generator};

pub(super) const LIMITS: Limits = Limits {
    body_bytes: 5 << 20,
    message_bytes: 64 << 20,
    answer_bytes: 64 << 20,
    concurrency: 8,
    waiting: 64,
    requests_per_second: 0,
    timeout: Duration::from_mins(1),
    batch: 10,
    log_blocks: 1_000,
    log_results: 10_000,
};

/// A node without servers, in a directory of its own.
pub(super) struct Bench {
    pub(super) node: Arc<Node>,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) stop: watch::Sender<bool>,
    _directory: tempfile::TempDir,
}

/// The first blocks of the default chain.
pub(super) fn chain(count: u64) -> Vec<Block> {
    chain_of(ChainSpec::default(), 0, BlockHash::default(), count)
}

/// Blocks from `first` on, on top of a parent.
pub(super) fn chain_of(
    spec: ChainSpec,
    first: u64,
    mut parent: BlockHash,
    count: u64,
) -> Vec<Block> {
    let generator = Generator::new(spec).unwrap();
    let next = |height| {
        let block = generator.block(height, parent).unwrap();
        parent = block.meta.hash;
        block
    };
    (first..first + count).map(next).collect()
}

impl Bench {
    /// A node with blocks.
    pub(super) fn with(blocks: &[Block]) -> Self {
        Self::with_limits(blocks, LIMITS)
    }

    pub(super) fn with_limits(blocks: &[Block], limits: Limits) -> Self {
        Self::make(blocks, limits, Finality::Instant, ChainSpec::default().chain_id)
    }

    pub(super) fn make(blocks: &[Block], limits: Limits, finality: Finality, chain: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let volume = FsVolume::open(directory.path()).unwrap();
        let ground = open_ground(&volume, RESERVE_BYTES, Sabotage::None).unwrap();
        let settings = Settings { finality, ..Settings::default() };
        let config = StoreConfig { settings, ..StoreConfig::new(chain, [7; 16]) };
        let store = DiskStore::create(ground, config, Arc::new(SystemClock)).unwrap();
        for group in blocks.chunks(64) {
            store.append_group(group).unwrap();
        }
        let (standing, seen) = watch::channel(Standing::default());
        let (stop, stopping) = watch::channel(false);
        let node = Arc::new(Node {
            store: Arc::new(store),
            path: directory.path().to_path_buf(),
            chain: Chain::default(),
            limits,
            standing: seen,
            beacon: watch::channel(Standing::default()).1,
            metrics: Arc::new(Metrics::default()),
            rpc: Cache::default(),
            vault: None,
            blobs: None,
            reading: Reading::new(&limits),
            rooms: Rooms::new(limits.answer_bytes),
            pressing: LastPressing::default(),
            backpressure: false,
            stopping,
        });
        Self { node, standing, stop, _directory: directory }
    }

    /// Cuts everything but the newest `keep` blocks.
    pub(super) fn prune_to(&self, keep: u64) {
        let store = &self.node.store;
        let mut policy = store.policy();
        policy.retain_blocks = keep;
        store.set_prune_policy(policy).unwrap();
        let head = store.head().unwrap();
        while store.heights().unwrap().oldest.unwrap() + keep <= head {
            store.prune_now(u64::MAX).unwrap();
        }
    }

    /// What a body is answered, as bytes.
    pub(super) async fn post(&self, body: &str) -> Option<Vec<u8>> {
        super::answer(&self.node, body.as_bytes()).await.map(|bytes| bytes.to_vec())
    }

    /// What a body is answered, as JSON.
    pub(super) async fn send(&self, body: &str) -> Value {
        serde_json::from_slice(&self.post(body).await.unwrap()).unwrap()
    }

    /// The whole response to a call.
    pub(super) async fn call(&self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.send(&call.to_string()).await;
        assert_eq!(answer["jsonrpc"], "2.0");
        assert_eq!(answer["id"], 1);
        answer
    }

    /// The result of a call that must have one; it may be null.
    pub(super) async fn get(&self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The error of a call that must have one.
    pub(super) async fn fail(&self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer.get("result").is_none(), "{method}: {answer}");
        answer["error"].take()
    }
}

/// A number as Ethereum writes it.
pub(super) fn hex(number: u64) -> String {
    format!("{number:#x}")
}
