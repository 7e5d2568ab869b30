//! The barest way into PostgreSQL: the same rows, already in COPY's binary form, into the same tables.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, TryStreamExt as _};
use tokio_postgres::Client;

/// The tables, the column that says which block a row is of, and their order.
const TABLES: [(&str, &str, &str); 3] = [
    ("blocks", "number", "number"),
    ("txs", "block_number", "block_number, tx_index"),
    ("logs", "block_number", "block_number, log_index"),
];
/// Bytes that are sent at once.
const PIECE: usize = 256 << 10;

/// Rows as COPY gives and takes them: by batch and table, and all of a table.
pub struct Copied {
    batches: Vec<[Bytes; 3]>,
    whole: [Bytes; 3],
    past: u64,
}

impl Copied {
    /// What a sink has written, in batches that end before these blocks.
    pub async fn of(from: &Client, bounds: &[u64]) -> Result<Self> {
        let (mut batches, mut first) = (Vec::new(), 0);
        for bound in bounds {
            batches.push(range(from, first, *bound).await?);
            first = *bound;
        }
        let whole = range(from, 0, first).await?;
        Ok(Self { batches, whole, past: first })
    }

    /// Copies everything; a transaction a batch, or one for all.
    pub async fn copy(&self, into: &mut Client, whole: bool) -> Result<Duration> {
        let past = i64::try_from(self.past)?;
        into.execute("select secateur_make_partitions(0, $1)", &[&past]).await?;
        let one = std::slice::from_ref(&self.whole);
        let batches = if whole { one } else { self.batches.as_slice() };
        let began = Instant::now();
        for batch in batches {
            let transaction = into.transaction().await?;
            for ((table, ..), rows) in TABLES.iter().zip(batch) {
                let copy = format!("copy {table} from stdin (format binary)");
                let mut sink = pin!(transaction.copy_in::<_, Bytes>(&copy).await?);
                let mut rest = rows.clone();
                while !rest.is_empty() {
                    sink.feed(rest.split_to(rest.len().min(PIECE))).await?;
                }
                sink.finish().await?;
            }
            transaction.commit().await?;
        }
        Ok(began.elapsed())
    }
}

async fn range(from: &Client, first: u64, past: u64) -> Result<[Bytes; 3]> {
    let mut found = <[Bytes; 3]>::default();
    for ((table, number, order), to) in TABLES.iter().zip(&mut found) {
        let query = format!(
            "copy (select * from {table} where {number} >= {first} and {number} < {past} \
             order by {order}) to stdout (format binary)"
        );
        let mut pieces = pin!(from.copy_out(&query).await?);
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        *to = bytes.freeze();
    }
    Ok(found)
}
