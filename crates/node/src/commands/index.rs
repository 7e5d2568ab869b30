//! `index`: pulls a node's history into a sink, and into an archive beside it, until it is told to
//! stop; `index promote` moves an index to PostgreSQL.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use secateur_core::format_bytes;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::node::start_log;
use crate::cli::{IndexArgs, IndexCommand, IndexVerb};
use crate::config::{self, Log};
use crate::data_dir::DEFAULT_DATA;
use crate::error::NodeError;
use crate::indexer::{self, Done, Look, no_password};
use crate::ui::words::height;
use crate::ui::{Sheet, Ui};

/// The exit code of a second signal, which does not wait: that of an interrupted shell command.
const IMPATIENT: i32 = 130;

pub(crate) fn run(
    command: IndexCommand,
    named: Option<PathBuf>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    match command.verb {
        Some(IndexVerb::Promote { from, to }) => promote(&from, &to, ui),
        None => work(&command.args, named, ui),
    }
}

fn work(args: &IndexArgs, named: Option<PathBuf>, ui: Ui) -> Result<(), anyhow::Error> {
    let layers = config::index_layers(args)?;
    start_log(&Log::of(&layers)?)?;
    let data = named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    let job = config::job(&layers, args, &data)?;
    let look = Arc::new(Look::new(ui));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("secateur-index")
        .build()
        .context("starting the threads that index")?;
    let done = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let look: Arc<Look> = Arc::clone(&look);
        indexer::run(&job, stop, look).await
    });
    look.end();
    let done = done?;
    ui.answer(&done, || text(&done))
}

/// A flag that the first signal sets; a second one ends the process at once.
fn stop_on_signals() -> Result<watch::Receiver<bool>, anyhow::Error> {
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
            tracing::info!("stopping; what was pulled is written first");
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
    sheet.row("index", format_bytes(done.sink_bytes));
    sheet.finish()
}

fn promote(from: &str, to: &str, _ui: Ui) -> Result<(), anyhow::Error> {
    no_password("to", to)?;
    no_password("from", from)?;
    Err(NodeError::Failed("not built yet".into()).into())
}
