//! Opening does not scan: the rows that it visits are counted.

use std::ops::ControlFlow;

use secateur_store::ground::{KeyValue, MemorySnapshot, Visit};
use secateur_store::{Change, Snapshot, StoreError, Table};

use super::*;

/// An index that counts the rows that anybody looks at.
#[derive(Debug, Default)]
struct Counting {
    memory: MemoryIndex,
    rows: Arc<AtomicU64>,
}

struct CountingSnapshot {
    under: MemorySnapshot,
    rows: Arc<AtomicU64>,
}

impl Snapshot for CountingSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.under.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.under.scan(table, from, &mut |key, value| -> Result<ControlFlow<()>, StoreError> {
            self.rows.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.under.before(table, bound)
    }
}

impl Index for Counting {
    type Snapshot = CountingSnapshot;

    fn snapshot(&self) -> Result<CountingSnapshot, StoreError> {
        Ok(CountingSnapshot { under: self.memory.snapshot()?, rows: Arc::clone(&self.rows) })
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.memory.commit(changes)
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// A chain of so many heights, one in fifty with a blob that is archived and pruned, the newest
/// with one that waits; then what opening it and asking it for its figures looks at.
fn rows_visited(heights: Height) -> (u64, u64) {
    let ground = Ground { arena: MemoryArena::default(), index: Counting::default() };
    let engine = SidecarStore::open(ground, config(), clock()).unwrap();
    for height in 1..=heights {
        if height % 50 == 0 {
            engine.store_decided(&proposal(height, 0, &[0]), Role::Proposer).unwrap();
            engine.record_archived(key(height, 0), &own("a")).unwrap();
            engine.acknowledged(&[key(height, 0)]).unwrap();
        } else {
            decide(&engine, height, &[]);
        }
    }
    engine.set_finalized(heights).unwrap();
    engine.prune_archived_before(heights).unwrap();
    decide(&engine, heights + 1, &[1]);
    let ground = engine.into_ground();
    let rows = Arc::clone(&ground.index.rows);
    let counted = |work: &mut dyn FnMut()| {
        let before = rows.load(Ordering::Relaxed);
        work();
        rows.load(Ordering::Relaxed) - before
    };
    let mut ground = Some(ground);
    let mut engine = None;
    let opening = counted(&mut || {
        engine = Some(SidecarStore::open(ground.take().unwrap(), config(), clock()).unwrap());
    });
    let engine = engine.unwrap();
    let asking = counted(&mut || {
        assert_eq!(engine.summary().unwrap().heights, heights + 1);
        engine.plan(99).unwrap();
        engine.prune_archived_before(heights).unwrap();
        engine.heights_without_notice(0, 9).unwrap();
        engine.jobs_due(u64::MAX, 9, |_| false).unwrap();
        engine.announcements_due(heights, 9).unwrap();
        engine.get_blob(heights + 1, 0).unwrap();
    });
    (opening, asking)
}

/// I18.
#[test]
fn opening_visits_as_many_rows_at_10000_heights_as_at_100() {
    let (few, many) = (rows_visited(100), rows_visited(10_000));
    assert_eq!(few, many);
    assert!(few.0 < 20, "opening visits {} rows", few.0);
}

/// Run by hand, in release: redb's own debug assertions walk the whole file at opening.
/// `cargo nextest run --release -p secateur-sidecar --run-ignored only how_long --no-capture`
#[test]
#[ignore = "a measurement"]
fn how_long_opening_takes_at_10000_and_at_a_million_heights() {
    use secateur_store::ground::disk::{FsVolume, open_ground_of};
    use secateur_store::{Family, Rows, Sabotage};

    let open = |path: &std::path::Path| {
        let volume = FsVolume::open(path).unwrap();
        let ground = open_ground_of(&volume, Family::Sidecar, 0, Sabotage::None).unwrap();
        SidecarStore::open(ground, config(), clock()).unwrap()
    };
    for heights in [10_000u64, 1_000_000] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        decide(&engine, 0, &[0]);
        archive(&engine, 0);
        engine.set_finalized(0).unwrap();
        engine.prune_archived_before(1).unwrap();
        // Rows of the same shape for every other height.
        let view = engine.shelf().view().unwrap();
        let row = |table, key: &[u8]| view.row(table, key).unwrap().unwrap();
        let (height, blob) = (rows::height_key(0), rows::blob_key(key(0, 0)));
        let (record, meta) = (row(Table::Heights, &height), row(Table::Blobs, &blob));
        let (archived, pruned) = (row(Table::Archive, &blob), row(Table::Pruned, &height));
        drop(view);
        for first in (1..heights).step_by(5_000) {
            engine
                .shelf()
                .write(|batch| {
                    for height in first..heights.min(first + 5_000) {
                        let (at, of) = (rows::height_key(height), rows::blob_key(key(height, 0)));
                        batch.put(Table::Heights, &at, record.clone())?;
                        batch.put(Table::Blobs, &of, meta.clone())?;
                        batch.put(Table::Archive, &of, archived.clone())?;
                        batch.put(Table::Pruned, &at, pruned.clone())?;
                        let hash = crate::types::VersionedHash(
                            alloy_primitives::keccak256(height.to_be_bytes()).0,
                        );
                        let hash = rows::hash_key(&hash, key(height, 0));
                        batch.put(Table::Hashes, &hash, Vec::new())?;
                    }
                    Ok::<_, StoreError>(())
                })
                .unwrap();
        }
        let bytes = engine.summary().unwrap().disk_bytes;
        // A crash: nothing is closed in order.
        let crashed = tempfile::tempdir().unwrap();
        for file in ["arena", "index.redb", "reserve"] {
            std::fs::copy(dir.path().join(file), crashed.path().join(file)).unwrap();
        }
        drop(engine);
        for (path, how) in [(dir.path(), "closed"), (crashed.path(), "crashed")] {
            for _ in 0..3 {
                let start = std::time::Instant::now();
                let engine = open(path);
                engine.summary().unwrap();
                println!("{heights} heights, {bytes} bytes, {how}: {:?}", start.elapsed());
                if how == "crashed" {
                    std::mem::forget(engine);
                    break;
                }
            }
        }
    }
}
