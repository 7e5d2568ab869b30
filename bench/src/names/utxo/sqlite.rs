//! The SQLite side.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rusqlite::{Connection, params};
use secateur_utxo::{Rules, SqliteStore};

use super::rows::{HEIGHT, Shape};
use super::{CHUNK, prune, writers};

/// As the pruner's own connection is set.
fn connect(at: &Path) -> Result<Connection> {
    let connection = Connection::open(at)?;
    for (name, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "NORMAL"),
        ("wal_autocheckpoint", "16384"),
        ("cache_size", "-40960"),
        ("temp_store", "MEMORY"),
    ] {
        connection.pragma_update(None, name, value)?;
    }
    Ok(connection)
}

/// A store with these rows in it.
pub fn fill(at: &Path, shape: Shape) -> Result<()> {
    drop(SqliteStore::open(at, Rules::default())?);
    let mut connection = connect(at)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "cache_size", "-2000000")?;
    // The index in random order is made at the end, from sorted entries: it is as full as it would be
    // right after a vacuum, on both sides.
    let sql =
        "INSERT INTO txs (id, txid, outputs, spent, coinbase, conflicting, spending, mined_at,
        delete_at, blocks, spenders, inputs, body)
        VALUES (?1, ?2, 2, ?3, 0, 0, 1, ?4, ?5, ?6, ?7, ?8, ?9)";
    let mut n = 1;
    while n <= shape.records {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(sql)?;
            for row in (n..=shape.records.min(n + 499_999)).map(|n| shape.row(n)) {
                insert.execute(params![
                    row.id,
                    row.txid,
                    row.spent,
                    row.mined_at,
                    row.delete_at,
                    row.blocks,
                    row.spenders,
                    row.inputs,
                    row.body
                ])?;
            }
        }
        transaction.commit()?;
        n += 500_000;
    }
    // What waits for a block holds some of what stays.
    let last = i64::try_from(shape.records)?;
    let sql = "INSERT INTO holds (parent, child) SELECT id, id + 1000000000 FROM txs
        WHERE id > ?1 - 50000 AND delete_at IS NULL";
    connection.execute(sql, [last])?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// A copy to work on, none of it in a log.
fn copy(of: &Path, to: &Path) -> Result<PathBuf> {
    for suffix in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{suffix}", to.display()));
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    std::fs::copy(of, to)?;
    std::fs::File::open(to)?.sync_all()?;
    Ok(to.to_owned())
}

fn settle(connection: &Connection) -> Result<()> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

/// One bare statement.
pub fn bare(of: &Path, to: &Path, shape: Shape) -> Result<Duration> {
    let connection = connect(&copy(of, to)?)?;
    let began = Instant::now();
    let height = i64::try_from(HEIGHT)?;
    let gone = connection.execute("DELETE FROM txs WHERE delete_at <= ?1", [height])?;
    settle(&connection)?;
    let took = began.elapsed();
    ensure!(gone as u64 == shape.due, "{gone} records went");
    Ok(took)
}

/// A whole run of ours.
pub async fn ours(of: &Path, to: &Path, shape: Shape, defensive: bool) -> Result<Duration> {
    let at = copy(of, to)?;
    let store = SqliteStore::open(&at, Rules::default())?;
    let began = Instant::now();
    prune(&store, shape, defensive).await?;
    settle(&connect(&at)?)?;
    Ok(began.elapsed())
}

/// The longest call of a writer alone, and beside a prune, and what a chunk took then.
pub async fn waits(at: &Path, shape: Shape) -> Result<[Duration; 3]> {
    let store = SqliteStore::open(at, Rules::default())?;
    let (tally, tasks) = writers::start(&store, 1);
    tally.rate_alone().await?;
    tally.longest();
    tally.rate_alone().await?;
    let alone = tally.longest();
    let began = Instant::now();
    prune(&store, shape, false).await?;
    let chunks = u32::try_from(shape.due.div_ceil(CHUNK))?;
    let chunk = began.elapsed() / chunks;
    let beside = tally.longest();
    tally.stop();
    for task in tasks {
        task.await??;
    }
    Ok([alone, beside, chunk])
}
