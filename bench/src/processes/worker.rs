//! `secateur index` as a process, and what it has written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{Kept, Start, told, until};

/// How long a backfill may take.
const PATIENCE: Duration = Duration::from_mins(20);

/// Where rows go.
pub enum Sink {
    /// A file.
    Sqlite(PathBuf),
    /// A database.
    Postgres { url: String },
}

/// The events that are kept.
pub struct Logs {
    /// Their contract.
    pub address: String,
}

/// A running indexer.
pub struct Worker {
    /// Its process.
    pub process: Kept,
}

impl Worker {
    /// Starts it beside a node.
    pub fn start(at: &Path, node: &str, sink: &Sink, logs: Option<&Logs>) -> Result<Self> {
        let binary = told("BENCH_SECATEUR")?;
        std::fs::create_dir_all(at)?;
        let source = format!("http://{node}");
        let sink = match sink {
            Sink::Sqlite(path) => format!("sqlite:{}", path.display()),
            Sink::Postgres { url } => url.clone(),
        };
        let mut words = vec![binary.as_os_str(), "--data".as_ref(), at.as_os_str()];
        let flags = ["index", "--log", "warn", "--source", &source, "--sink", &sink];
        words.extend(flags.iter().map(std::ffi::OsStr::new));
        if let Some(logs) = logs {
            words.extend(["--log-address", &logs.address].iter().map(std::ffi::OsStr::new));
        }
        Ok(Self { process: Kept::start(Start::new(at, words))? })
    }
}

impl Sink {
    /// One number from a query.
    async fn number(&self, query: &str) -> Result<Option<u64>> {
        let text = self.text(query).await?;
        Ok(text.map(|text| text.parse()).transpose()?)
    }

    async fn text(&self, query: &str) -> Result<Option<String>> {
        match self {
            Self::Sqlite(path) => {
                let Ok(file) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
                else {
                    return Ok(None);
                };
                file.busy_timeout(Duration::from_secs(5))?;
                // Its tables may not be there yet.
                Ok(file.query_row(query, [], |row| row.get(0)).ok())
            }
            Self::Postgres { url } => {
                let (client, connection) =
                    tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                let rows = client.query(query, &[]).await.unwrap_or_default();
                Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
            }
        }
    }

    /// The rows of a table.
    pub async fn count(&self, table: &str) -> Result<u64> {
        let query = match self {
            Self::Sqlite(_) => format!("select cast(count(*) as text) from {table}"),
            Self::Postgres { .. } => format!("select count(*)::text from {table}"),
        };
        self.number(&query).await?.with_context(|| format!("there is no table {table}"))
    }

    /// The height that the cursor stands at.
    async fn cursor(&self) -> Result<Option<u64>> {
        let query = match self {
            Self::Sqlite(_) => "select value from meta where key = 'cursor'",
            Self::Postgres { .. } => "select value::text from meta where key = 'cursor'",
        };
        let Some(text) = self.text(query).await? else { return Ok(None) };
        let cursor: Value = serde_json::from_str(&text)?;
        let height = cursor.get("block_number").and_then(Value::as_str);
        Ok(height.map(str::parse).transpose()?)
    }
}

/// Waits until a block is indexed: the cursor stands behind it.
pub async fn reached(sink: &Sink, height: u64) -> Result<()> {
    let behind = || async { Ok(sink.cursor().await?.is_some_and(|cursor| cursor > height)) };
    until(PATIENCE, "the index has reached the head", behind).await
}
