//! The shelf's rules, each as a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::ground::{
    Arena, Change, Family, Ground, Index, MemoryArena, MemoryIndex, MemorySnapshot, Space, Table,
};
use crate::{RegionState, Rows, StoreError};
use secateur_core::{Reader, Writer};

const REGION: u32 = 8192;

fn config() -> ShelfConfig {
    ShelfConfig { family: Family::Sidecar, chain_id: 7, store_id: [3; 16], region_len: REGION }
}

/// An arena that counts syncs and can refuse them; an index that counts commits and can refuse.
#[derive(Debug, Default)]
struct TestArena {
    memory: MemoryArena,
    syncs: AtomicU64,
    fail_sync: AtomicU64,
    punched: AtomicU64,
}

impl Arena for TestArena {
    fn len(&self) -> Result<u64, StoreError> {
        self.memory.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.memory.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.memory.write_at(offset, bytes)
    }
    fn grow(&self, len: u64) -> Result<(), StoreError> {
        self.memory.grow(len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.fail_sync.load(Ordering::Relaxed) > 0 {
            return Err(StoreError::io("sync", std::io::Error::other("it failed")));
        }
        Ok(())
    }
    fn release(&self, _offset: u64, len: u64) -> Result<bool, StoreError> {
        self.punched.fetch_add(len, Ordering::Relaxed);
        Ok(true)
    }
    fn space(&self) -> Result<Space, StoreError> {
        self.memory.space()
    }
}

#[derive(Debug, Default)]
struct TestIndex {
    memory: MemoryIndex,
    commits: AtomicU64,
}

impl Index for TestIndex {
    type Snapshot = MemorySnapshot;
    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.memory.snapshot()
    }
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.memory.commit(changes)
    }
    fn bytes(&self) -> Result<u64, StoreError> {
        self.memory.bytes()
    }
    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(true)
    }
    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

type TestShelf = Shelf<TestArena, TestIndex>;

fn shelf() -> TestShelf {
    let ground = Ground { arena: TestArena::default(), index: TestIndex::default() };
    Shelf::create(ground, config()).unwrap()
}

fn reopen(shelf: TestShelf) -> TestShelf {
    Shelf::open(shelf.into_ground(), Family::Sidecar).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn store(shelf: &TestShelf, n: u64, bytes: &[u8]) -> Slot {
    shelf
        .write(|batch| {
            let slot = batch.place(bytes)?;
            let mut row = Writer::new();
            slot.write(&mut row);
            batch.put(Table::Bytes, &key(n), row.finish())?;
            Ok::<_, StoreError>(slot)
        })
        .unwrap()
}

fn slot_of(rows: &impl Rows, n: u64) -> Option<Slot> {
    let body = rows.row(Table::Bytes, &key(n)).unwrap()?;
    Some(Slot::read(&mut Reader::new("slot", &body)).unwrap())
}

fn remove(shelf: &TestShelf, n: u64) -> bool {
    shelf
        .write(|batch| {
            let Some(slot) = slot_of(batch, n) else { return Ok(false) };
            batch.delete(Table::Bytes, &key(n))?;
            batch.cut(&slot)
        })
        .unwrap_or_else(|error: StoreError| panic!("{error}"))
}

fn read(shelf: &TestShelf, n: u64) -> Option<Vec<u8>> {
    let view = shelf.view().unwrap();
    slot_of(&view, n).map(|slot| view.read(&slot).unwrap())
}

fn verify(shelf: &TestShelf) -> ShelfReport {
    let report = shelf.verify(
        |rows, claims| {
            Rows::rows(rows, Table::Bytes, &[], |key, body| {
                let n = u64::from_be_bytes(key.try_into().unwrap());
                claims.own("thing", (n, 0), Slot::read(&mut Reader::new("slot", body)).unwrap());
                Ok(std::ops::ControlFlow::Continue(()))
            })
        },
        |_, _| (),
    );
    report.unwrap()
}

fn bytes(n: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| n ^ u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn what_is_placed_reads_back_after_reopening_whatever_its_length() {
    let mut shelf = shelf();
    let all: Vec<Vec<u8>> = [1usize, 4095, 4096, 8191, 8192].map(|len| bytes(5, len)).into();
    for (n, thing) in (0u64..).zip(&all) {
        store(&shelf, n, thing);
    }
    shelf = reopen(shelf);
    for (n, thing) in (0u64..).zip(&all) {
        assert_eq!(read(&shelf, n).as_ref(), Some(thing));
    }
    assert!(verify(&shelf).findings.is_empty());
    assert_eq!(verify(&shelf).slots, 5);
    assert_eq!(shelf.usage().unwrap().kept_bytes(), 5 * u64::from(REGION));
}

#[test]
fn many_things_of_one_batch_are_written_end_to_end_with_one_sync_and_one_commit() {
    let shelf = shelf();
    let things: Vec<Vec<u8>> = (0u8..40).map(|n| bytes(n, 8192)).collect();
    let before =
        (shelf.arena.syncs.load(Ordering::Relaxed), shelf.index.commits.load(Ordering::Relaxed));
    shelf
        .write(|batch| {
            for (n, thing) in (0u64..).zip(&things) {
                let slot = batch.place(thing)?;
                let mut row = Writer::new();
                slot.write(&mut row);
                batch.put(Table::Bytes, &key(n), row.finish())?;
            }
            Ok::<_, StoreError>(())
        })
        .unwrap();
    let after =
        (shelf.arena.syncs.load(Ordering::Relaxed), shelf.index.commits.load(Ordering::Relaxed));
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
    for (n, thing) in (0u64..).zip(&things) {
        assert_eq!(read(&shelf, n).as_ref(), Some(thing));
    }
}

#[test]
fn a_batch_that_fails_changes_nothing() {
    let shelf = shelf();
    store(&shelf, 1, b"one");
    let before = shelf.usage().unwrap();
    let slot = slot_of(&shelf.view().unwrap(), 1).unwrap();
    let failed = shelf.write(|batch| {
        batch.place(b"two")?;
        batch.cut(&slot)?;
        batch.delete(Table::Bytes, &key(1))?;
        Err::<(), _>(StoreError::Foreign("no".into()))
    });
    assert!(failed.is_err());
    assert_eq!(shelf.usage().unwrap(), before);
    assert_eq!(read(&shelf, 1).unwrap(), b"one");
    assert!(verify(&shelf).findings.is_empty());
}

#[test]
fn a_batch_sees_its_own_rows_and_those_that_others_have_staged() {
    let shelf = shelf();
    shelf
        .write(|batch| {
            batch.put(Table::Marks, b"marks", vec![1])?;
            assert_eq!(batch.row(Table::Marks, b"marks")?, Some(vec![1]));
            batch.delete(Table::Marks, b"marks")?;
            assert_eq!(batch.row(Table::Marks, b"marks")?, None);
            batch.put(Table::Marks, b"marks", vec![2])
        })
        .unwrap();
    assert_eq!(shelf.view().unwrap().row(Table::Marks, b"marks").unwrap(), Some(vec![2]));
}

#[test]
fn the_rows_of_regions_and_of_other_families_are_not_to_be_touched() {
    let shelf = shelf();
    for table in [Table::Meta, Table::Alloc, Table::Free, Table::Journal, Table::Blocks] {
        let put = shelf.write(|batch| batch.put(table, b"x", vec![]));
        assert!(matches!(put, Err(StoreError::Refused { .. })), "{table:?}");
        let delete = shelf.write(|batch| batch.delete(table, b"x"));
        assert!(matches!(delete, Err(StoreError::Refused { .. })), "{table:?}");
    }
}

#[test]
fn nothing_that_is_empty_or_larger_than_a_region_is_placed() {
    let shelf = shelf();
    for len in [0usize, 8193] {
        let thing = vec![1; len];
        let refused = shelf.write(|batch| batch.place(&thing));
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{len}");
    }
}

/// I7.
#[test]
fn a_cut_region_is_used_again_with_a_larger_generation_once_the_cut_is_durable() {
    let shelf = shelf();
    let first = store(&shelf, 1, b"one");
    assert!(remove(&shelf, 1));
    assert_eq!(shelf.usage().unwrap().quarantined, 1);
    let second = store(&shelf, 2, b"two");
    assert_eq!(second.region.offset, first.region.offset);
    assert!(second.region.generation > first.region.generation);
    let view = shelf.view().unwrap();
    assert!(matches!(view.read(&first), Err(StoreError::StaleGeneration { .. })));
    let stale =
        shelf.write(|batch| batch.cut(&first)).unwrap_or_else(|e: StoreError| panic!("{e}"));
    assert!(!stale, "a stale slot cuts nothing");
    assert_eq!(read(&shelf, 2).unwrap(), b"two");
    assert!(verify(&shelf).findings.is_empty());
}

#[test]
fn a_region_is_not_reused_while_a_reader_may_see_it() {
    let shelf = shelf();
    let slot = store(&shelf, 1, b"one");
    let reader = shelf.view().unwrap();
    assert!(remove(&shelf, 1));
    assert!(!shelf.settle(0).unwrap(), "a reader is at work");
    let other = store(&shelf, 2, b"two");
    assert_ne!(other.region.offset, slot.region.offset);
    assert_eq!(reader.read(&slot).unwrap(), b"one");
    drop(reader);
    assert!(shelf.settle(0).unwrap());
    assert_eq!(store(&shelf, 3, b"three").region.offset, slot.region.offset);
}

#[test]
fn opening_frees_what_was_cut_and_does_it_once() {
    let shelf = shelf();
    store(&shelf, 1, b"one");
    store(&shelf, 2, b"two");
    remove(&shelf, 1);
    assert_eq!(shelf.usage().unwrap().quarantined, 1);
    let shelf = reopen(shelf);
    let usage = shelf.usage().unwrap();
    assert_eq!((usage.used, usage.quarantined, usage.free), (1, 0, 1));
    let shelf = reopen(shelf);
    assert_eq!(shelf.usage().unwrap(), usage);
    assert!(verify(&shelf).findings.is_empty());
}

#[test]
fn space_over_the_budget_is_given_back() {
    let shelf = shelf();
    for n in 0..10 {
        store(&shelf, n, &bytes(1, 8192));
    }
    for n in 0..10 {
        remove(&shelf, n);
    }
    shelf.settle(0).unwrap();
    assert_eq!(shelf.arena.punched.load(Ordering::Relaxed), 0, "no budget, no hole");
    shelf.settle(1).unwrap();
    assert_eq!(shelf.arena.punched.load(Ordering::Relaxed), 10 * u64::from(REGION));
    assert!(verify(&shelf).findings.is_empty());
    assert_eq!(store(&shelf, 1, b"one").region.offset, 4096, "a hole is a region still");
}

#[test]
fn a_failed_sync_poisons_the_shelf_and_nothing_of_the_batch_is_seen() {
    let shelf = shelf();
    store(&shelf, 1, b"one");
    shelf.arena.fail_sync.store(1, Ordering::Relaxed);
    let failed = shelf.write(|batch| {
        batch.place(b"two")?;
        batch.put(Table::Marks, b"marks", vec![1])
    });
    assert!(matches!(failed, Err(StoreError::Io { .. })));
    shelf.arena.fail_sync.store(0, Ordering::Relaxed);
    let refused = shelf.write(|batch| batch.put(Table::Marks, b"marks", vec![2]));
    assert!(matches!(refused, Err(StoreError::Poisoned(_))));
    assert_eq!(read(&shelf, 1).unwrap(), b"one", "reads go on");
    assert_eq!(shelf.view().unwrap().row(Table::Marks, b"marks").unwrap(), None);
    let shelf = reopen(shelf);
    assert!(shelf.poisoned().is_none());
    assert!(verify(&shelf).findings.is_empty());
}

#[test]
fn another_familys_or_a_newer_ground_is_refused() {
    let ground = shelf().into_ground();
    let row = |body: Vec<u8>| Change {
        table: Table::Meta,
        key: b"header".to_vec(),
        value: Some(crate::rows::seal(Table::Meta, b"header", body)),
    };
    let mut header =
        ground.index.memory.snapshot().unwrap().row(Table::Meta, b"header").unwrap().unwrap();
    header[11] = 9;
    ground.index.commit(vec![row(header.clone())]).unwrap();
    let newer = Shelf::read_header(&ground, Family::Sidecar);
    assert!(matches!(newer, Err(StoreError::NewerFormat { found: 9, .. })));
    (header[11], header[12]) = (1, 9);
    ground.index.commit(vec![row(header.clone())]).unwrap();
    let other = Shelf::read_header(&ground, Family::Sidecar);
    assert!(matches!(other, Err(StoreError::Foreign(_))));
    assert!(crate::Store::read_header(&ground).is_err(), "it is no history");
    (header[12], header[13]) = (1, 99);
    ground.index.commit(vec![row(header)]).unwrap();
    let arena = Shelf::open(ground, Family::Sidecar);
    assert!(matches!(arena, Err(StoreError::Foreign(_))), "the arena is another's");
}

/// I10.
#[test]
fn verify_tells_of_bytes_rows_and_regions_that_are_not_what_they_must_be() {
    let shelf = shelf();
    let slot = store(&shelf, 1, b"one");
    store(&shelf, 2, b"two");
    shelf.arena.write_at(slot.region.offset, b"0ne").unwrap();
    let report = verify(&shelf);
    assert_eq!(report.findings.list.len(), 1, "{report:?}");
    assert!(report.findings.list[0].detail.starts_with("thing 1/0"), "{report:?}");
    shelf.arena.write_at(slot.region.offset, b"one").unwrap();
    assert!(verify(&shelf).findings.is_empty());
    // A region that nothing refers to.
    shelf.write(|batch| batch.delete(Table::Bytes, &key(2))).unwrap();
    assert!(!verify(&shelf).findings.is_empty());
    // Two rows that refer to one.
    let shelf = self::shelf();
    let slot = store(&shelf, 1, b"one");
    let mut row = Writer::new();
    slot.write(&mut row);
    shelf.write(|batch| batch.put(Table::Bytes, &key(2), row.finish())).unwrap();
    assert!(!verify(&shelf).findings.is_empty());
    assert_eq!(RegionState::Used as u8, 1);
}
