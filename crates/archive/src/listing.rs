//! Listing names in their order, page by page: memory does not grow with the archive.
//!
//! S3 lists in order. A directory does not, so it is walked here: of each directory only the next
//! page of names is kept.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};

use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use futures_util::{Stream, stream};

use crate::ArchiveError;
use crate::remote::{Remote, path_of};

/// How many that is; see [`Walk::page`].
const PAGE: usize = 16 * 1024;
/// Names that are handed over together.
const BATCH: usize = 512;
/// A walk goes no deeper: an archive has three levels.
const MAX_DEPTH: usize = 16;

/// A name and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) key: String,
    pub(crate) size: u64,
}

impl Remote {
    /// All names below `folder` that come after `after`, in their order.
    pub(crate) fn names(
        &self,
        folder: &str,
        after: Option<String>,
    ) -> BoxStream<'static, Result<Name, ArchiveError>> {
        match &self.directory {
            Some(root) => walk(root, folder.trim_end_matches('/'), after, PAGE).boxed(),
            None => self.list(folder.trim_end_matches('/').to_owned(), after).boxed(),
        }
    }

    /// Lists a bucket. After a failure it goes on behind the last name that came.
    fn list(
        &self,
        folder: String,
        after: Option<String>,
    ) -> impl Stream<Item = Result<Name, ArchiveError>> + Send + 'static {
        let remote = self.clone();
        let state = Listing { remote, folder, last: after, pages: None, attempt: 1 };
        stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await?.map(|name| (name, state)))
        })
    }
}

/// A listing on its way.
struct Listing {
    remote: Remote,
    folder: String,
    last: Option<String>,
    pages: Option<BoxStream<'static, object_store::Result<object_store::ObjectMeta>>>,
    attempt: u32,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<Name>, ArchiveError> {
        loop {
            if self.pages.is_none() {
                self.pages = Some(self.start()?);
            }
            let Some(pages) = &mut self.pages else { return Ok(None) };
            let limit = self.remote.retry.request_timeout;
            let answer = tokio::time::timeout(limit, pages.try_next()).await.map_or_else(
                |_| Err(ArchiveError::timeout("listing", &self.folder, limit)),
                |answer| answer.map_err(ArchiveError::storage("listing", &*self.folder)),
            );
            match answer {
                Ok(None) => return Ok(None),
                Ok(Some(meta)) => return self.take(meta.location.to_string(), meta.size).map(Some),
                Err(e) if e.is_retryable() && self.attempt < self.remote.retry.attempts => {
                    self.remote.metrics.failed();
                    tokio::time::sleep(self.remote.retry.pause(self.attempt)).await;
                    self.attempt += 1;
                    self.pages = None;
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn start(
        &self,
    ) -> Result<BoxStream<'static, object_store::Result<object_store::ObjectMeta>>, ArchiveError>
    {
        let folder = if self.folder.is_empty() { None } else { Some(path_of(&self.folder)?) };
        Ok(match &self.last {
            Some(last) => self.remote.store.list_with_offset(folder.as_ref(), &path_of(last)?),
            None => self.remote.store.list(folder.as_ref()),
        })
    }

    fn take(&mut self, key: String, size: u64) -> Result<Name, ArchiveError> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(ArchiveError::invalid(
                "object storage",
                format!("it does not list names in their order ({key} came too late)"),
            ));
        }
        self.attempt = 1;
        self.last = Some(key.clone());
        Ok(Name { key, size })
    }
}

/// Walks a directory in batches, each on a thread that may block.
fn walk(
    root: &FilePath,
    folder: &str,
    after: Option<String>,
    page: usize,
) -> impl Stream<Item = Result<Name, ArchiveError>> + Send + 'static {
    let path = if folder.is_empty() { root.to_owned() } else { root.join(folder) };
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let after = after.unwrap_or_default();
    let state = Some(Walk { levels: vec![Level::new(path, prefix)], after, page });
    let batches = stream::try_unfold(state, |state| async move {
        let Some(mut walk) = state else { return Ok(None) };
        let batch = tokio::task::spawn_blocking(move || {
            let mut names = Vec::new();
            while names.len() < BATCH {
                let Some(name) = walk.next()? else { return Ok((names, None)) };
                names.push(name);
            }
            Ok((names, Some(walk)))
        });
        match batch.await {
            Ok(Ok((names, walk))) => Ok(Some((names, walk))),
            Ok(Err(e)) => Err(e),
            Err(e) => Err(ArchiveError::invalid("listing", e.to_string())),
        }
    });
    batches.map_ok(|names| stream::iter(names.into_iter().map(Ok))).try_flatten()
}

struct Walk {
    levels: Vec<Level>,
    /// Names of one directory that are kept at a time.
    page: usize,
    /// Names up to this one are passed over.
    after: String,
}

/// One directory of the walk.
struct Level {
    path: PathBuf,
    prefix: String,
    /// The next names, in order; a directory's ends in a slash, which is how its names sort.
    page: VecDeque<String>,
    /// The last name that was ever in `page`.
    last: Option<String>,
    whole: bool,
}

impl Level {
    fn new(path: PathBuf, prefix: String) -> Self {
        Self { path, prefix, page: VecDeque::new(), last: None, whole: false }
    }

    /// Reads the directory again and keeps the smallest names behind the last page.
    fn load(&mut self, after: &str, most: usize) -> io::Result<()> {
        let mut page = BTreeSet::new();
        self.whole = true;
        let entries = match fs::read_dir(&self.path) {
            // A chain without a directory has no parts.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let mut name = entry.file_name().to_string_lossy().into_owned();
            // A link to a directory is not followed: it is listed as a name.
            let folder = entry.file_type()?.is_dir();
            if folder {
                name.push('/');
            }
            let key = format!("{}{name}", self.prefix);
            let passed = key.as_str() <= after && !(folder && after.starts_with(&key));
            if passed || self.last.as_ref().is_some_and(|last| name <= *last) {
                continue;
            }
            page.insert(name);
            if page.len() > most {
                page.pop_last();
                self.whole = false;
            }
        }
        self.last = page.last().cloned().or(self.last.take());
        self.page = page.into_iter().collect();
        Ok(())
    }
}

impl Walk {
    fn next(&mut self) -> Result<Option<Name>, ArchiveError> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let Some(name) = level.page.pop_front() else {
                if level.whole {
                    self.levels.pop();
                } else {
                    level
                        .load(&self.after, self.page)
                        .map_err(ArchiveError::stage("listing", &level.path))?;
                }
                continue;
            };
            let key = format!("{}{name}", level.prefix);
            let path = level.path.join(&name);
            if name.ends_with('/') {
                if self.levels.len() >= MAX_DEPTH {
                    return Ok(Some(Name { key, size: 0 }));
                }
                self.levels.push(Level::new(path, key));
                continue;
            }
            // Gone since, or a link to nowhere: it has no bytes.
            let size = fs::metadata(&path).map_or(0, |meta| meta.len());
            return Ok(Some(Name { key, size }));
        }
    }
}

/// What is right below the root of a directory: folders and everything else.
pub(crate) fn top_of(root: &FilePath) -> io::Result<(Vec<String>, Vec<String>)> {
    let (mut folders, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let folder = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_dir());
        if folder { folders.push(name) } else { others.push(name) }
    }
    others.sort_unstable();
    Ok((folders, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_walked_in_the_order_of_its_names_from_any_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut wanted = Vec::new();
        for folder in ["a", "a/b", "a.d", "b", "b/c/d"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            for file in ["1", "2", "b.json", "z"] {
                fs::write(dir.path().join(folder).join(file), file).unwrap();
                wanted.push(format!("{folder}/{file}"));
            }
        }
        fs::write(dir.path().join("a/z#1"), "unfinished").unwrap();
        wanted.push("a/z#1".to_owned());
        wanted.sort();
        let all = |after: Option<String>, page: usize| {
            walk(dir.path(), "", after, page).map_ok(|name| name.key).try_collect::<Vec<_>>()
        };
        for page in [1, 2, 3, PAGE] {
            assert_eq!(all(None, page).await.unwrap(), wanted);
            for (at, after) in wanted.iter().enumerate() {
                let behind = all(Some(after.clone()), page).await.unwrap();
                assert_eq!(behind, wanted[at + 1..], "behind {after}, pages of {page}");
            }
        }
        let below = walk(dir.path(), "a", None, 2).map_ok(|name| name.key);
        let below: Vec<_> = below.try_collect().await.unwrap();
        assert_eq!(below.len(), 9);
        let none = walk(dir.path(), "missing", None, 2).try_collect::<Vec<_>>().await.unwrap();
        assert!(none.is_empty());
    }
}
