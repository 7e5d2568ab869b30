//! Ids and hashes in the open epoch, in sealed runs and in tombstones: found, `Pruned`, `NotFound`,
//! or an error, and never a wrong answer.

use std::ops::RangeInclusive;

use crate::common::*;
use secateur_core::{
    Block, BlockHash, Height, IdUse, LookupError, MAX_SEGMENT_LEN, MAX_TX_INDEX, PrunePolicy, TxId,
    TxIndexEntry, push_receipt, push_tx_index, receipts, tx_index,
};
use secateur_sim::chain::Shape;
use secateur_store::{Arena, Finality, Index, RunRecord, Settings, Store, StoreError, Table};

/// A block of [`SHAPE`] has three ids, so three blocks fill an epoch of these settings.
pub fn small_epochs() -> Settings {
    Settings { epoch_ids: 9, ..Settings::default() }
}

pub fn explicit() -> Settings {
    Settings { finality: Finality::Explicit, ..small_epochs() }
}

pub fn keeping(retain_blocks: u64) -> PrunePolicy {
    PrunePolicy { retain_blocks, ..PrunePolicy::default() }
}

pub fn reopened<A: Arena, I: Index>(store: Store<A, I>) -> Store<A, I> {
    Store::open(store.into_ground(), clock()).unwrap()
}

pub fn id_use(store: &TestStore) -> IdUse {
    store.get_prune_status().unwrap().ids
}

pub fn transactions(block: &Block) -> Vec<TxIndexEntry> {
    tx_index(&block.payloads.tx_index).map(Result::unwrap).collect()
}

/// Every id of every block leads to it.
pub fn assert_found<A: Arena, I: Index>(store: &Store<A, I>, blocks: &[Block]) {
    for block in blocks {
        assert_eq!(store.get_block_by_hash(&block.meta.hash).unwrap(), *block);
        for entry in transactions(block) {
            let found = store.get_transaction(&entry.tx_id).unwrap();
            assert_eq!((found.location.height, found.location.index), (entry.height, entry.index));
            assert_eq!((found.block_hash, &found.block), (block.meta.hash, &block.payloads.block));
        }
        for receipt in receipts(&block.payloads.receipts).map(Result::unwrap) {
            assert_eq!(store.get_receipt(&receipt.tx_id).unwrap(), receipt.bytes);
        }
    }
}

/// Every id of every block gets this answer.
pub fn assert_answer<A: Arena, I: Index>(
    store: &Store<A, I>,
    blocks: &[Block],
    answer: LookupError,
) {
    for block in blocks {
        let by_hash = store.get_block_by_hash(&block.meta.hash).unwrap_err();
        assert_eq!(by_hash.as_lookup(), Some(answer), "block {}: {by_hash}", block.meta.height);
        for entry in transactions(block) {
            let by_id = store.get_receipt(&entry.tx_id).unwrap_err();
            assert_eq!(by_id.as_lookup(), Some(answer), "block {}: {by_id}", block.meta.height);
            let by_id = store.get_transaction(&entry.tx_id).unwrap_err();
            assert_eq!(by_id.as_lookup(), Some(answer), "block {}: {by_id}", block.meta.height);
        }
    }
}

pub fn not_found(searched_from: Option<Height>) -> LookupError {
    LookupError::NotFound { searched_from }
}

/// The rows of runs and tombstones, oldest first.
pub fn run_rows(store: &TestStore) -> Vec<RunRecord> {
    let mut found: Vec<RunRecord> = rows(store)
        .into_iter()
        .filter(|(table, ..)| *table == Table::Runs as u8)
        .map(|(_, key, value)| {
            let number = u64::from_be_bytes(key.try_into().unwrap());
            RunRecord::decode(number, &value[..value.len() - 4]).unwrap()
        })
        .collect();
    found.sort_by_key(|run| run.first);
    found
}

fn ranges(store: &TestStore) -> Vec<RangeInclusive<Height>> {
    run_rows(store).iter().map(|run| run.first..=run.last).collect()
}

#[test]
fn ids_and_hashes_are_found_in_the_open_epoch_in_sealed_runs_and_after_reopening() {
    let store = store_with(PrunePolicy::default(), small_epochs());
    let mut blocks = append(&store, 10);
    assert_eq!(ranges(&store), [10..=12, 13..=15, 16..=18], "block 19 is in the open epoch");
    assert_eq!((id_use(&store).runs, id_use(&store).sealed_ids), (3, 27));
    assert_found(&store, &blocks);
    let store = reopened(store);
    assert_found(&store, &blocks);
    for _ in 0..3 {
        blocks.extend(append(&store, 1));
    }
    assert_eq!(ranges(&store), [10..=12, 13..=15, 16..=18, 19..=21]);
    assert_found(&store, &blocks);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    assert_found(&reopened(store), &blocks);
}

#[test]
fn a_pruned_id_and_a_pruned_hash_answer_pruned_also_after_reopening() {
    let store = store_with(keeping(4), small_epochs());
    let blocks = append(&store, 12);
    store.prune_now(1000).unwrap();
    let check = |store: &TestStore| {
        assert_eq!((id_use(store).runs, id_use(store).tombstones), (2, 2));
        assert_answer(store, &blocks[..8], LookupError::Pruned { pruned_before_block: 17 });
        assert_found(store, &blocks[8..]);
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
    };
    check(&store);
    check(&reopened(store));
}

#[test]
fn an_id_that_never_was_answers_not_found_and_from_where_on_that_is_known() {
    let store = store_with(keeping(4), small_epochs());
    let nothing = TxId([0xee; 32]);
    let answer = |store: &TestStore| {
        let by_hash = store.get_block_by_hash(&BlockHash(nothing.0)).unwrap_err().as_lookup();
        assert_eq!(by_hash, store.get_transaction(&nothing).unwrap_err().as_lookup());
        by_hash
    };
    assert_eq!(answer(&store), Some(not_found(None)), "an empty store was not searched at all");
    append(&store, 12);
    assert_eq!(answer(&store), Some(not_found(Some(10))));
    store.prune_now(1000).unwrap();
    assert_eq!(answer(&store), Some(not_found(Some(10))), "tombstones were searched as well");
    assert_eq!(answer(&reopened(store)), Some(not_found(Some(10))));
}

#[test]
fn a_transaction_id_and_a_block_hash_of_the_same_bytes_are_two_things() {
    let store = store_with(PrunePolicy::default(), small_epochs());
    let blocks = append(&store, 4);
    let hash = blocks[0].meta.hash;
    let id = transactions(&blocks[0])[0].tx_id;
    let missing = Some(not_found(Some(10)));
    assert_eq!(store.get_transaction(&TxId(hash.0)).unwrap_err().as_lookup(), missing);
    assert_eq!(store.get_block_by_hash(&BlockHash(id.0)).unwrap_err().as_lookup(), missing);
}

#[test]
fn tombstones_beyond_the_cap_are_dropped_oldest_first_and_not_searched_any_more() {
    // Each takes one page.
    let settings = Settings { tombstone_bytes: 2 * 4096, ..small_epochs() };
    let store = store_with(keeping(1), settings);
    let blocks = append(&store, 13);
    store.prune_now(1000).unwrap();
    let check = |store: &TestStore| {
        assert_eq!(ranges(store), [16..=18, 19..=21]);
        assert_eq!((id_use(store).tombstones, id_use(store).tombstone_bytes), (2, 2 * 4096));
        assert_eq!(id_use(store).searched_from, Some(16));
        assert_answer(store, &blocks[..6], not_found(Some(16)));
        let pruned = LookupError::Pruned { pruned_before_block: 21 };
        assert_answer(store, &blocks[6..12], pruned);
        assert_found(store, &blocks[12..]);
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
    };
    check(&store);
    let store = reopened(store);
    check(&store);
    // The space of those that went is used again.
    for _ in 0..20 {
        append(&store, 9);
        store.prune_now(1000).unwrap();
        store.settle().unwrap();
    }
    assert_eq!(id_use(&store).tombstones, 2);
    assert!(store.get_prune_status().unwrap().arena_bytes < 400 << 10);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

/// The block above the head with one transaction and its receipt.
pub fn with_transaction(store: &TestStore, tx_id: TxId) -> Block {
    let mut block = next_block(store, Shape { transactions: 0, ..SHAPE });
    let height = block.meta.height;
    let receipt = height.to_be_bytes();
    push_receipt(&mut block.payloads.receipts, &tx_id, &receipt).unwrap();
    push_tx_index(&mut block.payloads.tx_index, &TxIndexEntry { tx_id, height, index: 0 });
    block
}

#[test]
fn an_id_in_two_blocks_finds_the_newest_and_after_a_rollback_the_older_one() {
    let id = TxId([5; 32]);
    // Both in one open epoch, in one run, in two runs, in a run and in the open epoch.
    for (apart, finalized, runs) in
        [(1, None, 0), (1, Some(15), 1), (7, Some(21), 3), (7, Some(16), 2)]
    {
        let store = store_with(PrunePolicy::default(), explicit());
        append(&store, 1);
        let (older, newer) = (11, 11 + apart);
        store.append(&with_transaction(&store, id)).unwrap();
        append(&store, apart - 1);
        store.append(&with_transaction(&store, id)).unwrap();
        append(&store, 3);
        if let Some(finalized) = finalized {
            store.set_finalized(finalized).unwrap();
            store.seal().unwrap();
        }
        assert_eq!(id_use(&store).runs, runs);
        let check = |store: &TestStore, height: Height| {
            assert_eq!(store.get_transaction(&id).unwrap().location.height, height);
            assert_eq!(store.get_receipt(&id).unwrap(), height.to_be_bytes());
        };
        check(&store, newer);
        let store = reopened(store);
        check(&store, newer);
        if finalized.is_none_or(|finalized| finalized < newer) {
            store.rollback(newer - 1).unwrap();
            check(&store, older);
            check(&reopened(store), older);
        }
    }
}

#[test]
fn an_id_whose_newest_block_is_kept_is_found_although_an_older_one_is_pruned() {
    let store = store_with(keeping(2), small_epochs());
    append(&store, 1);
    let id = TxId([5; 32]);
    for _ in 0..2 {
        let block = with_transaction(&store, id);
        store.append(&block).unwrap();
        append(&store, 4);
    }
    store.prune_blocks(14, 1000).unwrap();
    assert_eq!(store.get_transaction(&id).unwrap().location.height, 16);
    assert_eq!(reopened(store).get_transaction(&id).unwrap().location.height, 16);
}

#[test]
fn transactions_without_a_receipt_and_receipts_out_of_order_are_found() {
    let store = store_with(PrunePolicy::default(), small_epochs());
    append(&store, 1);
    let mut block = next_block(&store, Shape { transactions: 0, ..SHAPE });
    let height = block.meta.height;
    let id = |at: u8| TxId([at; 32]);
    for (at, index) in [(1, 4), (2, 0), (3, 9), (4, MAX_TX_INDEX - 1)] {
        let entry = TxIndexEntry { tx_id: id(at), height, index };
        push_tx_index(&mut block.payloads.tx_index, &entry);
    }
    // The third one has none, a fifth is in no index, and the first one has two.
    for (at, receipt) in [(4, "four"), (5, "five"), (1, "one"), (2, ""), (1, "again")] {
        push_receipt(&mut block.payloads.receipts, &id(at), receipt.as_bytes()).unwrap();
    }
    store.append(&block).unwrap();
    let check = |store: &TestStore| {
        for (at, index) in [(1, 4), (2, 0), (3, 9), (4, MAX_TX_INDEX - 1)] {
            let found = store.get_transaction(&id(at)).unwrap();
            assert_eq!((found.location.height, found.location.index), (height, index));
        }
        for (at, receipt) in [(4, "four"), (1, "one"), (2, "")] {
            assert_eq!(store.get_receipt(&id(at)).unwrap(), receipt.as_bytes());
        }
        for at in [3, 5] {
            let answer = store.get_receipt(&id(at)).unwrap_err();
            assert_eq!(answer.as_lookup(), Some(not_found(Some(10))), "{at}");
        }
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
    };
    check(&store);
    append(&store, 3);
    assert_eq!(run_rows(&store)[0].first..=run_rows(&store)[0].last, 10..=12);
    check(&store);
    check(&reopened(store));
}

#[test]
fn a_transaction_index_entry_whose_place_has_no_three_bytes_is_refused() {
    let store = store_with(PrunePolicy::default(), small_epochs());
    append(&store, 1);
    let before = rows(&store);
    for index in [MAX_TX_INDEX, MAX_TX_INDEX + 1, u32::MAX] {
        let mut block = next_block(&store, Shape { transactions: 0, ..SHAPE });
        let entry = TxIndexEntry { tx_id: TxId([1; 32]), height: 11, index };
        push_tx_index(&mut block.payloads.tx_index, &entry);
        let error = store.append(&block).unwrap_err();
        assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    }
    assert_eq!(rows(&store), before, "nothing was changed");
}

#[test]
fn cutting_blocks_that_were_never_sealed_seals_them_first() {
    let store = store_with(keeping(2), Settings::default());
    let blocks = append(&store, 6);
    assert_eq!(id_use(&store).runs, 0);
    store.prune_now(1000).unwrap();
    assert_eq!(ranges(&store), [10..=15], "all that was final");
    assert_answer(&store, &blocks[..4], LookupError::Pruned { pruned_before_block: 13 });
    let store = reopened(store);
    assert_answer(&store, &blocks[..4], LookupError::Pruned { pruned_before_block: 13 });
    assert_found(&store, &blocks[4..]);
    let later = append(&store, 5);
    store.prune_now(1000).unwrap();
    assert_eq!((id_use(&store).runs, id_use(&store).tombstones), (1, 1));
    assert_answer(&store, &blocks, LookupError::Pruned { pruned_before_block: 18 });
    assert_found(&store, &later[3..]);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn sealing_before_a_cut_takes_no_block_that_may_still_be_rolled_back() {
    let settings = Settings { finality: Finality::Explicit, ..Settings::default() };
    let store = store_with(keeping(1), settings);
    let blocks = append(&store, 8);
    store.set_finalized(14).unwrap();
    store.prune_blocks(12, 1000).unwrap();
    assert_eq!(ranges(&store), [10..=14], "17 is the head");
    assert_found(&store, &blocks[3..]);
    store.rollback(15).unwrap();
    assert_found(&store, &blocks[3..6]);
    assert_answer(&store, &blocks[6..], not_found(Some(10)));
    let fork = blocks_after(&store, 3, SHAPE, 5);
    store.append_group(&fork).unwrap();
    assert_found(&store, &fork);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    assert_found(&reopened(store), &fork);
}

#[test]
fn a_rollback_across_open_epochs_forgets_what_it_removes_and_nothing_else() {
    let store = store_with(PrunePolicy::default(), explicit());
    let blocks = append(&store, 12);
    assert_eq!(id_use(&store).runs, 0, "nothing is final");
    for to in [18, 17, 14, 11] {
        store.rollback(to).unwrap();
        let kept = usize::try_from(to - 9).unwrap();
        assert_found(&store, &blocks[..kept]);
        assert_answer(&store, &blocks[kept..], not_found(Some(10)));
    }
    let fork = blocks_after(&store, 8, SHAPE, 9);
    store.append_group(&fork).unwrap();
    assert_found(&store, &blocks[..2]);
    assert_found(&store, &fork);
    store.set_finalized(19).unwrap();
    assert!(store.seal().unwrap() > 2);
    assert_found(&store, &blocks[..2]);
    assert_found(&store, &fork);
    assert_answer(&store, &blocks[2..], not_found(Some(10)));
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    assert_found(&reopened(store), &fork);
}

#[test]
fn runs_are_merged_at_the_limit_and_every_id_is_found_as_before() {
    let settings = Settings { max_runs: 3, ..small_epochs() };
    let store = store_with(keeping(10), settings);
    let mut blocks = Vec::new();
    for _ in 0..30 {
        blocks.extend(append(&store, 1));
        assert!(id_use(&store).runs <= 3);
    }
    assert_found(&store, &blocks);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    let store = reopened(store);
    assert_found(&store, &blocks);
    store.prune_now(1000).unwrap();
    assert_answer(&store, &blocks[..20], LookupError::Pruned { pruned_before_block: 29 });
    assert_found(&store, &blocks[20..]);
    store.settle().unwrap();
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

/// What is appended and cannot be sealed would stop pruning for ever.
#[test]
fn a_block_of_the_longest_payloads_is_sealed_found_and_cut() {
    let store = store_with(keeping(1), small_epochs());
    let longest = MAX_SEGMENT_LEN as usize;
    let transactions = MAX_SEGMENT_LEN / 48;
    let shape = Shape { block_len: longest, transactions, receipt_len: 12 };
    let mut block = next_block(&store, shape);
    let payload = &mut block.payloads.receipts;
    // The last receipt goes on to the limit.
    let spare = longest - payload.len();
    payload.truncate(payload.len() - 48);
    let last = self::transactions(&block).pop().unwrap().tx_id;
    push_receipt(&mut block.payloads.receipts, &last, &vec![7; 12 + spare]).unwrap();
    assert_eq!(block.payloads.receipts.len(), longest);
    store.append(&block).unwrap();
    append(&store, 2);
    assert_eq!(ranges(&store), [10..=10], "its ids are sealed");
    assert_eq!(store.get_receipt(&last).unwrap(), vec![7; 12 + spare]);
    assert_eq!(store.prune_now(u64::MAX).unwrap().totals.last, Some(11));
    let pruned = store.get_receipt(&last).unwrap_err().as_lookup();
    assert_eq!(pruned, Some(LookupError::Pruned { pruned_before_block: 11 }));
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    let mut over = next_block(&store, Shape { block_len: 0, transactions: 1, receipt_len: 0 });
    over.payloads.receipts.clear();
    push_receipt(&mut over.payloads.receipts, &last, &vec![7; longest - 35]).unwrap();
    let refused = store.append(&over).unwrap_err().to_string();
    assert!(refused.contains("16777216 bytes") && refused.contains("16777215"), "{refused}");
}
