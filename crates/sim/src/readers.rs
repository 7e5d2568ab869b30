//! A reader in the middle of a block that is being cut, and its regions reused, must get the
//! right bytes or `Pruned`, never others.

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_core::PrunePolicy;
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{
    Arena, ClassTable, Ground, Layout, Sabotage, Space, Store, StoreConfig, StoreError,
};

use crate::chain::{Shape, block};
use crate::model::Violation;
use crate::script::clock;

type Hook = Box<dyn FnOnce() + Send>;

/// An arena whose n-th read from now on is interrupted by something else.
#[derive(Default)]
pub struct InterruptedArena {
    arena: MemoryArena,
    hook: Mutex<Option<(u64, Hook)>>,
}

impl InterruptedArena {
    /// Runs `hook` before the read that comes after `skip` others.
    pub fn interrupt(&self, skip: u64, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock() = Some((skip, Box::new(hook)));
    }

    fn due(&self) -> Option<Hook> {
        let mut hook = self.hook.lock();
        match hook.as_mut() {
            Some((0, _)) => hook.take().map(|(_, hook)| hook),
            Some((skip, _)) => {
                *skip -= 1;
                None
            }
            None => None,
        }
    }
}

impl Arena for InterruptedArena {
    fn len(&self) -> Result<u64, StoreError> {
        self.arena.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        if let Some(hook) = self.due() {
            hook();
        }
        self.arena.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.arena.write_at(offset, bytes)
    }
    fn grow(&self, len: u64) -> Result<(), StoreError> {
        self.arena.grow(len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.arena.sync()
    }
    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
        self.arena.release(offset, len)
    }
    fn space(&self) -> Result<Space, StoreError> {
        self.arena.space()
    }
}

type ReaderStore = Store<InterruptedArena, MemoryIndex>;

fn shape() -> Shape {
    Shape { block_len: 20_000, transactions: 2, receipt_len: 500 }
}

fn append(store: &ReaderStore, count: u64) -> Result<(), StoreError> {
    for _ in 0..count {
        let height = store.head().map_or(1, |head| head + 1);
        let parent = store.head_hash().unwrap_or_default();
        store.append(&block(height, parent, shape(), 3, 0))?;
    }
    Ok(())
}

/// What happens in the middle of a read: all but the head is cut, freed if it may be, and appends
/// want the regions.
fn meddle(store: &ReaderStore) -> Result<(), StoreError> {
    store.prune_now(1_000_000)?;
    store.settle()?;
    append(store, 4)
}

/// Interrupts a reader of block 1 at its n-th read with a prune of everything but the head and
/// appends that want the freed regions. Returns how many reads the block takes.
pub fn run(skip: u64, layout: Layout, sabotage: Sabotage) -> Result<(), Violation> {
    let failed = |error: StoreError| Violation::Loss(error.to_string());
    let made = || -> Result<ReaderStore, StoreError> {
        let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
        let classes = ClassTable::explicit(vec![4096, 8192])?;
        let config = StoreConfig { classes, policy, layout, ..StoreConfig::new(7, [1; 16]) };
        let ground = Ground { arena: InterruptedArena::default(), index: MemoryIndex::default() };
        let made = Store::create(ground, config, clock())?;
        Store::open_with(made.into_ground(), clock(), sabotage)
    };
    let store = Arc::new(made().map_err(failed)?);
    append(&store, 4).map_err(failed)?;
    let right = store.get_block(1).map_err(failed)?;
    let (other, outcome) = (Arc::clone(&store), Arc::new(Mutex::new(Ok(()))));
    let told = Arc::clone(&outcome);
    store.arena().interrupt(skip, move || {
        *told.lock() = meddle(&other);
    });
    let read = store.get_block(1);
    std::mem::replace(&mut *outcome.lock(), Ok(())).map_err(failed)?;
    match read {
        Ok(read) if read == right => {}
        Err(error) if error.as_lookup().is_some() => {}
        Ok(_) => return Err(Violation::Wrong("a reader got other bytes".into())),
        Err(error) => return Err(Violation::Wrong(format!("a reader got: {error}"))),
    }
    let whole = store.settle().map_err(failed)?;
    if whole { Ok(()) } else { Err(Violation::Leak("the reader's pin was not let go".into())) }
}
