//! Requests to the object storage: each in its time, tried again a bounded number of times.
//!
//! Nothing here trusts an answer to a write. [`Remote::ensure`] looks at what is there, writes only
//! what is absent, and compares what it reads back by SHA-256, so a write that failed after it was
//! done, or was done twice, or was answered with 409 or 412, ends in the same place.

use std::future::Future;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use rustix::fs::{Access, access};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::part::{FileRange, RangeRead};
use crate::{ArchiveError, Digest, Metrics, Retry};

/// Objects are written and read back in pieces of this size, so that each request ends in its time
/// and memory does not grow with a part.
const PIECE: u64 = 8 << 20;
/// A directory has no cost for each request, and small pieces stay in the processor's cache.
const DIRECTORY_PIECE: u64 = 1 << 20;

/// Requests to a directory that are under way at the same time, also those that nobody waits for any more: each has a
/// thread, and where a disk does not answer, those that are not a directory's business must not run out.
const DIRECTORY_LANES: usize = 64;

/// An object storage, and how patiently it is asked.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Where a directory's names are listed; `object_store` does not list them in order.
    pub(crate) directory: Option<Arc<FilePath>>,
    /// For a directory.
    lanes: Arc<Semaphore>,
    pub(crate) provider: Arc<str>,
    pub(crate) retry: Retry,
    pub(crate) metrics: Arc<Metrics>,
}

/// What is to be written.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Bytes(Bytes),
    File(PathBuf),
}

/// Whether something was written, or was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ensured {
    Written,
    WasThere,
}

impl Remote {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        provider: Arc<str>,
        retry: Retry,
        metrics: Arc<Metrics>,
    ) -> Self {
        let lanes = Arc::new(Semaphore::new(DIRECTORY_LANES));
        Self { store, directory: None, lanes, provider, retry, metrics }
    }

    /// Reads a range; what comes back has exactly its length.
    pub(crate) async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ArchiveError> {
        let path = path_of(key)?;
        let wanted = range.end.saturating_sub(range.start);
        let ask = || {
            let (store, path, range) = (Arc::clone(&self.store), path.clone(), range.clone());
            async move { store.get_range(&path, range).await }
        };
        let bytes = self.patiently("reading", key, ask).await?;
        self.metrics.read(bytes.len() as u64);
        if bytes.len() as u64 != wanted {
            return Err(ArchiveError::damaged(key, "it is shorter than it was said to be"));
        }
        Ok(bytes)
    }

    /// The size of an object, if it is there.
    pub(crate) async fn size(&self, key: &str) -> Result<Option<u64>, ArchiveError> {
        let path = path_of(key)?;
        let ask = || {
            let (store, path) = (Arc::clone(&self.store), path.clone());
            async move {
                match store.head(&path).await {
                    Ok(meta) => Ok(Some(meta.size)),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(e) => Err(e),
                }
            }
        };
        self.patiently("looking for", key, ask).await
    }

    /// A small object whole, if it is there.
    pub(crate) async fn small(&self, key: &str, max: u64) -> Result<Option<Bytes>, ArchiveError> {
        let Some(size) = self.size(key).await? else { return Ok(None) };
        if size > max {
            let reason = format!("{size} bytes are too many; the limit is {max}");
            return Err(ArchiveError::damaged(key, reason));
        }
        if size == 0 {
            return Err(ArchiveError::damaged(key, "it is empty"));
        }
        self.range(key, 0..size).await.map(Some)
    }

    /// Makes sure that an object with exactly this content is there, and reads it back to know.
    pub(crate) async fn ensure(
        &self,
        key: &str,
        content: &Content,
        size: u64,
        sha256: Digest,
    ) -> Result<Ensured, ArchiveError> {
        let mut written = false;
        let mut attempt = 1;
        loop {
            let error = match self.ensure_once(key, content, size, sha256, &mut written).await {
                Ok(()) if written => {
                    self.sweep_name(key).await;
                    return Ok(Ensured::Written);
                }
                Ok(()) => return Ok(Ensured::WasThere),
                Err(e) => e,
            };
            self.metrics.failed();
            if !error.is_retryable() {
                return Err(error);
            }
            if attempt >= self.retry.attempts {
                return Err(give_up(key, error, written));
            }
            tracing::warn!(key, attempt, %error, "an archive object is not there yet");
            tokio::time::sleep(self.retry.pause(attempt)).await;
            attempt += 1;
        }
    }

    async fn ensure_once(
        &self,
        key: &str,
        content: &Content,
        size: u64,
        sha256: Digest,
        written: &mut bool,
    ) -> Result<(), ArchiveError> {
        let mut found = self.size(key).await?;
        if found.is_none() {
            // Set before: a write that fails may have been done.
            *written = true;
            self.write(key, content, size).await?;
            found = self.size(key).await?;
        }
        let found = found.unwrap_or(0);
        let got = if found == size { Some(self.hash(key, size).await?) } else { None };
        if got == Some(sha256) {
            return Ok(());
        }
        let got = got.map_or_else(|| format!("{found} bytes"), |digest| digest.to_string());
        let wanted = format!("{sha256} ({size} bytes)");
        Err(ArchiveError::ReadBack { key: key.to_owned(), wanted, got })
    }

    fn piece(&self) -> u64 {
        if self.directory.is_some() { DIRECTORY_PIECE } else { PIECE }
    }

    async fn hash(&self, key: &str, size: u64) -> Result<Digest, ArchiveError> {
        let mut hasher = Sha256::new();
        let piece = self.piece();
        let pieces = (0..size.div_ceil(piece)).map(|at| at * piece..size.min((at + 1) * piece));
        // The next piece is on its way while one is hashed.
        let mut pieces = stream::iter(pieces).map(|range| self.range(key, range)).buffered(2);
        while let Some(piece) = pieces.try_next().await? {
            hasher.update(&piece);
        }
        Ok(Digest::from_hasher(hasher))
    }

    async fn write(&self, key: &str, content: &Content, size: u64) -> Result<(), ArchiveError> {
        let path = path_of(key)?;
        let put = |bytes: Bytes| async {
            let put = self.store.put(&path, PutPayload::from_bytes(bytes));
            put.await.map_err(ArchiveError::storage("writing", key))
        };
        match content {
            Content::Bytes(bytes) => put(bytes.clone()).await.map(|_| ()),
            Content::File(file) => {
                let file = FileRange::open(file)?;
                if file.size() != size {
                    return Err(ArchiveError::damaged(file.name(), "its length has changed"));
                }
                if size <= self.piece() {
                    return put(file.read(0..size).await?).await.map(|_| ());
                }
                let start = self.store.put_multipart(&path).await;
                let mut upload = start.map_err(ArchiveError::storage("writing", key))?;
                let sent = send_pieces(key, upload.as_mut(), &file, self.piece()).await;
                if sent.is_err() {
                    // What was sent of it is nobody's; if this fails too, the bucket's own rule for
                    // unfinished uploads removes it.
                    if let Err(error) = upload.abort().await {
                        tracing::debug!(key, %error, "an unfinished upload was left behind");
                    }
                }
                sent
            }
        }
    }

    /// Whether this name could be written and read back; nothing is left behind.
    pub(crate) async fn check_writable(&self, key: &str) -> Result<(), ArchiveError> {
        if let Some(root) = self.directory.clone() {
            let folder = root.join(key).parent().map(FilePath::to_path_buf);
            let ask = move || {
                let ask = |path: &FilePath| {
                    let asked = access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
                    asked.map_err(|error| ArchiveError::stage("writing to", path)(error.into()))
                };
                ask(&root)?;
                // One that is not there is made, and is ours.
                folder.filter(|folder| folder.exists()).map_or(Ok(()), |folder| ask(&folder))
            };
            let asked = tokio::task::spawn_blocking(ask).await;
            return asked.map_err(|e| ArchiveError::invalid("writing", e.to_string()))?;
        }
        let path = path_of(key)?;
        let read = || {
            let (store, path) = (Arc::clone(&self.store), path.clone());
            async move { store.get(&path).await.map(drop) }
        };
        // That it is not there is an answer too, which only those get who may read.
        match self.patiently("reading", key, read).await {
            Ok(()) | Err(ArchiveError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        let ask = || {
            let (store, path) = (Arc::clone(&self.store), path.clone());
            async move {
                let mut upload = match store.put_multipart(&path).await {
                    Ok(upload) => upload,
                    // Without pieces there is no way to try that leaves nothing.
                    Err(object_store::Error::NotImplemented { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                };
                if let Err(error) = upload.abort().await {
                    tracing::debug!(%error, "an unfinished upload was left behind");
                }
                Ok(())
            }
        };
        self.patiently("writing", key, ask).await
    }

    /// Asks until there is an answer, a bounded number of times.
    pub(crate) async fn patiently<T, F>(
        &self,
        what: &'static str,
        key: &str,
        ask: impl Fn() -> F,
    ) -> Result<T, ArchiveError>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let mut attempt = 1;
        loop {
            let limit = self.retry.request_timeout;
            let answer = tokio::time::timeout(limit, self.in_lane(ask())).await.map_or_else(
                |_| Err(ArchiveError::timeout(what, key, limit)),
                |answer| answer.map_err(ArchiveError::storage(what, key)),
            );
            match answer {
                Err(ArchiveError::Storage {
                    source: object_store::Error::NotFound { .. }, ..
                }) => {
                    let (key, provider) = (key.to_owned(), self.provider.to_string());
                    return Err(ArchiveError::Missing { key, provider });
                }
                Err(e) if self.may_try_again(&e, attempt) => {
                    self.metrics.failed();
                    tracing::debug!(key, attempt, error = %e, "a request is tried again");
                    tokio::time::sleep(self.retry.pause(attempt)).await;
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }

    /// A disk that stands still is asked no second time by the same call: what waits for it keeps its thread.
    fn may_try_again(&self, error: &ArchiveError, attempt: u32) -> bool {
        let stands_still =
            self.directory.is_some() && matches!(error, ArchiveError::Timeout { .. });
        error.is_retryable() && !stands_still && attempt < self.retry.attempts
    }

    /// One request. To a directory it keeps its lane until it has ended, which a time limit does not make it do.
    async fn in_lane<T: Send + 'static>(
        &self,
        asked: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        if self.directory.is_none() {
            return asked.await;
        }
        let lane = Arc::clone(&self.lanes).acquire_owned().await;
        let asked = tokio::spawn(async move {
            let _lane = lane;
            asked.await
        });
        asked.await?
    }
}

async fn send_pieces(
    key: &str,
    upload: &mut dyn MultipartUpload,
    file: &FileRange,
    piece: u64,
) -> Result<(), ArchiveError> {
    let mut start = 0;
    // One piece is on its way while the next one is read.
    let mut sending = None;
    while start < file.size() {
        let end = file.size().min(start + piece);
        let bytes = file.read(start..end).await?;
        if let Some(sent) = sending.take() {
            let sent: object_store::UploadPart = sent;
            sent.await.map_err(ArchiveError::storage("writing", key))?;
        }
        sending = Some(upload.put_part(PutPayload::from_bytes(bytes)));
        start = end;
    }
    if let Some(sent) = sending {
        sent.await.map_err(ArchiveError::storage("writing", key))?;
    }
    upload.complete().await.map_err(ArchiveError::storage("writing", key))?;
    Ok(())
}

/// What is said after the last try. Other bytes that we never wrote are another's.
fn give_up(key: &str, error: ArchiveError, written: bool) -> ArchiveError {
    match error {
        ArchiveError::ReadBack { wanted, got, .. } if !written => ArchiveError::Conflict {
            key: key.to_owned(),
            reason: format!("it is {got}, not {wanted}"),
        },
        other => other,
    }
}

/// Keys are ours and plain; this refuses anything else before it reaches the storage.
pub(crate) fn path_of(key: &str) -> Result<Path, ArchiveError> {
    Path::parse(key).map_err(|e| ArchiveError::invalid("archive key", e.to_string()))
}
