//! The index in redb, on our own backend: it can be simulated, and it keeps a reserve of space.
//!
//! Only small rows live here. A commit is durable when it returns; a failed one leaves redb
//! closed to writes, and the store above is poisoned.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, StorageBackend, TableDefinition,
    TableError,
};

use super::header_slots::{HEADER_LEN, HeaderSlots, SHIFT};
use super::volume::{Volume, VolumeFile};
use super::{INDEX_FILE, RESERVE_FILE};
use crate::ground::{Change, Index, Snapshot, Table, Visit};
use crate::{Sabotage, StoreError};

/// Memory that redb may use for its pages.
pub const INDEX_CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Space is asked for ahead of writing in steps of this much, so that a page that redb already
/// counts on can always be written.
const ALLOCATE_STEP: u64 = 1024 * 1024;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

fn definition(table: Table) -> Definition {
    TableDefinition::new(table.name())
}

/// The index.
pub struct RedbIndex {
    database: RwLock<Database>,
    space: Arc<dyn Reserve>,
}

impl std::fmt::Debug for RedbIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbIndex")
    }
}

/// What the index needs to know of its own file and reserve, whatever the volume.
trait Reserve: Send + Sync {
    fn file_bytes(&self) -> io::Result<u64>;
    fn ensure(&self) -> io::Result<bool>;
}

/// The file under redb and the reserve beside it.
#[derive(Debug)]
struct Backing<F> {
    file: F,
    reserve: F,
    reserve_bytes: u64,
    intact: AtomicBool,
    /// Bytes of the index file that the volume has surely given.
    allocated: AtomicU64,
}

impl<F: VolumeFile> Backing<F> {
    /// Makes sure that writing up to `end` cannot fail for want of space; uses up the reserve if
    /// that is the only way.
    fn allocate_to(&self, end: u64) -> io::Result<()> {
        let from = self.allocated.load(Ordering::Acquire);
        if end <= from {
            return Ok(());
        }
        let to = end.div_ceil(ALLOCATE_STEP) * ALLOCATE_STEP;
        let attempt = |to: u64| -> io::Result<()> {
            // Allocating must not lengthen the file behind redb's back.
            let to = to.min(self.file.len()?).max(end);
            self.file.allocate(from, to - from)?;
            self.allocated.fetch_max(to, Ordering::AcqRel);
            Ok(())
        };
        match attempt(to) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                if self.intact.swap(false, Ordering::AcqRel) {
                    self.reserve.set_len(0)?;
                }
                attempt(end)
            }
            other => other,
        }
    }
}

impl<F: VolumeFile> Reserve for Backing<F> {
    fn file_bytes(&self) -> io::Result<u64> {
        self.file.given()
    }

    fn ensure(&self) -> io::Result<bool> {
        if self.reserve_bytes == 0 || self.intact.load(Ordering::Acquire) {
            return Ok(true);
        }
        match self.reserve.allocate(0, self.reserve_bytes) {
            Ok(()) => {
                self.intact.store(true, Ordering::Release);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                // What a failed attempt took would be missing elsewhere.
                self.reserve.set_len(0)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// redb's view of its file.
#[derive(Debug)]
struct Backend<F> {
    backing: Arc<Backing<F>>,
    slots: Mutex<HeaderSlots>,
    sabotage: Sabotage,
}

/// How many of `len` bytes at a logical offset lie in the header.
fn in_header(offset: u64, len: usize) -> (usize, usize) {
    let offset = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(HEADER_LEN);
    (offset, len.min(HEADER_LEN - offset))
}

impl<F: VolumeFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.backing.file.len()?.saturating_sub(SHIFT))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (at, len) = in_header(offset, out.len());
        let (head, tail) = out.split_at_mut(len);
        self.slots.lock().read(at, head);
        if tail.is_empty() {
            return Ok(());
        }
        self.backing.file.read_at(SHIFT + offset + len as u64, tail)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backing.file.set_len(SHIFT + len)?;
        self.backing
            .allocated
            .fetch_min(SHIFT + len, Ordering::AcqRel);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut slots = self.slots.lock();
        if !self.sabotage.is(Sabotage::SkipIndexSync) {
            self.backing.file.sync()?;
        }
        slots.synced();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backing
            .allocate_to(SHIFT + offset.saturating_add(data.len() as u64))?;
        let (at, len) = in_header(offset, data.len());
        let (head, tail) = data.split_at(len);
        if !head.is_empty() {
            self.slots.lock().write(&self.backing.file, at, head)?;
        }
        if tail.is_empty() {
            return Ok(());
        }
        self.backing
            .file
            .write_at(SHIFT + offset + len as u64, tail)
    }
}

impl RedbIndex {
    /// Opens the index of a volume, making it if it is not there.
    pub fn open<V: Volume>(
        volume: &V,
        reserve_bytes: u64,
        sabotage: Sabotage,
    ) -> Result<Self, StoreError> {
        let backing = Arc::new(Backing {
            file: volume.open(INDEX_FILE)?,
            reserve: volume.open(RESERVE_FILE)?,
            reserve_bytes,
            intact: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
        });
        backing
            .ensure()
            .map_err(|source| StoreError::io("reserving space", source))?;
        let slots = Mutex::new(load_slots(&backing.file)?);
        let backend = Backend {
            backing: Arc::clone(&backing),
            slots,
            sabotage,
        };
        let mut builder = redb::Builder::new();
        builder.set_cache_size(INDEX_CACHE_BYTES);
        let database = guard(|| builder.create_with_backend(backend).map_err(index_error))?;
        let index = Self {
            database: RwLock::new(database),
            space: backing,
        };
        index.make_tables()?;
        Ok(index)
    }

    /// A reader must not meet a table that no batch has written yet.
    fn make_tables(&self) -> Result<(), StoreError> {
        let database = self.database.read();
        let there = guard(|| {
            let read = database.begin_read().map_err(index_error)?;
            Ok(read.list_tables().map_err(index_error)?.count() == Table::ALL.len())
        })?;
        if there {
            return Ok(());
        }
        guard(|| {
            let write = database.begin_write().map_err(index_error)?;
            for table in Table::ALL {
                write.open_table(definition(table)).map_err(index_error)?;
            }
            write.commit().map_err(index_error)
        })
    }
}

/// The header slots of a file; a file whose making was interrupted starts anew.
fn load_slots(file: &impl VolumeFile) -> Result<HeaderSlots, StoreError> {
    match HeaderSlots::load(file) {
        Ok(Some(slots)) => Ok(slots),
        Ok(None) => {
            file.set_len(0)
                .map_err(|source| StoreError::io("making the index", source))?;
            Ok(HeaderSlots::blank())
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(StoreError::corrupt("index", error.to_string()))
        }
        Err(source) => Err(StoreError::io("reading the index", source)),
    }
}

/// redb checks most of what it reads but not all: a damaged page can make it panic. That is a
/// corrupt index, not a reason to take the process down.
fn guard<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a structure that cannot be");
        Err(StoreError::corrupt("index", text))
    })
}

fn index_error(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(source) => StoreError::io("the index", source),
        redb::Error::PreviousIo => StoreError::Poisoned("the index failed earlier".into()),
        redb::Error::DatabaseAlreadyOpen => StoreError::Locked("the index".into()),
        other => StoreError::corrupt("index", other.to_string()),
    }
}

/// What a reader of the index sees.
pub struct RedbSnapshot {
    transaction: ReadTransaction,
    tables: [OnceCell<ReadOnlyTable<&'static [u8], &'static [u8]>>; Table::ALL.len()],
}

impl std::fmt::Debug for RedbSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbSnapshot")
    }
}

impl RedbSnapshot {
    fn table(
        &self,
        table: Table,
    ) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>, StoreError> {
        let cell = self
            .tables
            .get(table as usize)
            .ok_or_else(|| StoreError::corrupt("index", "an unknown table"))?;
        if let Some(open) = cell.get() {
            return Ok(open);
        }
        let open = self
            .transaction
            .open_table(definition(table))
            .map_err(|error| match error {
                TableError::TableDoesNotExist(name) => {
                    StoreError::corrupt("index", format!("the table {name} is missing"))
                }
                other => index_error(other),
            })?;
        Ok(cell.get_or_init(|| open))
    }
}

impl Snapshot for RedbSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        guard(|| {
            let value = self.table(table)?.get(key).map_err(index_error)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut rows = guard(|| {
            self.table(table)?
                .range::<&[u8]>(from..)
                .map_err(index_error)
        })?;
        while let Some(row) = guard(|| rows.next().transpose().map_err(index_error))? {
            if visit(row.0.value(), row.1.value())?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Index for RedbIndex {
    type Snapshot = RedbSnapshot;

    fn snapshot(&self) -> Result<RedbSnapshot, StoreError> {
        let transaction = guard(|| self.database.read().begin_read().map_err(index_error))?;
        Ok(RedbSnapshot {
            transaction,
            tables: std::array::from_fn(|_| OnceCell::new()),
        })
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let database = self.database.read();
        guard(|| {
            let write = database.begin_write().map_err(index_error)?;
            let mut changes = changes.into_iter().peekable();
            while let Some(table) = changes.peek().map(|change| change.table) {
                let mut rows = write.open_table(definition(table)).map_err(index_error)?;
                while let Some(change) = changes.next_if(|change| change.table == table) {
                    match change.value {
                        Some(value) => rows.insert(change.key.as_slice(), value.as_slice()),
                        None => rows.remove(change.key.as_slice()),
                    }
                    .map_err(index_error)?;
                }
            }
            write.commit().map_err(index_error)
        })
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.space
            .file_bytes()
            .map_err(|source| StoreError::io("measuring the index", source))
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.space
            .ensure()
            .map_err(|source| StoreError::io("reserving space", source))
    }

    fn check(&self) -> Result<Option<Vec<String>>, StoreError> {
        let mut database = self.database.write();
        let checked = guard(|| match database.check_integrity() {
            Err(redb::DatabaseError::TransactionInProgress) => Ok(None),
            other => other.map(Some).map_err(index_error),
        });
        match checked {
            Ok(None) => Ok(None),
            Ok(Some(true)) => Ok(Some(Vec::new())),
            Ok(Some(false)) => Ok(Some(vec![
                "the index was damaged and repaired itself".into(),
            ])),
            Err(StoreError::Corrupt { detail, .. }) => Ok(Some(vec![detail])),
            Err(error) => Err(error),
        }
    }
}
