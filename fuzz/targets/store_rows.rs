//! Rows of any content with a whole seal, in a store in memory: the state row, allocation
//! entries, free-list marks, the journal, the streams, the runs, the queue, and the JSON
//! documents. Opening, looking, verifying and pruning either work or return an error. A seal guards against accident only, so
//! this is what a row can be that a seal does not catch.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use secateur_core::{Reader, Strength};
use secateur_fuzz::fixture::{self, CONSUMER, FIRST, HEAD, StoppedClock};
use secateur_fuzz::format::sealed;
use secateur_fuzz::within;
use secateur_store::ground::{MemoryArena, MemoryIndex, MemorySnapshot};
use secateur_store::{Arena, Change, Family, Ground, Index, Layout, Store, Table};

/// Rows that one input changes.
const MAX_ROWS: usize = 4;
/// What a store over so few rows may have live.
const LIMIT: usize = 48 << 20;

type Image = (Vec<u8>, MemorySnapshot, Vec<(Table, Vec<u8>)>);

static IMAGES: LazyLock<[Image; 2]> =
    LazyLock::new(|| [Layout::PerBlock, Layout::Packed].map(image));

fn image(layout: Layout) -> Image {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let store = fixture::populate(ground, layout).expect("the fixture is legal");
    let ground = store.into_ground();
    let len = usize::try_from(ground.arena.len().expect("it is in memory")).expect("it is small");
    let mut bytes = vec![0; len];
    ground.arena.read_at(0, &mut bytes).expect("it is in memory");
    let snapshot = ground.index.snapshot().expect("it is in memory");
    let keys = snapshot.rows().map(|(table, key, _)| (table, key.to_vec())).collect();
    (bytes, snapshot, keys)
}

// `layout u8`, then the changes.
fuzz_target!(|input: &[u8]| {
    let Some((layout, input)) = input.split_first() else { return };
    let Some((bytes, snapshot, keys)) = IMAGES.get(usize::from(*layout) % 2) else { return };
    let changes = changes(input, keys);
    let arena = MemoryArena::default();
    arena.grow(bytes.len() as u64).expect("it is in memory");
    arena.write_at(0, bytes).expect("it is in memory");
    let index = MemoryIndex::from_snapshot(snapshot);
    index.commit(changes).expect("it is in memory");
    within(LIMIT, || use_store(Ground { arena, index }));
});

/// `which u8 · (key len u8 · key, from 128 on) · body len u16 · body`, again and again. `which` is
/// the place of a row of the fixture, or 128 and more for a table whose key follows. A length of
/// 0xffff deletes the row.
fn changes(input: &[u8], keys: &[(Table, Vec<u8>)]) -> Vec<Change> {
    let mut from = Reader::new("input", input);
    let mut next = || -> Option<Change> {
        let which = from.u8().ok()?;
        let (table, key) = if which >= 128 {
            let tables = Family::History.tables();
            let table = *tables.get(usize::from(which) % tables.len())?;
            let len = usize::from(from.u8().ok()?);
            (table, from.take(len).ok()?.to_vec())
        } else {
            keys.get(usize::from(which) % keys.len())?.clone()
        };
        let len = usize::from(from.u16().ok()?);
        let body = from.take(len.min(from.remaining())).ok()?;
        let value = (len != 0xffff).then(|| sealed(table, &key, body));
        Some(Change { table, key, value })
    };
    std::iter::from_fn(&mut next).take(MAX_ROWS).collect()
}

/// Every answer will do; only a panic is wrong.
fn use_store(ground: Ground<MemoryArena, MemoryIndex>) {
    let Ok(store) = Store::open(ground, Arc::new(StoppedClock)) else { return };
    drop(store.get_prune_status());
    drop(store.prune_plan());
    drop(store.reports());
    drop(store.consumers());
    for height in [0, FIRST, FIRST + 3, FIRST + 4, HEAD, HEAD + 1, u64::MAX] {
        drop(store.get_block(height));
        drop(store.explain_block(height));
    }
    drop(store.export_blocks(None, 1000));
    // In a tombstone, in the cut half of a run, in the other half, in the open epoch, nowhere.
    for height in [FIRST, FIRST + 3, FIRST + 5, HEAD, HEAD + 7] {
        drop(store.get_receipt(&fixture::tx_of(height)));
        drop(store.get_block_by_hash(&fixture::hash_of(height)));
    }
    drop(store.explain_tx(fixture::tx_of(FIRST)));
    // A head that a row moved far away would make a check of every block endless.
    let span = store.head().unwrap_or(0).saturating_sub(FIRST);
    if span <= 64 {
        drop(store.verify(|_, _| ()));
    }
    drop(store.repair_plan());
    drop(store.prune_now(50));
    drop(store.settle());
    drop(store.append(&fixture::block(HEAD + 1)));
    drop(store.rollback(HEAD - 1));
    drop(store.append(&fixture::block(HEAD)));
    drop(store.set_finalized(HEAD));
    drop(store.seal());
    drop(store.register_consumer("another", Strength::Hard));
    drop(store.ack_exported(CONSUMER, HEAD));
    drop(store.repair());
}
