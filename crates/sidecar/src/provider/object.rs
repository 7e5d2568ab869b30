//! Blobs as objects: a directory (`fs`) or a bucket (`s3`), through the archive's way to them.
//!
//! A blob is written only where nothing is. What is there already is read back and compared: the
//! same bytes are a success, others are left alone.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use secateur_archive::{ArchiveUrl, Fetched, Objects, Put, Settings};

use super::{BlobTags, ObjectName, Provider, ProviderError, check_blob, check_id};
use crate::BLOB_LEN;

/// Blobs as objects in a directory or a bucket.
#[derive(Debug)]
pub struct ObjectProvider {
    id: String,
    objects: Objects,
    conditions: Conditions,
    root: Option<Root>,
}

/// A directory, and which one it was when it was opened. Writing would make it anew where its volume
/// is gone, and originals would be pruned on the strength of copies on another disk.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    was: Result<(u64, u64), String>,
}

impl Root {
    fn new(path: PathBuf) -> Self {
        let was = Self::identity(&path);
        Self { path, was }
    }

    fn identity(path: &PathBuf) -> Result<(u64, u64), String> {
        let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
        Ok((found.dev(), found.ino()))
    }

    /// What is wrong with it, if anything is.
    fn trouble(&self) -> Option<String> {
        match (&self.was, Self::identity(&self.path)) {
            (Ok(was), Ok(is)) if *was == is => None,
            (Ok(_), Ok(_)) => Some("another one is there".to_owned()),
            (Err(reason), _) => Some(reason.clone()),
            (Ok(_), Err(reason)) => Some(reason),
        }
    }
}

/// Whether the service keeps to "only where nothing is". Some ignore it, and would overwrite. Until
/// it is known, and where it does not, a name is looked at before it is written.
#[derive(Debug)]
struct Conditions(AtomicU8);

impl Conditions {
    const UNKNOWN: u8 = 0;
    const KEPT: u8 = 1;
    const IGNORED: u8 = 2;

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }

    fn learn(&self, put: Put) {
        let state = if put == Put::Occupied { Self::KEPT } else { Self::IGNORED };
        self.0.store(state, Ordering::Relaxed);
    }
}

impl ObjectProvider {
    /// Opens a directory, which is made if it is missing, or a bucket, which is not asked anything
    /// yet.
    pub fn open(
        id: impl Into<String>,
        url: &ArchiveUrl,
        settings: &Settings,
    ) -> Result<Self, ProviderError> {
        let id = id.into();
        check_id(&id)?;
        let objects = Objects::create(url, settings)?;
        // A directory's own link call cannot overwrite.
        let known = if objects.is_directory() { Conditions::KEPT } else { Conditions::UNKNOWN };
        let root = match url {
            ArchiveUrl::Directory(path) => Some(Root::new(path.clone())),
            ArchiveUrl::S3 { .. } => None,
        };
        Ok(Self { id, objects, conditions: Conditions(AtomicU8::new(known)), root })
    }

    /// A directory must be the one that was opened.
    fn check_root(&self) -> Result<(), ProviderError> {
        let Some(root) = &self.root else { return Ok(()) };
        let Some(reason) = root.trouble() else { return Ok(()) };
        let (provider, path) = (self.id.clone(), root.path.display().to_string());
        Err(ProviderError::Replaced { provider, path, reason })
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        self.objects.address()
    }

    async fn put_blob(&self, tags: &BlobTags, blob: Bytes) -> Result<String, ProviderError> {
        check_blob(tags, &blob)?;
        self.check_root()?;
        let key = ObjectName::of(tags).to_string();
        let may_overwrite = !self.conditions.is(Conditions::KEPT);
        if may_overwrite && self.objects.size(&key).await?.is_some() {
            return self.compare(key, &blob).await;
        }
        match self.objects.put_new(&key, &blob).await? {
            Put::Occupied => return self.compare(key, &blob).await,
            Put::Written if self.conditions.is(Conditions::UNKNOWN) => {
                // The same bytes over themselves harm nobody, whatever the service does.
                self.conditions.learn(self.objects.put_new(&key, &blob).await?);
            }
            Put::Written => {}
        }
        Ok(key)
    }

    /// The name is taken: fine if it is by the same bytes.
    async fn compare(&self, key: String, blob: &Bytes) -> Result<String, ProviderError> {
        match self.objects.get(&key, BLOB_LEN as u64).await? {
            Fetched::Bytes(bytes) if bytes == *blob => Ok(key),
            // Another's write is under way, or the service says so of its own trouble.
            Fetched::Missing => Err(self.missing(&key)),
            Fetched::Bytes(_) | Fetched::TooLong(_) => {
                Err(ProviderError::Conflict { provider: self.id.clone(), locator: key })
            }
        }
    }

    async fn get_blob(&self, locator: &str, max_len: usize) -> Result<Bytes, ProviderError> {
        let key = locator.parse::<ObjectName>()?.to_string();
        self.check_root()?;
        let limit = max_len.min(BLOB_LEN);
        match self.objects.get(&key, limit as u64).await? {
            Fetched::Bytes(bytes) => Ok(bytes),
            Fetched::Missing => Err(self.missing(&key)),
            Fetched::TooLong(_) => {
                Err(ProviderError::TooLong { provider: self.id.clone(), locator: key, limit })
            }
        }
    }

    fn missing(&self, key: &str) -> ProviderError {
        ProviderError::Missing { provider: self.id.clone(), locator: key.to_owned() }
    }
}

impl Provider for ObjectProvider {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_in_place(&self) -> bool {
        true
    }

    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(self.put_blob(tags, blob))
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        max_len: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        Box::pin(self.get_blob(locator, max_len))
    }

    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        Box::pin(async move {
            tags.check()?;
            self.check_root()?;
            let key = ObjectName::of(tags).to_string();
            let size = self.objects.size(&key).await?;
            // Something shorter or longer is not the blob; putting it says what is wrong.
            Ok((size == Some(BLOB_LEN as u64)).then_some(key))
        })
    }
}
