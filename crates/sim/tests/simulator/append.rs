//! What append takes and what it refuses, with nothing changed.

use crate::common::*;
use secateur_core::{
    Block, BlockHash, CoreError, LookupError, MAX_SEGMENT_LEN, Payloads, TxId, TxIndexEntry,
    push_tx_index,
};
use secateur_sim::chain::{self, Shape};
use secateur_store::StoreError;

fn refused(store: &TestStore, blocks: &[Block]) -> StoreError {
    let before = rows(store);
    let error = store.append_group(blocks).unwrap_err();
    assert_eq!(rows(store), before, "nothing was changed");
    error
}

#[test]
fn an_empty_store_accepts_any_first_height() {
    let store = store();
    let first = chain::block(1_000_000, BlockHash::default(), SHAPE, 1, 0);
    assert_eq!(store.append(&first).unwrap().head, 1_000_000);
    assert_eq!(store.get_block(1_000_000).unwrap(), first);
}

#[test]
fn a_wrong_parent_a_gap_and_a_conflict_are_refused_each_in_its_way() {
    let store = store();
    append(&store, 3);
    let mut orphan = next_block(&store, SHAPE);
    orphan.meta.parent_hash.0[0] ^= 1;
    assert!(matches!(refused(&store, &[orphan]), StoreError::WrongParent { height: 13, .. }));
    let mut far = next_block(&store, SHAPE);
    far.meta.height += 1;
    far.payloads.tx_index.clear();
    assert!(matches!(refused(&store, &[far]), StoreError::Gap { expected: 13, got: 14 }));
    let fork = chain::block(11, store.get_block(10).unwrap().meta.hash, SHAPE, 1, 9);
    assert!(matches!(refused(&store, &[fork]), StoreError::Conflict { height: 11 }));
    let mut below = next_block(&store, SHAPE);
    below.meta.height = 3;
    below.payloads.tx_index.clear();
    assert!(matches!(refused(&store, &[below]), StoreError::Gap { .. }));
}

#[test]
fn a_group_with_one_bad_block_leaves_none_of_it() {
    let store = store();
    append(&store, 1);
    let mut blocks = blocks_after(&store, 4, SHAPE, 0);
    blocks[2].meta.parent_hash.0[5] ^= 1;
    assert!(matches!(refused(&store, &blocks), StoreError::WrongParent { .. }));
    assert_eq!(store.head(), Some(10));
}

#[test]
fn the_same_block_again_is_a_no_op_and_other_bytes_under_its_hash_a_conflict() {
    let store = store();
    let blocks = append(&store, 3);
    let again = store.append_group(&blocks).unwrap();
    assert_eq!((again.head, again.written), (12, 0));
    let longer = [blocks.clone(), blocks_after(&store, 2, SHAPE, 0)].concat();
    assert_eq!(store.append_group(&longer).unwrap().written, 2);
    let mut forged = blocks[1].clone();
    forged.payloads.block[0] ^= 1;
    assert!(matches!(refused(&store, &[forged]), StoreError::Conflict { height: 11 }));
}

#[test]
fn a_segment_over_the_limit_is_refused_at_append() {
    let store = store();
    append(&store, 1);
    let mut block = next_block(&store, SHAPE);
    block.payloads.block = vec![1; MAX_SEGMENT_LEN as usize + 1];
    let error = refused(&store, &[block.clone()]);
    assert!(matches!(error, StoreError::Invalid(CoreError::TooLong { .. })), "{error}");
    block.payloads.block.pop();
    store.append(&block).unwrap();
    assert_eq!(store.get_block(11).unwrap(), block, "the limit itself is legal, over extents");
}

#[test]
fn payloads_that_no_consumer_could_decode_are_refused() {
    let store = store();
    append(&store, 1);
    let mut cut_short = next_block(&store, SHAPE);
    cut_short.payloads.receipts.pop();
    assert!(matches!(refused(&store, &[cut_short]), StoreError::Invalid(_)));
    let mut foreign = next_block(&store, SHAPE);
    foreign.payloads.tx_index.clear();
    let entry = TxIndexEntry { tx_id: TxId([1; 32]), height: 99, index: 0 };
    push_tx_index(&mut foreign.payloads.tx_index, &entry);
    assert!(matches!(refused(&store, &[foreign]), StoreError::Invalid(_)));
}

#[test]
fn empty_payloads_are_legal_and_take_no_region() {
    let store = store();
    let mut block = next_block(&store, SHAPE);
    block.payloads = Payloads::default();
    store.append(&block).unwrap();
    assert_eq!(store.get_block(10).unwrap(), block);
    assert_eq!(store.get_prune_status().unwrap().used_bytes, 0);
}

#[test]
fn a_small_block_takes_one_region_of_the_smallest_class_that_holds_it() {
    let store = per_block();
    append_shaped(&store, 1, Shape { block_len: 100, transactions: 0, receipt_len: 0 });
    append_shaped(&store, 1, Shape { block_len: 70_000, transactions: 0, receipt_len: 0 });
    let classes = |height| {
        let pieces = store.get_pieces(height).unwrap();
        pieces.iter().map(|(_, region)| region.class).collect::<Vec<_>>()
    };
    assert_eq!((classes(10), classes(11)), (vec![4096], vec![128 << 10]));
}

#[test]
fn a_pruned_height_cannot_be_appended_again() {
    let policy = secateur_core::PrunePolicy { retain_blocks: 1, ..Default::default() };
    let store = store_with(policy, secateur_store::Settings::default());
    let blocks = append(&store, 3);
    store.prune_now(1000).unwrap();
    let error = refused(&store, &blocks[..1]);
    assert_eq!(error.as_lookup(), Some(LookupError::Pruned { pruned_before_block: 11 }));
}

#[test]
fn a_decreasing_timestamp_is_accepted_and_counted() {
    let store = store();
    append(&store, 2);
    let mut early = next_block(&store, SHAPE);
    early.meta.timestamp = 5;
    store.append(&early).unwrap();
    assert_eq!(store.get_prune_status().unwrap().decreasing_timestamps, 1);
}
