//! An index in one SQLite file: no server, one writer, readers beside it.
//!
//! Everything that touches the file runs on threads that may block. The file is in WAL mode, and a
//! batch is on the medium before it counts as written: what is acknowledged to a node may be cut
//! there.

mod columns;
mod daily;
mod read;
mod retain;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use secateur_core::{Cursor, Height};

use super::{Identity, Note, Retained, Sink};
use crate::{Batch, BlockRow, GapRow, IndexError, PartRow};

/// How long a writer waits for another one, or for a checkpoint, before it gives up.
const BUSY: Duration = Duration::from_secs(10);
/// Connections that readers share.
const READERS: usize = 4;
/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 64;

/// What an SQLite error means to a worker.
fn failed(error: &rusqlite::Error) -> IndexError {
    let busy = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    );
    if busy {
        IndexError::busy_sink(format!("SQLite: {error}; the batch was not written"))
    } else {
        IndexError::sink(format!("SQLite: {error}; the batch was not written"))
    }
}

/// An index that a worker writes.
#[derive(Debug, Clone)]
pub struct SqliteSink {
    writer: Arc<Mutex<Connection>>,
    reader: SqliteReader,
}

/// The same file, to read.
#[derive(Debug, Clone)]
pub struct SqliteReader {
    path: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl SqliteSink {
    /// Opens an index, and makes it if there is none. A file that is made here is its owner's alone,
    /// and so are those that SQLite puts beside it; who may read one that is there is its owner's say.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        make(path)?;
        let mut connection = Connection::open(path).map_err(|error| cannot_open(path, &error))?;
        connection.busy_timeout(BUSY).map_err(|error| failed(&error))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        for (name, value) in [
            ("journal_mode", "WAL"),
            ("synchronous", "FULL"),
            // A checkpoint takes its turn in `maintain`; this one only bounds the file.
            ("wal_autocheckpoint", "16384"),
            ("cache_size", "-32768"),
            ("temp_store", "MEMORY"),
            ("foreign_keys", "OFF"),
        ] {
            connection
                .pragma_update(None, name, value)
                .map_err(|error| cannot_open(path, &error))?;
        }
        schema::prepare(&mut connection)?;
        Ok(Self {
            writer: Arc::new(Mutex::new(connection)),
            reader: SqliteReader::at(path.to_owned()),
        })
    }

    /// A reader of the same file.
    pub fn reader(&self) -> SqliteReader {
        self.reader.clone()
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, IndexError> {
        let writer = Arc::clone(&self.writer);
        blocking(move || work(&mut writer.lock())).await
    }
}

impl SqliteReader {
    /// Opens an index that is there, to read only.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        let reader = Self::at(path.to_owned());
        let connection = reader.connect()?;
        schema::check(&connection)?;
        reader.idle.lock().push(connection);
        Ok(reader)
    }

    fn at(path: PathBuf) -> Self {
        Self { path: Arc::new(path), idle: Arc::default() }
    }

    fn connect(&self) -> Result<Connection, IndexError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.path.as_path(), flags)
            .map_err(|error| cannot_open(&self.path, &error))?;
        connection.busy_timeout(BUSY).map_err(|error| failed(&error))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, IndexError> {
        let reader = self.clone();
        blocking(move || {
            let idle = reader.idle.lock().pop();
            let connection = idle.map_or_else(|| reader.connect(), Ok)?;
            let answer = work(&connection).map_err(|error| failed(&error));
            let mut idle = reader.idle.lock();
            if idle.len() < READERS {
                idle.push(connection);
            }
            answer
        })
        .await
    }
}

/// Makes the file, empty, if it is not there. SQLite gives its log and its shared memory the rights of
/// the file, so that this decides about all of them.
fn make(path: &Path) -> Result<(), IndexError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(cannot_open(path, &error))
        }
        _ => Ok(()),
    }
}

fn cannot_open(path: &Path, error: &dyn std::error::Error) -> IndexError {
    let hint = "check the path and its permissions";
    IndexError::sink(format!("{} cannot be opened: {error}; {hint}", path.display()))
}

/// Runs on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IndexError> + Send + 'static,
) -> Result<T, IndexError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(IndexError::sink(format!("the writing thread ended: {error}"))),
    }
}

impl Sink for SqliteSink {
    async fn bind(&self, identity: &Identity) -> Result<(), IndexError> {
        let identity = identity.clone();
        self.write(move |connection| write::bind(connection, &identity)).await
    }

    async fn cursor(&self) -> Result<Option<Cursor>, IndexError> {
        self.write(|connection| write::cursor(connection)).await
    }

    async fn tip(&self) -> Result<Option<BlockRow>, IndexError> {
        self.write(|connection| write::tip(connection)).await
    }

    async fn row_at(&self, number: Height) -> Result<Option<BlockRow>, IndexError> {
        self.reader.read(move |connection| read::block_at(connection, number)).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), IndexError> {
        self.write(move |connection| write::commit(connection, &batch)).await
    }

    async fn record_gap(&self, gap: GapRow, next: Cursor) -> Result<(), IndexError> {
        self.write(move |connection| write::record_gap(connection, &gap, next)).await
    }

    async fn note(&self, note: Note) -> Result<(), IndexError> {
        self.write(move |connection| daily::note(connection, &note)).await
    }

    async fn add_part(&self, part: PartRow, at: u64) -> Result<(), IndexError> {
        self.write(move |connection| daily::add_part(connection, &part, at)).await
    }

    async fn forget_part(&self, block_from: Height) -> Result<(), IndexError> {
        self.write(move |connection| daily::forget_part(connection, block_from)).await
    }

    async fn parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        self.reader.read(move |connection| read::parts(connection, from, limit)).await
    }

    async fn last_part(&self) -> Result<Option<PartRow>, IndexError> {
        self.reader.read(read::last_part).await
    }

    async fn retain(&self, cutoff: u64, max_blocks: u32) -> Result<Retained, IndexError> {
        self.write(move |connection| retain::retain(connection, cutoff, max_blocks)).await
    }

    async fn maintain(&self, at: u64) -> Result<(), IndexError> {
        let path = Arc::clone(&self.reader.path);
        self.write(move |connection| daily::maintain(connection, &path, at)).await
    }

    async fn size_bytes(&self) -> Result<u64, IndexError> {
        let path = Arc::clone(&self.reader.path);
        blocking(move || Ok(daily::size_of(&path))).await
    }
}
