//! The engine on files: reopening, damage, and what another family's files answer.

use std::path::Path;
use std::sync::Arc;

use secateur_store::ground::disk::{FileArena, FsVolume, RedbIndex, open_ground, open_ground_of};
use secateur_store::{Family, Sabotage, Store, StoreConfig};

use super::*;

type DiskEngine = SidecarStore<FileArena<FsVolume>, RedbIndex>;

fn open(path: &Path) -> Result<DiskEngine, SidecarError> {
    let volume = FsVolume::open(path)?;
    let ground = open_ground_of(&volume, Family::Sidecar, 0, Sabotage::None)?;
    SidecarStore::open(ground, config(), clock())
}

/// Heights in every state.
fn populate(engine: &DiskEngine) {
    engine.store_decided(&proposal(1, 0, &[0, 1]), Role::Proposer).unwrap();
    archive(engine, 1);
    engine.set_finalized(1).unwrap();
    engine.prune_archived_before(2).unwrap();
    let more = [proposal(2, 0, &[2]), proposal(3, 0, &[]), proposal(4, 0, &[3])];
    let done = engine.store_decided_all(&more, |_| Role::Proposer).unwrap();
    assert!(done.iter().all(|one| matches!(one, Ok(Decided::New))));
    engine.record_archived(key(2, 0), &own("a")).unwrap();
    engine.verify_and_store(&proposal(5, 0, &[0])).unwrap();
    engine.verify_and_store(&proposal(5, 1, &[1])).unwrap();
}

/// What is known of the chain, without times; an error is an answer too.
fn picture(engine: &DiskEngine) -> Vec<String> {
    let mut lines = Vec::new();
    for height in 1..=5 {
        lines.push(format!("{:?}", engine.status(height)));
        lines.push(match engine.get(height) {
            Ok(blobs) => format!("{:?}", blobs.iter().map(|one| &one.meta).collect::<Vec<_>>()),
            Err(error) => error.to_string(),
        });
    }
    lines.push(format!("{:?}", engine.get_undecided(5, 1).map(|one| one.sidecars.len())));
    lines.push(format!("{:?}", engine.plan(9)));
    lines
}

/// What waits for something, one line for each. A damaged row is passed over.
fn work(engine: &DiskEngine) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |line: String| lines.push(line);
    match engine.jobs_due(0, 9, |_| false) {
        Ok(jobs) => jobs.iter().for_each(|one| add(format!("{one:?}"))),
        Err(error) => add(error.to_string()),
    }
    match engine.announcements(key(0, 0), 9) {
        Ok(found) => found.iter().for_each(|one| add(format!("{one:?}"))),
        Err(error) => add(error.to_string()),
    }
    match engine.waiting_heights(0, 9) {
        Ok(found) => found.iter().for_each(|one| add(format!("{one:?}"))),
        Err(error) => add(error.to_string()),
    }
    lines
}

#[test]
fn files_hold_what_memory_holds_and_verify() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    populate(&engine);
    let before = (picture(&engine), work(&engine));
    drop(engine);
    for _ in 0..2 {
        let engine = open(dir.path()).unwrap();
        assert_eq!((picture(&engine), work(&engine)), before);
        sound(&engine);
    }
}

#[test]
fn another_familys_files_are_refused_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    populate(&open(dir.path()).unwrap());
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let before = (read("index.redb"), read("arena"));
    let refused = open_ground(&FsVolume::open(dir.path()).unwrap(), 0, Sabotage::None);
    assert!(matches!(refused, Err(StoreError::Foreign(_))));
    assert!((read("index.redb"), read("arena")) == before, "not changed");
    let dir = tempfile::tempdir().unwrap();
    let ground = open_ground(&FsVolume::open(dir.path()).unwrap(), 0, Sabotage::None).unwrap();
    drop(Store::create(ground, StoreConfig::new(7, [1; 16]), clock()).unwrap());
    let refused = open(dir.path()).unwrap_err();
    assert!(matches!(refused, SidecarError::Store(StoreError::Foreign(_))));
}

/// What a row of height 4 holds.
fn commitment_of_4() -> [u8; 48] {
    proposal(4, 0, &[3]).sidecars[0].commitment.0
}

/// The index is not read as a whole at opening, so damage is met when a row is: as an error, never
/// as a wrong answer or a panic.
#[test]
fn a_damaged_index_gives_errors_or_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    populate(&engine);
    let (right, waits) = (picture(&engine), work(&engine));
    drop(engine);
    let index = dir.path().join("index.redb");
    let sound = std::fs::read(&index).unwrap();
    let (mut same, mut told) = (0u32, 0u32);
    // Most of the file is empty; what is not may be in use.
    let written: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    let samples = std::env::var("SECATEUR_TEST_SAMPLES").ok().and_then(|n| n.parse().ok());
    let samples: usize = samples.unwrap_or(100);
    // Many of those are of pages that nobody reads any more; a row that is read is among these.
    let known = commitment_of_4();
    let rows = (0..sound.len()).filter(|at| sound[*at..].starts_with(&known));
    for at in written.iter().step_by(written.len() / samples).copied().chain(rows) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&index, damaged).unwrap();
        match open(dir.path()) {
            Err(error) => {
                assert!(error.to_string().contains("corrupt"), "byte {at}: {error}");
                told += 1;
            }
            Ok(engine) => {
                let now = picture(&engine);
                for (now, right) in now.iter().zip(&right) {
                    let honest = now == right || now.contains("orrupt");
                    assert!(honest, "byte {at}: {now}\n\n{right}");
                }
                let left = work(&engine);
                for line in &left {
                    let honest = waits.contains(line) || line.contains("orrupt");
                    assert!(honest, "byte {at}: {line}\n\n{waits:?}");
                }
                if now == right && left == waits {
                    same += 1;
                    continue;
                }
                let clean = engine.verify(|_, _| ()).is_ok_and(|report| report.findings.is_empty());
                assert!(!clean, "byte {at}: verify does not tell");
                told += 1;
            }
        }
    }
    println!("{same} the same, {told} told, of {} bytes", written.len());
    assert!(same > 0 && told > 0, "{same} {told}");
}

#[test]
fn an_arc_of_it_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: Arc<T>) {}
    shared(Arc::new(engine()));
}
