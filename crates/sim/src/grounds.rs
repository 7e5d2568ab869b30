//! The two grounds that crashes are enumerated on.

use secateur_store::ground::disk::{FileArena, RedbIndex, open_ground};
use secateur_store::{Arena, Ground, Index, Sabotage, StoreError};

use crate::world::{SimIndex, World};

/// A way to put a ground on a simulated volume.
pub trait GroundKind: Send + Sync + 'static {
    /// Its arena.
    type Arena: Arena;
    /// Its index.
    type Index: Index;
    /// Its name on the command line.
    const NAME: &'static str;
    /// Opens it.
    fn open(
        world: &World,
        sabotage: Sabotage,
    ) -> Result<Ground<Self::Arena, Self::Index>, StoreError>;
}

/// The real file arena with an index whose commits are atomic by decree.
#[derive(Debug)]
pub struct Seams;

/// The real file arena and the real redb, both on the simulated volume.
#[derive(Debug)]
pub struct Disk;

impl GroundKind for Seams {
    type Arena = FileArena<World>;
    type Index = SimIndex;
    const NAME: &'static str = "seams";

    fn open(
        world: &World,
        _sabotage: Sabotage,
    ) -> Result<Ground<Self::Arena, SimIndex>, StoreError> {
        Ok(Ground { arena: FileArena::open(world.clone())?, index: SimIndex::open(world) })
    }
}

impl GroundKind for Disk {
    type Arena = FileArena<World>;
    type Index = RedbIndex;
    const NAME: &'static str = "disk";

    fn open(
        world: &World,
        sabotage: Sabotage,
    ) -> Result<Ground<Self::Arena, RedbIndex>, StoreError> {
        open_ground(world, 0, sabotage)
    }
}
