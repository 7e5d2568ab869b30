//! Running an index: a worker that pulls blocks into a sink, an archiver beside it, and the
//! read-only API over the result.
//!
//! What lives here: putting the parts of `secateur-index` together as a [`Job`] says, and their
//! common end. What deliberately does not: the work itself, which is that crate's; flags and
//! configuration, which are `config`'s.

mod job;
mod serve;
mod shared;
mod show;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use secateur_archive::Archive;
use secateur_core::Height;
use secateur_index::archiving::{ArchiveMetrics, Archiving, ArchivingOptions};
use secateur_index::codec::Codec;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::source::{ArchiveSource, GrpcSource, Source};
use secateur_index::worker::{Backoff, Event, Metrics, Observer, Worker, WorkerOptions};
use secateur_index::{IndexError, IndexReader, LogFilter, PartRow, Sink};
use serde::Serialize;
use tokio::sync::watch;

#[cfg(feature = "ic")]
pub(crate) use job::Canister;
pub(crate) use job::{ArchiveJob, BlocksFrom, Job, RowsInto, no_password, only_chain};
pub(crate) use serve::check_local;
pub(crate) use show::Look;

use crate::error::NodeError;
use serve::Api;

/// What an index holds when its job ends.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Done {
    /// The newest block that is written.
    pub(crate) indexed: Option<Height>,
    /// The source's newest exportable block, as it was last known.
    pub(crate) head: Option<Height>,
    /// The newest block that is in a listed part.
    pub(crate) archived: Option<Height>,
    /// Which logs are kept, and from which block on; none if none are.
    pub(crate) logs: Option<String>,
    pub(crate) logs_since: Option<Height>,
    /// What the sink takes.
    pub(crate) sink_bytes: u64,
}

/// What everybody who works for one job shares.
struct Crew<S, K> {
    source: Arc<S>,
    sink: Arc<K>,
    codec: Arc<dyn Codec>,
    chain_id: u64,
    look: Arc<dyn Observer>,
    metrics: Arc<Metrics>,
    archive_metrics: Arc<ArchiveMetrics>,
}

/// Works until the job is done, `stop` turns true, or it cannot go on.
pub(crate) async fn run(
    job: &Job,
    stop: watch::Receiver<bool>,
    look: Arc<dyn Observer>,
) -> Result<Done, anyhow::Error> {
    secateur_archive::install_tls_provider();
    match &job.source {
        BlocksFrom::Node(options) => {
            Box::pin(with_source(job, GrpcSource::new(options)?, stop, look)).await
        }
        BlocksFrom::Archive(place) => {
            let archive = Archive::open(&place.url, &place.settings)?;
            let chain_id = only_chain(&archive, job.chain_id).await?;
            let source = ArchiveSource::new(archive, chain_id, job.check());
            Box::pin(with_source(job, source, stop, look)).await
        }
        #[cfg(feature = "ic")]
        BlocksFrom::Canister(canister) => with_canister(job, canister, stop, look).await,
    }
}

#[cfg(feature = "ic")]
async fn with_canister(
    job: &Job,
    canister: &Canister,
    stop: watch::Receiver<bool>,
    look: Arc<dyn Observer>,
) -> Result<Done, anyhow::Error> {
    use secateur_index::source::{IcOptions, IcSource};
    let mut options = IcOptions::parse(&canister.source).map_err(NodeError::Usage)?;
    options.url.clone_from(&canister.url);
    options.identity.clone_from(&canister.identity);
    Box::pin(with_source(job, IcSource::new(&options)?, stop, look)).await
}

async fn with_source<S: Source>(
    job: &Job,
    source: S,
    stop: watch::Receiver<bool>,
    look: Arc<dyn Observer>,
) -> Result<Done, anyhow::Error> {
    let source = Arc::new(source);
    match &job.sink {
        RowsInto::Sqlite(path) => {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(|error| {
                    let parent = parent.display();
                    IndexError::sink(format!("making the directory {parent}: {error}"))
                })?;
            }
            let sink = SqliteSink::open(path)?;
            let reader = sink.reader();
            with_sink(job, source, sink, reader, None, stop, look).await
        }
        RowsInto::Postgres(url) => {
            let mut options = PostgresOptions::default();
            options.connections = options.connections.max(2 * job.workers + 4);
            let sink = PostgresSink::open(&Address::parse(url)?, options).await?;
            sink.check_whole().await?;
            with_sink(job, source, sink.clone(), sink.clone(), Some(sink), stop, look).await
        }
    }
}

async fn with_sink<S: Source, K: Sink, R: IndexReader + Clone>(
    job: &Job,
    source: Arc<S>,
    sink: K,
    reader: R,
    pool: Option<PostgresSink>,
    stop: watch::Receiver<bool>,
    look: Arc<dyn Observer>,
) -> Result<Done, anyhow::Error> {
    let known = reader.meta().await?.chain_id;
    let Some(chain_id) = chain_id(job, known, source.as_ref(), look.as_ref(), &stop).await? else {
        return Ok(Done::default());
    };
    let codec = job.codec.codec(chain_id, job.verify, job.logs.clone());
    let mut registry = Registry::default();
    let crew = Crew {
        sink: Arc::new(sink),
        codec,
        chain_id,
        look,
        metrics: Arc::new(Metrics::new(&mut registry)),
        archive_metrics: Arc::new(ArchiveMetrics::new(&mut registry)),
        source,
    };
    crew.metrics.resume(&reader, crew.sink.size_bytes().await?).await?;
    let api = Api::open(job.http, reader.clone(), registry).await?;
    if let Some(api) = &api {
        crate::ui::print(&format!("listening index http={}\n", api.address()))?;
    }
    let (all_stop, stopping) = watch::channel(false);
    let working = work(job, &crew, pool.as_ref(), &all_stop);
    let serving = serve::until(api, stopping.clone());
    let relay = async {
        let mut stop = stop;
        // Whoever could ask has gone: that is an order too.
        drop(stop.wait_for(|stop| *stop).await);
        all_stop.send_replace(true);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        worked = working => {
            all_stop.send_replace(true);
            worked?;
        }
        served = serving => {
            served?;
            return Err(NodeError::ThreadDied("index API").into());
        }
        () = relay => {}
    }
    done(&crew, &reader).await.map_err(Into::into)
}

/// The chain's number: as it is named, as the index knows it, or as the source says. None if it was
/// asked to stop while it waited for the source.
async fn chain_id<S: Source>(
    job: &Job,
    known: Option<u64>,
    source: &S,
    look: &dyn Observer,
    stop: &watch::Receiver<bool>,
) -> Result<Option<u64>, anyhow::Error> {
    if let (Some(named), Some(known)) = (job.chain_id, known)
        && named != known
    {
        return Err(IndexError::Refused(format!(
            "the index has chain {known}, and chain {named} is wanted: name another index"
        ))
        .into());
    }
    if let Some(id) = job.chain_id.or(known) {
        return Ok(Some(id));
    }
    let status = match patiently(look, stop, || source.status()).await {
        Err(IndexError::Refused(reason)) => {
            let told = format!("{reason} (which chain it has was asked; --chain-id says it, too)");
            return Err(IndexError::Refused(told).into());
        }
        status => status?,
    };
    let Some(status) = status else { return Ok(None) };
    let none = || {
        NodeError::Usage(
            "the source does not say which chain it has; name it with --chain-id".into(),
        )
    };
    Ok(Some(status.chain_id.ok_or_else(none)?))
}

/// Asks again as long as what goes wrong may pass; none if it was asked to stop meanwhile.
async fn patiently<T, F: Future<Output = Result<T, IndexError>>>(
    look: &dyn Observer,
    stop: &watch::Receiver<bool>,
    mut ask: impl FnMut() -> F,
) -> Result<Option<T>, IndexError> {
    let (mut waits, mut stop) = (Backoff::new(), stop.clone());
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) if error.is_retryable() => error,
            Err(error) => return Err(error),
        };
        let wait = waits.wait();
        look.event(&Event::Retrying { error: &error, wait });
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Indexes and archives side by side. Neither waits for the other, but one that cannot go on ends
/// both.
async fn work<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    pool: Option<&PostgresSink>,
    all_stop: &watch::Sender<bool>,
) -> Result<(), anyhow::Error> {
    let ends = |failed: bool| {
        if failed {
            all_stop.send_replace(true);
        }
    };
    let indexing = async {
        let ended = match pool.filter(|_| job.workers > 1) {
            Some(pool) => shared::run(job, crew, pool, all_stop.subscribe()).await,
            None => index(job, crew, all_stop.subscribe()).await,
        };
        ends(ended.is_err());
        ended
    };
    let archiving = async {
        let ended = match &job.archive {
            Some(to) => archive(job, to, crew, all_stop.subscribe()).await,
            None => Ok(()),
        };
        ends(ended.is_err());
        ended
    };
    let (indexed, archived) = tokio::join!(indexing, archiving);
    indexed?;
    archived
}

async fn index<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let worker = Worker::new(
        Arc::clone(&crew.source),
        Arc::clone(&crew.sink),
        Arc::clone(&crew.codec),
        worker_options(job, crew.chain_id),
        Arc::clone(&crew.metrics),
        Arc::clone(&crew.look),
    );
    worker.run(stop).await?;
    Ok(())
}

fn worker_options(job: &Job, chain_id: u64) -> WorkerOptions {
    WorkerOptions {
        logs: job.logs.to_string(),
        consumer: job.consumer.clone(),
        strength: job.strength,
        on_pruned: job.on_pruned,
        until: job.to,
        follow: !job.once,
        retention_days: job.retention_days,
        budget_bytes: job.budget_bytes,
        ..WorkerOptions::new(chain_id)
    }
}

async fn archive<S: Source, K: Sink>(
    job: &Job,
    to: &ArchiveJob,
    crew: &Crew<S, K>,
    stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let archiving = Archiving {
        source: Arc::clone(&crew.source),
        sink: Arc::clone(&crew.sink),
        archive: Archive::create(&to.place.url, &to.place.settings)?,
        codec: Arc::clone(&crew.codec),
        options: ArchivingOptions {
            grain: to.grain,
            on_pruned: job.on_pruned,
            ack: to.acknowledge,
            until: job.to,
            follow: !job.once,
            ..ArchivingOptions::new(crew.chain_id, job.codec.of_parts(), &to.stage)
        },
        metrics: Arc::clone(&crew.archive_metrics),
        totals: Some(Arc::clone(&crew.metrics)),
        observer: Arc::clone(&crew.look),
    };
    archiving.run(stop).await?;
    Ok(())
}

async fn done<S: Source, K: Sink>(
    crew: &Crew<S, K>,
    reader: &impl IndexReader,
) -> Result<Done, IndexError> {
    let meta = reader.meta().await?;
    let logs = meta.logs.filter(|logs| *logs != LogFilter::Off.to_string());
    Ok(Done {
        logs_since: meta.logs_since.filter(|_| logs.is_some()),
        logs,
        indexed: meta.cursor.and_then(|cursor| cursor.block_number.checked_sub(1)),
        // The source may be gone, and what is indexed is told all the same.
        head: crew.source.head().await.ok().flatten(),
        archived: crew.sink.last_part().await?.map(|PartRow { block_to, .. }| block_to),
        sink_bytes: crew.sink.size_bytes().await?,
    })
}
