//! A small store with one row of every kind: blocks, a cut that is not freed yet, a free region,
//! a consumer, a queued transaction, a report, a tombstone, a run that is cut in half.

use std::sync::Arc;

use secateur_core::{
    Block, BlockHash, BlockMeta, Payloads, PrunePolicy, Strength, TxId, TxIndexEntry, push_receipt,
    push_tx_index,
};
use secateur_store::{
    Arena, ClassTable, Clock, Finality, Ground, Index, Layout, Settings, Store, StoreConfig,
    StoreError,
};

/// The first height of the fixture's chain.
pub const FIRST: u64 = 100;
/// The newest height of the fixture's chain.
pub const HEAD: u64 = 108;
/// The consumer that the fixture registers.
pub const CONSUMER: &str = "indexer";

/// A clock that stands still.
#[derive(Debug)]
pub struct StoppedClock;

impl Clock for StoppedClock {
    fn now_millis(&self) -> u64 {
        1_700_001_000_000
    }
}

/// The hash of a block.
pub fn hash_of(height: u64) -> BlockHash {
    BlockHash([u8::try_from(height % 251).unwrap_or(0); 32])
}

/// The id of a block's only transaction.
pub fn tx_of(height: u64) -> TxId {
    TxId([u8::try_from(height % 241).unwrap_or(0) ^ 0x80; 32])
}

/// The block at a height: with one transaction, and about as long as the largest region.
pub fn block(height: u64) -> Block {
    let (mut receipts, mut tx_index) = (Vec::new(), Vec::new());
    let tx_id = tx_of(height);
    push_receipt(&mut receipts, &tx_id, b"receipt").expect("it is short");
    push_tx_index(&mut tx_index, &TxIndexEntry { tx_id, height, index: 0 });
    let len = 5000 + usize::try_from(height % 7).unwrap_or(0) * 900;
    Block {
        meta: BlockMeta {
            height,
            hash: hash_of(height),
            parent_hash: hash_of(height - 1),
            timestamp: 1_700_000_000 + 12 * height,
        },
        payloads: Payloads { block: vec![7; len], receipts, tx_index },
    }
}

/// Makes the store on an empty ground and leaves it as a running one would be found.
pub fn populate<A: Arena, I: Index>(
    ground: Ground<A, I>,
    layout: Layout,
) -> Result<Store<A, I>, StoreError> {
    let mut config = StoreConfig { layout, ..StoreConfig::new(7, [9; 16]) };
    config.classes = ClassTable::explicit(vec![4096, 8192])?;
    // Three blocks of a hash and a transaction each fill an epoch.
    config.settings =
        Settings { finality: Finality::Explicit, epoch_ids: 6, ..Settings::default() };
    config.policy = PrunePolicy { retain_blocks: 3, ..PrunePolicy::default() };
    let store = Store::create(ground, config, Arc::new(StoppedClock))?;
    for height in FIRST..HEAD {
        store.append(&block(height))?;
    }
    store.queue_tx(tx_of(HEAD + 1))?;
    store.set_finalized(HEAD - 2)?;
    // The oldest region is freed and used again, the next is free, the third is in quarantine.
    store.prune_blocks(FIRST, 10)?;
    store.settle()?;
    store.append(&block(HEAD))?;
    store.register_consumer(CONSUMER, Strength::Soft)?;
    store.ack_exported(CONSUMER, FIRST + 3)?;
    store.prune_blocks(FIRST + 2, 10)?;
    store.settle()?;
    store.prune_blocks(FIRST + 3, 10)?;
    Ok(store)
}
