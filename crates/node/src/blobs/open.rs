//! `sidecars/` in a data directory: the ground of the blobs, beside the history's, under the same
//! lock and of the same chain.

use std::path::Path;
use std::sync::Arc;

use secateur_sidecar::{EngineConfig, SidecarError, SidecarStore};
use secateur_store::ground::disk::{
    ARENA_FILE, FileArena, FsVolume, INDEX_FILE, RESERVE_BYTES, RedbIndex, open_ground_of,
};
use secateur_store::{Family, Sabotage, SystemClock};

use crate::config::BlobLimits;
use crate::data_dir::{DataDir, explain_open, random_store_id};

/// The directory's name in the data directory.
const SIDECARS: &str = "sidecars";

/// A store of blobs in a directory.
pub(crate) type DiskSidecars = SidecarStore<FileArena<FsVolume>, RedbIndex>;

/// Opens the blobs of a data directory, if it has any; an unfinished creation is none. The directory
/// may have no history; whoever calls has locked it.
pub(crate) fn open_existing_at(
    path: &Path,
    chain_id: u64,
    limits: &BlobLimits,
) -> Result<Option<Arc<DiskSidecars>>, anyhow::Error> {
    let place = path.join(SIDECARS);
    let there = |name: &str| place.join(name).try_exists().unwrap_or(true);
    if !there(INDEX_FILE) && !there(ARENA_FILE) {
        return Ok(None);
    }
    open_at(path, chain_id, limits).map(Some)
}

/// Opens the blobs of a data directory, or makes a store for them.
pub(crate) fn open(
    data: &DataDir,
    limits: &BlobLimits,
) -> Result<Arc<DiskSidecars>, anyhow::Error> {
    open_at(&data.path, data.store.header().chain_id, limits)
}

/// The same for a directory that may have no history; whoever calls has locked it.
pub(crate) fn open_at(
    path: &Path,
    chain_id: u64,
    limits: &BlobLimits,
) -> Result<Arc<DiskSidecars>, anyhow::Error> {
    let place = path.join(SIDECARS);
    let explain = |error| explain_open("blobs", &place, error);
    let volume = FsVolume::open(&place).map_err(explain)?;
    let ground = open_ground_of(&volume, Family::Sidecar, RESERVE_BYTES, Sabotage::None);
    let ground = ground.map_err(explain)?;
    let BlobLimits { budget_bytes, retain_blocks, max_blobs, trust } = *limits;
    let fresh = EngineConfig::new(chain_id, random_store_id()?);
    let config = EngineConfig { budget_bytes, retain_blocks, max_blobs, trust, ..fresh };
    match SidecarStore::open(ground, config, Arc::new(SystemClock)) {
        Ok(store) => Ok(Arc::new(store)),
        Err(SidecarError::Store(error)) => Err(explain_open("blobs", &place, error)),
        Err(error) => Err(error.into()),
    }
}
