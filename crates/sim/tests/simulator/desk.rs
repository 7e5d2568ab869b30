//! A medium in memory under a test's control: its writes wait at a gate, its calls fail on demand,
//! and it notes the order of what it was asked to do.

use std::sync::Arc;

use crate::common::*;
use parking_lot::{Condvar, Mutex};
use secateur_core::{Height, PrunePolicy};
use secateur_store::ground::{MemoryArena, MemoryIndex, MemorySnapshot};
use secateur_store::{Arena, Change, Ground, Index, Settings, Space, Store, StoreError, Table};

/// A call on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Write,
    Sync,
    Commit,
}

type OnWrite = Box<dyn FnOnce() + Send>;
type OnCommit = Box<dyn Fn(&[Change]) + Send + Sync>;

/// What was asked of a medium, and what it is to do about it.
#[derive(Default)]
pub struct Desk {
    pub state: Mutex<DeskState>,
    pub moved: Condvar,
    on_write: Mutex<Option<OnWrite>>,
    on_commit: Mutex<Option<Arc<OnCommit>>>,
}

#[derive(Debug, Default)]
pub struct DeskState {
    /// Writes wait while this is set, but for so many.
    closed: Option<u64>,
    /// The call that fails, and how many of its kind come before it.
    failing: Option<(Call, u64)>,
    pub written: u64,
    /// Writes that were finished when a finished sync began.
    durable: u64,
    /// The first height of each row of blocks, as they were committed.
    pub committed: Vec<Height>,
    /// Blocks whose row was committed before their bytes were durable.
    pub early: Vec<Height>,
    pub snapshots: u64,
}

/// A closed gate; it opens however the test ends.
pub struct Gate<'a>(&'a Desk);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.state.lock().closed = None;
        self.0.moved.notify_all();
    }
}

impl Desk {
    /// Writes wait until the gate is dropped.
    pub fn close(&self) -> Gate<'_> {
        self.state.lock().closed = Some(0);
        Gate(self)
    }

    /// One write may pass the closed gate.
    pub fn let_one_pass(&self) {
        if let Some(passes) = &mut self.state.lock().closed {
            *passes += 1;
        }
        self.moved.notify_all();
    }

    /// How many rows of blocks were committed.
    pub fn committed(&self) -> u64 {
        self.state.lock().committed.len() as u64
    }

    /// The call that comes after `before` others of its kind fails.
    pub fn fail(&self, call: Call, before: u64) {
        self.state.lock().failing = Some((call, before));
    }

    /// What the next write does first.
    pub fn at_next_write(&self, then: impl FnOnce() + Send + 'static) {
        *self.on_write.lock() = Some(Box::new(then));
    }

    /// What every commit does, when readers see it and the store does not know of it yet.
    pub fn after_commits(&self, then: impl Fn(&[Change]) + Send + Sync + 'static) {
        *self.on_commit.lock() = Some(Arc::new(Box::new(then)));
    }

    fn fails(&self, call: Call) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        match &mut state.failing {
            Some((failing, 0)) if *failing == call => {
                state.failing = None;
                Err(StoreError::io("a planted failure", std::io::Error::other("planted")))
            }
            Some((failing, before)) if *failing == call => {
                *before -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

pub struct DeskArena(MemoryArena, Arc<Desk>);

impl Arena for DeskArena {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut state = self.1.state.lock();
        loop {
            match &mut state.closed {
                Some(0) => self.1.moved.wait(&mut state),
                Some(passes) => {
                    *passes -= 1;
                    break;
                }
                None => break,
            }
        }
        drop(state);
        let first = self.1.on_write.lock().take();
        if let Some(first) = first {
            first();
        }
        self.1.fails(Call::Write)?;
        self.0.write_at(offset, bytes)?;
        self.1.state.lock().written += 1;
        Ok(())
    }
    fn grow(&self, len: u64) -> Result<(), StoreError> {
        self.0.grow(len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        let written = self.1.state.lock().written;
        self.1.fails(Call::Sync)?;
        let mut state = self.1.state.lock();
        state.durable = state.durable.max(written);
        Ok(())
    }
    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
        self.0.release(offset, len)
    }
    fn space(&self) -> Result<Space, StoreError> {
        self.0.space()
    }
}

pub struct DeskIndex(MemoryIndex, Arc<Desk>);

impl Index for DeskIndex {
    type Snapshot = MemorySnapshot;
    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        let snapshot = self.0.snapshot();
        self.1.state.lock().snapshots += 1;
        self.1.moved.notify_all();
        snapshot
    }
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.1.fails(Call::Commit)?;
        self.0.commit(changes.clone())?;
        let then = self.1.on_commit.lock().clone();
        if let Some(then) = then {
            then(&changes);
        }
        let mut state = self.1.state.lock();
        let rows = changes.iter().filter(|c| c.table == Table::Blocks && c.value.is_some());
        let heights = rows.map(|row| u64::from_be_bytes(row.key.as_slice().try_into().unwrap()));
        for height in heights {
            // For tests whose groups are one block and one write each, from height 10 on.
            if state.durable < height - 9 {
                state.early.push(height);
            }
            state.committed.push(height);
        }
        Ok(())
    }
    fn bytes(&self) -> Result<u64, StoreError> {
        self.0.bytes()
    }
    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(true)
    }
    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

pub type DeskStore = Store<DeskArena, DeskIndex>;

/// A store on such a medium; creating it is not counted.
pub fn desk_store(policy: PrunePolicy, settings: Settings) -> (Arc<DeskStore>, Arc<Desk>) {
    let desk = Arc::new(Desk::default());
    let ground = Ground {
        arena: DeskArena(MemoryArena::default(), Arc::clone(&desk)),
        index: DeskIndex(MemoryIndex::default(), Arc::clone(&desk)),
    };
    let store = Store::create(ground, config(policy, settings), clock()).unwrap();
    *desk.state.lock() = DeskState::default();
    (Arc::new(store), desk)
}
