//! An index in one SQLite file: no server, one writer, readers beside it.
//!
//! A batch is on the medium before it counts as written: what is acknowledged to a node may be cut
//! there. What deliberately does not live here: how the file is opened and on which threads
//! (`secateur-sql`).

mod columns;
mod daily;
mod read;
mod refill;
mod retain;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use rusqlite::Connection;
use secateur_core::{Cursor, Height};
use secateur_sql::{SqlError, sqlite};

use super::{Identity, Note, Retained, Sink, is_of};
use crate::{Batch, BlockRow, GapRow, IndexError, PartRow};
use schema::SCHEMA;

/// What an SQLite error means to a worker.
fn failed(error: rusqlite::Error) -> IndexError {
    let error = SqlError::from(error);
    let retryable = error.is_retryable();
    IndexError::Sink { reason: format!("{error}; the batch was not written"), retryable }
}

/// An index that a worker writes.
#[derive(Debug, Clone)]
pub struct SqliteSink(sqlite::Sqlite);

/// The same file, to read.
#[derive(Debug, Clone)]
pub struct SqliteReader(sqlite::SqliteReader);

impl SqliteSink {
    /// Opens an index, and makes it if there is none. A file that is made here is its owner's alone,
    /// and so are those that SQLite puts beside it; who may read one that is there is its owner's say.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Ok(Self(sqlite::Sqlite::open(path, &SCHEMA, &[])?))
    }

    /// A reader of the same file.
    pub fn reader(&self) -> SqliteReader {
        SqliteReader(self.0.reader().clone())
    }
}

impl SqliteReader {
    /// Opens an index that is there, to read only.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Ok(Self(sqlite::SqliteReader::open(path, &SCHEMA)?))
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, IndexError> {
        self.0.read(|connection| Ok(work(connection).map_err(SqlError::from)?)).await
    }
}

impl Sink for SqliteSink {
    async fn bind(&self, identity: &Identity) -> Result<(), IndexError> {
        let identity = identity.clone();
        self.0.write(move |connection| write::bind(connection, &identity)).await
    }

    async fn check(&self, identity: &Identity) -> Result<(), IndexError> {
        let known = self.reader().read(write::identity).await?;
        is_of(identity, known)
    }

    async fn cursor(&self) -> Result<Option<Cursor>, IndexError> {
        self.0.write(|connection| write::cursor(connection)).await
    }

    async fn tip(&self) -> Result<Option<BlockRow>, IndexError> {
        self.0.write(|connection| write::tip(connection)).await
    }

    async fn row_at(&self, number: Height) -> Result<Option<BlockRow>, IndexError> {
        self.reader().read(move |connection| read::block_at(connection, number)).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), IndexError> {
        self.0.write(move |connection| write::commit(connection, &batch)).await
    }

    async fn refill(&self, first: Height, batch: Batch) -> Result<u64, IndexError> {
        self.0.write(move |connection| refill::refill(connection, first, &batch)).await
    }

    async fn logs_filled(&self, logs: &str, first: Height, past: Height) -> Result<(), IndexError> {
        let logs = logs.to_owned();
        self.0.write(move |connection| refill::logs_filled(connection, &logs, first, past)).await
    }

    async fn record_gap(&self, gap: GapRow, next: Cursor) -> Result<(), IndexError> {
        self.0.write(move |connection| write::record_gap(connection, &gap, next)).await
    }

    async fn note(&self, note: Note) -> Result<(), IndexError> {
        self.0.write(move |connection| daily::note(connection, &note)).await
    }

    async fn add_part(&self, part: PartRow, at: u64) -> Result<(), IndexError> {
        self.0.write(move |connection| daily::add_part(connection, &part, at)).await
    }

    async fn forget_part(&self, block_from: Height) -> Result<(), IndexError> {
        self.0.write(move |connection| daily::forget_part(connection, block_from)).await
    }

    async fn parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        self.reader().read(move |connection| read::parts(connection, from, limit)).await
    }

    async fn last_part(&self) -> Result<Option<PartRow>, IndexError> {
        self.reader().read(read::last_part).await
    }

    async fn retain(&self, cutoff: u64, max_blocks: u32) -> Result<Retained, IndexError> {
        self.0.write(move |connection| retain::retain(connection, cutoff, max_blocks)).await
    }

    async fn maintain(&self, at: u64) -> Result<(), IndexError> {
        self.0.checkpoint().await?;
        let size = self.size_bytes().await?;
        self.0.write(move |connection| daily::note_size(connection, size, at)).await
    }

    async fn size_bytes(&self) -> Result<u64, IndexError> {
        Ok(self.0.reader().size_bytes().await?)
    }
}
