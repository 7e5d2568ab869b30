//! Crashes at every step: a call on the medium fails, what was not synced is lost or is not, and
//! the store is opened again. What had been acknowledged is there, and the rows agree.

use std::sync::Mutex;

use secateur_store::ground::MemorySnapshot;
use secateur_store::{Change, Space, StoreError};

use super::*;

/// A medium whose calls are counted; from one of them on all fail, as after a power cut.
#[derive(Debug, Default)]
struct Power {
    calls: AtomicU64,
    out_at: AtomicU64,
}

impl Power {
    fn call(&self) -> Result<(), StoreError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let out_at = self.out_at.load(Ordering::Relaxed);
        if out_at > 0 && call >= out_at {
            return Err(StoreError::io("a call", std::io::Error::other("the power is out")));
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct CrashArena {
    power: Arc<Power>,
    live: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
}

impl Arena for CrashArena {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.live.lock().unwrap().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let from = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.live.lock().unwrap()[from..from + out.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.power.call()?;
        let to = usize::try_from(offset).unwrap();
        self.live.lock().unwrap()[to..to + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn grow(&self, len: u64) -> Result<(), StoreError> {
        let mut live = self.live.lock().unwrap();
        let len = usize::try_from(len).unwrap().max(live.len());
        live.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.power.call()?;
        self.durable.lock().unwrap().clone_from(&self.live.lock().unwrap());
        Ok(())
    }

    fn release(&self, _offset: u64, _len: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        Ok(Space { given: self.len()?, available: None, total: None })
    }
}

#[derive(Debug, Default)]
struct CrashIndex {
    power: Arc<Power>,
    rows: MemoryIndex,
}

impl Index for CrashIndex {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.rows.snapshot()
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.power.call()?;
        self.rows.commit(changes)
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

type CrashEngine = SidecarStore<CrashArena, CrashIndex>;

fn new_engine() -> (CrashEngine, Arc<Power>) {
    let power = Arc::new(Power::default());
    let arena = CrashArena { power: Arc::clone(&power), ..CrashArena::default() };
    let index = CrashIndex { power: Arc::clone(&power), ..CrashIndex::default() };
    let engine = SidecarStore::open(Ground { arena, index }, config(), clock()).unwrap();
    (engine, power)
}

/// Opens again after the power cut; what was not synced is there or is not.
fn restart(engine: CrashEngine, power: &Power, lose: bool) -> CrashEngine {
    power.out_at.store(0, Ordering::Relaxed);
    let ground = engine.into_ground();
    if lose {
        let durable = ground.arena.durable.lock().unwrap().clone();
        *ground.arena.live.lock().unwrap() = durable;
    }
    SidecarStore::open(ground, config(), clock()).unwrap()
}

type Step = (&'static str, fn(&CrashEngine) -> Result<(), SidecarError>);

/// A blob's life, one durable step after the other, with the reuse of its region at the end.
const LIFE: [Step; 9] = [
    ("store", |engine| engine.verify_and_store(&proposal(5, 0, &[0, 1])).map(drop)),
    ("another round", |engine| engine.verify_and_store(&proposal(5, 1, &[2])).map(drop)),
    ("decide", |engine| engine.mark_decided(5, 0, Role::Proposer).map(drop)),
    ("record", |engine| engine.record_archived(key(5, 0), &own("a")).map(drop)),
    ("notice", |engine| notice(engine, key(5, 1), &record(2, RecordForm::V1, "b")).map(drop)),
    ("finalize", |engine| engine.set_finalized(5).map(drop)),
    ("prune", |engine| engine.prune_archived_before(6).map(drop)),
    ("reuse", |engine| engine.store_decided(&proposal(6, 0, &[3, 4]), Role::Follower).map(drop)),
    ("drop", |engine| engine.drop_rounds_below(9, 9).map(drop)),
];

/// Everything that can be asked about the two heights.
fn picture(engine: &CrashEngine) -> String {
    let status = |height| engine.status(height).map_err(|error| error.to_string());
    let get = |height| {
        engine.get(height).map(|blobs| {
            let right = blobs
                .iter()
                .all(|blob| alloy_primitives::keccak256(&blob.blob).0 == blob.meta.keccak.0);
            assert!(right, "wrong bytes");
            blobs.len()
        })
    };
    let summary = engine.summary().unwrap();
    // What is quarantined or free is recovery's business.
    let summary = Summary { used_bytes: 0, disk_bytes: 0, ..summary };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {summary:?}",
        status(5),
        status(6),
        get(5).map_err(|error| error.to_string()),
        get(6).map_err(|error| error.to_string()),
        engine.jobs_due(u64::MAX, 9, |_| false).unwrap(),
        engine.announcements(key(0, 0), 9).unwrap(),
    )
}

/// I14, I15, I17: after a power cut at any call, the store is as before the step or as after it;
/// the rest of the life goes on from there and ends as an undisturbed one.
#[test]
fn a_crash_at_any_call_of_any_step_leaves_the_step_undone_or_done() {
    let (undisturbed, power) = new_engine();
    let mut ends = Vec::new();
    for (name, step) in LIFE {
        let before = (picture(&undisturbed), power.calls.load(Ordering::Relaxed));
        step(&undisturbed).unwrap_or_else(|error| panic!("{name}: {error}"));
        let calls = power.calls.load(Ordering::Relaxed) - before.1;
        ends.push((before.0, picture(&undisturbed), calls));
    }
    sound(&undisturbed);
    let mut crashes = 0;
    for (at, (before, after, calls)) in ends.iter().enumerate() {
        for (call, lose) in (1..=*calls).flat_map(|call| [(call, false), (call, true)]) {
            let (engine, power) = new_engine();
            for (_, step) in &LIFE[..at] {
                step(&engine).unwrap();
            }
            let name = LIFE[at].0;
            power.out_at.store(power.calls.load(Ordering::Relaxed) + call, Ordering::Relaxed);
            let failed = LIFE[at].1(&engine);
            let engine = restart(engine, &power, lose);
            let now = picture(&engine);
            let case = format!("{name}, call {call} of {calls}, lose {lose}");
            assert!(now == *before || now == *after, "{case}: {now}\n\n{before}\n\n{after}");
            assert!(failed.is_err() || now == *after, "{case}: acknowledged and lost");
            sound(&engine);
            for (name, step) in &LIFE[at..] {
                step(&engine).unwrap_or_else(|error| panic!("{case}, then {name}: {error}"));
            }
            sound(&engine);
            assert_eq!(&picture(&engine), &ends[LIFE.len() - 1].1, "{case}");
            crashes += 1;
        }
    }
    assert!(crashes >= 28, "{crashes}");
}
