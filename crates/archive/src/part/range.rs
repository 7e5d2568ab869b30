//! The one seam between a part and where its bytes are: reading a range.

use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;

use crate::ArchiveError;

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
    file: Arc<File>,
    size: u64,
}

impl FileRange {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let file = File::open(path).map_err(ArchiveError::stage("opening", path))?;
        let size = file.metadata().map_err(ArchiveError::stage("reading", path))?.len();
        Ok(Self { name: path.display().to_string(), file: Arc::new(file), size })
    }
}

impl RangeRead for FileRange {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, _range: Range<u64>) -> Result<Bytes, ArchiveError> {
        let _file = &self.file;
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}

/// An object of an archive.
#[derive(Debug)]
pub struct ObjectRange {
    #[expect(dead_code, reason = "soon")]
    store: Arc<dyn ObjectStore>,
    key: String,
    size: u64,
}

impl RangeRead for ObjectRange {
    fn name(&self) -> &str {
        &self.key
    }

    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, _range: Range<u64>) -> Result<Bytes, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}
