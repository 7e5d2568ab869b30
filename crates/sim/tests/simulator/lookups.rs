//! Lookups by number and hash, queued transactions, rollback, and the export's library call.

use crate::common::*;
use secateur_core::{
    BlockHash, Cause, Cursor, ExplainTx, ExportError, LookupError, Payloads, PrunePolicy, Segment,
    TxId, tx_index,
};
use secateur_sim::chain::{self, Shape};
use secateur_store::{Arena, Finality, MAX_QUEUED, Queued, Settings, StoreError};

fn ids(block: &secateur_core::Block) -> Vec<TxId> {
    tx_index(&block.payloads.tx_index).map(|entry| entry.unwrap().tx_id).collect()
}

fn explicit() -> Settings {
    Settings { finality: Finality::Explicit, ..Settings::default() }
}

#[test]
fn pruned_pending_and_not_found_are_three_different_answers() {
    let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    let blocks = append(&store, 5);
    let (gone, kept) = (ids(&blocks[0])[0], ids(&blocks[4])[1]);
    let receipt = store.get_receipt(&gone).unwrap();
    assert_eq!(receipt.len(), 100);
    store.prune_now(1000).unwrap();
    let pruned = LookupError::Pruned { pruned_before_block: 12 };
    assert_eq!(store.get_block(12).unwrap_err().as_lookup(), Some(pruned));
    assert_eq!(store.get_receipts(3).unwrap_err().as_lookup(), Some(pruned));
    assert_eq!(store.get_receipt(&gone).unwrap_err().as_lookup(), Some(pruned));
    let found = store.get_transaction(&kept).unwrap();
    assert_eq!((found.location.height, found.location.index), (14, 1));
    assert_eq!(found.block, blocks[4].payloads.block);
    let unknown = |from| Some(LookupError::NotFound { searched_from: Some(from) });
    let absent = store.get_receipt(&TxId([9; 32])).unwrap_err();
    assert_eq!(absent.as_lookup(), unknown(10), "the tombstones know of block 10");
    assert_eq!(store.get_block(15).unwrap_err().as_lookup(), unknown(13));
    store.queue_tx(TxId([9; 32])).unwrap();
    let pending = store.get_transaction(&TxId([9; 32])).unwrap_err();
    assert_eq!(pending.as_lookup(), Some(LookupError::Pending));
    assert!(pending.is_retryable());
}

#[test]
fn a_queued_transaction_is_pending_until_included_and_again_after_a_rollback() {
    let store = store_with(PrunePolicy::default(), explicit());
    append(&store, 2);
    let next = next_block(&store, SHAPE);
    let id = ids(&next)[0];
    assert_eq!(store.queue_tx(id).unwrap(), Queued::Added);
    assert_eq!(store.queue_tx(id).unwrap(), Queued::Already);
    store.append(&next).unwrap();
    assert!(store.get_receipt(&id).is_ok());
    assert_eq!(store.get_prune_status().unwrap().queued_transactions, 0);
    store.rollback(11).unwrap();
    assert_eq!(store.get_receipt(&id).unwrap_err().as_lookup(), Some(LookupError::Pending));
    store.append(&next).unwrap();
    store.set_finalized(12).unwrap();
    assert_eq!(store.queue_tx(id).unwrap(), Queued::Included(12));
    assert!(!store.drop_tx(&id).unwrap(), "its row went with finality");
}

#[test]
fn instant_finality_lets_go_of_queued_transactions_that_are_included() {
    let store = store_with(PrunePolicy::default(), explicit());
    append(&store, 2);
    let next = next_block(&store, SHAPE);
    store.queue_tx(ids(&next)[0]).unwrap();
    store.append(&next).unwrap();
    store.set_settings(Settings::default()).unwrap();
    assert!(!store.drop_tx(&ids(&next)[0]).unwrap(), "its row went with finality");
    store.set_settings(explicit()).unwrap();
    assert!(matches!(store.rollback(11), Err(StoreError::Refused { .. })), "what was final stays");
}

#[test]
fn the_queue_survives_reopening_and_is_bounded() {
    let store = store();
    let id = |at: usize| {
        let mut id = [0u8; 32];
        id[..8].copy_from_slice(&(at as u64).to_be_bytes());
        TxId(id)
    };
    let all: Vec<TxId> = (0..MAX_QUEUED).map(id).collect();
    let found = store.queue_txs(&[&all[..], &all[..3]].concat()).unwrap();
    assert_eq!(found.iter().filter(|found| **found == Queued::Added).count(), MAX_QUEUED);
    assert_eq!(found[MAX_QUEUED..], [Queued::Already; 3]);
    assert!(matches!(store.queue_tx(id(MAX_QUEUED)), Err(StoreError::Refused { .. })));
    let store = secateur_store::Store::open(store.into_ground(), clock()).unwrap();
    assert_eq!(store.get_prune_status().unwrap().queued_transactions, MAX_QUEUED as u64);
    assert!(matches!(store.queue_tx(id(MAX_QUEUED)), Err(StoreError::Refused { .. })));
    assert!(store.drop_tx(&TxId([0; 32])).unwrap());
    assert!(!store.drop_tx(&TxId([0; 32])).unwrap());
}

#[test]
fn several_blocks_come_in_one_go_as_far_as_they_fit_and_are_asked_for() {
    let store = store();
    let blocks = append(&store, 7);
    let one = blocks[0].payloads.total_len();
    let heights = |first, last, most| -> Vec<u64> {
        let found = store.get_blocks(first, last, most).unwrap();
        found.records.iter().map(|record| record.meta.height).collect()
    };
    let packed = layout() == secateur_store::Layout::Packed;
    let most = |wanted: &[u64]| if packed { wanted.to_vec() } else { wanted[..1].to_vec() };
    assert_eq!(heights(10, 16, u64::MAX), most(&[10, 11, 12, 13, 14, 15, 16]));
    assert_eq!(heights(12, 14, u64::MAX), most(&[12, 13, 14]));
    assert_eq!(heights(12, 16, 2 * one), most(&[12, 13]));
    assert_eq!(heights(12, 16, 2 * one - 1), [12]);
    assert_eq!(heights(12, 16, 0), [12], "one comes, however large");
    assert_eq!(heights(16, 99, u64::MAX), [16]);
    for absent in [9, 17] {
        assert!(matches!(
            store.get_blocks(absent, 99, 1),
            Err(StoreError::Lookup(LookupError::NotFound { .. }))
        ));
    }
}

#[test]
fn a_damaged_block_keeps_nobody_from_those_below_it() {
    let store = store();
    append(&store, 5);
    let (at, _) = store.get_pieces(13).unwrap()[0];
    let mut byte = [0];
    store.arena().read_at(at, &mut byte).unwrap();
    store.arena().write_at(at, &[byte[0] ^ 1]).unwrap();
    let mut next = 10;
    while next < 13 {
        next += store.get_blocks(next, 14, u64::MAX).unwrap().records.len() as u64;
    }
    assert_eq!(next, 13);
    assert!(matches!(store.get_blocks(13, 14, u64::MAX), Err(StoreError::Corrupt { .. })));
    assert_eq!(store.get_blocks(14, 14, u64::MAX).unwrap().records.len(), 1);
}

#[test]
fn hashes_are_found_in_stores_that_were_opened_again() {
    let store = store();
    let blocks = append(&store, 7);
    let store = secateur_store::Store::open(store.into_ground(), clock()).unwrap();
    assert_eq!(store.get_block_by_hash(&blocks[3].meta.hash).unwrap(), blocks[3]);
    assert!(store.get_receipt(&ids(&blocks[6])[1]).is_ok());
    let later = append(&store, 1);
    assert_eq!(store.get_block_by_hash(&later[0].meta.hash).unwrap(), later[0]);
}

#[test]
fn a_rollback_removes_unfinalised_blocks_and_another_fork_takes_their_place() {
    let store = store_with(PrunePolicy::default(), explicit());
    let old = append(&store, 6);
    store.set_finalized(12).unwrap();
    assert!(matches!(store.rollback(11), Err(StoreError::Refused { .. })), "12 is final");
    assert_eq!(store.rollback(13).unwrap(), 2);
    assert_eq!(store.rollback(13).unwrap(), 0);
    let fork = blocks_after(&store, 3, SHAPE, 77);
    store.append_group(&fork).unwrap();
    assert_eq!(store.get_block(14).unwrap(), fork[0]);
    assert!(store.get_block_by_hash(&old[5].meta.hash).is_err());
    assert!(store.get_block_by_hash(&fork[2].meta.hash).is_ok());
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_rollback_below_the_first_block_empties_a_store_that_has_nothing_final() {
    let store = store_with(PrunePolicy::default(), explicit());
    append(&store, 3);
    assert!(matches!(store.rollback(5), Err(StoreError::Refused { .. })));
    assert_eq!(store.rollback(9).unwrap(), 3);
    assert_eq!((store.head(), store.export_blocks(None, 10).unwrap().chunks.len()), (None, 0));
    let elsewhere = chain::block(500, BlockHash::default(), SHAPE, 1, 0);
    store.append(&elsewhere).unwrap();
    assert_eq!(store.head(), Some(500));
}

#[test]
fn an_id_that_came_twice_is_found_in_its_older_block_after_a_rollback() {
    let store = store_with(PrunePolicy::default(), explicit());
    let first = append(&store, 1).remove(0);
    let id = ids(&first)[0];
    let mut again = next_block(&store, SHAPE);
    again.payloads.tx_index.clear();
    let entry = secateur_core::TxIndexEntry { tx_id: id, height: 11, index: 0 };
    secateur_core::push_tx_index(&mut again.payloads.tx_index, &entry);
    assert_eq!(store.get_transaction(&id).unwrap().location.height, 10);
    store.append(&again).unwrap();
    assert_eq!(store.get_transaction(&id).unwrap().location.height, 11);
    store.rollback(10).unwrap();
    assert_eq!(store.get_transaction(&id).unwrap().location.height, 10);
}

#[test]
fn instant_finality_has_nothing_to_roll_back() {
    let store = store();
    append(&store, 3);
    assert!(matches!(store.rollback(11), Err(StoreError::Refused { .. })));
}

#[test]
fn the_export_walks_the_whole_store_and_says_pruned_between_two_pulls() {
    let policy = PrunePolicy { retain_blocks: 3, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    let blocks =
        append_shaped(&store, 6, Shape { block_len: 700, transactions: 3, receipt_len: 50 });
    let mut rebuilt = vec![Payloads::default(); 6];
    let mut cursor = None;
    loop {
        let reply = store.export_blocks(cursor, 333).unwrap();
        let at = cursor.map_or(10, |c: Cursor| c.block_number);
        for chunk in &reply.chunks {
            let into = &mut rebuilt[usize::try_from(at - 10).unwrap()];
            let target = match chunk.segment {
                Segment::Block => &mut into.block,
                Segment::Receipts => &mut into.receipts,
                Segment::TxIndex => &mut into.tx_index,
            };
            assert_eq!(target.len(), chunk.start as usize);
            target.extend_from_slice(&chunk.bytes);
        }
        if reply.chunks.is_empty() {
            break;
        }
        cursor = reply.next_cursor;
    }
    assert_eq!(rebuilt, blocks.into_iter().map(|b| b.payloads).collect::<Vec<_>>());
    let middle = Cursor { block_number: 11, segment: 1, byte_offset: 5 };
    store.export_blocks(Some(middle), 10).unwrap();
    store.prune_now(1000).unwrap();
    assert!(matches!(
        store.export_blocks(Some(middle), 10),
        Err(StoreError::Export(ExportError::Pruned { pruned_before_block: 12 }))
    ));
    assert_eq!(store.export_blocks(None, 1).unwrap().next_cursor.unwrap().block_number, 13);
}

#[test]
fn only_final_blocks_are_exported() {
    let store = store_with(PrunePolicy::default(), explicit());
    append(&store, 4);
    assert_eq!(store.get_head(), None);
    assert_eq!(store.export_blocks(None, 100).unwrap().next_cursor, None);
    store.set_finalized(11).unwrap();
    assert_eq!(store.get_head(), Some(11));
    let caught_up = Some(Cursor::at_block(12));
    assert_eq!(store.export_blocks(caught_up, 100).unwrap().next_cursor, caught_up);
}

/// The story of a pruned transaction said only that everything below the boundary is gone, though
/// runs, reports and parts still know when it went, why, and where it is.
#[test]
fn the_story_of_a_pruned_transaction_says_when_why_and_where() {
    let store =
        store_with(PrunePolicy { retain_blocks: 4, ..PrunePolicy::default() }, Settings::default());
    let blocks = append(&store, 20);
    store.ack_archived(&part(&store, 10, 25)).unwrap();
    store.prune_now(1000).unwrap();
    let id = tx_index(&blocks[2].payloads.tx_index).next().unwrap().unwrap().tx_id;
    let ExplainTx::Absent { answer, cut, .. } = store.explain_tx(id).unwrap() else { panic!() };
    assert_eq!(answer, LookupError::Pruned { pruned_before_block: 25 });
    let cut = cut.unwrap();
    assert!(cut.first <= 12 && 12 <= cut.last, "{cut:?}");
    let [report] = cut.reports.as_slice() else { panic!("{cut:?}") };
    assert_eq!((report.first, report.last, report.cause), (10, 25, Cause::Retention));
    let [locator] = cut.locators.as_slice() else { panic!("{cut:?}") };
    assert_eq!(locator.key, "part=10-25");
    let unknown = store.explain_tx(TxId([0xee; 32])).unwrap();
    assert!(matches!(unknown, ExplainTx::Absent { cut: None, .. }), "{unknown:?}");
}

/// Under retention a run spans many ticks, each with a report of its own, and crosses the ends of parts:
/// of a run that had become a tombstone neither a report nor a part was named.
#[test]
fn a_pruned_transaction_names_every_prune_and_part_that_may_have_had_it() {
    let store =
        store_with(PrunePolicy { retain_blocks: 4, ..PrunePolicy::default() }, Settings::default());
    let mut blocks = append(&store, 40);
    for (first, last) in [(10, 16), (17, 27), (28, 40)] {
        store.ack_archived(&part(&store, first, last)).unwrap();
    }
    // Ids of all that is here go into one run with the first cut, and the ticks end where retention is met.
    store.prune_blocks(14, 1_000).unwrap();
    for last in [20, 30] {
        store.prune_blocks(last, 1_000).unwrap();
    }
    let id = |blocks: &[secateur_core::Block], at: usize| ids(&blocks[at])[0];
    let story = |id| {
        let ExplainTx::Absent { cut, .. } = store.explain_tx(id).unwrap() else { panic!() };
        *cut.unwrap()
    };
    let exact = story(id(&blocks, 7));
    assert_eq!((exact.first, exact.last), (17, 17), "its run is here");
    assert_eq!(exact.reports.iter().map(|report| report.seq).collect::<Vec<_>>(), [1]);
    assert_eq!(exact.locators.len(), 1);
    blocks.extend(append(&store, 20));
    while store.prune_now(1_000).unwrap().more() {}
    let tombstone = story(id(&blocks, 7));
    assert!(tombstone.first <= 17 && 30 < tombstone.last, "{tombstone:?}");
    let seqs: Vec<u64> = tombstone.reports.iter().map(|report| report.seq).collect();
    assert_eq!(seqs, [0, 3], "the earliest and the latest");
    assert!(!tombstone.misses_reports());
    let keys: Vec<&str> = tombstone.locators.iter().map(|at| at.key.as_str()).collect();
    assert_eq!(keys, ["part=10-16", "part=17-27", "part=28-40"]);
}
