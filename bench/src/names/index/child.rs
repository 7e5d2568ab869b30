//! The worker as a process of its own: the product's parts, put together as the product does, and its
//! own time and memory told at the end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use secateur_evm::Verify;
use secateur_index::codec::{EvmCodec, OpaqueCodec};
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::source::{GrpcOptions, GrpcSource};
use secateur_index::worker::{Metrics, Observer, Progress, Worker, WorkerOptions};
use secateur_index::{LogFilter, Sink};
use tokio::sync::watch;

use crate::chain::CHAIN_ID;
use crate::processes::{Kept, Start};

/// The word that makes this program a worker.
pub const CHILD: &str = "--index";
/// How long a backfill may take.
const PATIENCE: Duration = Duration::from_mins(20);

/// How blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// As an EVM chain's, with every check.
    Evm,
    /// As bytes.
    Opaque,
}

/// Where rows go.
pub enum Where {
    /// Into a file.
    Sqlite(PathBuf),
    /// Into a database.
    Postgres(String),
}

/// What a backfill took.
pub struct Ran {
    /// From its first question to its last commit.
    pub took: Duration,
    /// The most memory that it held.
    pub peak_bytes: u64,
}

/// Runs a backfill up to a block in a process of its own.
pub fn run(at: &Path, node: &str, to: &Where, codec: Codec, until: u64) -> Result<Ran> {
    let (sink, until) = match to {
        Where::Sqlite(path) => (path.as_os_str().to_owned(), until.to_string()),
        Where::Postgres(url) => (url.into(), until.to_string()),
    };
    let codec = if codec == Codec::Evm { "evm" } else { "opaque" };
    let start = Start::new(at, std::env::current_exe()?).words([CHILD, node]).words([sink]);
    let process = Kept::start(start.words([codec, &until]))?;
    let done = |line: &str| {
        let (micros, peak) = line.strip_prefix("done ")?.split_once(' ')?;
        Some((micros.parse().ok()?, peak.parse().ok()?))
    };
    let (micros, peak_bytes) = process.line(PATIENCE, done).context("the worker")?;
    Ok(Ran { took: Duration::from_micros(micros), peak_bytes })
}

/// The worker's life.
pub fn answer(mut words: impl Iterator<Item = String>) -> Result<()> {
    let mut word = |what: &str| words.next().with_context(|| format!("{what} is missing"));
    let (node, sink, codec, until) = (word("node")?, word("sink")?, word("codec")?, word("until")?);
    let (codec, until) = (if codec == "evm" { Codec::Evm } else { Codec::Opaque }, until.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let last = Arc::new(LastCommit::default());
    // The other side's tables are made before its time runs, too.
    let began = runtime.block_on(async {
        if sink.starts_with("postgres://") {
            let address = Address::parse(&sink)?;
            let sink = PostgresSink::open(&address, PostgresOptions::default()).await?;
            backfill(&node, sink, codec, until, &last).await
        } else {
            backfill(&node, SqliteSink::open(Path::new(&sink))?, codec, until, &last).await
        }
    })?;
    // Without the housekeeping that follows it.
    let took = last.at()?.duration_since(began);
    println!("done {} {}", took.as_micros(), crate::measure::peak_bytes()?);
    Ok(())
}

/// When the last batch was written.
#[derive(Debug, Default)]
struct LastCommit(Mutex<Option<Instant>>);

impl LastCommit {
    fn at(&self) -> Result<Instant> {
        let at = self.0.lock().map_err(|_| anyhow!("a thread ended while it held the time"))?;
        at.context("nothing was written")
    }
}

impl Observer for LastCommit {
    fn progress(&self, _: &Progress) {
        if let Ok(mut at) = self.0.lock() {
            *at = Some(Instant::now());
        }
    }
}

/// Pulls everything; gives back when it began.
async fn backfill(
    node: &str,
    sink: impl Sink,
    codec: Codec,
    until: u64,
    last: &Arc<LastCommit>,
) -> Result<Instant> {
    let began = Instant::now();
    let source = GrpcSource::new(&GrpcOptions::new(format!("http://{node}")))?;
    let codec: Arc<dyn secateur_index::codec::Codec> = match codec {
        Codec::Evm => Arc::new(EvmCodec::new(CHAIN_ID, Verify::Full, LogFilter::Off)),
        Codec::Opaque => Arc::new(OpaqueCodec),
    };
    let mut options = WorkerOptions::new(CHAIN_ID);
    options.until = Some(until);
    let observer: Arc<dyn Observer> = Arc::<LastCommit>::clone(last);
    let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
    let worker = Worker::new(Arc::new(source), Arc::new(sink), codec, options, metrics, observer);
    let (_stop, stopped) = watch::channel(false);
    match worker.run(stopped).await? {
        secateur_index::worker::End::Until => Ok(began),
        other => bail!("the worker ended otherwise: {other:?}"),
    }
}
