//! Ticks that meet trouble: a medium without room, a commit that fails, a seal beside a plan, a first
//! cut that cannot be announced.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use secateur_core::{Plan, PrunePolicy};
use secateur_sim::chain::Shape;
use secateur_store::ground::{KeyValue, MemoryArena, MemoryIndex, MemorySnapshot, Space, Visit};
use secateur_store::{
    Arena, Change, Daemon, Finality, Ground, Index, Settings, Snapshot, Store, StoreError, Table,
};

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// What a test does to the medium of a store.
#[derive(Clone, Default)]
struct Trouble {
    /// Free bytes that the arena reports; 0 for as many as are asked for.
    free: Arc<AtomicU64>,
    /// Whether commits fail.
    fails: Arc<AtomicBool>,
    /// Is called, once, by the next read of a block's row.
    hook: Hook,
}

struct TroubledArena(MemoryArena, Trouble);

impl Arena for TroubledArena {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.write_at(offset, bytes)
    }
    fn grow(&self, len: u64) -> Result<(), StoreError> {
        self.0.grow(len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.0.sync()
    }
    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
        self.0.release(offset, len)
    }
    fn space(&self) -> Result<Space, StoreError> {
        let free = self.1.free.load(Ordering::Acquire);
        Ok(Space { available: (free > 0).then_some(free), ..self.0.space()? })
    }
}

struct TroubledIndex(MemoryIndex, Trouble);

impl Index for TroubledIndex {
    type Snapshot = TroubledSnapshot;

    fn snapshot(&self) -> Result<TroubledSnapshot, StoreError> {
        Ok(TroubledSnapshot(self.0.snapshot()?, Arc::clone(&self.1.hook)))
    }
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        if self.1.fails.load(Ordering::Acquire) {
            return Err(StoreError::Foreign("the medium is gone".into()));
        }
        self.0.commit(changes)
    }
    fn bytes(&self) -> Result<u64, StoreError> {
        self.0.bytes()
    }
    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.0.ensure_reserve()
    }
    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.0.check()
    }
}

struct TroubledSnapshot(MemorySnapshot, Hook);

impl TroubledSnapshot {
    fn read(&self, table: Table) {
        if table == Table::Blocks
            && let Some(hook) = self.1.lock().unwrap().take()
        {
            hook();
        }
    }
}

impl Snapshot for TroubledSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(table);
        self.0.get(table, key)
    }
    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.read(table);
        self.0.scan(table, from, visit)
    }
    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        self.read(table);
        self.0.before(table, bound)
    }
}

type TroubledStore = Store<TroubledArena, TroubledIndex>;

fn troubled(policy: PrunePolicy, settings: Settings) -> (Arc<TroubledStore>, Trouble) {
    let trouble = Trouble::default();
    let ground = Ground {
        arena: TroubledArena(MemoryArena::default(), trouble.clone()),
        index: TroubledIndex(MemoryIndex::default(), trouble.clone()),
    };
    let store = Store::create(ground, config(policy, settings), clock()).unwrap();
    store.set_pruning_enabled(true).unwrap();
    (Arc::new(store), trouble)
}

fn retaining(retain_blocks: u64) -> PrunePolicy {
    PrunePolicy { retain_blocks, ..PrunePolicy::default() }
}

/// A prune that had no room to seal ids, and went on without, left the note that blocks are refused:
/// status, alarms and readiness said so though none was.
#[test]
fn a_prune_that_has_no_room_to_seal_does_not_report_refused_blocks() {
    let (store, trouble) = troubled(retaining(5), Settings::default());
    append(&*store, 40);
    trouble.free.store(2 << 20, Ordering::Release);
    let outcome = store.prune_now(u64::MAX).unwrap();
    assert_eq!(outcome.totals.blocks, 35);
    let status = store.get_prune_status().unwrap();
    assert_eq!(status.ids.tombstones, 0, "nothing was sealed");
    assert!(!status.disk_full && !store.is_full(), "{:?}", status.alarms);
    trouble.free.store(1 << 20, Ordering::Release);
    assert!(store.append(&next_block(&*store, SHAPE)).is_err());
    let status = store.get_prune_status().unwrap();
    assert!(status.disk_full && status.alarms.iter().any(|a| a.contains("the disk is full")));
}

/// A tick was heard of, logged and counted, before its batch was durable.
#[test]
fn a_tick_whose_commit_fails_is_not_heard_of() {
    let (store, trouble) = troubled(retaining(5), Settings::default());
    append(&*store, 40);
    store.seal().unwrap();
    let mut heard = 0;
    trouble.fails.store(true, Ordering::Release);
    let drained = store.drain(|_| {
        heard += 1;
        true
    });
    assert!(drained.is_err());
    assert_eq!(heard, 0);
}

/// A plan took its rows first and looked for ids later: what a worker sealed in between was in neither,
/// and the plan went on without a run that a prune makes.
#[test]
fn a_plan_beside_which_ids_are_sealed_is_the_same_plan() {
    let plan_of = |sealed_beside: bool| -> Plan {
        let settings =
            Settings { finality: Finality::Explicit, epoch_ids: 1_000, ..Settings::default() };
        let (store, trouble) = troubled(PrunePolicy::default(), settings);
        let many = Shape { block_len: 2_000, transactions: 60, receipt_len: 20 };
        append_shaped(&*store, 200, many);
        store.set_finalized(209).unwrap();
        let target_bytes = store.get_prune_status().unwrap().used_bytes;
        store.set_prune_policy(PrunePolicy { target_bytes, ..PrunePolicy::default() }).unwrap();
        if sealed_beside {
            let sealing = Arc::clone(&store);
            let seal = move || assert!(sealing.seal().unwrap() > 3);
            *trouble.hook.lock().unwrap() = Some(Box::new(seal));
        }
        let plan = store.prune_plan().unwrap();
        assert!(trouble.hook.lock().unwrap().is_none());
        plan
    };
    assert_eq!(plan_of(true), plan_of(false));
}

/// The daemon made the plan that it announces, and when that failed it went on and cut all the same.
#[test]
fn a_first_cut_that_cannot_be_announced_is_not_made() {
    let (store, _) = troubled(retaining(5), Settings::default());
    append_one_by_one(&store, 40);
    // A plan reads the newest blocks, of which a tick knows nothing.
    let (key, row) = last_row(&store);
    set(&store, &key, vec![0; 9]);
    let (told, heard) = std::sync::mpsc::channel();
    let announced = told.clone();
    let announce =
        move |plan: &Plan| announced.send(Ok(("announced", plan.totals.blocks))).unwrap();
    let daemon = Daemon::start_with(Arc::clone(&store), announce, move |tick| {
        let tick = tick.map(|outcome| ("cut", outcome.totals.blocks));
        told.send(tick.map_err(ToString::to_string)).unwrap_or_default();
    })
    .unwrap();
    store.set_pruning_enabled(true).unwrap();
    let next = || heard.recv_timeout(Duration::from_mins(1)).unwrap();
    let failed = next().unwrap_err();
    assert!(failed.contains("corrupt"), "{failed}");
    assert_eq!(store.reports().unwrap(), [], "nothing was cut");
    set(&store, &key, row);
    // It tries again by itself.
    let announced = std::iter::repeat_with(next).find_map(Result::ok).unwrap();
    assert_eq!(announced, ("announced", 35));
    assert_eq!(next().unwrap(), ("cut", 35));
    daemon.stop();
}

fn append_one_by_one(store: &TroubledStore, count: u64) {
    for _ in 0..count {
        append(store, 1);
    }
}

fn last_row(store: &TroubledStore) -> (Vec<u8>, Vec<u8>) {
    let mut last = None;
    let mut keep = |key: &[u8], row: &[u8]| {
        last = Some((key.to_vec(), row.to_vec()));
        Ok(ControlFlow::Continue(()))
    };
    store.index().snapshot().unwrap().scan(Table::Blocks, &[], &mut keep).unwrap();
    last.unwrap()
}

fn set(store: &TroubledStore, key: &[u8], value: Vec<u8>) {
    let (table, key) = (Table::Blocks, key.to_vec());
    store.index().commit(vec![Change { table, key, value: Some(value) }]).unwrap();
}
