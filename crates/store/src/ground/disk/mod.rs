//! The disk ground: one arena file, one redb index, on a small seam of file calls so that the
//! whole of it can be run on a simulated volume.

mod arena;
mod backend;
mod header_slots;
mod index;
mod probe;
mod volume;

pub use arena::FileArena;
pub use index::{INDEX_CACHE_BYTES, RedbIndex, RedbSnapshot};
pub use volume::{FsFile, FsVolume, Volume, VolumeFile, sync_ancestors};

use super::{Family, Ground};
use crate::regions::header::{arena_is_begun, check_arena_word};
use crate::{Sabotage, Store, StoreError};

/// The arena's file name.
pub const ARENA_FILE: &str = "arena";
/// The index's file name.
pub const INDEX_FILE: &str = "index.redb";
/// The file whose space is given up when the disk is full, so that pruning can go on.
pub const RESERVE_FILE: &str = "reserve";
/// How much space the reserve keeps.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;

/// The ground on a volume.
pub type DiskGround<V> = Ground<FileArena<V>, RedbIndex>;
/// A history store in a directory.
pub type DiskStore = Store<FileArena<FsVolume>, RedbIndex>;

/// Opens the files of the history's ground ([`open_ground_of`]).
pub fn open_ground<V: Volume>(
    volume: &V,
    reserve_bytes: u64,
    sabotage: Sabotage,
) -> Result<DiskGround<V>, StoreError> {
    open_ground_of(volume, Family::History, reserve_bytes, sabotage)
}

/// Opens the files of a family's ground, making them if they are not there. Half a ground is
/// refused: an index without its arena, or the other way round, is somebody's lost data.
pub fn open_ground_of<V: Volume>(
    volume: &V,
    family: Family,
    reserve_bytes: u64,
    sabotage: Sabotage,
) -> Result<DiskGround<V>, StoreError> {
    let (arena_there, index_there) = (volume.exists(ARENA_FILE)?, volume.exists(INDEX_FILE)?);
    if index_there && !arena_there {
        return Err(StoreError::Foreign("there is an index but no arena file".into()));
    }
    let arena = FileArena::open(volume.clone())?;
    check_arena_word(&arena, family)?;
    let begun = arena_is_begun(&arena)?;
    if !index_there && begun {
        return Err(StoreError::Foreign("there is an arena but no index file".into()));
    }
    let index = RedbIndex::open(volume, family, !begun, reserve_bytes, sabotage)?;
    Ok(Ground { arena, index })
}
