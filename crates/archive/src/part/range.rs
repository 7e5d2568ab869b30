//! The one seam between a part and where its bytes are: reading a range.

use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::ArchiveError;
use crate::remote::Remote;

/// Something of known size that can be read in ranges: a staged file, an object, bytes in memory.
pub trait RangeRead: Send + Sync {
    /// What it is called in errors.
    fn name(&self) -> &str;
    /// Its bytes.
    fn size(&self) -> u64;
    /// Reads exactly the bytes of `range`.
    fn read(&self, range: Range<u64>) -> impl Future<Output = Result<Bytes, ArchiveError>> + Send;
}

/// A file of this machine.
#[derive(Debug)]
pub struct FileRange {
    name: String,
    path: PathBuf,
    file: Arc<File>,
    size: u64,
}

impl FileRange {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let file = File::open(path).map_err(ArchiveError::stage("opening", path))?;
        let size = file.metadata().map_err(ArchiveError::stage("reading", path))?.len();
        let name = path.display().to_string();
        Ok(Self { name, path: path.to_owned(), file: Arc::new(file), size })
    }
}

impl RangeRead for FileRange {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, ArchiveError> {
        let file = Arc::clone(&self.file);
        let len = range_len(&range, self.size, &self.name)?;
        let read = move || -> io::Result<Bytes> {
            let mut buffer = vec![0u8; len];
            file.read_exact_at(&mut buffer, range.start)?;
            Ok(buffer.into())
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|e| Err(io::Error::other(e)))
            .map_err(ArchiveError::stage("reading", &self.path))
    }
}

/// An object of an archive.
#[derive(Debug)]
pub struct ObjectRange {
    remote: Remote,
    key: String,
    size: u64,
}

impl ObjectRange {
    pub(crate) fn new(remote: Remote, key: String, size: u64) -> Self {
        Self { remote, key, size }
    }
}

impl RangeRead for ObjectRange {
    fn name(&self) -> &str {
        &self.key
    }

    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, ArchiveError> {
        range_len(&range, self.size, &self.key)?;
        self.remote.range(&self.key, range).await
    }
}

impl RangeRead for Bytes {
    fn name(&self) -> &'static str {
        "the part in memory"
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, ArchiveError> {
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let len = range_len(&range, self.len() as u64, RangeRead::name(self))?;
        Ok(self.slice(start..start + len))
    }
}

/// The length of a range that lies inside of `size` bytes.
fn range_len(range: &Range<u64>, size: u64, name: &str) -> Result<usize, ArchiveError> {
    let len = range.end.checked_sub(range.start).filter(|_| range.end <= size);
    len.and_then(|len| usize::try_from(len).ok())
        .ok_or_else(|| ArchiveError::damaged(name, "it is shorter than its own table says"))
}
