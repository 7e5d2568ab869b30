//! The store inside a node of your own: open or create it, append, prune, look up.
//!
//! `cargo run --release -p secateur-store --example embed`

use std::sync::Arc;

use secateur_core::{Block, BlockHash, BlockMeta, Payloads, PrunePolicy};
use secateur_store::ground::disk::{FsVolume, RESERVE_BYTES, open_ground};
use secateur_store::{Sabotage, Store, StoreConfig, StoreError, SystemClock};

fn main() -> Result<(), StoreError> {
    let directory = std::env::temp_dir().join("secateur-embed-example");
    let volume = FsVolume::open(&directory)?;
    let ground = open_ground(&volume, RESERVE_BYTES, Sabotage::None)?;
    let store = if Store::exists(&ground)? {
        Store::open(ground, Arc::new(SystemClock))?
    } else {
        // Sixteen random bytes tell this store from any other.
        let config = StoreConfig::new(1, *b"an example's id.");
        Store::create(ground, config, Arc::new(SystemClock))?
    };
    store.set_prune_policy(PrunePolicy { retain_blocks: 100, ..PrunePolicy::default() })?;

    for _ in 0..150 {
        let height = store.head().map_or(0, |head| head + 1);
        let mut hash = BlockHash::default();
        if let Some(place) = hash.0.first_chunk_mut() {
            *place = (height + 1).to_be_bytes();
        }
        let meta = BlockMeta {
            height,
            hash,
            parent_hash: store.head_hash().unwrap_or_default(),
            timestamp: 1_700_000_000 + height * 12,
        };
        let payloads = Payloads { block: vec![7; 1000], ..Payloads::default() };
        // Durable when it returns. It never prunes.
        store.append(&Block { meta, payloads })?;
    }

    println!("a prune would take {} blocks", store.prune_plan()?.totals.blocks);
    while store.prune_now(5_000)?.more() {}
    store.settle()?;

    let status = store.get_prune_status()?;
    println!("kept from {:?} to {:?}", status.oldest_kept_block, status.head);
    match store.get_block(0) {
        Ok(block) => println!("block 0 has {} bytes", block.payloads.total_len()),
        // `Pruned`, `Pending` and `NotFound` are different answers.
        Err(error) => println!("block 0: {error}"),
    }
    Ok(())
}
