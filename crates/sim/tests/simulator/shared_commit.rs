//! Jobs that share a commit: what each changes comes in the order in which it was staged.

use std::sync::Arc;

use crate::common::*;
use parking_lot::{Condvar, Mutex};
use secateur_core::PrunePolicy;
use secateur_store::ground::{MemoryArena, MemoryIndex, MemorySnapshot};
use secateur_store::{Change, Finality, Ground, Index, Settings, Store, StoreError, Workers};

/// An index whose commits wait at a gate.
#[derive(Default)]
struct GatedIndex {
    rows: MemoryIndex,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: bool,
}

impl Index for GatedIndex {
    type Snapshot = MemorySnapshot;
    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.rows.snapshot()
    }
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let (gate, moved) = &*self.gate;
        let mut gate = gate.lock();
        gate.waiting = true;
        moved.notify_all();
        moved.wait_while(&mut gate, |gate| gate.closed);
        gate.waiting = false;
        self.rows.commit(changes)
    }
    fn bytes(&self) -> Result<u64, StoreError> {
        self.rows.bytes()
    }
    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.rows.ensure_reserve()
    }
    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.rows.check()
    }
}

/// I3.
#[test]
fn ids_of_blocks_that_come_right_after_a_rollback_are_found() {
    let index = GatedIndex::default();
    let gate = Arc::clone(&index.gate);
    let set = |closed| {
        gate.0.lock().closed = closed;
        gate.1.notify_all();
    };
    let ground = Ground { arena: MemoryArena::default(), index };
    let settings = Settings { finality: Finality::Explicit, ..Settings::default() };
    let config = config(PrunePolicy::default(), settings);
    let store = Arc::new(Store::create(ground, config, clock()).unwrap());
    let workers = Workers::start(&store).unwrap();
    let kept = append(&*store, 3);
    let gone = blocks_after(&*store, 1, SHAPE, 1);
    set(true);
    let first = store.submit(&gone).unwrap();
    gate.1.wait_while(&mut gate.0.lock(), |gate| !gate.waiting);
    // While that commit waits, a rollback and another block line up behind it.
    let other = Arc::clone(&store);
    let rollback = std::thread::spawn(move || other.rollback(12));
    let mut next = secateur_sim::chain::block(13, kept[2].meta.hash, SHAPE, 1, 2);
    let second = loop {
        // It is refused as a conflict until the rollback is staged.
        match store.submit(std::slice::from_ref(&next)) {
            Ok(ticket) => break ticket,
            Err(StoreError::Conflict { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    set(false);
    store.wait(first).unwrap();
    assert_eq!(rollback.join().unwrap().unwrap(), 1);
    store.wait(second).unwrap();
    assert_eq!(store.get_block_by_hash(&next.meta.hash).unwrap(), next);
    assert!(store.get_block_by_hash(&gone[0].meta.hash).is_err());
    store.set_finalized(13).unwrap();
    next = next_block(&*store, SHAPE);
    store.append(&next).unwrap();
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
    drop(workers);
}

#[test]
fn workers_leave_while_others_wait_and_nobody_hangs() {
    for _ in 0..200 {
        let store = Arc::new(store());
        let workers = Workers::start(&store).unwrap();
        let blocks = blocks_after(&*store, 6, SHAPE, 0);
        let tickets: Vec<_> = blocks.chunks(1).map(|block| store.submit(block).unwrap()).collect();
        let waiting = Arc::clone(&store);
        let waiter = std::thread::spawn(move || {
            for ticket in tickets {
                waiting.wait(ticket).unwrap();
            }
        });
        drop(workers);
        waiter.join().unwrap();
        assert_eq!(store.head(), Some(15));
    }
}

#[test]
fn a_plan_beside_a_prune_is_a_plan_of_one_moment() {
    let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
    let store = Arc::new(store_with(policy, Settings::default()));
    append(&*store, 10);
    let pruner = Arc::clone(&store);
    let thread = std::thread::spawn(move || {
        for _ in 0..300 {
            append(&*pruner, 3);
            pruner.prune_now(1).unwrap();
        }
    });
    while !thread.is_finished() {
        store.prune_plan().unwrap();
    }
    thread.join().unwrap();
}

#[test]
fn ids_are_found_while_runs_give_way_to_others() {
    let settings = Settings { epoch_ids: 12, max_runs: 2, ..Settings::default() };
    let store = Arc::new(store_with(PrunePolicy::default(), settings));
    let workers = Workers::start(&store).unwrap();
    let first = append(&*store, 40);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    for block in &first {
                        let found = store.get_block_by_hash(&block.meta.hash);
                        assert_eq!(found.unwrap_or_else(|e| panic!("{e}")), *block);
                    }
                }
            });
        }
        for _ in 0..300 {
            append(&*store, 2);
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
    drop(workers);
    assert!(store.get_prune_status().unwrap().ids.runs <= 2 + 1);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn an_id_that_comes_very_often_is_found_in_its_newest_block() {
    let settings = Settings { epoch_ids: 5000, ..Settings::default() };
    let store = store_with(PrunePolicy::default(), settings);
    let id = secateur_core::TxId([7; 32]);
    for height in 10..14 {
        let mut block = next_block(&store, SHAPE);
        block.payloads.tx_index.clear();
        for index in 0..3000 {
            let entry = secateur_core::TxIndexEntry { tx_id: id, height, index };
            secateur_core::push_tx_index(&mut block.payloads.tx_index, &entry);
        }
        store.append(&block).unwrap();
        assert_eq!(store.get_transaction(&id).unwrap().location.height, height);
    }
    let store = Store::open(store.into_ground(), clock()).unwrap();
    assert_eq!(store.get_transaction(&id).unwrap().location.height, 13);
    assert!(store.get_prune_status().unwrap().ids.runs > 0);
}
