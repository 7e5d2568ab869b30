//! What the benchmarks of blob sidecars share: a store on the disk, and a validator.

pub mod archiver;
pub mod notice;
pub mod start;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use secateur_core::Locator;
use secateur_sidecar::book::BookObserver;
use secateur_sidecar::engine::{ArchiveRecord, BlobKey, RecordForm};
use secateur_sidecar::notice::{
    NoticeKey, Rejection, Signers, ValidatorTerm, Validators, Verifier,
};
use secateur_sidecar::{EngineConfig, SidecarStore, ValidatorId};
use secateur_store::ground::disk::{FileArena, FsVolume, RESERVE_BYTES, RedbIndex, open_ground_of};
use secateur_store::{Family, Sabotage, SystemClock};

use crate::contestants::Identity;
use crate::results::{Figure, Line};

const CHAIN_ID: u64 = 1337;

type DiskSidecars = SidecarStore<FileArena<FsVolume>, RedbIndex>;

/// Opens a store of blobs, or makes one.
fn open(at: &Path) -> Result<DiskSidecars> {
    std::fs::create_dir_all(at)?;
    let ground =
        open_ground_of(&FsVolume::open(at)?, Family::Sidecar, RESERVE_BYTES, Sabotage::None)?;
    let config = EngineConfig::new(CHAIN_ID, [7; 16]);
    Ok(SidecarStore::open(ground, config, Arc::new(SystemClock))?)
}

/// The validator that proposes and archives.
fn validator() -> Result<ValidatorId> {
    Ok(ValidatorId::new(&[1; 20])?)
}

/// The validator's key.
fn key() -> NoticeKey {
    NoticeKey::from_secret(&[7; 32])
}

/// Who believes the validator.
fn verifier() -> Result<Verifier> {
    let (id, public_key) = (validator()?, key().public_key());
    let term = ValidatorTerm { id, public_key, from_height: 0, to_height: None };
    Ok(Verifier {
        chain_id: CHAIN_ID,
        validators: Validators::new(&[term])?,
        signers: Signers::ProposerOnly,
        accept_v0: false,
    })
}

/// Nobody looks on.
struct Nobody;

impl BookObserver for Nobody {
    fn recorded(&self, _: BlobKey, _: &ArchiveRecord) {}
    fn rejected(&self, _: &Rejection) {}
}

/// That the validator has archived a blob somewhere.
fn record(key: &str) -> Result<ArchiveRecord> {
    Ok(ArchiveRecord {
        signer: validator()?,
        form: RecordForm::Own,
        locators: vec![Locator { provider: "s3".into(), key: key.into() }],
        archived_at_height: 1,
        archived_at: 0,
        signature: Some([1; 64]),
    })
}

pub fn line(
    key: &'static str,
    name: &str,
    settings: &str,
    reached: (&'static str, f64),
    limited_by: &'static str,
) -> Line {
    let version = if key == "ours" { "this checkout" } else { "" }.to_owned();
    Line {
        identity: Identity { key, name: name.to_owned(), version, settings: settings.to_owned() },
        reached: vec![(reached.0, Figure::Ratio(reached.1))],
        limited_by,
    }
}
