//! An object store that counts what is transferred out of it.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use futures_util::stream::BoxStream;
use secateur_archive::object_store::local::LocalFileSystem;
use secateur_archive::object_store::path::Path;
use secateur_archive::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Stored,
};
use secateur_archive::{Archive, Retry};

/// A directory whose reads are counted.
#[derive(Debug, Clone)]
pub struct Counting {
    store: Arc<LocalFileSystem>,
    bytes: Arc<AtomicU64>,
}

impl Counting {
    /// The archive in a directory.
    pub fn of(directory: &FilePath) -> Result<Self> {
        let store = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
        Ok(Self { store, bytes: Arc::default() })
    }

    /// An archive that reads through it.
    pub fn archive(&self) -> Archive {
        Archive::with_store(Arc::new(self.clone()), "counted", Retry::default())
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a directory whose reads are counted")
    }
}

#[tonic::async_trait]
impl ObjectStore for Counting {
    async fn put_opts(&self, to: &Path, what: PutPayload, how: PutOptions) -> Stored<PutResult> {
        self.store.put_opts(to, what, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Stored<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(to, how).await
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Stored<GetResult> {
        let head = how.head;
        let result = self.store.get_opts(from, how).await?;
        if !head {
            let len = result.range.end.saturating_sub(result.range.start);
            self.bytes.fetch_add(len, Ordering::Relaxed);
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        which: BoxStream<'static, Stored<Path>>,
    ) -> BoxStream<'static, Stored<Path>> {
        self.store.delete_stream(which)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Stored<()> {
        self.store.copy_opts(from, to, how).await
    }
}
