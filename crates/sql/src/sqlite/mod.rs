//! A database in one SQLite file: no server, one writer, readers beside it.
//!
//! Everything that touches the file once it is open runs on threads that may block. The file is in
//! WAL mode, and what is committed is on the medium before it counts as written, unless a family says
//! otherwise.

mod schema;

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

pub use schema::Schema;

use crate::SqlError;

/// How long a connection waits for another one, or for a checkpoint, before it gives up.
const BUSY: Duration = Duration::from_secs(10);
/// Connections of readers that are kept while nobody reads.
const READERS: usize = 4;
/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 64;

/// What the writer's connection begins with.
const PRAGMAS: [(&str, &str); 6] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    // `Sqlite::checkpoint` takes its turn; this one only bounds the file.
    ("wal_autocheckpoint", "16384"),
    ("cache_size", "-32768"),
    ("temp_store", "MEMORY"),
    ("foreign_keys", "OFF"),
];

/// What an error of SQLite means, told in these words.
fn meant(error: &rusqlite::Error, reason: String) -> SqlError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => SqlError::Full { reason },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            SqlError::Unreadable { reason }
        }
        // Somebody else has the file at the moment.
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SqlError::Failed { reason, retryable: true }
        }
        _ => SqlError::lasting(reason),
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        meant(&error, format!("SQLite: {error}"))
    }
}

/// A file that is written, and read beside it. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Sqlite {
    writer: Arc<Mutex<Connection>>,
    reader: SqliteReader,
}

/// The same file, to read. Clones share its connections.
#[derive(Debug, Clone)]
pub struct SqliteReader {
    path: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Sqlite {
    /// Opens a file, and makes it if there is none. A file that is made here is its owner's alone,
    /// and so are those that SQLite puts beside it; who may read one that is there is its owner's say.
    ///
    /// The `pragmas` are set after those of this crate, in their order.
    pub fn open(path: &Path, schema: &Schema, pragmas: &[(&str, &str)]) -> Result<Self, SqlError> {
        make(path)?;
        let mut connection = Connection::open(path).map_err(|error| cannot_open(path, &error))?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // One that reads first and writes later could be told only then that somebody was first.
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        for (name, value) in PRAGMAS.iter().chain(pragmas) {
            connection
                .pragma_update(None, name, value)
                .map_err(|error| cannot_open(path, &error))?;
        }
        schema.prepare(&mut connection)?;
        let reader = SqliteReader { path: Arc::new(path.to_owned()), idle: Arc::default() };
        Ok(Self { writer: Arc::new(Mutex::new(connection)), reader })
    }

    /// A reader of the same file.
    pub fn reader(&self) -> &SqliteReader {
        &self.reader
    }

    /// Does some work on the connection that writes, when its turn has come. Its transactions are
    /// immediate.
    pub async fn write<T, E>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SqlError> + Send + 'static,
    {
        let writer = Arc::clone(&self.writer);
        blocking(move || work(&mut writer.lock())).await
    }

    /// Lets SQLite look after its statistics, and puts the log back into the file.
    pub async fn checkpoint(&self) -> Result<(), SqlError> {
        self.write(|connection| {
            connection.execute_batch("PRAGMA optimize")?;
            // A reader in the middle of something keeps it from coming to the end; the next time
            // does.
            Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
        })
        .await
    }
}

impl SqliteReader {
    /// Opens a file that is there, to read only.
    pub fn open(path: &Path, schema: &Schema) -> Result<Self, SqlError> {
        let reader = Self { path: Arc::new(path.to_owned()), idle: Arc::default() };
        let connection = reader.connect()?;
        schema.check(&connection)?;
        reader.idle.lock().push(connection);
        Ok(reader)
    }

    /// Does some work on a connection that cannot write.
    pub async fn read<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SqlError> + Send + 'static,
    {
        let reader = self.clone();
        blocking(move || {
            let idle = reader.idle.lock().pop();
            let connection = idle.map_or_else(|| reader.connect(), Ok)?;
            let answer = work(&connection);
            let mut idle = reader.idle.lock();
            if idle.len() < READERS {
                idle.push(connection);
            }
            answer
        })
        .await
    }

    /// The bytes of the file and of its log.
    pub async fn size_bytes(&self) -> Result<u64, SqlError> {
        let path = Arc::clone(&self.path);
        blocking(move || {
            let mut log = path.as_os_str().to_owned();
            log.push("-wal");
            let files = [path.as_os_str(), &log].into_iter().flat_map(fs::metadata);
            Ok(files.map(|file| file.len()).sum())
        })
        .await
    }

    fn connect(&self) -> Result<Connection, SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.path.as_path(), flags)
            .map_err(|error| cannot_open(&self.path, &error))?;
        connection.busy_timeout(BUSY)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }
}

/// Makes the file, empty, if it is not there. SQLite gives its log and its shared memory the rights of
/// the file, so that this decides about all of them.
fn make(path: &Path) -> Result<(), SqlError> {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(SqlError::lasting(not_opened(path, &error)))
        }
        _ => Ok(()),
    }
}

fn cannot_open(path: &Path, error: &rusqlite::Error) -> SqlError {
    meant(error, not_opened(path, error))
}

fn not_opened(path: &Path, error: &dyn std::error::Error) -> String {
    format!("{} cannot be opened: {error}; check the path and its permissions", path.display())
}

/// Runs on a thread that may block.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<SqlError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => {
            Err(SqlError::lasting(format!("the thread that worked on SQLite ended: {error}"))
                .into())
        }
    }
}
