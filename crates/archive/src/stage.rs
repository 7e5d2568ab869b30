//! The stage: a local directory with the part in the making and the finished ones that wait.
//!
//! `<first>.unfinished` is being written; `<first>-<last>-<sha256>.part` is whole and synced. The
//! name of the second is given only after the file was synced, so a crash leaves one or the other.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use secateur_core::Height;

use crate::part::{FileRange, PartReader};
use crate::{ArchiveError, Check, Manifest};

const UNFINISHED: &str = "unfinished";
const FINISHED: &str = "part";

/// An archiver's directory; nobody else has it at the same time.
#[derive(Debug)]
pub(crate) struct Stage {
    dir: PathBuf,
    /// Held for as long as the stage is.
    _lock: File,
}

/// A finished part in the stage.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Stage {
    /// Takes the directory and removes what was not finished.
    pub(crate) fn open(dir: &Path) -> Result<Self, ArchiveError> {
        fs::create_dir_all(dir).map_err(ArchiveError::stage("creating", dir))?;
        let path = dir.join("LOCK");
        let lock = File::create(&path).map_err(ArchiveError::stage("opening", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ArchiveError::Locked { path: dir.to_owned() })?;
        let stage = Self { dir: dir.to_owned(), _lock: lock };
        for path in stage.files(UNFINISHED)? {
            fs::remove_file(&path).map_err(ArchiveError::stage("removing", &path))?;
        }
        Ok(stage)
    }

    /// Where a part that begins at `first` is written.
    pub(crate) fn unfinished(&self, first: Height) -> PathBuf {
        self.dir.join(format!("{first:020}.{UNFINISHED}"))
    }

    /// Gives a synced file the name of a finished part.
    pub(crate) fn finish(&self, from: &Path, manifest: &Manifest) -> Result<Staged, ArchiveError> {
        let Manifest { first, last, sha256, .. } = manifest;
        let path = self.dir.join(format!("{first:020}-{last:020}-{sha256}.{FINISHED}"));
        fs::rename(from, &path).map_err(ArchiveError::stage("renaming", from))?;
        self.sync()?;
        Ok(Staged { path, manifest: manifest.clone() })
    }

    /// Removes a file; one that is gone already is fine.
    pub(crate) async fn remove(&self, path: &Path) -> Result<(), ArchiveError> {
        let (dir, file) = (self.dir.clone(), path.to_owned());
        let remove = move || match fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => File::open(&dir)?.sync_all(),
        };
        let removed = tokio::task::spawn_blocking(remove).await;
        removed
            .unwrap_or_else(|e| Err(io::Error::other(e)))
            .map_err(ArchiveError::stage("removing", path))
    }

    /// The finished parts, lowest first. Each is read whole: one that is damaged is removed, and
    /// its blocks come again from where they came from.
    pub(crate) async fn finished(&self) -> Result<Vec<Staged>, ArchiveError> {
        let mut finished = Vec::new();
        for path in self.files(FINISHED)? {
            match read(&path).await {
                Ok(manifest) => finished.push(Staged { path, manifest }),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a staged part is discarded");
                    self.remove(&path).await?;
                }
            }
        }
        Ok(finished)
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, ArchiveError> {
        let failed = || ArchiveError::stage("listing", &self.dir);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn sync(&self) -> Result<(), ArchiveError> {
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(ArchiveError::stage("syncing", &self.dir))
    }
}

async fn read(path: &Path) -> Result<Manifest, ArchiveError> {
    let reader = PartReader::open(FileRange::open(path)?).await?;
    let manifest = reader.scan(Check::Framing).finish().await?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    if !name.is_some_and(|name| name.ends_with(&manifest.sha256.to_string())) {
        let path = path.display().to_string();
        return Err(ArchiveError::damaged(path, "its SHA-256 is another one than its name says"));
    }
    Ok(manifest)
}
