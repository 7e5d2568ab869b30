//! Everything at once in a real directory: groups submitted ahead, workers that write, sync, commit
//! and seal, the prune daemon, and readers by number, by hash and by transaction.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use secateur_core::{Block, BlockHash, Height, LookupError, PrunePolicy, receipts};
use secateur_sim::chain::{self, Shape};
use secateur_sim::rng::Rng;
use secateur_store::ground::disk::{DiskStore, FsVolume, open_ground};
use secateur_store::{Daemon, Sabotage, Settings, Store, StoreError, SystemClock, Workers};

const SHAPE: Shape = Shape { block_len: 9_000, transactions: 3, receipt_len: 200 };
const FIRST: Height = 1;
const LAST: Height = 800;
const GROUP: usize = 5;
/// Groups that are submitted before the oldest of them is waited for.
const AHEAD: usize = 6;

fn create(path: &Path) -> DiskStore {
    let ground = open_ground(&FsVolume::open(path).unwrap(), 1 << 20, Sabotage::None).unwrap();
    let policy =
        PrunePolicy { target_bytes: 3 << 20, max_ops_per_tick: 50, ..PrunePolicy::default() };
    // Sixteen blocks fill an epoch, and runs are merged all the time.
    let settings = Settings { epoch_ids: 64, max_runs: 4, ..Settings::default() };
    Store::create(ground, config(policy, settings), Arc::new(SystemClock)).unwrap()
}

fn hash_of(height: Height) -> BlockHash {
    let nothing = Shape { block_len: 0, transactions: 0, receipt_len: 0 };
    chain::block(height, BlockHash::default(), nothing, 1, 0).meta.hash
}

fn block_of(height: Height) -> Block {
    let parent = if height == FIRST { BlockHash::default() } else { hash_of(height - 1) };
    chain::block(height, parent, SHAPE, 1, 0)
}

/// What the readers saw.
#[derive(Default)]
struct Seen {
    right: AtomicU64,
    pruned: AtomicU64,
}

/// Looks for a block that was there when the head was asked for, in one of four ways.
fn look(store: &DiskStore, rng: &mut Rng, seen: &Seen) {
    let Some(head) = store.head() else { return };
    let oldest = store.get_prune_status().unwrap().oldest_kept_block.unwrap_or(FIRST);
    // Mostly where blocks are being cut, sometimes where they come.
    let height = match rng.below(4) {
        0 => head - rng.below(20).min(head - FIRST),
        _ => (oldest.saturating_sub(5) + rng.below(20)).clamp(FIRST, head),
    };
    let expected = block_of(height);
    let (index, id) = (rng.below(3), rng.below(4));
    let tx_id = chain::tx_id(height, u32::try_from(index).unwrap(), 1);
    let right = match id {
        0 => store.get_block(height).map(|block| block == expected),
        1 => store.get_block_by_hash(&expected.meta.hash).map(|block| block == expected),
        2 => store.get_transaction(&tx_id).map(|found| {
            (found.location.height, u64::from(found.location.index)) == (height, index)
                && found.block == expected.payloads.block
        }),
        _ => store.get_receipt(&tx_id).map(|found| {
            let mut all = receipts(&expected.payloads.receipts).map(Result::unwrap);
            all.any(|receipt| receipt.tx_id == tx_id && receipt.bytes == found)
        }),
    };
    match right {
        Ok(right) => {
            assert!(right, "block {height} has other bytes");
            seen.right.fetch_add(1, Ordering::Relaxed);
        }
        Err(StoreError::Lookup(LookupError::Pruned { pruned_before_block })) => {
            assert!(height <= pruned_before_block, "block {height} is kept");
            seen.pruned.fetch_add(1, Ordering::Relaxed);
        }
        // Its tombstone went. A number is never forgotten.
        Err(StoreError::Lookup(LookupError::NotFound { searched_from })) => {
            assert!(id > 0 && Some(height) < searched_from, "block {height}: {searched_from:?}");
        }
        Err(error) => panic!("block {height}: {error}"),
    }
}

#[test]
fn groups_ahead_prunes_seals_and_readers_together_end_clean() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(create(dir.path()));
    store.set_pruning_enabled(true).unwrap();
    let workers = Workers::start(&store).unwrap();
    let daemon = Daemon::start(Arc::clone(&store), |outcome| {
        outcome.unwrap();
    })
    .unwrap();
    let (done, seen) = (AtomicBool::new(false), Seen::default());
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (store, done, seen) = (&store, &done, &seen);
            scope.spawn(move || {
                let mut rng = Rng::new(78, reader);
                while !done.load(Ordering::Acquire) {
                    look(store, &mut rng, seen);
                }
            });
        }
        let blocks: Vec<Block> = (FIRST..=LAST).map(block_of).collect();
        let mut tickets = VecDeque::new();
        for group in blocks.chunks(GROUP) {
            tickets.push_back(store.submit(group).unwrap());
            if tickets.len() > AHEAD
                && let Some(ticket) = tickets.pop_front()
            {
                let appended = store.wait(ticket).unwrap();
                assert_eq!(appended.written, GROUP as u64);
                assert!(store.head() >= Some(appended.head));
            }
        }
        for ticket in tickets {
            store.wait(ticket).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    daemon.stop();
    drop(workers);
    assert_eq!(store.head(), Some(LAST));
    assert_eq!(store.poisoned(), None);
    store.drain(|_| true).unwrap();
    store.seal().unwrap();
    assert!(store.settle().unwrap(), "no reader is left");
    let status = store.get_prune_status().unwrap();
    assert!(status.used_bytes <= status.high_water_bytes.unwrap(), "{status:?}");
    assert!(status.pruned_before_block > Some(300), "{status:?}");
    assert!(status.ids.runs > 0 && status.ids.runs <= 5 && status.ids.tombstones > 0, "{status:?}");
    let (right, pruned) = (seen.right.into_inner(), seen.pruned.into_inner());
    assert!(right > 100 && pruned > 0, "{right} right, {pruned} pruned");
    let report = store.verify(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    drop(store);
    let ground = open_ground(&FsVolume::open(dir.path()).unwrap(), 1 << 20, Sabotage::None);
    let store = Store::open(ground.unwrap(), Arc::new(SystemClock)).unwrap();
    for height in status.oldest_kept_block.unwrap()..=LAST {
        let expected = block_of(height);
        assert_eq!(store.get_block_by_hash(&expected.meta.hash).unwrap(), expected);
        let found = store.get_transaction(&chain::tx_id(height, 2, 1)).unwrap();
        assert_eq!((found.location.height, found.location.index), (height, 2));
    }
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}
