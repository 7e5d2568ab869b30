//! How fast batches go in, beside a bare binary COPY of the same rows into the same tables. Not a
//! test that runs by itself: `cargo nextest run --release -p secateur-index --run-ignored only speed`.

use std::pin::pin;
use std::time::{Duration, Instant};

use alloy_primitives::Address;
use bytes::Bytes;
use futures_util::{SinkExt as _, TryStreamExt as _};
use secateur_core::Cursor;
use secateur_index::Batch;
use secateur_index::sink::Sink as _;

use crate::chain::{batch, bytes, connect, open};
use crate::fixture::Server;

const BATCHES: u64 = 30;
const BLOCKS: u64 = 50;
const TXS: u32 = 150;

/// A batch as of a busy chain: many transactions, many addresses, a log for each.
fn busy(first: u64) -> Batch {
    let mut batch = batch(first..first + BLOCKS);
    let (tx, log) = {
        let sample = crate::chain::rows(2..3);
        (sample.txs[0].clone(), sample.logs[0].clone())
    };
    batch.rows.txs.clear();
    batch.rows.logs.clear();
    for block in &mut batch.rows.blocks {
        block.tx_count = TXS;
        for index in 0..TXS {
            let mut tx = tx.clone();
            tx.hash.0 = bytes("busy", block.number, index.into());
            (tx.block_number, tx.tx_index) = (block.number, index);
            tx.from = Some(Address::from_slice(&tx.hash.0[..20]));
            tx.to = Some(Address::from_slice(&tx.hash.0[8..28]));
            let mut log = log.clone();
            (log.block_number, log.log_index, log.tx_index) = (block.number, index, index);
            log.tx_hash = tx.hash;
            log.address = tx.to.unwrap();
            batch.rows.txs.push(tx);
            batch.rows.logs.push(log);
        }
    }
    batch.next = Cursor::at_block(first + BLOCKS);
    batch
}

const TABLES: [(&str, &str); 3] =
    [("blocks", "number"), ("txs", "block_number"), ("logs", "block_number")];

/// The same rows again, as they come out of one index, into the tables of another.
async fn bare(from: &str, to: &str) -> Duration {
    let source = connect(from).await;
    let mut target = connect(to).await;
    target.execute("select secateur_make_partitions(0, 100000)", &[]).await.unwrap();
    let mut spent = Duration::ZERO;
    for first in (0..BATCHES * BLOCKS).step_by(usize::try_from(BLOCKS).unwrap()) {
        let mut pieces = Vec::new();
        for (table, number) in TABLES {
            let sql = format!(
                "copy (select * from {table} where {number} >= {first} and {number} < {} \
                 order by {number}) to stdout (format binary)",
                first + BLOCKS
            );
            let out = source.copy_out(&sql).await.unwrap();
            let rows: Vec<Bytes> = out.try_collect().await.unwrap();
            pieces.push(rows.concat());
        }
        let begun = Instant::now();
        let transaction = target.transaction().await.unwrap();
        for ((table, _), piece) in TABLES.iter().zip(pieces) {
            let sql = format!("copy {table} from stdin (format binary)");
            let mut sink = pin!(transaction.copy_in::<_, Bytes>(&sql).await.unwrap());
            sink.send(Bytes::from(piece)).await.unwrap();
            sink.finish().await.unwrap();
        }
        transaction.commit().await.unwrap();
        spent += begun.elapsed();
    }
    spent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn speed() {
    // As in earnest: every commit is on the medium.
    let server = Server::with(&["shared_buffers=256MB", "max_wal_size=4GB"]);
    let url = server.database();
    let sink = open(&url).await;
    let mut ours = Duration::ZERO;
    for first in (0..BATCHES * BLOCKS).step_by(usize::try_from(BLOCKS).unwrap()) {
        let batch = busy(first);
        let begun = Instant::now();
        sink.commit(batch).await.unwrap();
        ours += begun.elapsed();
    }
    let other = server.database();
    drop(open(&other).await);
    let bare = bare(&url, &other).await;
    let txs = BATCHES * BLOCKS * u64::from(TXS);
    println!(
        "{txs} transactions and as many logs: {ours:?}, bare COPY {bare:?}: {:.2} of it",
        bare.as_secs_f64() / ours.as_secs_f64()
    );
}
