//! The demo's index and archive: the same job as `secateur index` runs, against the demo's own
//! node, in a thread beside it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context as _;
use parking_lot::Mutex;
use secateur_archive::{Grain, Settings};
use secateur_core::Strength;
use secateur_evm::Verify;
use secateur_index::LogFilter;
use secateur_index::codec::CodecName;
use secateur_index::source::GrpcOptions;
use secateur_index::worker::{Event, Observer, OnPruned, Progress};
use tokio::sync::watch;

use crate::config::ArchivePlace;
use crate::error::NodeError;
use crate::http::Origins;
use crate::indexer::{self, ArchiveJob, BlocksFrom, Done, Job, Patience, RowsInto};
use crate::service::{NodeFile, Service};

/// Where the archive is in the data directory.
pub(super) const ARCHIVE: &str = "archive";
/// The index's name as a consumer: nothing is cut that it does not have.
pub(super) const CONSUMER: &str = "demo-index";
/// A part holds this share of the budget before compression, so that pruning never waits long.
const PARTS_PER_BUDGET: u64 = 8;
const LEAST_PART: u64 = 256 << 10;
const LARGEST_PART: u64 = 4 << 20;
/// Threads that index: the demo is to be comfortable on two cores.
const THREADS: usize = 2;

/// How far the index is, for whoever shows it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reached {
    /// The first block that is not written yet.
    pub(super) next: u64,
    pub(super) head: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Look(Mutex<Reached>);

impl Look {
    pub(super) fn reached(&self) -> Reached {
        *self.0.lock()
    }
}

impl Observer for Look {
    fn progress(&self, at: &Progress) {
        *self.0.lock() = Reached { next: at.next, head: at.head };
    }

    fn event(&self, event: &Event<'_>) {
        if let Event::Retrying { error, .. } | Event::Alarm { error, .. } = event {
            tracing::warn!(%error, "the demo's index is in trouble");
        }
    }
}

/// A running index. Dropping it stops it.
pub(super) struct Indexing {
    job: Job,
    look: Arc<Look>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<Done, anyhow::Error>>>,
}

/// What the demo's index and archive are, in a data directory.
fn job(path: &Path, service: &Service, budget: u64) -> Result<Job, anyhow::Error> {
    let mut options = GrpcOptions::new(format!("http://{}", service.grpc));
    options.token_file = Some(NodeFile::path(path));
    let url = archive_url(path)?;
    let part = (budget / PARTS_PER_BUDGET).clamp(LEAST_PART, LARGEST_PART);
    Ok(Job {
        source: BlocksFrom::Node(options),
        directory: None,
        patience: Patience::default(),
        sink: RowsInto::Sqlite(path.join("index/index.sqlite")),
        archive: Some(ArchiveJob {
            place: ArchivePlace { url: url.parse()?, settings: Settings::default() },
            stage: path.join("stage"),
            grain: Grain { daily: true, max_blocks: None, max_bytes: part },
            acknowledge: true,
        }),
        codec: CodecName::Evm,
        verify: Verify::Full,
        logs: LogFilter::All,
        on_pruned: OnPruned::Rebase,
        consumer: Some(CONSUMER.into()),
        strength: Strength::Hard,
        retention_days: None,
        workers: 1,
        budget_bytes: 8 << 20,
        http: None,
        cors_origins: Origins::default(),
        chain_id: None,
        once: false,
        to: None,
    })
}

/// The address of the demo's archive.
pub(super) fn archive_url(path: &Path) -> Result<String, anyhow::Error> {
    let path = std::path::absolute(path.join(ARCHIVE)).context("finding the archive")?;
    path.to_str().map(str::to_owned).ok_or_else(|| {
        NodeError::Failed(format!("{} is not readable as text", path.display())).into()
    })
}

impl Indexing {
    /// Starts it against a running service. `failed` is set if it cannot go on.
    pub(super) fn start(
        path: &Path,
        service: &Service,
        budget: u64,
        failed: &Arc<AtomicBool>,
    ) -> Result<Self, anyhow::Error> {
        let job = job(path, service, budget)?;
        let (stop, stopping) = watch::channel(false);
        let look = Arc::new(Look::default());
        let thread = {
            let (job, look, failed) = (job.clone(), Arc::clone(&look), Arc::clone(failed));
            std::thread::Builder::new()
                .name("secateur-index".into())
                .spawn(move || {
                    let ended = work(&job, stopping, look);
                    if ended.is_err() {
                        failed.store(true, Ordering::Release);
                    }
                    ended
                })
                .context("starting the index thread")?
        };
        Ok(Self { job, look, stop, thread: Some(thread) })
    }

    /// How far it is.
    pub(super) fn look(&self) -> &Arc<Look> {
        &self.look
    }

    /// Stops it. With `catch_up` everything that can be indexed and archived is, before it ends.
    pub(super) fn end(mut self, catch_up: bool) -> Result<Done, anyhow::Error> {
        let done = self.join()?;
        if !catch_up {
            return Ok(done);
        }
        let (_running, stop) = watch::channel(false);
        let job = Job { once: true, ..self.job.clone() };
        work(&job, stop, Arc::clone(&self.look))
    }

    fn join(&mut self) -> Result<Done, anyhow::Error> {
        self.stop.send_replace(true);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(Done::default()),
            Some(Ok(ended)) => ended.context("the demo's index or archive failed"),
            Some(Err(_)) => Err(NodeError::ThreadDied("index").into()),
        }
    }
}

impl Drop for Indexing {
    fn drop(&mut self) {
        // Whoever wanted to know how it ended has asked already.
        self.join().map(drop).unwrap_or_default();
    }
}

fn work(job: &Job, stop: watch::Receiver<bool>, look: Arc<Look>) -> Result<Done, anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .thread_name("secateur-index")
        .build()
        .context("starting the threads that index")?;
    runtime.block_on(Box::pin(indexer::run(job, stop, look)))
}
