//! The index in redb, on our own backend: it can be simulated, it keeps a reserve of space, and
//! its header sector is kept twice.
//!
//! Only small rows live here. A commit is durable when it returns; a failed one leaves redb
//! closed to writes, and the store above is poisoned. Opening checks every page against its
//! checksum first, on a probe that cannot change the file.
//!
//! The index of a family that grows as long as the chain is opened without that (ADR 10): its
//! commits have two phases and carry redb's own books, so that the newest one is whole and nothing
//! has to be rebuilt after a crash. Rows are sealed, and `verify` checks every page.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, StorageBackend, TableDefinition,
    TableError, WriteTransaction,
};

use super::backend::Backend;
use super::probe;
use super::volume::{Volume, VolumeFile};
use crate::ground::{Change, Family, Index, KeyValue, Snapshot, Table, Visit};
use crate::{Sabotage, StoreError};

/// Memory that redb may use for its pages.
pub const INDEX_CACHE_BYTES: usize = 64 * 1024 * 1024;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

pub(super) fn definition(table: Table) -> Definition {
    TableDefinition::new(table.name())
}

/// The index.
pub struct RedbIndex {
    /// None only while it is being dropped.
    database: RwLock<Option<Database>>,
    file: Arc<dyn IndexFile>,
    family: Family,
    /// redb panicked on something it read; closing it would write on top of that.
    broken: Arc<AtomicBool>,
}

impl std::fmt::Debug for RedbIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbIndex")
    }
}

/// What the index asks of its own file, whatever the volume.
trait IndexFile: Send + Sync {
    fn given(&self) -> io::Result<u64>;
    fn ensure_reserve(&self) -> io::Result<bool>;
    /// What is wrong with the newest commit, if anything is.
    fn check(&self) -> Result<Option<String>, StoreError>;
}

impl<F: VolumeFile> IndexFile for Backend<F> {
    fn given(&self) -> io::Result<u64> {
        Self::given(self)
    }

    fn ensure_reserve(&self) -> io::Result<bool> {
        Self::ensure_reserve(self)
    }

    fn check(&self) -> Result<Option<String>, StoreError> {
        probe::check(self.clone(), true)
    }
}

impl RedbIndex {
    /// Opens the index of a volume. Only where `may_make` says that no data depends on it is an
    /// index made that is not there, or whose making was interrupted.
    pub fn open<V: Volume>(
        volume: &V,
        family: Family,
        may_make: bool,
        reserve_bytes: u64,
        sabotage: Sabotage,
    ) -> Result<Self, StoreError> {
        let backend = Backend::open(volume, may_make, reserve_bytes, sabotage)?;
        check_before_opening(&backend, family)?;
        let file = Arc::new(backend.clone());
        let database = guard(|| {
            let mut builder = redb::Builder::new();
            builder.set_cache_size(INDEX_CACHE_BYTES);
            builder.create_with_backend(backend).map_err(index_error)
        })?;
        let database = RwLock::new(Some(database));
        let index = Self { database, file, family, broken: Arc::default() };
        index.make_tables()?;
        Ok(index)
    }

    /// A reader must not meet a table that no batch has written yet.
    fn make_tables(&self) -> Result<(), StoreError> {
        self.with(|database| {
            let read = database.begin_read().map_err(index_error)?;
            let tables = self.family.tables();
            if read.list_tables().map_err(index_error)?.count() == tables.len() {
                return Ok(());
            }
            let write = self.begin_write(database)?;
            for table in tables {
                write.open_table(definition(*table)).map_err(index_error)?;
            }
            write.commit().map_err(index_error)
        })
    }

    fn begin_write(&self, database: &Database) -> Result<WriteTransaction, StoreError> {
        let mut write = database.begin_write().map_err(index_error)?;
        if self.family.grows_for_ever() {
            write.set_quick_repair(true);
        }
        Ok(write)
    }

    /// Runs a call on the database. redb checks most of what it reads but not all: a page that
    /// was damaged since it was opened can make it panic. That is a corrupt index, not a reason
    /// to take the process down.
    fn with<T>(
        &self,
        call: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read();
        let database =
            database.as_ref().ok_or_else(|| StoreError::Poisoned("the index is closed".into()))?;
        guard(|| call(database)).inspect_err(|error| note(&self.broken, error))
    }
}

/// Remembers that something damaged was met.
fn note(broken: &AtomicBool, error: &StoreError) {
    if error.is_corruption() {
        broken.store(true, Ordering::Release);
    }
}

impl Drop for RedbIndex {
    fn drop(&mut self) {
        let Some(database) = self.database.write().take() else { return };
        if self.broken.load(Ordering::Acquire) {
            std::mem::forget(database);
            return;
        }
        // Closing only spares the next open its recovery, so a failure of it is no loss.
        drop(guard(|| {
            drop(database);
            Ok(())
        }));
    }
}

/// Refuses a file with a damaged page. One that is being made has nothing to check yet; one that
/// grows for ever is not read as a whole where its newest commit is known to be.
fn check_before_opening<F: VolumeFile>(
    backend: &Backend<F>,
    family: Family,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::io("checking the index", source);
    if backend.len().map_err(failed)? == 0 {
        return Ok(());
    }
    let strict = probe::newest_must_be_whole(backend).map_err(failed)?;
    if strict && family.grows_for_ever() {
        return Ok(());
    }
    match probe::check(backend.clone(), strict)? {
        Some(detail) => Err(StoreError::corrupt("index", detail)),
        None => Ok(()),
    }
}

/// Turns a panic into a corrupt index.
pub(super) fn guard<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(StoreError::corrupt("index", format!("a page that cannot be ({text})")))
    })
}

pub(super) fn index_error(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        // A page number that leads beyond the file is as wrong as a page.
        redb::Error::Io(source)
            if matches!(
                source.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            StoreError::corrupt("index", source.to_string())
        }
        redb::Error::Io(source) => StoreError::io("the index", source),
        redb::Error::PreviousIo => StoreError::Poisoned("the index failed earlier".into()),
        other => StoreError::corrupt("index", other.to_string()),
    }
}

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What a reader of the index sees.
pub struct RedbSnapshot {
    transaction: ReadTransaction,
    tables: [OnceCell<Rows>; Table::ALL.len()],
    broken: Arc<AtomicBool>,
}

impl std::fmt::Debug for RedbSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbSnapshot")
    }
}

impl RedbSnapshot {
    fn table(&self, table: Table) -> Result<&Rows, StoreError> {
        let cell = self
            .tables
            .get(table as usize)
            .ok_or_else(|| StoreError::corrupt("index", "an unknown table"))?;
        if let Some(open) = cell.get() {
            return Ok(open);
        }
        let open = self.transaction.open_table(definition(table)).map_err(|error| match error {
            TableError::TableDoesNotExist(name) => {
                StoreError::corrupt("index", format!("the table {name} is missing"))
            }
            other => index_error(other),
        })?;
        Ok(cell.get_or_init(|| open))
    }
}

impl RedbSnapshot {
    fn guard<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        guard(call).inspect_err(|error| note(&self.broken, error))
    }
}

impl Snapshot for RedbSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.guard(|| {
            let value = self.table(table)?.get(key).map_err(index_error)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut rows =
            self.guard(|| self.table(table)?.range::<&[u8]>(from..).map_err(index_error))?;
        let mut next = || {
            self.guard(|| {
                let row = rows.next().transpose().map_err(index_error)?;
                Ok(row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
            })
        };
        while let Some((key, value)) = next()? {
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        self.guard(|| {
            let mut rows = self.table(table)?.range::<&[u8]>(..bound).map_err(index_error)?;
            let last = rows.next_back().transpose().map_err(index_error)?;
            Ok(last.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
        })
    }
}

impl Index for RedbIndex {
    type Snapshot = RedbSnapshot;

    fn snapshot(&self) -> Result<RedbSnapshot, StoreError> {
        let transaction = self.with(|database| database.begin_read().map_err(index_error))?;
        let tables = std::array::from_fn(|_| OnceCell::new());
        Ok(RedbSnapshot { transaction, tables, broken: Arc::clone(&self.broken) })
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.with(|database| {
            let write = self.begin_write(database)?;
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
        self.file.given().map_err(|source| StoreError::io("measuring the index", source))
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.file.ensure_reserve().map_err(|source| StoreError::io("reserving space", source))
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        // No commit may come while the file is looked at.
        let _database = self.database.write();
        Ok(self.file.check()?.into_iter().collect())
    }
}
