//! What an index lacks: `index backfill`, and beside a worker with an archive what `gaps` lists.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secateur_archive::Archive;
use secateur_core::Height;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::refill::{Refill, Refilled};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::source::{ArchiveSource, BackedSource, GrpcSource, Source};
use secateur_index::worker::{Event, Observer, Progress, WorkerOptions};
use secateur_index::{GapRow, IndexError, IndexReader, Sink};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::job::{BlocksFrom, Job, RowsInto};
use super::meet::Meeting;
use super::{Crew, backed, worker_options};
use crate::cli::FillFrom;
use crate::config::ArchivePlace;
use crate::error::NodeError;
use crate::ui::Sheet;
use crate::ui::words::{count, plural};

/// Gaps that are looked at together.
const PAGE: usize = 256;
/// How often a worker that follows looks again whether a gap can be filled.
const LOOK_AGAIN: Duration = Duration::from_mins(10);
/// How long a gap's source may fail before the next gap has its turn.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Which blocks are to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All that `gaps` lists.
    Gaps,
    /// From a block to another one, or to the cursor.
    Blocks(Height, Option<Height>),
}

/// Blocks from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    from: Height,
    to: Height,
}

/// What a backfill did.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Filled {
    /// Blocks whose rows were written.
    written: u64,
    /// Those of them that were not there before.
    new: u64,
    /// Blocks that are older than the retention, and were passed over.
    too_old: u64,
    /// What the source does not have.
    missing: Vec<Span>,
    /// It was interrupted.
    stopped: bool,
}

impl Filled {
    fn add(&mut self, refilled: Refilled) {
        self.written += refilled.written;
        self.new += refilled.new;
        self.too_old += refilled.too_old;
        self.missing.extend(refilled.missing.into_iter().map(|(from, to)| Span { from, to }));
        self.stopped |= refilled.stopped;
    }

    pub(crate) fn text(&self) -> String {
        let mut sheet = Sheet::default();
        let new = format!("{} of them new", count(self.new));
        sheet.row("written", format_args!("{}, {new}", plural(self.written, "block")));
        if self.too_old > 0 {
            let told = "older than the retention, passed over (--retention-days)";
            sheet.row("left out", format_args!("{}, {told}", plural(self.too_old, "block")));
        }
        if self.stopped {
            sheet.row("", "interrupted; run it again for the rest");
        }
        sheet.finish()
    }

    /// An error if something is missing, or it was interrupted.
    pub(crate) fn whole(&self) -> Result<(), anyhow::Error> {
        if self.stopped {
            let told = "the backfill was interrupted; run it again for the rest";
            return Err(NodeError::Unfinished(told.into()).into());
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        let spans = self.missing.iter().map(|Span { from, to }| format!("{from}..{to}"));
        let spans: Vec<String> = spans.collect();
        Err(NodeError::NotFilled(format!("the source does not have blocks {}", spans.join(", ")))
            .into())
    }
}

/// How far it is, and of how many blocks.
pub(crate) type At = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Fills what is wanted. Blocks come from the job's source, and what that has cut from its archive, if it was
/// not said that they are to come `from` one of them only.
pub(crate) async fn backfill(
    job: &Job,
    from: Option<FillFrom>,
    wanted: Wanted,
    stop: watch::Receiver<bool>,
    at: At,
) -> Result<Filled, anyhow::Error> {
    secateur_archive::install_tls_provider();
    match &job.sink {
        RowsInto::Sqlite(path) => {
            check_there(path)?;
            let sink = SqliteSink::open(path)?;
            let reader = sink.reader();
            Filling { job, sink, reader, wanted, stop, at }.fill(from).await
        }
        RowsInto::Postgres(url) => {
            let options = PostgresOptions::default();
            let sink = PostgresSink::open(&Address::parse(url)?, options).await?;
            sink.check_whole().await?;
            Filling { job, sink: sink.clone(), reader: sink, wanted, stop, at }.fill(from).await
        }
    }
}

/// A file that is not there would be made.
fn check_there(path: &Path) -> Result<(), NodeError> {
    if path.exists() {
        return Ok(());
    }
    let path = path.display();
    Err(NodeError::Usage(format!("there is no index at {path}; `secateur index` makes one")))
}

/// A backfill whose index is open.
struct Filling<'a, K, R> {
    job: &'a Job,
    sink: K,
    reader: R,
    wanted: Wanted,
    stop: watch::Receiver<bool>,
    at: At,
}

impl<K: Sink, R: IndexReader> Filling<'_, K, R> {
    async fn fill(self, from: Option<FillFrom>) -> Result<Filled, anyhow::Error> {
        let chain_id = self.chain_id().await?;
        let job = self.job;
        let alone = from == Some(FillFrom::Node);
        match &job.source {
            BlocksFrom::Archive(_) if alone => Err(NodeError::Usage(
                "--from node, and --source names an archive: name a node".into(),
            )
            .into()),
            BlocksFrom::Archive(place) => {
                let source = archive_source(place, job, chain_id)?;
                Box::pin(self.run(chain_id, BackedSource::new(source, None))).await
            }
            BlocksFrom::Node(options) => {
                let source = GrpcSource::new(options)?;
                let (look, stop) = (&(), &self.stop);
                if !(Meeting { job, look, live: None, stop }).is_meant(&source).await? {
                    return Ok(Filled { stopped: true, ..Filled::default() });
                }
                let source = behind(job, source, chain_id, alone)?;
                Box::pin(self.run(chain_id, source)).await
            }
            #[cfg(feature = "ic")]
            BlocksFrom::Canister(canister) => {
                let source = behind(job, super::canister_source(canister)?, chain_id, alone)?;
                Box::pin(self.run(chain_id, source)).await
            }
        }
    }

    /// The index's chain. It must have one, the wanted one, and keep the logs that are wanted.
    async fn chain_id(&self) -> Result<u64, anyhow::Error> {
        let meta = self.reader.meta().await?;
        let (Some(known), Some(_)) = (meta.chain_id, meta.cursor) else {
            let told = "the index has no block yet: run `secateur index` first";
            return Err(NodeError::Refused(told.into()).into());
        };
        if let Some(named) = self.job.chain_id.filter(|named| *named != known) {
            let told = format!("the index has chain {known}, and chain {named} is wanted");
            return Err(NodeError::Refused(told).into());
        }
        let (ours, theirs) = (self.job.logs.to_string(), meta.logs.unwrap_or_default());
        if ours != theirs {
            return Err(NodeError::Refused(format!(
                "the index keeps logs `{theirs}`, and this command says `{ours}`: name the same as its \
                 worker (--log-address, --log-topic), or run the worker with these first"
            ))
            .into());
        }
        Ok(known)
    }

    async fn run<S: Source>(self, chain_id: u64, source: S) -> Result<Filled, anyhow::Error> {
        let Self { job, sink, reader, wanted, stop, at } = self;
        let next = sink.cursor().await?.map_or(0, |cursor| cursor.block_number);
        let spans = match wanted {
            Wanted::Gaps => gaps(&reader).await?,
            Wanted::Blocks(first, last) => {
                let last = last.unwrap_or(next.saturating_sub(1));
                if last >= next || first > last {
                    return Err(NodeError::Refused(format!(
                        "blocks {first} to {last}: the index goes on at block {next}, and only blocks below \
                         that are filled again"
                    ))
                    .into());
                }
                vec![Span { from: first, to: last }]
            }
        };
        let refill = Refill {
            source: Arc::new(source),
            sink: Arc::new(sink),
            codec: job.codec.codec(chain_id, job.verify, job.logs.clone()),
            options: worker_options(job, chain_id),
        };
        let total: u64 = spans.iter().map(|span| span.to - span.from + 1).sum();
        let (mut filled, mut before) = (Filled::default(), 0);
        for Span { from, to } in spans {
            let at = Arc::clone(&at);
            let told = Arc::new(move |next: Height| at(before + next.saturating_sub(from), total));
            filled.add(refill.run(from, to, stop.clone(), told).await?);
            before += to - from + 1;
            if filled.stopped {
                break;
            }
        }
        Ok(filled)
    }
}

fn archive_source(
    place: &ArchivePlace,
    job: &Job,
    chain_id: u64,
) -> Result<ArchiveSource, anyhow::Error> {
    let archive = Archive::open(&place.url, &place.settings)?;
    Ok(ArchiveSource::new(archive, chain_id, job.check()))
}

fn behind<S: Source>(
    job: &Job,
    source: S,
    chain_id: u64,
    alone: bool,
) -> Result<BackedSource<S>, anyhow::Error> {
    if alone { Ok(BackedSource::new(source, None)) } else { backed(job, &source, chain_id) }
}

/// All gaps, oldest first.
async fn gaps(reader: &impl IndexReader) -> Result<Vec<Span>, IndexError> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        let page = reader.gaps(from, PAGE).await?;
        let Some(last) = page.last().map(|gap| gap.block_from) else { return Ok(all) };
        all.extend(
            page.iter().map(|GapRow { block_from, block_to, .. }| Span {
                from: *block_from,
                to: *block_to,
            }),
        );
        from = last.saturating_add(1);
    }
}

/// Wakes whoever fills gaps once there is something to look at.
pub(super) struct Waking {
    look: Arc<dyn Observer>,
    wake: Arc<Notify>,
    /// Whether the worker wrote anything, or found that there is nothing to write.
    works: AtomicBool,
}

impl Waking {
    pub(super) fn new(look: Arc<dyn Observer>, wake: Arc<Notify>) -> Self {
        Self { look, wake, works: AtomicBool::new(false) }
    }

    fn begin(&self) {
        if !self.works.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

impl Observer for Waking {
    fn progress(&self, progress: &Progress) {
        self.begin();
        self.look.progress(progress);
    }

    fn event(&self, event: &Event<'_>) {
        match event {
            Event::CaughtUp { .. } => self.begin(),
            Event::Gap { .. } | Event::Begins { .. } => self.wake.notify_one(),
            _ => {}
        }
        self.look.event(event);
    }
}

impl<S: Source, K: Sink> Crew<S, K> {
    fn refill(&self, job: &Job) -> Refill<BackedSource<S>, K> {
        Refill {
            source: Arc::clone(&self.blocks),
            sink: Arc::clone(&self.sink),
            codec: Arc::clone(&self.codec),
            options: WorkerOptions {
                // One that does not come through now is tried again later.
                alarm_after: GIVE_UP,
                ..worker_options(job, self.chain_id)
            },
        }
    }
}

/// Fills what `gaps` lists beside a worker that follows, where an archive is named: whenever the worker notes
/// one, and from time to time. What cannot be filled stays listed, and keeps nothing from going on.
pub(super) async fn gaps_beside<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    reader: &impl IndexReader,
    mut stop: watch::Receiver<bool>,
) {
    if job.archive.is_none() || job.ends() {
        return;
    }
    let refill = crew.refill(job);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = crew.wake.notified() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        fill_gaps(&refill, reader, &stop).await;
    }
}

/// The same once, where the worker has ended: it may have noted some of them itself.
pub(super) async fn gaps_at_the_end<S: Source, K: Sink>(
    job: &Job,
    crew: &Crew<S, K>,
    reader: &impl IndexReader,
    stop: watch::Receiver<bool>,
) {
    if job.archive.is_some() && job.ends() {
        fill_gaps(&crew.refill(job), reader, &stop).await;
    }
}

/// Fills gap by gap; one that is not filled keeps no other one from it.
async fn fill_gaps<S: Source, K: Sink>(
    refill: &Refill<S, K>,
    reader: &impl IndexReader,
    stop: &watch::Receiver<bool>,
) {
    let spans = match gaps(reader).await {
        Ok(spans) => spans,
        Err(error) => {
            tracing::warn!(%error, "the gaps cannot be read; they are looked at again later");
            return;
        }
    };
    let mut filled = 0;
    for Span { from, to } in spans {
        if *stop.borrow() {
            break;
        }
        match refill.run(from, to, stop.clone(), Arc::new(|_| {})).await {
            Ok(refilled) => filled += refilled.new + refilled.too_old,
            Err(error) => {
                tracing::warn!(from, to, %error, "a gap is not filled; it is tried again later");
            }
        }
    }
    if filled > 0 {
        tracing::info!(blocks = filled, "filled what `gaps` lists");
    }
}
