//! `secateur index` as a process, and what it has written into SQLite.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{Kept, Start, told, until};

/// How long a backfill may take.
const PATIENCE: Duration = Duration::from_mins(20);

/// A running indexer.
pub struct Worker {
    _process: Kept,
}

impl Worker {
    /// Starts it beside a node, with the logs of a contract, into a file.
    pub fn start(at: &Path, node: &str, file: &Path, contract: &str) -> Result<Self> {
        let binary = told("BENCH_SECATEUR")?;
        std::fs::create_dir_all(at)?;
        let (source, sink) = (format!("http://{node}"), format!("sqlite:{}", file.display()));
        let start = Start::new(at, binary).words(["--data".as_ref(), at.as_os_str()]);
        let start = start.words(["index", "--log", "warn", "--source", &source, "--sink", &sink]);
        Ok(Self { _process: Kept::start(start.words(["--log-address", contract]))? })
    }
}

/// Asks a file that may not be there yet, or not have the tables.
fn text(file: &Path, query: &str) -> Option<String> {
    let file = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    file.busy_timeout(Duration::from_secs(5)).ok()?;
    file.query_row(query, [], |row| row.get(0)).ok()
}

/// The rows of a table.
pub fn count(file: &Path, table: &str) -> Result<u64> {
    let count = text(file, &format!("select cast(count(*) as text) from {table}"));
    Ok(count.with_context(|| format!("there is no table {table}"))?.parse()?)
}

/// Waits until a block is indexed: the cursor stands behind it.
pub async fn reached(file: &Path, height: u64) -> Result<()> {
    let behind = || async {
        let Some(text) = text(file, "select value from meta where key = 'cursor'") else {
            return Ok(false);
        };
        let cursor: Value = serde_json::from_str(&text)?;
        let next = cursor.get("block_number").and_then(Value::as_str);
        let next: u64 = next.context("the cursor has no block number")?.parse()?;
        Ok(next > height)
    };
    until(PATIENCE, "the index has reached the head", behind).await
}
