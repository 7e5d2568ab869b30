//! A generated chain in a real store, as a source without a wire: every answer still goes through
//! the rules of export.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use rusqlite::types::Value;
use secateur_core::{Block, ExportError, Height, Part, Strength};
use secateur_evm::{ChainSpec, Generator, Verify};
use secateur_index::codec::EvmCodec;
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::source::{Assembler, Blocks, Source, SourceBlock, SourceStatus};
use secateur_index::worker::{End, Metrics, Observer, Worker, WorkerOptions};
use secateur_index::{IndexError, LogFilter};
use secateur_store::ground::disk::{DiskStore, FsVolume, open_ground};
use secateur_store::{ClassTable, Sabotage, Store, StoreConfig, StoreError, SystemClock};
use tempfile::TempDir;
use tokio::sync::watch;

pub const CHAIN_ID: u64 = 1337;

/// The first blocks of the default chain.
pub fn blocks(count: u64) -> Vec<Block> {
    let generator = Generator::new(ChainSpec::default()).unwrap();
    generator.blocks().take(usize::try_from(count).unwrap()).map(Result::unwrap).collect()
}

/// A store with blocks in it.
pub struct History {
    pub store: Arc<DiskStore>,
    _dir: TempDir,
}

impl History {
    pub fn new(blocks: &[Block]) -> Self {
        let history = Self::with(StoreConfig::new(CHAIN_ID, [1; 16]));
        history.append(blocks);
        history
    }

    /// An empty one that prunes to a budget, and waits for the archive.
    pub fn with_budget(target_bytes: u64) -> Self {
        let mut config = StoreConfig::new(CHAIN_ID, [1; 16]);
        config.classes = ClassTable::for_budget(target_bytes);
        config.policy.target_bytes = target_bytes;
        config.settings.archive_hold = true;
        config.pruning_enabled = true;
        Self::with(config)
    }

    fn with(config: StoreConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let volume = FsVolume::open(dir.path()).unwrap();
        let ground = open_ground(&volume, 0, Sabotage::None).unwrap();
        let store = Store::create(ground, config, Arc::new(SystemClock)).unwrap();
        Self { store: Arc::new(store), _dir: dir }
    }

    pub fn append(&self, blocks: &[Block]) {
        for group in blocks.chunks(100) {
            self.store.append_group(group).unwrap();
        }
    }

    pub fn source(&self) -> StoreSource {
        StoreSource {
            store: Arc::clone(&self.store),
            max_bytes: 30_000,
            pulls: Arc::default(),
            fail_after: Arc::new(AtomicU32::new(u32::MAX)),
            acked: Arc::default(),
            failures: Arc::default(),
            chain_id: None,
            oldest: None,
            keeps_parts: false,
            registered: Arc::default(),
            is_down: Arc::default(),
        }
    }
}

impl StoreSource {
    /// The same, and says which chain it has.
    pub fn of_chain(self, id: u64) -> Self {
        Self { chain_id: Some(id), ..self }
    }

    /// The same, and keeps what it is told of parts.
    pub fn keeping_parts(self) -> Self {
        Self { keeps_parts: true, ..self }
    }

    /// The same, and says that it has nothing below this block.
    pub fn beginning_at(self, oldest: Height) -> Self {
        Self { oldest: Some(oldest), ..self }
    }
}

/// A store as a source.
#[derive(Clone)]
pub struct StoreSource {
    store: Arc<DiskStore>,
    pub max_bytes: u32,
    /// Questions so far.
    pub pulls: Arc<AtomicU64>,
    /// After so many questions each one fails, once.
    pub fail_after: Arc<AtomicU32>,
    pub failures: Arc<AtomicU64>,
    pub acked: Arc<Mutex<Vec<Height>>>,
    /// What it says of its chain.
    chain_id: Option<u64>,
    /// What it says of its oldest block, if not the truth.
    oldest: Option<Height>,
    /// Whether it keeps what it is told of parts, as a node does.
    keeps_parts: bool,
    pub registered: Arc<Mutex<Vec<String>>>,
    /// While this is set, nothing is answered.
    pub is_down: Arc<AtomicBool>,
}

impl StoreSource {
    fn answer(&self) -> Result<(), IndexError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(IndexError::Net("connection refused".into()));
        }
        Ok(())
    }
}

impl Source for StoreSource {
    type Blocks = StoreBlocks;

    async fn head(&self) -> Result<Option<Height>, IndexError> {
        self.answer()?;
        Ok(self.store.get_head())
    }

    fn blocks(&self, from: Option<Height>, _want_meta: bool) -> StoreBlocks {
        StoreBlocks { source: self.clone(), assembler: Assembler::new(from), asked: 0 }
    }

    async fn status(&self) -> Result<SourceStatus, IndexError> {
        self.answer()?;
        let status = self.store.get_prune_status().unwrap();
        Ok(SourceStatus {
            chain_id: self.chain_id,
            head: self.store.get_head(),
            oldest: self.oldest.or(status.oldest_kept_block),
            pruned_before: status.pruned_before_block,
            archived: status.archived.filter(|_| self.keeps_parts),
            store_id: None,
            high_water_bytes: status.high_water_bytes,
            waits_for_archive: status.pressure.draining
                && status.binding_hold.as_deref() == Some("archive"),
        })
    }

    async fn register(&self, consumer: &str, strength: Strength) -> Result<(), IndexError> {
        self.registered.lock().push(consumer.to_owned());
        self.store.register_consumer(consumer, strength).unwrap();
        Ok(())
    }

    async fn ack_exported(&self, consumer: &str, height: Height) -> Result<(), IndexError> {
        self.acked.lock().push(height);
        self.store.ack_exported(consumer, height).unwrap();
        Ok(())
    }

    async fn ack_archived(&self, part: &Part) -> Result<Option<Height>, IndexError> {
        if !self.keeps_parts {
            return Ok(None);
        }
        self.store.ack_archived(part).map_err(|error| IndexError::Refused(error.to_string()))
    }
}

pub struct StoreBlocks {
    source: StoreSource,
    assembler: Assembler,
    asked: u32,
}

impl Blocks for StoreBlocks {
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        loop {
            self.source.pulls.fetch_add(1, Ordering::Relaxed);
            self.source.answer()?;
            self.asked += 1;
            if self.asked > self.source.fail_after.load(Ordering::Relaxed) {
                self.source.failures.fetch_add(1, Ordering::Relaxed);
                return Err(IndexError::Net("the wire broke".into()));
            }
            let (cursor, max) = (self.assembler.cursor(), self.source.max_bytes);
            let wanted = cursor.map_or(0, |cursor| cursor.block_number);
            let reply =
                self.source.store.export_blocks(cursor, max).map_err(|error| match error {
                    StoreError::Export(ExportError::Pruned { pruned_before_block }) => {
                        IndexError::Pruned { wanted, pruned_before_block }
                    }
                    error => IndexError::InvalidCursor(error.to_string()),
                })?;
            let nothing = reply.chunks.is_empty();
            let block = self.assembler.take_reply(reply, max)?;
            if block.is_some() || nothing {
                return Ok(block);
            }
        }
    }
}

/// What one worker is run with.
pub fn worker<S: Source>(
    source: S,
    sink: SqliteSink,
    options: WorkerOptions,
    observer: Arc<dyn Observer>,
) -> Worker<S, SqliteSink> {
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    worker_with(source, sink, options, observer, metrics)
}

/// The same, with counters that are looked at.
pub fn worker_with<S: Source>(
    source: S,
    sink: SqliteSink,
    options: WorkerOptions,
    observer: Arc<dyn Observer>,
    metrics: Arc<Metrics>,
) -> Worker<S, SqliteSink> {
    let codec = EvmCodec::new(CHAIN_ID, Verify::Hash, LogFilter::All);
    Worker::new(Arc::new(source), Arc::new(sink), Arc::new(codec), options, metrics, observer)
}

/// Small batches, until everything is there.
pub fn options() -> WorkerOptions {
    WorkerOptions {
        logs: "all".into(),
        follow: false,
        retention_days: None,
        min_batch_rows: 1,
        max_batch_rows: 300,
        ..WorkerOptions::new(CHAIN_ID)
    }
}

/// Runs a worker to its end.
pub async fn run<S: Source>(
    source: S,
    sink: SqliteSink,
    options: WorkerOptions,
) -> Result<End, IndexError> {
    let (_stop, stopping) = watch::channel(false);
    let worker = worker(source, sink, options, Arc::new(()));
    let working = worker.run(stopping);
    tokio::time::timeout(Duration::from_mins(1), working).await.expect("a worker that ends")
}

/// Everything that an index says of its chain.
pub fn dump(path: &Path) -> Vec<Vec<Value>> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut all = Vec::new();
    for sql in [
        "SELECT * FROM blocks ORDER BY number",
        "SELECT * FROM txs ORDER BY id",
        "SELECT * FROM logs ORDER BY id",
        "SELECT block_from, block_to FROM gaps ORDER BY block_from",
        "SELECT * FROM meta WHERE key IN ('cursor', 'chain_id', 'codec', 'logs')",
        "SELECT sum(raw_bytes), sum(blocks_ingested) FROM metrics_daily",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            all.push((0..columns).map(|at| row.get(at).unwrap()).collect());
        }
    }
    all
}
