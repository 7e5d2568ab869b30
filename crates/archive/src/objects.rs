//! Single objects of a place: the way to an object storage, lent to families that keep other things
//! than parts.
//!
//! What lives here: the same addresses, credentials and bounded patience as an archive's, for whole
//! small objects. What deliberately does not: names and what the bytes must be, which are the
//! family's; and listing. Only here can an object be removed, one by its name; nothing else in this
//! crate calls it.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use object_store::{
    GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};

use crate::remote::{Remote, path_of};
use crate::{Archive, ArchiveError, ArchiveUrl, Settings};

/// Whole small objects in a directory or a bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Objects {
    remote: Remote,
}

/// What became of an object that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was absent and is written.
    Written,
    /// Something is there, or is being written by somebody else; it was not touched.
    Occupied,
}

/// What is under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// These bytes.
    Bytes(Bytes),
    /// So many bytes, which are more than were asked for; none of them were read.
    TooLong(u64),
    /// Nothing.
    Missing,
}

impl Objects {
    /// Opens a place that is there, as [`Archive::open`] does.
    pub fn open(url: &ArchiveUrl, settings: &Settings) -> Result<Self, ArchiveError> {
        Archive::open(url, settings).map(|archive| Self { remote: archive.remote })
    }

    /// The same, and makes the directory if it is missing.
    pub fn create(url: &ArchiveUrl, settings: &Settings) -> Result<Self, ArchiveError> {
        Archive::create(url, settings).map(|archive| Self { remote: archive.remote })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.remote.provider
    }

    /// Whether it is a directory of this machine, where [`Objects::put_new`] cannot overwrite.
    pub fn is_directory(&self) -> bool {
        self.remote.directory.is_some()
    }

    /// The size of an object, if it is there.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, ArchiveError> {
        self.remote.size(key).await
    }

    /// A whole object in one request, if it has no more than `max` bytes.
    pub async fn get(&self, key: &str, max: u64) -> Result<Fetched, ArchiveError> {
        let path = path_of(key)?;
        let ask = || {
            let (store, path) = (Arc::clone(&self.remote.store), path.clone());
            async move {
                let got = match store.get_opts(&path, GetOptions::default()).await {
                    Ok(got) => got,
                    Err(object_store::Error::NotFound { .. }) => return Ok(Fetched::Missing),
                    Err(e) => return Err(e),
                };
                // What follows has exactly this length: the storage said so before the first byte.
                if got.meta.size > max {
                    return Ok(Fetched::TooLong(got.meta.size));
                }
                got.bytes().await.map(Fetched::Bytes)
            }
        };
        let fetched = self.remote.patiently("reading", key, ask).await?;
        if let Fetched::Bytes(bytes) = &fetched {
            self.remote.metrics.read(bytes.len() as u64);
        }
        Ok(fetched)
    }

    /// Writes an object under the condition that nothing is there. A service that knows no
    /// conditions may write all the same; who must know looks before, with [`Objects::size`].
    pub async fn put_new(&self, key: &str, bytes: &Bytes) -> Result<Put, ArchiveError> {
        let path = path_of(key)?;
        let put = || {
            let (store, path) = (Arc::clone(&self.remote.store), path.clone());
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let payload = PutPayload::from_bytes(bytes.clone());
            async move {
                match store.put_opts(&path, payload, options).await {
                    Ok(_) => Ok(Put::Written),
                    Err(
                        object_store::Error::AlreadyExists { .. }
                        | object_store::Error::Precondition { .. },
                    ) => Ok(Put::Occupied),
                    Err(e) => Err(e),
                }
            }
        };
        self.remote.patiently("writing", key, put).await
    }

    /// Removes what cut-off writes of a name left in a directory, now that the name is there.
    pub async fn sweep_name(&self, key: &str) {
        self.remote.sweep_name(key).await;
    }

    /// Removes what cut-off writes left at the top of a directory: of names that are ours, if the name
    /// itself is there by now, or if it was long ago.
    pub async fn sweep(&self, is_ours: impl Fn(&str) -> bool) -> Result<(), ArchiveError> {
        self.remote.sweep_top(is_ours).await
    }

    /// Removes an object. One that is not there is no error: the answer to an earlier request may
    /// have been lost.
    pub async fn remove(&self, key: &str) -> Result<(), ArchiveError> {
        let path = path_of(key)?;
        let ask = || {
            let (store, path) = (Arc::clone(&self.remote.store), path.clone());
            async move {
                match store.delete(&path).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(e) => Err(e),
                }
            }
        };
        self.remote.patiently("removing", key, ask).await
    }

    /// Makes removals at the top durable: a directory forgets them with the power until it is synced. A bucket's
    /// are when they are answered.
    pub async fn sync_removals(&self) -> Result<(), ArchiveError> {
        let Some(directory) = &self.remote.directory else { return Ok(()) };
        let ask = || {
            let directory = Arc::clone(directory);
            async move {
                let sync = move || File::open(&*directory)?.sync_all();
                let synced = tokio::task::spawn_blocking(sync).await?;
                synced.map_err(|source| object_store::Error::Generic {
                    store: "directory",
                    source: source.into(),
                })
            }
        };
        self.remote.patiently("syncing", "the directory", ask).await
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use futures_util::stream::{self, StreamExt as _};

    use super::*;
    use crate::Retry;

    #[tokio::test]
    async fn an_object_is_written_once_and_read_only_within_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let url: ArchiveUrl = dir.path().join("blobs").to_str().unwrap().parse().unwrap();
        assert!(Objects::open(&url, &Settings::default()).is_err());
        let objects = Objects::create(&url, &Settings::default()).unwrap();
        assert!(objects.is_directory() && objects.address().starts_with("file:///"));
        let (one, other) = (Bytes::from_static(b"one"), Bytes::from_static(b"other"));
        assert_eq!(objects.size("a/b").await.unwrap(), None);
        assert_eq!(objects.get("a/b", 9).await.unwrap(), Fetched::Missing);
        assert_eq!(objects.put_new("a/b", &one).await.unwrap(), Put::Written);
        assert_eq!(objects.put_new("a/b", &other).await.unwrap(), Put::Occupied);
        assert_eq!(objects.get("a/b", 3).await.unwrap(), Fetched::Bytes(one));
        assert_eq!(objects.get("a/b", 2).await.unwrap(), Fetched::TooLong(3));
        assert_eq!(objects.size("a/b").await.unwrap(), Some(3));
        for _ in 0..2 {
            objects.remove("a/b").await.unwrap();
            assert_eq!(objects.get("a/b", 3).await.unwrap(), Fetched::Missing);
        }
        for key in ["../b", "a/../../b"] {
            assert!(objects.get(key, 9).await.is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_directory_that_does_not_answer_leaves_threads_for_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(80)
            .enable_all()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Whoever opens it to read waits for somebody who writes.
        let stuck = dir.path().join("stuck");
        assert!(Command::new("mkfifo").arg(&stuck).status().unwrap().success());
        let url: ArchiveUrl = dir.path().to_str().unwrap().parse().unwrap();
        let retry =
            Retry { attempts: 1, request_timeout: Duration::from_millis(200), ..Retry::default() };
        let objects = Objects::create(&url, &Settings { retry, ..Settings::default() }).unwrap();
        let freed = runtime.block_on(async {
            let asked = stream::iter(0..100).map(|_| objects.get("stuck", 9));
            let answers: Vec<_> = asked.buffer_unordered(100).collect().await;
            assert!(answers.iter().all(Result::is_err), "{answers:?}");
            let other = tokio::task::spawn_blocking(|| "other work");
            tokio::time::timeout(Duration::from_secs(20), other).await
        });
        // Those who wait never end: nobody waits for them here.
        runtime.shutdown_background();
        assert_eq!(freed.unwrap().unwrap(), "other work");
    }

    #[tokio::test]
    async fn a_directory_that_stands_still_is_asked_once() {
        let dir = tempfile::tempdir().unwrap();
        let stuck = dir.path().join("stuck");
        assert!(Command::new("mkfifo").arg(&stuck).status().unwrap().success());
        let url: ArchiveUrl = dir.path().to_str().unwrap().parse().unwrap();
        let request_timeout = Duration::from_millis(100);
        let retry = Retry { attempts: 6, request_timeout, ..Retry::default() };
        let objects = Objects::create(&url, &Settings { retry, ..Settings::default() }).unwrap();
        let error = objects.get("stuck", 9).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Timeout { .. }) && error.is_retryable(), "{error}");
        assert_eq!(objects.remote.metrics.snapshot().failures, 0, "nothing was tried again");
        // Whoever waits for it is let go.
        drop(File::options().write(true).open(&stuck).unwrap());
    }

    #[tokio::test]
    async fn removals_are_synced_where_there_is_a_directory_and_fail_where_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let url: ArchiveUrl = place.to_str().unwrap().parse().unwrap();
        let objects = Objects::create(&url, &Settings::default()).unwrap();
        objects.put_new("one", &Bytes::from_static(b"one")).await.unwrap();
        objects.remove("one").await.unwrap();
        objects.sync_removals().await.unwrap();
        std::fs::remove_dir(&place).unwrap();
        assert!(objects.sync_removals().await.is_err());
    }
}
