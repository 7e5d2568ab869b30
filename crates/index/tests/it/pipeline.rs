//! Pulling and writing beside one another in little memory: neither may stand still because of what
//! the other holds.

use std::path::Path;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_core::{
    Block, BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
};
use secateur_index::codec::OpaqueCodec;
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::worker::{End, Metrics, Worker, WorkerOptions};
use tokio::sync::watch;

use crate::chain::{CHAIN_ID, History, dump};

/// A block of a chain that nobody looks into, with so many bytes and transactions.
fn block(height: u64, len: usize, transactions: u32) -> Block {
    let name = |height: u64, of: u8| {
        let mut name = [of; 32];
        name[..8].copy_from_slice(&height.to_be_bytes());
        name
    };
    let hash = |height| BlockHash(name(height, 0xb1));
    let mut payloads = Payloads { block: vec![0x5e; len], ..Payloads::default() };
    for index in 0..transactions {
        let tx_id = TxId(name(height << 16 | u64::from(index), 0x7e));
        push_receipt(&mut payloads.receipts, &tx_id, b"done").unwrap();
        push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height, index });
    }
    let parent_hash = height.checked_sub(1).map_or(BlockHash::default(), hash);
    let meta = BlockMeta { height, hash: hash(height), parent_hash, timestamp: height };
    Block { meta, payloads }
}

/// Why batches were written.
#[derive(Debug)]
struct Cuts {
    full: u64,
    room: u64,
    waited: u64,
    all: u64,
}

/// Indexes a history with so much room for what is in flight.
async fn index(history: &History, path: &Path, budget_bytes: u64) -> Cuts {
    let options = WorkerOptions {
        follow: false,
        retention_days: None,
        max_batch_rows: 16_384,
        budget_bytes,
        ..WorkerOptions::new(CHAIN_ID)
    };
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let (source, sink) = (Arc::new(history.source()), Arc::new(SqliteSink::open(path).unwrap()));
    let worker = Worker::new(source, sink, Arc::new(OpaqueCodec), options, metrics, Arc::new(()));
    let (_stop, stopping) = watch::channel(false);
    let working = tokio::time::timeout(std::time::Duration::from_mins(1), worker.run(stopping));
    assert_eq!(working.await.unwrap().unwrap(), End::CaughtUp);
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    let count = |cut: &str| {
        let name = format!("secateur_index_batches_total{{cut=\"{cut}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        value.parse::<u64>().unwrap()
    };
    let all = ["full", "room", "waited", "tip", "end"].map(count).iter().sum();
    Cuts { full: count("full"), room: count("room"), waited: count("waited"), all }
}

/// What an index says of the chain, whatever the room it was made in.
fn same(dir: &Path) {
    assert_eq!(dump(&dir.join("little.sqlite")), dump(&dir.join("much.sqlite")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backfill_larger_than_its_memory_never_waits_for_a_batch_that_cannot_fill() {
    // 8 MiB in 4,400 rows, which take about 1 MiB: no batch can have the rows that it may have.
    let chain: Vec<Block> = (0..400).map(|height| block(height, 20_000, 10)).collect();
    let history = History::new(&chain);
    let dir = tempfile::tempdir().unwrap();
    let cuts = index(&history, &dir.path().join("little.sqlite"), 256 << 10).await;
    assert_eq!(cuts.waited, 0, "{cuts:?}");
    assert!(cuts.full + cuts.room >= 4, "rows take at most the room there is: {cuts:?}");
    let cuts = index(&history, &dir.path().join("much.sqlite"), 64 << 20).await;
    assert!(cuts.all <= 2, "there is room for everything: {cuts:?}");
    same(dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_needs_nearly_all_the_memory_has_what_is_before_it_written_first() {
    // Each large one comes while 64 small ones wait for more, and does not fit beside them.
    let len = |height: u64| if height % 65 == 64 { 1_000_000 } else { 2_500 };
    let chain: Vec<Block> = (0..390).map(|height| block(height, len(height), 1)).collect();
    let history = History::new(&chain);
    let dir = tempfile::tempdir().unwrap();
    let cuts = index(&history, &dir.path().join("little.sqlite"), 1 << 20).await;
    assert_eq!(cuts.waited, 0, "{cuts:?}");
    assert!(cuts.room > 0, "{cuts:?}");
    // Even where the room is smaller than every group: one at a time.
    let cuts = index(&history, &dir.path().join("least.sqlite"), 1).await;
    assert_eq!(cuts.waited, 0, "{cuts:?}");
    index(&history, &dir.path().join("much.sqlite"), 64 << 20).await;
    same(dir.path());
}
