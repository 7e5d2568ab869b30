//! The arena as one file: positioned reads and writes, space asked for in steps.

use super::ARENA_FILE;
use super::volume::{Volume, VolumeFile};
use crate::StoreError;
use crate::class::ALIGNMENT;
use crate::ground::{Arena, Space};

/// The arena asks for space in steps of at least and at most this much.
const MIN_STEP: u64 = 256 * 1024;
const MAX_STEP: u64 = 64 * 1024 * 1024;

/// An arena in a file.
#[derive(Debug)]
pub struct FileArena<V: Volume> {
    volume: V,
    file: V::File,
}

impl<V: Volume> FileArena<V> {
    /// Opens the arena's file and takes it for this process alone.
    pub fn open(volume: V) -> Result<Self, StoreError> {
        let file = volume.open(ARENA_FILE)?;
        volume.lock(&file)?;
        Ok(Self { volume, file })
    }
}

impl<V: Volume> Arena for FileArena<V> {
    fn len(&self) -> Result<u64, StoreError> {
        self.file.len().map_err(|source| StoreError::io("measuring the arena", source))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.file
            .read_at(offset, out)
            .map_err(|source| StoreError::io("reading from the arena", source))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let page = ALIGNMENT as usize;
        let aligned = offset.is_multiple_of(u64::from(ALIGNMENT))
            && bytes.len().is_multiple_of(page)
            && bytes.as_ptr().align_offset(page) == 0;
        let written = if aligned {
            self.file.write_pages_at(offset, bytes)
        } else {
            self.file.write_at(offset, bytes)
        };
        written.map_err(|source| StoreError::io("writing to the arena", source))
    }

    fn grow(&self, len: u64) -> Result<(), StoreError> {
        let now = self.len()?;
        if len <= now {
            return Ok(());
        }
        let step = (now / 64).clamp(MIN_STEP, MAX_STEP);
        let allocate = |to: u64| self.file.allocate(now, to - now);
        let stepped = if now == 0 { len } else { len.max(now + step) };
        // A step too large for what is left still leaves the exact amount.
        allocate(stepped)
            .or_else(|_| allocate(len))
            .map_err(|source| StoreError::io("growing the arena", source))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().map_err(|source| StoreError::io("syncing the arena", source))
    }

    fn release(&self, offset: u64, len: u64) -> Result<bool, StoreError> {
        self.file
            .punch(offset, len)
            .map_err(|source| StoreError::io("giving arena space back", source))
    }

    fn space(&self) -> Result<Space, StoreError> {
        let given = self.file.given().map_err(|e| StoreError::io("measuring the arena", e))?;
        let (available, total) = self.volume.space()?;
        Ok(Space { given, available: Some(available), total })
    }
}
