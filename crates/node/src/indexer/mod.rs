//! Running an index: a worker that pulls blocks into a sink, an archiver beside it, and the
//! read-only API over the result.
//!
//! What lives here: putting the parts of `secateur-index` together as a [`Job`] says, and their
//! common end. What deliberately does not: the work itself, which is that crate's; flags and
//! configuration, which are `config`'s.

mod fill;
mod job;
mod meet;
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
use secateur_index::source::{ArchiveSource, BackedSource, GrpcSource, Source};
use secateur_index::worker::{Metrics, Observer, Worker, WorkerOptions};
use secateur_index::{IndexError, IndexReader, LogFilter, PartRow, Sink};
use serde::Serialize;
use tokio::sync::{Notify, watch};

pub(crate) use fill::{Wanted, backfill};
#[cfg(feature = "ic")]
pub(crate) use job::Canister;
pub(crate) use job::{
    ArchiveJob, BlocksFrom, Directory, Job, Patience, RowsInto, no_password, only_chain,
};
pub(crate) use serve::check_local;
pub(crate) use show::Look;

use crate::error::NodeError;
use crate::ui::words::plural;
use meet::Meeting;
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
    /// Rows older than so many days are removed; none if they are kept for ever.
    pub(crate) retention_days: Option<u32>,
    /// The first block that the index can have, if that is not block 0.
    pub(crate) begins_at: Option<Height>,
    /// What the sink takes.
    pub(crate) sink_bytes: u64,
}

/// What everybody who works for one job shares.
struct Crew<S, K> {
    source: Arc<S>,
    /// The same, with the archive of the job behind it.
    blocks: Arc<BackedSource<S>>,
    sink: Arc<K>,
    codec: Arc<dyn Codec>,
    chain_id: u64,
    look: Arc<dyn Observer>,
    /// Something is there to be filled, or may be.
    wake: Arc<Notify>,
    metrics: Arc<Metrics>,
    archive_metrics: Arc<ArchiveMetrics>,
}

impl<S, K> Crew<S, K> {
    fn meeting<'a>(&'a self, job: &'a Job, stop: &'a watch::Receiver<bool>) -> Meeting<'a> {
        Meeting { job, look: self.look.as_ref(), live: Some(self.metrics.live()), stop }
    }
}

/// A source with the archive behind it that is named beside it: what the source has cut comes from there.
fn backed<S: Source>(
    job: &Job,
    source: &S,
    chain_id: u64,
) -> Result<BackedSource<S>, anyhow::Error> {
    let archive = job.archive.as_ref().map(|to| {
        // A worker has made it by now; who only fills is to make none.
        let archive = Archive::open(&to.place.url, &to.place.settings)?;
        Ok::<_, anyhow::Error>(ArchiveSource::new(archive, chain_id, job.check()))
    });
    Ok(BackedSource::new(source.clone(), archive.transpose()?))
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
    Box::pin(with_source(job, canister_source(canister)?, stop, look)).await
}

#[cfg(feature = "ic")]
fn canister_source(canister: &Canister) -> Result<secateur_index::source::IcSource, anyhow::Error> {
    use secateur_index::source::{IcOptions, IcSource};
    let mut options = IcOptions::parse(&canister.source).map_err(NodeError::Usage)?;
    options.url.clone_from(&canister.url);
    options.identity.clone_from(&canister.identity);
    Ok(IcSource::new(&options)?)
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
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let beside = Some(Arc::clone(metrics.live()));
    let archive_metrics = Arc::new(ArchiveMetrics::beside(&mut registry, beside));
    metrics.resume(&reader, sink.size_bytes().await?).await?;
    // What an index has can be read, and why it does not grow, also where its source does not answer.
    let origins = job.cors_origins.clone();
    let api = Api::open(job.http, reader.clone(), registry, &metrics, origins).await?;
    if let Some(api) = &api {
        crate::ui::print(&api.listening())?;
    }
    let (all_stop, stopping) = watch::channel(false);
    let serving = serve::until(api, stopping.clone());
    let working = async {
        let known = reader.meta().await?.chain_id;
        let (live, look_on) = (Some(metrics.live().as_ref()), look.as_ref());
        let meeting = Meeting { job, look: look_on, live, stop: &stopping };
        let Some(chain_id) = meeting.meet(source.as_ref(), known).await? else {
            return Ok(Done::default());
        };
        if !meeting.may_write(chain_id).await? {
            return Ok(Done::default());
        }
        say_what_is_kept(job);
        let wake = Arc::new(Notify::new());
        let crew = Crew {
            blocks: Arc::new(backed(job, source.as_ref(), chain_id)?),
            sink: Arc::new(sink),
            codec: job.codec.codec(chain_id, job.verify, job.logs.clone()),
            chain_id,
            look: Arc::new(fill::Waking::new(Arc::clone(&look), Arc::clone(&wake))),
            wake,
            metrics: Arc::clone(&metrics),
            archive_metrics,
            source: Arc::clone(&source),
        };
        work(job, &crew, &reader, pool.as_ref(), &all_stop).await?;
        Ok::<_, anyhow::Error>(done(job, &crew, &reader).await?)
    };
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
            worked
        }
        served = serving => {
            served?;
            Err(NodeError::ThreadDied("index API").into())
        }
        () = relay => Ok(Done::default()),
    }
}

/// Says what the index will hold: whoever expects logs, or old rows, is to learn it at the start.
fn say_what_is_kept(job: &Job) {
    let logs = match &job.logs {
        LogFilter::Off => "none; --log-address and --log-topic choose some".to_owned(),
        LogFilter::All => "all".to_owned(),
        LogFilter::Chosen { addresses, topics } => {
            let (addresses, topics) = (addresses.len() as u64, topics.len() as u64);
            let addresses = match addresses {
                1 => "1 address".to_owned(),
                many => format!("{many} addresses"),
            };
            format!("those of {addresses} and {}", plural(topics, "first topic"))
        }
    };
    let rows = job
        .retention_days
        .map_or("for ever".to_owned(), |days| format!("for {}", plural(days.into(), "day")));
    tracing::info!(logs, rows, "what this index keeps");
}

/// Indexes and archives side by side. Neither waits for the other, but one that cannot go on ends
/// both.
async fn work<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    reader: &impl IndexReader,
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
        ended?;
        fill::gaps_at_the_end(job, crew, reader, all_stop.subscribe()).await;
        Ok::<_, anyhow::Error>(())
    };
    let archiving = async {
        let ended = match &job.archive {
            Some(to) => archive(job, to, crew, all_stop.subscribe()).await,
            None => Ok(()),
        };
        ends(ended.is_err());
        ended
    };
    let filling = fill::gaps_beside(job, crew, reader, all_stop.subscribe());
    let (indexed, archived, ()) = tokio::join!(indexing, archiving, filling);
    indexed?;
    archived
}

async fn index<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let worker = Worker::new(
        Arc::clone(&crew.blocks),
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
        alarm_after: job.patience.alarm_after,
        pause: job.patience.pause,
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
            alarm_after: job.patience.alarm_after,
            pause: job.patience.pause,
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
    job: &Job,
    crew: &Crew<S, K>,
    reader: &impl IndexReader,
) -> Result<Done, IndexError> {
    let meta = reader.meta().await?;
    let logs = meta.logs.filter(|logs| *logs != LogFilter::Off.to_string());
    let lowest = reader.gaps_in(0, 0, 1).await?.pop();
    Ok(Done {
        retention_days: job.retention_days,
        begins_at: lowest.and_then(|gap| gap.block_to.checked_add(1)),
        logs_since: meta.logs_since.filter(|_| logs.is_some()),
        logs,
        indexed: meta.cursor.and_then(|cursor| cursor.block_number.checked_sub(1)),
        // The source may be gone, and what is indexed is told all the same.
        head: crew.source.head().await.ok().flatten(),
        archived: crew.sink.last_part().await?.map(|PartRow { block_to, .. }| block_to),
        sink_bytes: crew.sink.size_bytes().await?,
    })
}
