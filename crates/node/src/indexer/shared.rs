//! Several workers that share a backfill of one PostgreSQL index by leases; when it is done, one of
//! all processes follows the head.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use secateur_core::Cursor;
use secateur_index::postgres::{LeaseQueue, LeasedSink, PostgresSink, backfill};
use secateur_index::source::{BackedSource, Source, status_of};
use secateur_index::worker::{Event, Metrics, Worker, WorkerOptions, begins_above, watch_head};
use secateur_index::{IndexError, Sink};
use tokio::sync::watch;

use super::{Crew, Job, worker_options};

/// How often whoever follows the head says so, and whoever does not looks whether it may.
const RENEW: Duration = Duration::from_secs(15);

/// How often it is looked how far all workers together are.
const LOOK: Duration = Duration::from_secs(2);

/// Works on leases until the head is reached, then follows it or waits for its turn to.
pub(super) async fn run<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    pool: &PostgresSink,
    stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let looked = tokio::select! {
        ended = take_part(job, crew, pool, stop.clone()) => return ended,
        looked = look_on(crew, pool) => looked,
    };
    match looked {}
}

/// Notes how far all workers together are, and the head, also while another process follows it.
async fn look_on<S: Source, K: Sink>(crew: &Crew<S, K>, pool: &PostgresSink) -> Infallible {
    tokio::select! {
        never = watch_head(crew.source.as_ref(), crew.metrics.live(), crew.look.as_ref()) => never,
        never = watch_cursor(pool, &crew.metrics) => never,
    }
}

async fn watch_cursor(pool: &PostgresSink, metrics: &Metrics) -> Infallible {
    loop {
        // Whoever writes meets the same trouble, and tells it.
        if let Ok(Some(cursor)) = pool.cursor().await {
            metrics.reached(cursor.block_number);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn take_part<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    pool: &PostgresSink,
    mut stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let owner = format!("{}-{}", host(), std::process::id());
    let queue = LeaseQueue::new(pool, &owner);
    let asked = stop.clone();
    let meeting = crew.meeting(job, &asked);
    let shared = meeting.patiently(|| share(job, crew, &queue, asked.clone()));
    tokio::select! {
        // Leases that are given up expire, or are taken over at once.
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
        shared = shared => drop(shared?),
    }
    if job.once || job.to.is_some() {
        return Ok(());
    }
    follow(job, crew, &queue, stop).await?;
    Ok(())
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or("worker".into(), |name| name.trim().to_owned())
}

async fn share<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    queue: &LeaseQueue,
    stop: watch::Receiver<bool>,
) -> Result<(), IndexError> {
    let identity = secateur_index::sink::Identity {
        chain_id: crew.chain_id,
        codec: crew.codec.name().to_owned(),
        logs: job.logs.to_string(),
    };
    // First of all, so that nothing is planned for a source of another chain.
    let status = status_of(crew.source.as_ref(), crew.chain_id).await?;
    crew.sink.bind(&identity).await?;
    // A source that does not speak of itself says at least how far it goes.
    let head = if status.head.is_some() { status.head } else { crew.source.head().await? };
    let Some(head) = head else { return Ok(()) };
    if let (Some(wanted), Some(oldest)) = (job.to, status.oldest)
        && wanted < oldest
        && crew.sink.cursor().await?.is_none()
    {
        return Err(IndexError::Pruned { wanted, pruned_before_block: oldest - 1 });
    }
    // What one plan makes begins at the oldest block: what is below will never be here.
    if crew.sink.cursor().await?.is_none()
        && let Some(first) = status.oldest
        && let Some(gap) = begins_above(first)
    {
        crew.sink.record_gap(gap, Cursor::at_block(first)).await?;
        crew.look.event(&Event::Begins { first });
    }
    let past = job.to.map_or(head, |to| to.min(head)).saturating_add(1);
    // A plan makes so many leases at a time.
    loop {
        let planned = queue.plan(status.oldest.unwrap_or(0), past).await?;
        let worker = |_| {
            let stop = stop.clone();
            backfill(queue, move |sink| pull(job, crew, sink, stop.clone()))
        };
        try_join_all((0..job.workers).map(worker)).await?;
        if planned == 0 {
            return Ok(());
        }
    }
}

/// Pulls the blocks of one lease.
async fn pull<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    sink: LeasedSink,
    stop: watch::Receiver<bool>,
) -> Result<(), IndexError> {
    let mut options = worker_options(job, crew.chain_id);
    options.until = sink.until().and_then(|past| past.checked_sub(1));
    // The one who follows the head speaks for all.
    (options.consumer, options.follow, options.is_shared) = (None, true, true);
    options.decoders = options.decoders.div_ceil(job.workers.max(1));
    worker(crew, Arc::new(sink), options).run(stop).await.map(drop)
}

async fn follow<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    queue: &LeaseQueue,
    mut stop: watch::Receiver<bool>,
) -> Result<(), IndexError> {
    loop {
        let meeting = crew.meeting(job, &stop);
        let taken = meeting.patiently(|| queue.take_head()).await?;
        let Some(epoch) = taken.flatten() else {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = tokio::time::sleep(RENEW) => continue,
            }
        };
        let sink = Arc::new(LeasedSink::head(queue, epoch));
        let worker = worker(crew, Arc::clone(&sink), worker_options(job, crew.chain_id));
        let renewing = async {
            loop {
                tokio::time::sleep(RENEW).await;
                if !queue.renew_head(epoch).await.unwrap_or(true) {
                    return;
                }
            }
        };
        tokio::select! {
            ended = worker.run(stop.clone()) => {
                if !sink.is_lost() {
                    ended?;
                    return queue.release_head(epoch).await;
                }
            }
            () = renewing => {}
        }
        tracing::warn!("another worker follows the head now; this one waits for its turn");
    }
}

fn worker<S: Source, K: Sink>(
    crew: &Crew<S, K>,
    sink: Arc<LeasedSink>,
    mut options: WorkerOptions,
) -> Worker<BackedSource<S>, LeasedSink> {
    options.looks_for_head = false;
    Worker::new(
        Arc::clone(&crew.blocks),
        sink,
        Arc::clone(&crew.codec),
        options,
        Arc::clone(&crew.metrics),
        Arc::clone(&crew.look),
    )
}
