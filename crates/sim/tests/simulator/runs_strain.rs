//! Runs under strain: damaged pages and filters, filters that err, and long random lives.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use crate::desk::desk_store;
use crate::runs::{
    assert_answer, assert_found, explicit, keeping, not_found, reopened, run_rows, small_epochs,
    transactions, with_transaction,
};
use parking_lot::Mutex;
use secateur_core::{Block, BlockHash, Height, LookupError, PrunePolicy, TxId};
use secateur_sim::chain::Shape;
use secateur_sim::rng::Rng;
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{
    Arena, Blob, Change, FindingKind, Ground, Index, Place, Settings, Snapshot, Space, Store,
    StoreError, Table,
};

/// Where a byte of a run or filter lies in the arena.
fn offset_of(store: &TestStore, stream: u8, blob: &Blob, at: u64) -> u64 {
    match &blob.place {
        Place::Regions(ptrs) => ptrs[0].offset + at,
        Place::Stream(position) => {
            let len = store.header().stretch_len();
            let (number, inside) = ((position + at) / len, (position + at) % len);
            let key = [&[stream], &number.to_be_bytes()[..]].concat();
            let row = store.index().snapshot().unwrap().get(Table::Streams, &key).unwrap().unwrap();
            u64::from_be_bytes(*row.first_chunk().unwrap()) + inside
        }
    }
}

fn flip(store: &TestStore, offset: u64, bits: u8) {
    let mut byte = [0u8];
    store.arena().read_at(offset, &mut byte).unwrap();
    store.arena().write_at(offset, &[byte[0] ^ bits]).unwrap();
}

/// Verify says that it is a run, and nothing else.
fn assert_named(store: &TestStore) {
    let report = store.verify(|_, _| {}).unwrap();
    let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Run], "{report:?}");
}

/// Each id of a block is an error.
fn assert_damaged(store: &TestStore, blocks: &[Block]) {
    for block in blocks {
        assert!(store.get_block_by_hash(&block.meta.hash).unwrap_err().is_corruption());
        for entry in transactions(block) {
            assert!(store.get_receipt(&entry.tx_id).unwrap_err().is_corruption());
            assert!(store.get_transaction(&entry.tx_id).unwrap_err().is_corruption());
        }
    }
}

#[test]
fn a_flipped_byte_in_a_run_page_is_an_error_and_never_a_wrong_answer() {
    let store = store_with(PrunePolicy::default(), small_epochs());
    let blocks = append(&store, 7);
    let run = run_rows(&store)[0].run.clone().unwrap();
    let entries = 0..16 + 9 * 24;
    for at in entries.chain((240..4096).step_by(61)).chain([4095]) {
        let offset = offset_of(&store, 1, &run, at);
        flip(&store, offset, 1 << (at % 8));
        assert_damaged(&store, &blocks[..3]);
        if at % 16 == 0 {
            assert_found(&store, &blocks[3..]);
            let absent = store.get_receipt(&TxId([9; 32])).unwrap_err();
            assert_eq!(absent.as_lookup(), Some(not_found(Some(10))), "its filter is whole");
            assert_named(&store);
        }
        flip(&store, offset, 1 << (at % 8));
    }
    assert_found(&store, &blocks);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_flipped_byte_in_a_filter_is_an_error_and_never_a_wrong_answer() {
    let mut store = store_with(PrunePolicy::default(), small_epochs());
    let blocks = append(&store, 7);
    let filter = run_rows(&store)[0].filter.clone();
    for at in 0..filter.len {
        let offset = offset_of(&store, 2, &filter, at);
        flip(&store, offset, 1 << (at % 8));
        store = reopened(store);
        assert_damaged(&store, &blocks[..3]);
        assert_found(&store, &blocks[3..]);
        let absent = store.get_receipt(&TxId([9; 32])).unwrap_err();
        assert!(absent.is_corruption(), "it might be in the damaged run: {absent}");
        assert_named(&store);
        flip(&store, offset, 1 << (at % 8));
        store = reopened(store);
    }
    assert_found(&store, &blocks);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_flipped_byte_in_a_tombstone_is_named_and_hides_no_kept_id() {
    let store = store_with(keeping(4), small_epochs());
    let blocks = append(&store, 12);
    store.prune_now(1000).unwrap();
    let tombstone = run_rows(&store).remove(0);
    assert!(tombstone.run.is_none());
    flip(&store, offset_of(&store, 2, &tombstone.filter, 40), 4);
    let store = reopened(store);
    assert_found(&store, &blocks[8..]);
    assert_damaged(&store, &blocks[..3]);
    assert_answer(&store, &blocks[3..8], LookupError::Pruned { pruned_before_block: 17 });
    assert_named(&store);
}

/// Something older that was cut says nothing of what a damaged run of kept blocks may hold.
#[test]
fn an_id_of_a_damaged_run_is_not_called_pruned_because_an_older_block_had_it() {
    let store = store_with(keeping(4), small_epochs());
    let id = TxId([5; 32]);
    for _ in 0..2 {
        append(&store, 1);
        store.append(&with_transaction(&store, id)).unwrap();
        append(&store, 5);
    }
    store.prune_now(1000).unwrap();
    assert_eq!(store.get_prune_status().unwrap().pruned_before_block, Some(19));
    let holder = |store: &TestStore| store.get_transaction(&id).map(|found| found.location.height);
    store.append(&with_transaction(&store, id)).unwrap();
    append(&store, 3);
    assert_eq!(holder(&store).unwrap(), 24);
    let run =
        run_rows(&store).into_iter().find(|run| (run.first..=run.last).contains(&24)).unwrap();
    flip(&store, offset_of(&store, 2, &run.filter, 40), 4);
    let store = reopened(store);
    let answer = holder(&store).unwrap_err();
    assert!(answer.is_corruption(), "{answer}");
}

/// An arena that counts what is read from it.
#[derive(Default)]
struct Counting(MemoryArena, AtomicU64);

impl Arena for Counting {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
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
        self.0.space()
    }
}

/// A live run that claims an absent id costs a read, a tombstone that does costs the answer.
#[test]
fn eight_runs_claim_absent_ids_as_seldom_as_documented_and_so_do_eight_tombstones() {
    const ASKED: u64 = 200_000;
    let shape = Shape { block_len: 10, transactions: 99, receipt_len: 4 };
    let settings = Settings { epoch_ids: 1000, ..Settings::default() };
    let ground = Ground { arena: Counting::default(), index: MemoryIndex::default() };
    let store = Store::create(ground, config(keeping(1), settings), clock()).unwrap();
    append_shaped(&store, 80, shape);
    append_shaped(&store, 1, shape);
    let ids = || store.get_prune_status().unwrap().ids;
    assert_eq!((ids().runs, ids().sealed_ids), (8, 8000));
    // Below 8 · 2⁻¹⁶ · 2.
    let seldom = |wrong: u64| wrong > 0 && wrong * 65_536 < ASKED * 8 * 2;
    let mut rng = Rng::new(6, 6);
    let mut absent = || TxId(rng.bytes(32).try_into().unwrap());
    let before = store.arena().1.load(Ordering::Relaxed);
    for _ in 0..ASKED {
        let answer = store.get_transaction(&absent()).unwrap_err().as_lookup();
        assert_eq!(answer, Some(not_found(Some(10))));
    }
    let reads = store.arena().1.load(Ordering::Relaxed) - before;
    assert!(seldom(reads), "{reads} of {ASKED}");
    store.prune_now(100_000).unwrap();
    assert_eq!((ids().runs, ids().tombstones), (0, 8));
    let pruned = Some(LookupError::Pruned { pruned_before_block: 89 });
    let claims = (0..ASKED)
        .filter(|_| store.get_transaction(&absent()).unwrap_err().as_lookup() == pruned)
        .count() as u64;
    assert!(seldom(claims), "{claims} of {ASKED}");
}

/// What every id of a chain must answer: cut, kept, or rolled back.
#[derive(Default)]
struct Chain {
    blocks: Vec<Block>,
    gone: Vec<Block>,
    boundary: Option<Height>,
    finalized: Option<Height>,
    claimed: HashSet<BlockHash>,
}

impl Chain {
    fn check(&mut self, store: &TestStore) {
        let kept = |block: &Block| Some(block.meta.height) > self.boundary;
        let cut = self.blocks.partition_point(|block| !kept(block));
        if let Some(pruned_before_block) = self.boundary {
            assert_answer(store, &self.blocks[..cut], LookupError::Pruned { pruned_before_block });
        }
        assert_found(store, &self.blocks[cut..]);
        for block in &self.gone {
            match store.get_block_by_hash(&block.meta.hash).unwrap_err().as_lookup() {
                Some(LookupError::NotFound { searched_from: None | Some(10) }) => {}
                // A filter may claim it, but seldom.
                Some(LookupError::Pruned { .. }) => {
                    self.claimed.insert(block.meta.hash);
                }
                answer => panic!("block {}: {answer:?}", block.meta.height),
            }
        }
    }
}

/// One step of a random life.
fn live(store: TestStore, chain: &mut Chain, rng: &mut Rng, step: u64) -> TestStore {
    let head = store.head();
    match (rng.below(8), head) {
        (0..=2, _) | (_, None) => {
            let group = blocks_after(&store, 1 + rng.below(5), SHAPE, step);
            store.append_group(&group).unwrap();
            chain.blocks.extend(group);
        }
        (3, Some(head)) => {
            let to = head - rng.below(4).min(head - 10);
            store.set_finalized(to.max(chain.boundary.map_or(10, |b| b + 1))).unwrap();
            chain.finalized = chain.finalized.max(Some(to));
        }
        (4, Some(head)) => {
            let lowest = chain.finalized.max(chain.boundary.map(|b| b + 1)).unwrap_or(10);
            let to = head - rng.below(head - lowest + 1);
            store.rollback(to).unwrap();
            let left = chain.blocks.partition_point(|block| block.meta.height <= to);
            chain.gone.extend(chain.blocks.split_off(left));
        }
        (5, _) => {
            store.prune_now(1 + rng.below(60)).unwrap();
            chain.boundary = store.get_prune_status().unwrap().pruned_before_block;
        }
        (6, _) => {
            store.seal().unwrap();
            store.settle().unwrap();
        }
        (_, _) => return reopened(store),
    }
    store
}

#[test]
fn through_long_random_lives_every_id_answers_as_it_must() {
    let (mut pruned, mut gone, mut claimed) = (0, 0, 0);
    for seed in 0..24 {
        let settings = Settings { max_runs: 2 + seed % 3, epoch_ids: 3 + seed, ..explicit() };
        let mut store = store_with(keeping(4), settings);
        let mut rng = Rng::new(seed, 71);
        let mut chain = Chain::default();
        for step in 0..60 {
            store = live(store, &mut chain, &mut rng, step);
            chain.check(&store);
        }
        let report = store.verify(|_, _| {}).unwrap();
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        pruned += chain.boundary.map_or(0, |boundary| boundary - 9);
        gone += chain.gone.len();
        claimed += chain.claimed.len();
    }
    assert!(pruned > 300 && gone > 300 && claimed < 5, "{pruned}, {gone}, {claimed}");
}

#[test]
fn blocks_that_come_while_a_prune_seals_are_not_cut_before_their_ids_are_sealed() {
    let (store, desk) = desk_store(keeping(1), small_epochs());
    let blocks = blocks_after(&*store, 40, SHAPE, 0);
    store.append_group(&blocks[..5]).unwrap();
    // A run that the prune needs is on its way to the arena, and all but the last become due.
    let (later, again) = (blocks[5..].to_vec(), Arc::downgrade(&store));
    desk.at_next_write(move || drop(again.upgrade().unwrap().submit(&later).unwrap()));
    for _ in 0..3 {
        store.prune_now(100_000).unwrap();
        store.settle().unwrap();
        assert_eq!(store.head(), Some(49));
        let pruned_before_block = store.get_prune_status().unwrap().pruned_before_block.unwrap();
        let cut = usize::try_from(pruned_before_block - 9).unwrap();
        assert_answer(&*store, &blocks[..cut], LookupError::Pruned { pruned_before_block });
        assert_found(&*store, &blocks[cut..]);
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
    }
    assert_eq!(store.get_prune_status().unwrap().pruned_before_block, Some(48));
}

/// A run that readers know of is gone from the index a moment before they know of the one that
/// took its place.
#[test]
fn a_lookup_beside_the_merge_of_its_run_is_answered() {
    // Runs of four whole pages: in a packed store they end with their stretches.
    let shape = Shape { block_len: 10, transactions: 199, receipt_len: 4 };
    let settings = Settings { epoch_ids: 600, max_runs: 2, ..Settings::default() };
    let (store, desk) = desk_store(PrunePolicy::default(), settings);
    let blocks = append_shaped(&*store, 8, shape);
    let (told, merged) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    desk.after_commits(move |changes| {
        let gone = |change: &Change| change.table == Table::Runs && change.value.is_none();
        if changes.iter().any(gone) {
            told.send(()).unwrap();
            released.lock().recv().unwrap();
        }
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| append_shaped(&*store, 1, shape));
        merged.recv().unwrap();
        let before = desk.state.lock().snapshots;
        let reader = scope.spawn(|| {
            let found = store.get_block_by_hash(&blocks[1].meta.hash);
            done.store(true, Ordering::Release);
            desk.moved.notify_all();
            found
        });
        // It answers, or it has looked again and again and waits for the store to know more.
        let mut state = desk.state.lock();
        while !done.load(Ordering::Acquire) && state.snapshots < before + 8 {
            if desk.moved.wait_for(&mut state, Duration::from_millis(300)).timed_out() {
                break;
            }
        }
        drop(state);
        release.send(()).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), blocks[1]);
    });
    assert_found(&*store, &blocks);
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}
