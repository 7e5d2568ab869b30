//! Opening, recovering, and what makes it refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use secateur_core::PrunePolicy;
use secateur_sim::crash::images_of;
use secateur_sim::grounds::{Disk, GroundKind, Seams};
use secateur_sim::rng::Rng;
use secateur_sim::script::{self, Op, Runner};
use secateur_sim::world::{Fault, World};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Arena, Change, Index, Sabotage, Settings, Store, StoreError, Table};

#[test]
fn a_kill_in_the_middle_of_a_prune_does_not_disable_pruning() {
    let mut runner = Runner::<Disk>::new(3, Sabotage::None).unwrap();
    runner.run(Op::AppendMany).unwrap();
    runner.world.trace();
    runner.run(Op::Cut).unwrap();
    let points = runner.world.take_trace();
    let mut rng = Rng::new(3, 3);
    let mut images = 0;
    for point in &points {
        images_of(point, &mut rng, |image| {
            images += 1;
            let world = World::boot(image);
            let ground = Disk::open(&world, Sabotage::None).unwrap();
            let store = Store::open(ground, script::clock()).unwrap();
            assert!(!store.get_prune_status().unwrap().prune_running);
            store.prune_now(1000).unwrap();
            assert!(!store.need_prune().unwrap().need_prune || store.head() > store.get_head());
        });
    }
    assert!(images > 50, "{images}");
}

#[test]
fn recovering_twice_equals_recovering_once() {
    let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
    let store = store_with(policy, Settings::default());
    append(&store, 16);
    store.prune_now(1000).unwrap();
    assert!(store.get_prune_status().unwrap().journal_entries > 0);
    let once = Store::open(store.into_ground(), clock()).unwrap();
    let rows_once = rows(&once);
    assert_eq!(once.get_prune_status().unwrap().journal_entries, 0);
    let twice = Store::open(once.into_ground(), clock()).unwrap();
    assert_eq!(rows(&twice), rows_once);
}

#[test]
fn a_crash_anywhere_in_the_making_of_a_store_leaves_one_that_can_be_made_or_opened() {
    fn make<G: GroundKind>(world: &World) -> Result<Store<G::Arena, G::Index>, StoreError> {
        let ground = G::open(world, Sabotage::None)?;
        if Store::exists(&ground)? {
            Store::open(ground, script::clock())
        } else {
            Store::create(ground, script::config(layout())?, script::clock())
        }
    }
    fn enumerate<G: GroundKind>() -> u64 {
        let world = World::default();
        world.trace();
        drop(make::<G>(&world).unwrap());
        let mut images = 0;
        let mut rng = Rng::new(9, 9);
        for point in world.take_trace() {
            images_of(&point, &mut rng, |image| {
                images += 1;
                let store = make::<G>(&World::boot(image)).unwrap();
                assert_eq!(store.head(), None);
                assert!(store.verify(|_, _| {}).unwrap().is_clean());
            });
        }
        images
    }
    assert!(enumerate::<Seams>() > 5);
    assert!(enumerate::<Disk>() > 100);
}

#[test]
fn an_arena_that_was_truncated_is_refused() {
    let store = store();
    append(&store, 5);
    let index = store.into_ground().index;
    let arena = MemoryArena::default();
    arena.grow(4096).unwrap();
    let header = secateur_store::Ground { arena, index };
    let error = Store::open(header, clock()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)), "no header: {error}");
}

#[test]
fn an_arena_shorter_than_its_regions_is_corrupt_and_a_longer_one_is_legal() {
    let runner = || {
        let mut runner = Runner::<Seams>::new(5, Sabotage::None).unwrap();
        runner.run(Op::AppendMany).unwrap();
        runner.close();
        runner.world.image()
    };
    let open = |image| {
        let world = World::boot(image);
        Store::open(Seams::open(&world, Sabotage::None).unwrap(), script::clock())
    };
    let mut shorter = runner();
    shorter.files.get_mut("arena").unwrap().set_len(8192);
    let error = open(shorter).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("truncated"), "{error}");
    let mut longer = runner();
    longer.files.get_mut("arena").unwrap().set_len(1 << 20);
    assert!(open(longer).unwrap().verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn an_arena_without_its_index_is_never_written_over_even_if_it_holds_no_bytes() {
    let store = store();
    let mut block = next_block(&store, SHAPE);
    block.payloads = secateur_core::Payloads::default();
    store.append(&block).unwrap();
    let arena = store.into_ground().arena;
    let index = MemoryIndex::default();
    let ground = secateur_store::Ground { arena, index };
    let config = config(PrunePolicy::default(), Settings::default());
    assert!(matches!(Store::create(ground, config, clock()), Err(StoreError::Foreign(_))));
}

#[test]
fn a_store_of_another_format_or_another_id_is_refused() {
    let store = store();
    append(&store, 1);
    let snapshot = store.index().snapshot().unwrap();
    let header = secateur_store::Snapshot::get(&snapshot, Table::Meta, b"header").unwrap().unwrap();
    let damaged = [&header[..11], &[99], &header[12..]].concat();
    let change = Change { table: Table::Meta, key: b"header".to_vec(), value: Some(damaged) };
    store.index().commit(vec![change]).unwrap();
    let error = Store::open(store.into_ground(), clock()).unwrap_err();
    assert!(error.is_corruption(), "the seal is broken: {error}");
}

#[test]
fn failed_commit_poisons_store() {
    for call in 1..40 {
        let mut runner = Runner::<Disk>::new(2, Sabotage::None).unwrap();
        runner.world.set_fault(Some(Fault { at: call, forever: true }));
        let failed = runner.run(Op::AppendSmall).is_err();
        runner.world.set_fault(None);
        if !failed {
            continue;
        }
        let store = runner.store().unwrap();
        if let Some(cause) = store.poisoned() {
            assert!(cause.contains("simulated"), "{cause}");
            let error = store.settle().unwrap_err();
            assert!(matches!(error, StoreError::Poisoned(_)));
            assert!(!error.is_retryable());
            assert!(store.get_block(7).is_ok(), "reads go on");
            return;
        }
    }
    panic!("no call of an append poisons the store");
}

#[test]
fn fsync_error_is_never_retried() {
    /// An arena whose sync fails once and would succeed if it were asked again.
    struct FailsOnce(MemoryArena, AtomicU64);
    impl Arena for FailsOnce {
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
            // The store's creation syncs twice.
            if self.1.fetch_add(1, Ordering::SeqCst) == 2 {
                return Err(StoreError::io("syncing the arena", std::io::Error::other("lost")));
            }
            Ok(())
        }
        fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
            self.0.release(offset, len)
        }
        fn space(&self) -> Result<secateur_store::Space, StoreError> {
            self.0.space()
        }
    }
    let arena = FailsOnce(MemoryArena::default(), AtomicU64::default());
    let index = MemoryIndex::default();
    let config = config(PrunePolicy::default(), Settings::default());
    let ground = secateur_store::Ground { arena, index };
    let store = Store::create(ground, config, clock()).unwrap();
    let block = next_block(&store, SHAPE);
    assert!(matches!(store.append(&block), Err(StoreError::Io { .. })));
    assert!(matches!(store.append(&block), Err(StoreError::Poisoned(_))));
    assert_eq!(store.arena().1.load(Ordering::SeqCst), 3, "it is not asked again");
    let store = Arc::new(Store::open(store.into_ground(), clock()).unwrap());
    store.append(&block).unwrap();
    assert_eq!(store.get_block(10).unwrap(), block);
}
