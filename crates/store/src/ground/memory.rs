//! A ground in memory: real in every respect but durability. Models and tests run on it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Arena, Change, Index, KeyValue, Snapshot, Space, Table, Visit};
use crate::StoreError;

/// An arena in memory.
#[derive(Debug, Default)]
pub struct MemoryArena {
    bytes: RwLock<Vec<u8>>,
}

fn out_of_bounds() -> StoreError {
    StoreError::corrupt("arena", "a range outside the arena was asked for")
}

fn range(offset: u64, len: usize) -> Result<std::ops::Range<usize>, StoreError> {
    let start = usize::try_from(offset).map_err(|_| out_of_bounds())?;
    Ok(start..start.checked_add(len).ok_or_else(out_of_bounds)?)
}

impl Arena for MemoryArena {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.bytes.read().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let bytes = self.bytes.read();
        let from = bytes.get(range(offset, out.len())?).ok_or_else(out_of_bounds)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        let mut bytes = self.bytes.write();
        let to = bytes.get_mut(range(offset, from.len())?).ok_or_else(out_of_bounds)?;
        to.copy_from_slice(from);
        Ok(())
    }

    fn grow(&self, len: u64) -> Result<(), StoreError> {
        let len = usize::try_from(len).map_err(|_| out_of_bounds())?;
        let mut bytes = self.bytes.write();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn release(&self, _offset: u64, _len: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        Ok(Space { given: self.len()?, available: None, total: None })
    }
}

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// An index in memory; a commit is one swap of a pointer.
#[derive(Debug, Default)]
pub struct MemoryIndex {
    rows: RwLock<Arc<Rows>>,
}

/// What a reader of a [`MemoryIndex`] sees. Cloning it is cheap.
#[derive(Debug, Clone, Default)]
pub struct MemorySnapshot {
    rows: Arc<Rows>,
}

impl MemoryIndex {
    /// An index that holds what `snapshot` held.
    pub fn from_snapshot(snapshot: &MemorySnapshot) -> Self {
        Self { rows: RwLock::new(Arc::clone(&snapshot.rows)) }
    }
}

impl MemorySnapshot {
    /// Every row, for harnesses that compare or hash whole images.
    pub fn rows(&self) -> impl Iterator<Item = (Table, &[u8], &[u8])> {
        self.rows.iter().map(|((table, key), value)| (*table, key.as_slice(), value.as_slice()))
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.get(&(table, key.to_vec())).cloned())
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        for ((at, key), value) in self.rows.range((table, from.to_vec())..) {
            if *at != table || visit(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        let last = self.rows.range((table, Vec::new())..(table, bound.to_vec())).next_back();
        Ok(last.map(|((_, key), value)| (key.clone(), value.clone())))
    }
}

impl Index for MemoryIndex {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        Ok(MemorySnapshot { rows: Arc::clone(&self.rows.read()) })
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let mut rows = self.rows.write();
        let next = Arc::make_mut(&mut rows);
        for Change { table, key, value } in changes {
            match value {
                Some(value) => next.insert((table, key), value),
                None => next.remove(&(table, key)),
            };
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let rows = self.rows.read();
        Ok(rows.iter().map(|((_, key), value)| (key.len() + value.len()) as u64).sum())
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
