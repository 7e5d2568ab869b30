//! The real disk ground in a directory.

use std::sync::Arc;

use crate::common::*;
use secateur_core::{Block, PrunePolicy};
use secateur_sim::chain::{self, Shape};
use secateur_sim::rng::Rng;
use secateur_store::ground::disk::{DiskStore, FsVolume, open_ground};
use secateur_store::{Sabotage, Settings, Store, StoreError, SystemClock};

fn open(path: &std::path::Path, policy: PrunePolicy) -> Result<DiskStore, StoreError> {
    let ground = open_ground(&FsVolume::open(path)?, 1 << 20, Sabotage::None)?;
    if Store::exists(&ground)? {
        Store::open(ground, Arc::new(SystemClock))
    } else {
        Store::create(ground, config(policy, Settings::default()), Arc::new(SystemClock))
    }
}

#[test]
fn a_store_in_a_directory_is_there_again_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), PrunePolicy::default()).unwrap();
    let blocks = append(&store, 30);
    drop(store);
    let store = open(dir.path(), PrunePolicy::default()).unwrap();
    for block in blocks {
        assert_eq!(store.get_block(block.meta.height).unwrap(), block);
    }
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_directory_that_is_open_elsewhere_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path(), PrunePolicy::default()).unwrap();
    let error = open(dir.path(), PrunePolicy::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked(_)) && error.is_retryable());
}

#[test]
fn half_a_ground_is_refused_and_left_alone() {
    for lost in ["arena", "index.redb"] {
        let dir = tempfile::tempdir().unwrap();
        append(&open(dir.path(), PrunePolicy::default()).unwrap(), 3);
        std::fs::remove_file(dir.path().join(lost)).unwrap();
        let error = open(dir.path(), PrunePolicy::default()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign(_)), "{lost}: {error}");
    }
}

#[test]
fn a_damaged_index_file_is_an_error_and_is_not_changed_by_opening_it() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path(), PrunePolicy::default()).unwrap(), 50);
    let path = dir.path().join("index.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut rng = Rng::new(1, 1);
    for at in (16_384..bytes.len()).step_by(512) {
        bytes[at] ^= u8::try_from(1 + rng.below(255)).unwrap();
    }
    std::fs::write(&path, &bytes).unwrap();
    secateur_sim::quiet_redb_panics();
    let error = open(dir.path(), PrunePolicy::default()).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn with_mixed_and_drifting_sizes_the_disk_stays_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let target = 48 << 20;
    let policy = PrunePolicy { target_bytes: target, ..PrunePolicy::default() };
    let store = open(dir.path(), policy).unwrap();
    store.set_pruning_enabled(true).unwrap();
    let mut rng = Rng::new(4, 4);
    let mut most = 0;
    // Small blocks, then large ones, then small ones again, then a mixture of all.
    for (phase, blocks) in [(0, 2000u64), (1, 120), (0, 2000), (2, 900)] {
        let mut left = blocks;
        while left > 0 {
            let mut group: Vec<Block> = Vec::new();
            let (mut height, mut parent) =
                (store.head().map_or(1, |h| h + 1), store.head_hash().unwrap_or_default());
            for _ in 0..left.min(if phase == 1 { 4 } else { 40 }) {
                let large = phase == 1 || (phase == 2 && rng.below(12) == 0);
                let len =
                    if large { 1_500_000 + rng.below(700_000) } else { 15_000 + rng.below(9_000) };
                let shape = Shape {
                    block_len: usize::try_from(len).unwrap(),
                    transactions: 2,
                    receipt_len: 100,
                };
                let block = chain::block(height, parent, shape, 1, phase);
                (height, parent) = (height + 1, block.meta.hash);
                group.push(block);
            }
            left -= group.len() as u64;
            store.append_group(&group).unwrap();
            while store.tick().unwrap().is_some_and(|outcome| outcome.more()) {}
            store.settle().unwrap();
            most = most.max(store.get_prune_status().unwrap().disk_bytes);
        }
    }
    let status = store.get_prune_status().unwrap();
    assert!(status.pruned_before_block > Some(4000), "{status:?}");
    assert!(most <= target * 11 / 10, "{most} of {target}");
    assert!(status.classes.iter().any(|class| class.punched > 0), "{:?}", status.classes);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}
