//! The ground under test: in memory.

use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{Ground, Store};

pub type TestStore = Store<MemoryArena, MemoryIndex>;

pub fn ground() -> Ground<MemoryArena, MemoryIndex> {
    Ground { arena: MemoryArena::default(), index: MemoryIndex::default() }
}
