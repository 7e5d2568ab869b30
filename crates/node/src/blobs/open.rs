//! `sidecars/` in a data directory: the ground of the blobs, beside the history's, under the same
//! lock and of the same chain.

use std::path::Path;
use std::sync::Arc;

use secateur_sidecar::{EngineConfig, SidecarError, SidecarStore};
use secateur_store::ground::disk::{FileArena, FsVolume, RESERVE_BYTES, RedbIndex, open_ground_of};
use secateur_store::{Family, Sabotage, Shelf, SystemClock};

use super::rules;
use crate::config::BlobLimits;
use crate::data_dir::{DataDir, explain_open, has_files, random_store_id};
use crate::made;

/// The directory's name in the data directory.
const SIDECARS: &str = "sidecars";

/// A store of blobs in a directory.
pub(crate) type DiskSidecars = SidecarStore<FileArena<FsVolume>, RedbIndex>;

/// Blobs that an operator's command has opened.
pub(crate) struct Opened {
    pub(crate) store: Arc<DiskSidecars>,
    /// Whether a node has left here what it holds blobs by; it holds then, whatever is configured.
    pub(crate) ruled: bool,
}

/// Opens the blobs of a data directory for a command, if it has any. Such as were made and removed
/// are an error.
/// The directory may have no history; whoever calls has locked it. What a node that ran here held
/// is held here too.
pub(crate) fn open_existing_at(
    path: &Path,
    chain_id: u64,
    limits: &BlobLimits,
) -> Result<Option<Opened>, anyhow::Error> {
    let place = path.join(SIDECARS);
    if !has_files(&place) {
        made::check_lost(path, SIDECARS)?;
        return Ok(None);
    }
    let rules = rules::read(&place)?;
    let limits = rules.map_or(*limits, |rules| rules.hold(*limits));
    let store = open_store(path, chain_id, &limits)?;
    Ok(Some(Opened { store, ruled: rules.is_some() }))
}

/// Opens the blobs of a data directory for a node, or makes a store for them, unless there was one
/// and it is gone: it knew what this node has signed.
pub(crate) fn open(
    data: &DataDir,
    limits: &BlobLimits,
) -> Result<Arc<DiskSidecars>, anyhow::Error> {
    open_at(&data.path, data.store.header().chain_id, limits)
}

/// The same for a directory that may have no history; whoever calls has locked it. What blobs are
/// held by is left there for commands that come when no node runs.
pub(crate) fn open_at(
    path: &Path,
    chain_id: u64,
    limits: &BlobLimits,
) -> Result<Arc<DiskSidecars>, anyhow::Error> {
    let store = open_store(path, chain_id, limits)?;
    rules::keep(&path.join(SIDECARS), limits)?;
    // The store is durable, and nobody was answered from it yet.
    made::note(path, SIDECARS)?;
    Ok(store)
}

fn open_store(
    path: &Path,
    chain_id: u64,
    limits: &BlobLimits,
) -> Result<Arc<DiskSidecars>, anyhow::Error> {
    let place = path.join(SIDECARS);
    let explain = |error| explain_open("blobs", &place, error);
    if !has_files(&place) {
        made::check_lost(path, SIDECARS)?;
    }
    let volume = FsVolume::open(&place).map_err(explain)?;
    let ground = open_ground_of(&volume, Family::Sidecar, RESERVE_BYTES, Sabotage::None);
    let ground = ground.map_err(explain)?;
    if !Shelf::exists(&ground).map_err(explain)? {
        made::check_lost(path, SIDECARS)?;
    }
    let BlobLimits { budget_bytes, retain_blocks, max_blobs, max_undecided, trust } = *limits;
    let fresh = EngineConfig::new(chain_id, random_store_id()?);
    let config =
        EngineConfig { budget_bytes, retain_blocks, max_blobs, max_undecided, trust, ..fresh };
    match SidecarStore::open(ground, config, Arc::new(SystemClock)) {
        Ok(store) => Ok(Arc::new(store)),
        Err(SidecarError::Store(error)) => Err(explain_open("blobs", &place, error)),
        Err(error) => Err(error.into()),
    }
}
