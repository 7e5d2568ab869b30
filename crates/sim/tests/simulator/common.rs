//! What the tests share: a store on the ground under test and blocks for it.

use std::ops::ControlFlow;
use std::sync::Arc;

use secateur_core::{Block, BlockHash, Height, Locator, Part, PrunePolicy};
use secateur_sim::SimClock;
use secateur_sim::chain::{self, Shape};
use secateur_sim::script::NOW;
use secateur_store::{
    Arena, ClassTable, Family, Index, Layout, Settings, Snapshot, Store, StoreConfig,
};

pub use crate::ground::{TestStore, ground};

pub const SHAPE: Shape = Shape { block_len: 3000, transactions: 2, receipt_len: 100 };

/// The layout under test: the whole suite runs once for each (`make unit`).
pub fn layout() -> Layout {
    match std::env::var("SECATEUR_TEST_LAYOUT").as_deref() {
        Ok("per-block") => Layout::PerBlock,
        Ok("packed") | Err(_) => Layout::Packed,
        Ok(other) => panic!("SECATEUR_TEST_LAYOUT is {other}, not packed or per-block"),
    }
}

/// Regions small enough that a few blocks fill one, whatever the layout.
pub fn config(policy: PrunePolicy, settings: Settings) -> StoreConfig {
    let classes = match layout() {
        Layout::PerBlock => ClassTable::small(),
        Layout::Packed => ClassTable::explicit(vec![4096]).unwrap(),
    };
    let layout = layout();
    StoreConfig { layout, classes, policy, settings, ..StoreConfig::new(7, [3; 16]) }
}

/// The same, but each block in its own regions: for what is about them.
pub fn per_block() -> TestStore {
    let config = StoreConfig {
        layout: Layout::PerBlock,
        classes: ClassTable::small(),
        ..config(PrunePolicy::default(), Settings::default())
    };
    Store::create(ground(), config, clock()).unwrap()
}

pub fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::at(NOW))
}

pub fn store_with(policy: PrunePolicy, settings: Settings) -> TestStore {
    Store::create(ground(), config(policy, settings), clock()).unwrap()
}

pub fn store() -> TestStore {
    store_with(PrunePolicy::default(), Settings::default())
}

/// The block that would come next.
pub fn next_block<A: Arena, I: Index>(store: &Store<A, I>, shape: Shape) -> Block {
    let height = store.head().map_or(10, |head| head + 1);
    chain::block(height, store.head_hash().unwrap_or_default(), shape, 1, 0)
}

pub fn append<A: Arena, I: Index>(store: &Store<A, I>, count: u64) -> Vec<Block> {
    append_shaped(store, count, SHAPE)
}

pub fn append_shaped<A: Arena, I: Index>(
    store: &Store<A, I>,
    count: u64,
    shape: Shape,
) -> Vec<Block> {
    let blocks = blocks_after(store, count, shape, 0);
    store.append_group(&blocks).unwrap();
    blocks
}

/// Linked blocks above the head; `salt` tells forks apart.
pub fn blocks_after<A: Arena, I: Index>(
    store: &Store<A, I>,
    count: u64,
    shape: Shape,
    salt: u64,
) -> Vec<Block> {
    let mut height: Height = store.head().map_or(10, |head| head + 1);
    let mut parent: BlockHash = store.head_hash().unwrap_or_default();
    let mut blocks = Vec::new();
    for _ in 0..count {
        let block = chain::block(height, parent, shape, 1, salt);
        (height, parent) = (height + 1, block.meta.hash);
        blocks.push(block);
    }
    blocks
}

/// Everything in the index, to show that nothing changed.
pub fn rows(store: &TestStore) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    let snapshot = store.index().snapshot().unwrap();
    let mut rows = Vec::new();
    for table in Family::History.tables() {
        let mut keep = |key: &[u8], value: &[u8]| {
            rows.push((*table as u8, key.to_vec(), value.to_vec()));
            Ok(ControlFlow::Continue(()))
        };
        snapshot.scan(*table, &[], &mut keep).unwrap();
    }
    rows
}

/// A part over blocks that are here, with the right hashes.
pub fn part(store: &TestStore, first: u64, last: u64) -> Part {
    Part {
        first,
        last,
        parent_hash: store.get_record(first).unwrap().meta.parent_hash,
        last_hash: store.get_record(last).unwrap().meta.hash,
        locator: Locator { provider: "fs".into(), key: format!("part={first}-{last}") },
        sha256: "ab".repeat(32),
        size: 1,
    }
}
