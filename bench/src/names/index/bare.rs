//! The barest way into SQLite: the same rows into the same tables by a loop of prepared statements.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::remove;

/// The tables, and the column that says which block a row is of.
const TABLES: [(&str, &str); 3] =
    [("blocks", "number"), ("txs", "block_number"), ("logs", "block_number")];
/// As the product sets them.
const PRAGMAS: [(&str, &str); 5] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("wal_autocheckpoint", "16384"),
    ("cache_size", "-65536"),
    ("temp_store", "MEMORY"),
];

/// Rows of one table in one batch.
struct Part {
    table: usize,
    rows: Vec<Vec<Value>>,
}

/// Everything that is to be inserted.
pub struct Bare {
    schema: Vec<String>,
    inserts: Vec<String>,
    batches: Vec<Vec<Part>>,
}

impl Bare {
    /// What a sink has written, in batches that end before these blocks.
    pub fn of(file: &Path, bounds: &[u64]) -> Result<Self> {
        let from = Connection::open(file)?;
        let mut schema = from.prepare("select sql from sqlite_schema where sql is not null")?;
        let schema = schema.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let (mut inserts, mut batches) = (Vec::new(), Vec::new());
        for (table, _) in TABLES {
            let columns = from.prepare(&format!("select * from {table}"))?.column_count();
            let marks = vec!["?"; columns].join(", ");
            inserts.push(format!("insert into {table} values ({marks})"));
        }
        let mut first = 0;
        for bound in bounds {
            let mut parts = Vec::new();
            for (table, (name, number)) in TABLES.iter().enumerate() {
                let query = format!(
                    "select * from {name} where {number} >= {first} and {number} < {bound} \
                     order by rowid"
                );
                let mut query = from.prepare(&query)?;
                let columns = query.column_count();
                let rows = query.query_map([], |row| {
                    (0..columns).map(|column| row.get::<_, Value>(column)).collect()
                })?;
                parts.push(Part { table, rows: rows.collect::<Result<_, _>>()? });
            }
            batches.push(parts);
            first = *bound;
        }
        Ok(Self { schema, inserts, batches })
    }

    /// Inserts everything into a new file; a transaction a batch.
    pub fn insert(&self, file: &Path) -> Result<Duration> {
        remove(file)?;
        let mut into = Connection::open(file)?;
        for (name, value) in PRAGMAS {
            into.pragma_update(None, name, value)?;
        }
        for statement in &self.schema {
            into.execute_batch(statement)?;
        }
        let began = Instant::now();
        for parts in &self.batches {
            let transaction = into.transaction()?;
            for part in parts {
                let insert = self.inserts.get(part.table).map(String::as_str).unwrap_or_default();
                let mut insert = transaction.prepare_cached(insert)?;
                for row in &part.rows {
                    insert.execute(params_from_iter(row))?;
                }
            }
            transaction.commit()?;
        }
        let took = began.elapsed();
        drop(into);
        remove(file)?;
        Ok(took)
    }
}
