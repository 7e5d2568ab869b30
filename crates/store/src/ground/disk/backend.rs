//! redb's file as we keep it: shifted behind two header slots, its space asked for ahead of
//! writing, with a reserve beside it for when the disk is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use redb::StorageBackend;

use super::header_slots::{HEADER_LEN, HeaderSlots, SHIFT};
use super::volume::{Volume, VolumeFile};
use super::{INDEX_FILE, RESERVE_FILE};
use crate::error::is_full;
use crate::{Sabotage, StoreError};

/// Space is asked for ahead of writing in steps of this much, so that a page that redb already
/// counts on can always be written.
const ALLOCATE_STEP: u64 = 1024 * 1024;

#[derive(Debug)]
struct Shared<F> {
    file: F,
    slots: Mutex<HeaderSlots>,
    reserve: F,
    reserve_bytes: u64,
    reserve_intact: AtomicBool,
    /// Bytes of the file that the volume has surely given.
    allocated: AtomicU64,
    sabotage: Sabotage,
}

/// The file under redb. Clones are the same file.
#[derive(Debug)]
pub(super) struct Backend<F> {
    shared: Arc<Shared<F>>,
}

impl<F> Clone for Backend<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<F: VolumeFile> Backend<F> {
    pub(super) fn open<V: Volume<File = F>>(
        volume: &V,
        may_make: bool,
        reserve_bytes: u64,
        sabotage: Sabotage,
    ) -> Result<Self, StoreError> {
        let file = volume.open(INDEX_FILE)?;
        let slots = Mutex::new(load_slots(&file, may_make)?);
        let shared = Arc::new(Shared {
            file,
            slots,
            reserve: volume.open(RESERVE_FILE)?,
            reserve_bytes,
            reserve_intact: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
            sabotage,
        });
        let backend = Self { shared };
        backend.ensure_reserve().map_err(|source| StoreError::io("reserving space", source))?;
        Ok(backend)
    }

    /// Bytes that the volume has given the file.
    pub(super) fn given(&self) -> io::Result<u64> {
        self.shared.file.given()
    }

    /// Puts the reserve back if it was used; whether it stands is the answer.
    pub(super) fn ensure_reserve(&self) -> io::Result<bool> {
        let shared = &self.shared;
        if shared.reserve_bytes == 0 || shared.reserve_intact.load(Ordering::Acquire) {
            return Ok(true);
        }
        match shared.reserve.allocate(0, shared.reserve_bytes) {
            Ok(()) => {
                shared.reserve_intact.store(true, Ordering::Release);
                Ok(true)
            }
            Err(error) if is_full(&error) => {
                // What a failed attempt took would be missing elsewhere.
                shared.reserve.set_len(0)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes sure that writing up to `end` cannot fail for want of space; uses up the reserve if
    /// that is the only way.
    fn allocate_to(&self, end: u64) -> io::Result<()> {
        let shared = &self.shared;
        let from = shared.allocated.load(Ordering::Acquire);
        if end <= from {
            return Ok(());
        }
        let attempt = |to: u64| -> io::Result<()> {
            // Allocating must not lengthen the file behind redb's back.
            let to = to.min(shared.file.len()?).max(end);
            shared.file.allocate(from, to - from)?;
            shared.allocated.fetch_max(to, Ordering::AcqRel);
            Ok(())
        };
        match attempt(end.div_ceil(ALLOCATE_STEP) * ALLOCATE_STEP) {
            Err(error) if is_full(&error) => {
                if shared.reserve_intact.swap(false, Ordering::AcqRel) {
                    shared.reserve.set_len(0)?;
                }
                attempt(end)
            }
            other => other,
        }
    }
}

/// The header slots of a file; a file whose making was interrupted starts anew.
fn load_slots(file: &impl VolumeFile, may_make: bool) -> Result<HeaderSlots, StoreError> {
    match HeaderSlots::load(file) {
        Ok(Some(slots)) => Ok(slots),
        Ok(None) if !may_make => {
            Err(StoreError::corrupt("index", "it has no header, but the arena is in use"))
        }
        Ok(None) => {
            file.set_len(0).map_err(|source| StoreError::io("making the index", source))?;
            Ok(HeaderSlots::blank())
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(StoreError::corrupt("index", error.to_string()))
        }
        Err(source) => Err(StoreError::io("reading the index", source)),
    }
}

/// Where a logical range meets the header: its start there, and how much of it lies there.
fn in_header(offset: u64, len: usize) -> (usize, usize) {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(HEADER_LEN);
    (offset, len.min(HEADER_LEN - offset))
}

impl<F: VolumeFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.shared.file.len()?.saturating_sub(SHIFT))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (at, len) = in_header(offset, out.len());
        let (head, tail) = out.split_at_mut(len);
        if !head.is_empty() {
            self.shared.slots.lock().read(at, head);
        }
        if tail.is_empty() {
            return Ok(());
        }
        self.shared.file.read_at(SHIFT + offset + len as u64, tail)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.file.set_len(SHIFT + len)?;
        self.shared.allocated.fetch_min(SHIFT + len, Ordering::AcqRel);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut slots = self.shared.slots.lock();
        if !self.shared.sabotage.is(Sabotage::SkipIndexSync) {
            self.shared.file.sync()?;
        }
        slots.synced();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.allocate_to(SHIFT + offset.saturating_add(data.len() as u64))?;
        let (at, len) = in_header(offset, data.len());
        let (head, tail) = data.split_at(len);
        if !head.is_empty() {
            self.shared.slots.lock().write(&self.shared.file, at, head)?;
        }
        if tail.is_empty() {
            return Ok(());
        }
        self.shared.file.write_at(SHIFT + offset + len as u64, tail)
    }
}
