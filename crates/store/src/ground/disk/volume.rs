//! The file calls that the disk ground makes, as a seam: a directory, or a simulated volume.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, FlockOperation};

use crate::StoreError;

/// One open file.
pub trait VolumeFile: Send + Sync + std::fmt::Debug + 'static {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `out` from `offset`.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes whole pages at a page border from memory that lies on one: they need not pass
    /// through the page cache.
    fn write_pages_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at(offset, bytes)
    }
    /// Changes the length; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes sure that the volume has given space for a range; it may lengthen the file.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the space of a range back; it reads as zero then. Whether it could is the answer.
    fn punch(&self, offset: u64, len: u64) -> io::Result<bool>;
    /// Makes data and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Bytes that the volume has given.
    fn given(&self) -> io::Result<u64>;
}

/// A place that holds a ground's files.
pub trait Volume: Clone + Send + Sync + 'static {
    /// Its files.
    type File: VolumeFile;
    /// Whether a file is there.
    fn exists(&self, name: &str) -> Result<bool, StoreError>;
    /// Opens a file, making it (durably) if it is not there.
    fn open(&self, name: &str) -> Result<Self::File, StoreError>;
    /// Takes the ground for this process alone, until the file is closed.
    fn lock(&self, file: &Self::File) -> Result<(), StoreError>;
    /// Bytes that can still be given.
    fn available(&self) -> Result<u64, StoreError>;
    /// Bytes that can still be given, and all that it has, where that is known.
    fn space(&self) -> Result<(u64, Option<u64>), StoreError> {
        Ok((self.available()?, None))
    }
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct FsVolume {
    directory: Arc<PathBuf>,
}

/// A file of the file system.
#[derive(Debug)]
pub struct FsFile {
    file: File,
    /// The same file past the page cache, where the file system allows it. Opened by the first
    /// write that can use it.
    direct: OnceLock<Option<File>>,
    path: PathBuf,
}

impl FsVolume {
    /// The directory, made with mode 0700 if it is not there.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        use std::os::unix::fs::DirBuilderExt;
        let make = || -> io::Result<()> {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            sync_ancestors(directory)
        };
        make().map_err(|source| StoreError::io("making the data directory", source))?;
        Ok(Self { directory: Arc::new(directory.to_path_buf()) })
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory.as_path())?.sync_all()
    }
}

/// Makes the names of a directory and of those above it durable, as far up as we may look: which
/// of them are new is not known, and a name that is lost takes everything below with it.
pub fn sync_ancestors(directory: &Path) -> io::Result<()> {
    for above in directory.canonicalize()?.ancestors().skip(1) {
        match File::open(above) {
            Ok(open) => open.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Volume for FsVolume {
    type File = FsFile;

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        self.directory
            .join(name)
            .try_exists()
            .map_err(|source| StoreError::io("looking for a data file", source))
    }

    fn open(&self, name: &str) -> Result<FsFile, StoreError> {
        let failed = |source| StoreError::io("opening a data file", source);
        let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let path = self.directory.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow)
            .open(&path)
            .map_err(failed)?;
        // Also where the file was there: an earlier attempt may have failed right here.
        self.sync_directory().map_err(failed)?;
        Ok(FsFile { file, direct: OnceLock::new(), path })
    }

    fn lock(&self, file: &FsFile) -> Result<(), StoreError> {
        match rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(StoreError::Locked(self.directory.display().to_string()))
            }
            Err(error) => Err(StoreError::io("locking the data directory", error.into())),
        }
    }

    fn available(&self) -> Result<u64, StoreError> {
        Ok(self.space()?.0)
    }

    fn space(&self) -> Result<(u64, Option<u64>), StoreError> {
        let stat = rustix::fs::statvfs(self.directory.as_path())
            .map_err(|error| StoreError::io("asking for free space", error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok((bytes(stat.f_bavail), Some(bytes(stat.f_blocks))))
    }
}

impl FsFile {
    /// The same file, opened past the page cache. None where the file system refuses, or where
    /// the name stands for another file by now.
    fn open_direct(&self) -> Option<File> {
        let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::NOFOLLOW;
        let flags = i32::try_from(flags.bits()).ok()?;
        let direct = OpenOptions::new().write(true).custom_flags(flags).open(&self.path).ok()?;
        let (ours, theirs) = (self.file.metadata().ok()?, direct.metadata().ok()?);
        ((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())).then_some(direct)
    }
}

impl VolumeFile for FsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_pages_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(direct) = self.direct.get_or_init(|| self.open_direct()) else {
            return self.write_at(offset, bytes);
        };
        match direct.write_all_at(bytes, offset) {
            // The file system takes such writes, but not at this size: the page cache does.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.write_at(offset, bytes)
            }
            other => other,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
            Ok(()) => Ok(()),
            // A file system without fallocate gives space when it is written.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(len);
                if self.len()? < end { self.set_len(end) } else { Ok(()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn given(&self) -> io::Result<u64> {
        // The file system counts in blocks of 512 bytes, whatever its own block size is.
        Ok(self.file.metadata()?.blocks().saturating_mul(512))
    }
}
