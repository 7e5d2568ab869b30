//! Readers, an appender and the prune daemon at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use secateur_core::{LookupError, PrunePolicy, tx_index};
use secateur_sim::chain::{self, Shape};
use secateur_sim::rng::Rng;
use secateur_store::ground::disk::{FsVolume, open_ground};
use secateur_store::{Daemon, Finality, Sabotage, Settings, Store, StoreError, SystemClock};

const SHAPE: Shape = Shape { block_len: 9_000, transactions: 3, receipt_len: 200 };
const BLOCKS: u64 = 1200;

#[test]
fn readers_get_right_bytes_or_pruned_while_blocks_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let volume = FsVolume::open(dir.path()).unwrap();
    let ground = open_ground(&volume, 1 << 20, Sabotage::None).unwrap();
    let policy =
        PrunePolicy { target_bytes: 3 << 20, max_ops_per_tick: 50, ..PrunePolicy::default() };
    let config = config(policy, Settings::default());
    let store = Arc::new(Store::create(ground, config, Arc::new(SystemClock)).unwrap());
    store.set_pruning_enabled(true).unwrap();
    let daemon = Daemon::start(Arc::clone(&store), |outcome| {
        outcome.unwrap();
    })
    .unwrap();
    let (done, pruned, right) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (store, done, pruned, right) = (&store, &done, &pruned, &right);
            scope.spawn(move || {
                let mut rng = Rng::new(77, reader);
                while !done.load(Ordering::Acquire) {
                    let Some(head) = store.head() else { continue };
                    let oldest = store.get_prune_status().unwrap().oldest_kept_block.unwrap_or(0);
                    // Mostly where blocks are being cut.
                    let height = oldest.saturating_sub(2) + rng.below(head + 3 - oldest).min(20);
                    match store.get_block(height) {
                        Ok(block) => {
                            let expected =
                                chain::block(height, block.meta.parent_hash, SHAPE, 1, 0);
                            assert_eq!(block, expected);
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(StoreError::Lookup(LookupError::Pruned { .. })) => {
                            pruned.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(StoreError::Lookup(LookupError::NotFound { .. })) => {}
                        Err(error) => panic!("block {height}: {error}"),
                    }
                }
            });
        }
        for _ in 0..BLOCKS / 8 {
            append_shaped(&*store, 8, SHAPE);
        }
        done.store(true, Ordering::Release);
    });
    daemon.stop();
    while store.tick().unwrap().is_some_and(|outcome| outcome.more()) {}
    assert!(store.settle().unwrap(), "no reader is left");
    let status = store.get_prune_status().unwrap();
    assert!(status.used_bytes <= status.high_water_bytes.unwrap(), "{status:?}");
    assert!(status.pruned_before_block > Some(100));
    assert!(right.into_inner() > 100 && pruned.into_inner() > 0);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_second_daemon_is_refused_until_the_first_has_stopped() {
    let store = Arc::new(store());
    let daemon = Daemon::start(Arc::clone(&store), |_| {}).unwrap();
    assert!(matches!(Daemon::start(Arc::clone(&store), |_| {}), Err(StoreError::Refused { .. })));
    daemon.stop();
    let (told, heard) = std::sync::mpsc::channel();
    store.set_prune_policy(PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() }).unwrap();
    store.set_pruning_enabled(true).unwrap();
    let again = Daemon::start(Arc::clone(&store), move |tick| {
        told.send(tick.map(|outcome| outcome.totals.last).unwrap()).unwrap();
    })
    .unwrap();
    append(&*store, 100);
    assert_eq!(heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), Some(108));
    again.stop();
}

/// A queued transaction is in the queue or in a block at every moment, so no reader may ever be
/// told that it is not known.
#[test]
fn a_transaction_that_is_known_all_the_time_is_never_not_found() {
    let settings = Settings { finality: Finality::Explicit, ..Settings::default() };
    let store = Arc::new(store_with(PrunePolicy::default(), settings));
    append(&*store, 1);
    let done = AtomicBool::new(false);
    let next = next_block(&*store, SHAPE);
    let id = tx_index(&next.payloads.tx_index).next().unwrap().unwrap().tx_id;
    store.queue_tx(id).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    match store.get_receipt(&id) {
                        Ok(_) | Err(StoreError::Lookup(LookupError::Pending)) => {}
                        Err(error) => {
                            done.store(true, Ordering::Release);
                            panic!("{error}");
                        }
                    }
                }
            });
        }
        for _ in 0..3000 {
            store.append(&next).unwrap();
            store.rollback(10).unwrap();
        }
        done.store(true, Ordering::Release);
    });
}
