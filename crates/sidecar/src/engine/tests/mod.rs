//! The engine's rules, each as a sentence. Blobs are real, the ground is in memory; KZG is
//! computed where a test is about it.

mod archive;
mod crash;
mod disk;
mod ingest;
mod jobs;
mod model;
mod prune;
mod start;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use secateur_core::{Height, Locator};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Arena, Clock, Ground, Index};

use super::*;
use crate::testdata;
use crate::types::{BlobState, Proposal, Round, ValidatorId};

/// A clock that stands where it is put, in seconds.
#[derive(Debug, Default)]
struct StoppedClock(AtomicU64);

impl Clock for StoppedClock {
    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1000
    }
}

fn clock() -> Arc<StoppedClock> {
    testdata::assume_pool();
    Arc::new(StoppedClock(AtomicU64::new(1_700_000_000)))
}

type Engine = SidecarStore<MemoryArena, MemoryIndex>;

fn config() -> EngineConfig {
    EngineConfig { max_blobs: 4, max_rounds: 3, ..EngineConfig::new(7, [1; 16]) }
}

fn engine() -> Engine {
    engine_with(config())
}

fn engine_with(config: EngineConfig) -> Engine {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    SidecarStore::open(ground, config, clock()).unwrap()
}

fn reopen<A: Arena, I: Index>(engine: SidecarStore<A, I>) -> SidecarStore<A, I> {
    let config = *engine.config();
    reopen_with(engine, config)
}

fn reopen_with<A: Arena, I: Index>(
    engine: SidecarStore<A, I>,
    config: EngineConfig,
) -> SidecarStore<A, I> {
    SidecarStore::open(engine.into_ground(), config, clock()).unwrap()
}

fn validator(n: u8) -> ValidatorId {
    ValidatorId::new(&[n; 20]).unwrap()
}

fn proposal(height: Height, round: Round, blobs: &[usize]) -> Proposal {
    testdata::proposal(height, round, &validator(1), blobs)
}

fn key(height: Height, index: u32) -> BlobKey {
    BlobKey { height, index }
}

fn record(signer: u8, form: RecordForm, place: &str) -> ArchiveRecord {
    ArchiveRecord {
        signer: validator(signer),
        form,
        locators: vec![Locator { provider: "fs".into(), key: place.into() }],
        archived_at_height: 9,
        archived_at: 5,
        signature: Some([signer; 64]),
    }
}

fn own(place: &str) -> ArchiveRecord {
    record(1, RecordForm::Own, place)
}

/// Decides a height with blobs of the pool.
fn decide<A: Arena, I: Index>(engine: &SidecarStore<A, I>, height: Height, blobs: &[usize]) {
    let decided = engine.store_decided(&proposal(height, 0, blobs), Role::Follower).unwrap();
    assert_eq!(decided, Decided::New);
}

/// A notice by the proposer for a blob that hashes as it should.
fn notice<A: Arena, I: Index>(
    engine: &SidecarStore<A, I>,
    key: BlobKey,
    record: &ArchiveRecord,
) -> Result<Marked, SidecarError> {
    let keccak = engine.blob_meta(key.height, key.index)?.unwrap().keccak;
    engine.mark_archived(key, record, keccak)
}

/// Notices for all blobs of a height.
fn archive<A: Arena, I: Index>(engine: &SidecarStore<A, I>, height: Height) {
    for meta in engine.blob_metas(height).unwrap() {
        let place = format!("{height}/{}", meta.index);
        let v1 = record(1, RecordForm::V1, &place);
        assert_eq!(notice(engine, key(height, meta.index), &v1).unwrap(), Marked::New);
    }
}

fn states<A: Arena, I: Index>(engine: &SidecarStore<A, I>, height: Height) -> Vec<BlobState> {
    engine.status(height).unwrap().blobs.iter().map(|blob| blob.state).collect()
}

#[track_caller]
fn sound<A: Arena, I: Index>(engine: &SidecarStore<A, I>) {
    let report = engine.verify(|_, _| ()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
