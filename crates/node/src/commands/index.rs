//! `index`: pulls a node's history into a sink, and into an archive beside it, until it is told to
//! stop; `index promote` moves an index to PostgreSQL, `index backfill` fills blocks of it again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use secateur_core::{Height, format_bytes};
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::sqlite::SqliteReader;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::archive::parse_range;
use super::node::start_log;
use crate::cli::{BackfillArgs, IndexArgs, IndexCommand, IndexVerb};
use crate::config::{self, Layers, Log, Starts};
use crate::error::NodeError;
use crate::indexer::{self, Done, Look, RowsInto, Wanted, no_password};
use crate::ui::words::{count, height, plural};
use crate::ui::{Progress, Sheet, Ui};

/// The exit code of a second signal, which does not wait: that of an interrupted shell command.
const IMPATIENT: i32 = 130;

pub(crate) fn run(
    command: IndexCommand,
    named: Option<&Path>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    match command.verb {
        Some(IndexVerb::Promote { from, to }) => {
            let layers = config::base(command.args.config.as_deref())?;
            promote(&from, &target(to, &layers)?, ui)
        }
        Some(IndexVerb::Backfill(fill)) => backfill(&fill, named, ui),
        None => work(&command.args, named, ui),
    }
}

fn work(args: &IndexArgs, named: Option<&Path>, ui: Ui) -> Result<(), anyhow::Error> {
    let layers = config::index_layers(args)?;
    config::checked(&layers, Starts::Index)?;
    start_log(&Log::of(&layers)?)?;
    let job = config::job(&layers, args, named, None)?;
    let archive = job.archive.as_ref().map(|to| to.place.url.to_string());
    let look = Arc::new(Look::new(ui, &job.source, archive));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("secateur-index")
        .build()
        .context("starting the threads that index")?;
    let done = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let look: Arc<Look> = Arc::clone(&look);
        Box::pin(indexer::run(&job, stop, look)).await
    });
    look.end();
    let done = done?;
    ui.answer(&done, || text(&done))
}

/// A flag that the first signal sets; a second one ends the process at once.
pub(super) fn stop_on_signals() -> Result<watch::Receiver<bool>, anyhow::Error> {
    let (say, stop) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for signals")?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if say.send_replace(true) {
                std::process::exit(IMPATIENT);
            }
            tracing::info!("stopping; what was begun is written first");
        }
    });
    Ok(stop)
}

fn text(done: &Done) -> String {
    let mut sheet = Sheet::default();
    sheet.row("indexed", height(done.indexed)).row("head", height(done.head));
    if done.archived.is_some() {
        sheet.row("archived", height(done.archived));
    }
    if let Some(logs) = &done.logs {
        // A long list of addresses is in the configuration, and in the index.
        let which = if logs == "all" { "all" } else { "chosen ones" };
        // From the beginning means from wherever the index begins.
        match done.logs_since.filter(|since| *since > 0) {
            Some(since) => {
                sheet.row("logs", format_args!("{which}, from block {} on", count(since)))
            }
            None => sheet.row("logs", which),
        };
    } else {
        sheet.row("logs", "none (--log-address, --log-topic)");
    }
    match done.retention_days {
        Some(days) => sheet.row("retention", format_args!("{days} days")),
        None => sheet.row("retention", "for ever"),
    };
    if let Some(first) = done.begins_at {
        let told = "the source had nothing below (a row in `gaps`)";
        sheet.row("begins", format_args!("block {}; {told}", count(first)));
    }
    sheet.row("index", format_bytes(done.sink_bytes));
    sheet.finish()
}

fn backfill(fill: &BackfillArgs, named: Option<&Path>, ui: Ui) -> Result<(), anyhow::Error> {
    let layers = config::index_layers(&fill.args)?;
    config::checked(&layers, Starts::Index)?;
    start_log(&Log::of(&layers)?)?;
    let wanted = match fill.range.trim() {
        "gaps" => Wanted::Gaps,
        range => {
            let (first, last) = parse_range(range)?;
            Wanted::Blocks(first, last)
        }
    };
    let mut job = config::job(&layers, &fill.args, named, fill.from)?;
    // What does not come through is an end, and not waited for.
    job.once = true;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("secateur-index")
        .build()
        .context("starting the threads that fill")?;
    let progress = Arc::new(parking_lot::Mutex::new(Progress::start(ui, "backfill")));
    let shown = Arc::clone(&progress);
    let filled = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let at = Arc::new(move |done, total| shown.lock().at(done, total));
        Box::pin(indexer::backfill(&job, fill.from, wanted, stop, at)).await
    });
    drop(progress);
    let filled = filled?;
    ui.answer(&filled, || filled.text())?;
    filled.whole()
}

/// What was moved.
#[derive(Debug, Serialize)]
struct Moved {
    tables: BTreeMap<&'static str, u64>,
    /// Where the worker goes on.
    next: Height,
}

/// Where an index is moved: as it was named, else where the configuration says that rows go. An
/// address with a password is for the latter.
fn target(named: Option<String>, layers: &Layers) -> Result<String, NodeError> {
    if let Some(to) = named {
        no_password("to", "index.sink", &to)?;
        return Ok(to);
    }
    layers.read("index.sink", |text| Ok(text.to_owned()))?.ok_or_else(|| {
        NodeError::Usage(
            "name where the index goes: --to postgres://…, or SECATEUR_INDEX_SINK".into(),
        )
    })
}

fn promote(from: &str, to: &str, ui: Ui) -> Result<(), anyhow::Error> {
    let places = (RowsInto::parse(from), RowsInto::parse(to));
    let (Ok(RowsInto::Sqlite(from)), Ok(RowsInto::Postgres(to))) = places else {
        let reason = "an index is moved --from sqlite:<file> --to postgres://…";
        return Err(NodeError::Usage(reason.into()).into());
    };
    secateur_archive::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the threads that move")?;
    let mut progress = Progress::start(ui, "promote");
    let moved = runtime.block_on(async {
        let from = SqliteReader::open(&from)?;
        let to = PostgresSink::open(&Address::parse(&to)?, PostgresOptions::default()).await?;
        secateur_index::postgres::promote(&from, &to, |at| progress.at(at.at, at.end)).await
    });
    progress.end();
    let moved = moved?;
    let moved = Moved { tables: moved.tables.into_iter().collect(), next: moved.next };
    ui.answer(&moved, || {
        let mut sheet = Sheet::default();
        for (table, rows) in &moved.tables {
            let rows = plural(*rows, "row");
            sheet.row(table, format_args!("{rows}, the same on both sides"));
        }
        sheet.row(
            "next",
            format_args!("block {}; go on with --sink <the new one>", count(moved.next)),
        );
        sheet.finish()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn an_address_with_a_password_is_promoted_to_as_the_refusal_advises() {
        let mut layers = Layers::defaults();
        let address = "postgres://me:secret@host/db".to_owned();
        let error = target(Some(address.clone()), &layers).unwrap_err().to_string();
        assert!(error.contains("SECATEUR_INDEX_SINK") && error.contains("leave --to"), "{error}");
        let error = target(None, &layers).unwrap_err().to_string();
        assert!(error.contains("SECATEUR_INDEX_SINK"), "{error}");
        layers.flag("index.sink", "sink", Some(address.clone()));
        assert_eq!(target(None, &layers).unwrap(), address);
        Cli::try_parse_from(["secateur", "index", "promote", "--from", "sqlite:x"]).unwrap();
    }

    #[test]
    fn logs_from_the_beginning_name_no_block() {
        let logs = |since| {
            let logs = Some("all".to_owned());
            text(&Done { logs, logs_since: Some(since), ..Done::default() })
        };
        assert!(!logs(0).contains("from block"), "{}", logs(0));
        assert!(logs(2_837).contains("all, from block 2,837 on"), "{}", logs(2_837));
    }
}
