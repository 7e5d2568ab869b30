//! Verify finds every planted damage, and repair mends what can be derived and nothing else.

use crate::common::*;
use secateur_core::PrunePolicy;
use secateur_store::{
    Arena, Change, FindingKind, Index, RegionState, Settings, Snapshot, Store, Table,
};

/// A store with used, quarantined and free regions.
fn subject() -> TestStore {
    let policy = PrunePolicy { retain_blocks: 5, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 12);
    store.prune_now(1000).unwrap();
    store.settle().unwrap();
    append(&store, 1);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    store
}

fn first_row(store: &TestStore, table: Table) -> (Vec<u8>, Vec<u8>) {
    let mut found = None;
    let snapshot = store.index().snapshot().unwrap();
    snapshot
        .scan(table, &[], &mut |key, value| {
            found = Some((key.to_vec(), value.to_vec()));
            Ok(std::ops::ControlFlow::Break(()))
        })
        .unwrap();
    found.unwrap()
}

fn set(store: &TestStore, table: Table, key: &[u8], value: Option<Vec<u8>>) {
    store.index().commit(vec![Change { table, key: key.to_vec(), value }]).unwrap();
}

fn kinds(store: &TestStore) -> Vec<FindingKind> {
    store.verify(|_, _| {}).unwrap().findings.iter().map(|finding| finding.kind).collect()
}

/// Plants a damage, sees it found, repairs it, and sees that the blocks are as they were.
fn found_and_repaired(plant: impl Fn(&TestStore), kind: FindingKind) {
    let store = subject();
    let blocks: Vec<_> = (18..=22).map(|height| store.get_block(height).unwrap()).collect();
    plant(&store);
    assert!(kinds(&store).contains(&kind), "{:?}", store.verify(|_, _| {}).unwrap());
    let store = Store::open(store.into_ground(), clock()).unwrap();
    let plan = store.repair_plan().unwrap();
    assert!(!plan.is_empty());
    assert_eq!(store.repair().unwrap(), plan, "it does what it said");
    let report = store.verify(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    for block in blocks {
        assert_eq!(store.get_block(block.meta.height).unwrap(), block);
    }
    append(&store, 20);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_lost_free_list_row_is_found_and_put_back() {
    found_and_repaired(
        |store| {
            let (key, _) = first_row(store, Table::Free);
            set(store, Table::Free, &key, None);
        },
        FindingKind::FreeList,
    );
}

#[test]
fn an_unreadable_free_list_row_is_passed_over_found_and_put_back() {
    found_and_repaired(
        |store| {
            let (key, mut value) = first_row(store, Table::Free);
            value[0] ^= 0x40;
            set(store, Table::Free, &key, Some(value));
            append(store, 3);
            store.prune_now(1).unwrap();
        },
        FindingKind::Row,
    );
}

/// I9: the store level of "an unknown state reads as Quarantine".
#[test]
fn a_corrupt_allocation_row_is_never_handed_out_and_can_be_repaired() {
    found_and_repaired(
        |store| {
            let (free, _) = first_row(store, Table::Free);
            let snapshot = store.index().snapshot().unwrap();
            let mut value = snapshot.get(Table::Alloc, &free).unwrap().unwrap();
            let last = value.len() - 5;
            value[last] = 9;
            set(store, Table::Alloc, &free, Some(value));
            let offset = u64::from_be_bytes(free[4..].try_into().unwrap());
            let later = append(store, 10);
            for block in later {
                let pieces = store.get_pieces(block.meta.height).unwrap();
                assert!(pieces.iter().all(|(_, region)| region.offset != offset));
            }
        },
        FindingKind::Row,
    );
}

#[test]
fn a_corrupt_allocation_row_of_a_kept_block_does_not_stall_pruning() {
    let store = subject();
    let (_, region) = store.get_pieces(18).unwrap()[0];
    let mut key = region.class.to_be_bytes().to_vec();
    key.extend(region.offset.to_be_bytes());
    set(&store, Table::Alloc, &key, Some(vec![1, 2, 3]));
    assert!(store.get_block(18).is_ok(), "its bytes are judged by their checksum");
    append(&store, 5);
    store.prune_now(1000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().oldest_kept_block, Some(23));
    assert!(kinds(&store).contains(&FindingKind::Row));
    store.repair().unwrap();
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_missing_record_is_corruption_and_never_not_found() {
    let store = subject();
    set(&store, Table::Blocks, &22u64.to_be_bytes(), None);
    assert!(store.get_block(22).unwrap_err().is_corruption());
    assert!(kinds(&store).contains(&FindingKind::Chain));
    assert!(kinds(&store).contains(&FindingKind::Region), "its region is an orphan");
}

#[test]
fn an_orphaned_region_is_found_and_freed() {
    let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 16);
    store.prune_now(1000).unwrap();
    let (key, _) = first_row(&store, Table::Journal);
    set(&store, Table::Journal, &key, None);
    let store = Store::open(store.into_ground(), clock()).unwrap();
    let found = kinds(&store);
    assert!(!found.is_empty() && found.iter().all(|kind| *kind == FindingKind::Region));
    store.repair().unwrap();
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    assert_eq!(store.get_prune_status().unwrap().quarantined_bytes, 0);
}

#[test]
fn repair_frees_nothing_while_a_record_is_missing_or_cannot_be_read() {
    for lost in [None, Some(vec![1, 2, 3])] {
        let store = subject();
        let snapshot = store.index().snapshot().unwrap();
        let key = 22u64.to_be_bytes();
        let row = snapshot.get(Table::Blocks, &key).unwrap();
        let block = store.get_block(22).unwrap();
        set(&store, Table::Blocks, &key, lost);
        assert!(store.repair_plan().unwrap().is_empty(), "its region may only look like an orphan");
        append(&store, 20);
        set(&store, Table::Blocks, &key, row);
        assert_eq!(store.get_block(22).unwrap(), block, "what came back with its row is whole");
    }
}

#[test]
fn a_damaged_transaction_index_hides_no_other_hash_and_is_never_not_found() {
    let store = store();
    append(&store, 12);
    let record = store.get_record(19).unwrap();
    let at =
        store.get_pieces(19).unwrap()[0].0 + u64::from(record.lens[0]) + u64::from(record.lens[1]);
    let mut byte = [0u8];
    store.arena().read_at(at, &mut byte).unwrap();
    store.arena().write_at(at, &[byte[0] ^ 1]).unwrap();
    let store = Store::open(store.into_ground(), clock()).unwrap();
    let other = store.get_block(21).unwrap();
    assert_eq!(store.get_block_by_hash(&other.meta.hash).unwrap(), other);
    let unknown = secateur_core::TxId([7; 32]);
    assert!(store.get_receipt(&unknown).unwrap_err().is_corruption(), "it might be in block 19");
}

#[test]
fn a_flipped_payload_byte_is_found_and_not_repairable() {
    let store = subject();
    let at = store.get_pieces(19).unwrap()[0].0 + 7;
    let mut byte = [0u8];
    store.arena().read_at(at, &mut byte).unwrap();
    store.arena().write_at(at, &[byte[0] ^ 1]).unwrap();
    assert!(store.get_block(19).unwrap_err().is_corruption());
    let report = store.verify(|_, _| {}).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].kind == FindingKind::Payload && !report.findings[0].repairable);
    assert!(store.repair_plan().unwrap().is_empty());
}

#[test]
fn wrong_counters_are_found_and_recounted() {
    let store = subject();
    let (key, _) = first_row(&store, Table::Free);
    let value = store.index().snapshot().unwrap().get(Table::Free, &key).unwrap();
    // A row that comes and goes behind the store's back leaves its counters wrong.
    set(&store, Table::Free, &key, None);
    let store = Store::open(store.into_ground(), clock()).unwrap();
    store.repair().unwrap();
    set(&store, Table::Free, &key, value);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn an_unreadable_journal_entry_does_not_keep_the_store_from_opening() {
    let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 16);
    store.prune_now(1000).unwrap();
    let (key, mut value) = first_row(&store, Table::Journal);
    value[3] ^= 1;
    set(&store, Table::Journal, &key, Some(value));
    let store = Store::open(store.into_ground(), clock()).unwrap();
    assert!(kinds(&store).contains(&FindingKind::Row));
    store.repair().unwrap();
    let report = store.verify(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(store.get_prune_status().unwrap().quarantined_bytes, 0);
}

#[test]
fn a_region_that_two_blocks_claim_is_found() {
    let store = subject();
    let snapshot = store.index().snapshot().unwrap();
    let row = snapshot.get(Table::Blocks, &10u64.to_be_bytes()).unwrap();
    set(&store, Table::Blocks, &22u64.to_be_bytes(), row);
    assert!(kinds(&store).contains(&FindingKind::Row), "the seal covers the key");
    assert!(store.get_block(22).unwrap_err().is_corruption());
}

#[test]
fn the_state_of_a_region_is_what_the_numbers_on_disk_say() {
    assert_eq!(
        [RegionState::Used as u8, RegionState::Quarantine as u8, RegionState::Free as u8],
        [1, 2, 3]
    );
}
