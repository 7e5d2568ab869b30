//! Stable memory that comes to its end.

use std::cell::Cell;
use std::rc::Rc;

use ic_stable_structures::{Memory, VectorMemory};
use secateur_core::PrunePolicy;
use secateur_sim::chain::Shape;
use secateur_store::ground::stable;
use secateur_store::{
    Arena as _, Change, Family, Ground, Index as _, Settings, Store, StoreError, Table,
};

use crate::common::*;

/// Memory of which there are so many pages and no more.
#[derive(Clone)]
struct Limited {
    bytes: VectorMemory,
    most: Rc<Cell<u64>>,
}

impl Memory for Limited {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn grow(&self, pages: u64) -> i64 {
        if self.size() + pages > self.most.get() { -1 } else { self.bytes.grow(pages) }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.bytes.read(offset, out);
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.bytes.write(offset, bytes);
    }
}

impl Limited {
    fn new() -> Self {
        Self { bytes: VectorMemory::default(), most: Rc::new(Cell::new(u64::MAX)) }
    }
}

#[test]
fn the_arena_leaves_a_reserve_that_tables_grow_into() {
    let memory = Limited::new();
    let Ground { arena, index } = stable::open(memory.clone(), Family::History).unwrap();
    arena.grow(1).unwrap();
    memory.most.set(memory.size() + 100);
    while arena.grow(arena.len().unwrap() + 1).is_ok() {}
    assert!(index.ensure_reserve().unwrap(), "the arena did not take it");
    // More than a bucket of rows.
    let row = |key: u64| Change {
        table: Table::Journal,
        key: key.to_be_bytes().to_vec(),
        value: Some(vec![7; 1000]),
    };
    index.commit((0..2500).map(row).collect()).unwrap();
    assert!(!index.ensure_reserve().unwrap(), "it was used");
    assert!(arena.grow(arena.len().unwrap() + 1).is_err());
    memory.most.set(u64::MAX);
    assert!(index.ensure_reserve().unwrap() && arena.grow(arena.len().unwrap() + 1).is_ok());
}

#[test]
fn a_memory_that_comes_to_its_end_refuses_blocks_and_lets_cuts_go_on() {
    let shape = Shape { block_len: 20_000, transactions: 40, receipt_len: 100 };
    for extra in [0, 1, 31, 32, 33, 63, 64, 65, 96, 160, 320] {
        let memory = Limited::new();
        let policy = PrunePolicy { target_bytes: 1 << 20, ..PrunePolicy::default() };
        let ground = stable::open(memory.clone(), Family::History).unwrap();
        let store = Store::create(ground, config(policy, Settings::default()), clock()).unwrap();
        append_shaped(&store, 100, shape);
        memory.most.set(memory.size() + extra);
        let refused = loop {
            let block = next_block(&store, shape);
            if let Err(error) = store.append_group(&[block]) {
                break error;
            }
        };
        assert!(matches!(refused, StoreError::DiskFull { .. }), "{extra}: {refused}");
        let full = store.head().unwrap();
        assert!(store.get_block(full).is_ok(), "{extra}");
        store.set_pruning_enabled(true).unwrap();
        while store.tick().unwrap().is_some_and(|outcome| outcome.more()) {}
        store.settle().unwrap();
        let status = store.get_prune_status().unwrap();
        assert!(status.used_bytes < 1 << 20, "{extra}: {status:?}");
        // What was freed is used again, in memory that does not grow.
        for _ in 0..100 {
            append_shaped(&store, 1, shape);
            store.tick().unwrap();
            store.settle().unwrap();
        }
        assert_eq!(store.head(), Some(full + 100), "{extra}");
        assert!(memory.size() <= memory.most.get());
        assert_eq!(store.verify(|_, _| ()).unwrap().findings.len(), 0, "{extra}");
    }
}
