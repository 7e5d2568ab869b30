//! The data directory: `store.toml`, `LOCK` and `history/` (`blobs` opens `sidecars/` beside it, and
//! `made` remembers which of them there were).
//!
//! Opening changes nothing until it is sure that the directory is ours, of a format that we know,
//! and nobody else's at the moment. What is inside `history/` is the store's business.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::{FlockOperation, OFlags};
use secateur_store::ground::disk::{
    ARENA_FILE, DiskStore, FsVolume, INDEX_FILE, RESERVE_BYTES, open_ground, sync_ancestors,
};
use secateur_store::{ClassTable, Sabotage, StoreConfig, StoreError, SystemClock};
use serde::{Deserialize, Serialize};

use crate::error::NodeError;
use crate::{durable, made};

/// The directory of every command but the demo.
pub(crate) const DEFAULT_DATA: &str = "./secateur-data";
/// The newest directory format that this program reads and writes.
const FORMAT: u32 = 1;
const STORE_FILE: &str = "store.toml";
const LOCK_FILE: &str = "LOCK";
const HISTORY: &str = "history";

/// What `store.toml` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    format: u32,
    chain_id: u64,
    created_by: String,
}

/// The one field that every format has, read before the others are judged.
#[derive(Deserialize)]
struct FormatOnly {
    format: i64,
}

/// An open data directory. The store is closed before the lock is given up.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub(crate) store: Arc<DiskStore>,
    pub(crate) path: PathBuf,
    _lock: File,
}

/// A data directory that is ours and locked; its store is not open yet.
#[derive(Debug)]
pub(crate) struct Claimed {
    path: PathBuf,
    chain_id: u64,
    lock: File,
}

impl DataDir {
    /// Opens a directory that must be there.
    pub(crate) fn open(path: &Path) -> Result<Self, anyhow::Error> {
        let claimed = Claimed::existing(path)?;
        claimed.open_store()?.ok_or_else(|| {
            let history = path.join(HISTORY);
            NodeError::NoHistory(history).into()
        })
    }
}

/// The chain that a directory is for, if it is made already.
pub(crate) fn chain_of(path: &Path) -> Result<Option<u64>, anyhow::Error> {
    Ok(read_store_file(path)?.map(|file| file.chain_id))
}

impl Claimed {
    /// Claims a directory that must be there.
    pub(crate) fn existing(path: &Path) -> Result<Self, anyhow::Error> {
        check_directory(path)?;
        let file = read_store_file(path)?.ok_or_else(|| {
            if is_unclaimed(path).unwrap_or(false) {
                NodeError::Missing(path.to_path_buf())
            } else {
                NodeError::ForeignDirectory(path.to_path_buf())
            }
        })?;
        Ok(Self { path: path.to_path_buf(), chain_id: file.chain_id, lock: lock(path)? })
    }

    /// Claims a directory, making it for a chain if it is missing or empty. What a crash in the
    /// middle leaves behind counts as empty.
    pub(crate) fn existing_or_new(path: &Path, chain_id: u64) -> Result<Self, anyhow::Error> {
        if !path.try_exists().unwrap_or(true) {
            make_directory(path)?;
        }
        check_directory(path)?;
        if read_store_file(path)?.is_none() && !is_unclaimed(path)? {
            return Err(NodeError::ForeignDirectory(path.to_path_buf()).into());
        }
        let lock = lock(path)?;
        // Looked at again, because only now nobody else can be writing it.
        let chain_id = if let Some(file) = read_store_file(path)? {
            file.chain_id
        } else {
            write_store_file(path, chain_id)?;
            chain_id
        };
        Ok(Self { path: path.to_path_buf(), chain_id, lock })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The chain that the directory is for.
    pub(crate) fn chain_id(&self) -> u64 {
        self.chain_id
    }

    /// The classes of a new store: regions that suit its budget, or the disk where that has less.
    pub(crate) fn classes_for(&self, target_bytes: u64) -> ClassTable {
        let free = rustix::fs::statvfs(&self.path)
            .map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        ClassTable::for_budget(match target_bytes {
            0 if free == u64::MAX => 0,
            0 => free.max(1),
            target => target.min(free).max(1),
        })
    }

    /// Opens the store, if there is one; an unfinished creation is none.
    pub(crate) fn open_store(self) -> Result<Option<DataDir>, anyhow::Error> {
        self.open_with(None)
    }

    /// Opens the store, or makes it when its creation was never finished. One that was made and
    /// removed is not made again.
    pub(crate) fn open_or_create_store(
        self,
        config: StoreConfig,
    ) -> Result<DataDir, anyhow::Error> {
        let history = self.path.join(HISTORY);
        self.open_with(Some(config))?.ok_or_else(|| NodeError::NoHistory(history).into())
    }

    fn open_with(self, config: Option<StoreConfig>) -> Result<Option<DataDir>, anyhow::Error> {
        let history = self.path.join(HISTORY);
        let may_make = config.is_some();
        if !has_files(&history) {
            made::check_lost(&self.path, HISTORY)?;
            if !may_make {
                return Ok(None);
            }
        }
        let explain = |error| explain_open("history", &history, error);
        let volume = FsVolume::open(&history).map_err(explain)?;
        let ground = open_ground(&volume, RESERVE_BYTES, Sabotage::None).map_err(explain)?;
        let clock = Arc::new(SystemClock);
        let store = match (DiskStore::exists(&ground).map_err(explain)?, config) {
            (true, _) => {
                let store = DiskStore::read_header(&ground).map_err(explain)?.chain_id;
                if store != self.chain_id {
                    let directory = self.chain_id;
                    return Err(NodeError::ChainMismatch { directory, store }.into());
                }
                DiskStore::open(ground, clock).map_err(explain)?
            }
            (false, config) => {
                made::check_lost(&self.path, HISTORY)?;
                let Some(config) = config else { return Ok(None) };
                DiskStore::create(ground, config, clock).map_err(explain)?
            }
        };
        if may_make {
            made::note(&self.path, HISTORY)?;
        }
        Ok(Some(DataDir { store: Arc::new(store), path: self.path, _lock: self.lock }))
    }
}

/// Whether a family's directory has files of a store. Where that cannot be told it has: whoever opens
/// them is told why.
pub(crate) fn has_files(place: &Path) -> bool {
    let there = |name: &str| place.join(name).try_exists().unwrap_or(true);
    there(INDEX_FILE) || there(ARENA_FILE)
}

/// What a store that does not open means for its operator.
pub(crate) fn explain_open(family: &str, place: &Path, error: StoreError) -> anyhow::Error {
    let path = place.display();
    match &error {
        StoreError::Io { source, .. }
            if matches!(
                source.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
            ) =>
        {
            anyhow::Error::from(error).context(NodeError::NotWritable(place.to_path_buf()))
        }
        StoreError::Corrupt { .. } | StoreError::Foreign(_) => {
            anyhow::Error::from(error).context(format!(
                "the {family} in {path} cannot be opened, so nothing can be put right in place; \
                 restore it from a backup, or fill a new directory from its source"
            ))
        }
        _ => anyhow::Error::from(error).context(format!("opening the {family} in {path} failed")),
    }
}

/// Random bytes that tell a new store from any other.
pub(crate) fn random_store_id() -> Result<[u8; 16], anyhow::Error> {
    let mut id = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut id))
        .context("reading random bytes from /dev/urandom")?;
    Ok(id)
}

fn check_directory(path: &Path) -> Result<(), anyhow::Error> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(NodeError::NotADirectory(path.to_path_buf()).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(NodeError::Missing(path.to_path_buf()).into())
        }
        Err(error) => Err(error).with_context(|| format!("looking at {} failed", path.display())),
    }
}

/// Whether nothing is in the directory but what an interrupted creation leaves.
fn is_unclaimed(path: &Path) -> Result<bool, anyhow::Error> {
    let unfinished = format!("{STORE_FILE}{}", durable::UNFINISHED);
    for entry in std::fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
        let name = entry?.file_name();
        // UTXO records may have been here first.
        if name != LOCK_FILE && name != crate::utxo::DIRECTORY && name != unfinished.as_str() {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn make_directory(path: &Path) -> Result<(), anyhow::Error> {
    let make = || -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        sync_ancestors(path)
    };
    make().with_context(|| format!("making the data directory {}", path.display()))
}

fn read_store_file(directory: &Path) -> Result<Option<StoreFile>, anyhow::Error> {
    let path = directory.join(STORE_FILE);
    let Some(text) = durable::read(&path)? else {
        return Ok(None);
    };
    let bad = |error: toml::de::Error| NodeError::BadFile {
        path: path.clone(),
        reason: error.message().to_owned(),
    };
    let found = toml::from_str::<FormatOnly>(&text).map_err(bad)?.format;
    if found > i64::from(FORMAT) {
        let path = directory.to_path_buf();
        let known = FORMAT;
        return Err(NodeError::NewerDirectory { path, found, known }.into());
    }
    let file: StoreFile = toml::from_str(&text).map_err(bad)?;
    if file.format == 0 {
        let reason = "format 0 does not exist".into();
        return Err(NodeError::BadFile { path, reason }.into());
    }
    Ok(Some(file))
}

fn write_store_file(directory: &Path, chain_id: u64) -> Result<(), anyhow::Error> {
    let file = StoreFile {
        format: FORMAT,
        chain_id,
        created_by: concat!("secateur ", env!("CARGO_PKG_VERSION")).into(),
    };
    let text = toml::to_string(&file).context("writing store.toml")?;
    let text =
        format!("# Secateur's data directory. It must agree with the files beside it.\n{text}");
    durable::write(directory, STORE_FILE, &text)
}

/// Takes the directory for this process alone, without waiting.
pub(crate) fn lock(directory: &Path) -> Result<File, anyhow::Error> {
    let path = directory.join(LOCK_FILE);
    let mut file = durable::open(&path, OFlags::RDWR | OFlags::CREATE)?
        .ok_or_else(|| NodeError::Missing(directory.to_path_buf()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // Only a courtesy to whoever finds the directory locked; a full disk may refuse it.
            note_process(&mut file).unwrap_or_default();
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let (path, pid) = (directory.to_path_buf(), noted_process(&mut file));
            Err(NodeError::Locked { path, pid }.into())
        }
        Err(error) => Err(io::Error::from(error))
            .with_context(|| format!("locking {} failed", path.display())),
    }
}

fn note_process(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn noted_process(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
