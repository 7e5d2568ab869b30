//! Files in memory: a volume for the disk ground, whose bytes a target can damage.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use secateur_store::StoreError;
use secateur_store::ground::disk::{Volume, VolumeFile};

/// No file grows over this: the volume is full then.
pub const MAX_FILE: u64 = 64 << 20;

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The files by name.
#[derive(Debug, Clone, Default)]
pub struct MemoryVolume {
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

/// One of them.
#[derive(Debug)]
pub struct MemoryFile(Bytes);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    let end = start.checked_add(len).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(start..end)
}

impl MemoryVolume {
    /// A volume with these files.
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let share = |bytes: &Vec<u8>| Arc::new(Mutex::new(bytes.clone()));
        let files = files.iter().map(|(name, bytes)| (name.clone(), share(bytes))).collect();
        Self { files: Arc::new(Mutex::new(files)) }
    }

    /// The files as they are now.
    pub fn to_files(&self) -> BTreeMap<String, Vec<u8>> {
        let files = locked(&self.files);
        files.iter().map(|(name, bytes)| (name.clone(), locked(bytes).clone())).collect()
    }
}

impl Volume for MemoryVolume {
    type File = MemoryFile;

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(locked(&self.files).contains_key(name))
    }

    fn open(&self, name: &str) -> Result<MemoryFile, StoreError> {
        let mut files = locked(&self.files);
        Ok(MemoryFile(Arc::clone(files.entry(name.to_owned()).or_default())))
    }

    fn lock(&self, _: &MemoryFile) -> Result<(), StoreError> {
        Ok(())
    }

    fn available(&self) -> Result<u64, StoreError> {
        Ok(MAX_FILE)
    }
}

impl VolumeFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.0).len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = locked(&self.0);
        let from = bytes.get(place(offset, out.len())?).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(from.len() as u64);
        if end > self.len()? {
            self.set_len(end)?;
        }
        let mut bytes = locked(&self.0);
        let to = bytes.get_mut(place(offset, from.len())?).ok_or(io::ErrorKind::InvalidInput)?;
        to.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > MAX_FILE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        locked(&self.0).resize(len, 0);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len);
        if end > self.len()? { self.set_len(end) } else { Ok(()) }
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn given(&self) -> io::Result<u64> {
        self.len()
    }
}
