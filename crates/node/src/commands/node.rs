//! `node`: opens or makes the data directory, then serves until it is told to stop.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_core::{PrunePolicy, format_bytes};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{ClassTable, Layout, StoreConfig};
use tracing_subscriber::EnvFilter;

use crate::agreed::agree;
use crate::cli::ServiceArgs;
use crate::config::{self, Config, Log, Starts};
use crate::data_dir::{Claimed, DEFAULT_DATA, DataDir, chain_of, random_store_id};
use crate::error::NodeError;
use crate::follow;
use crate::service::{AnyPort, Options, Service};
use crate::ui::{self, words::listening};

/// The chain of a new directory where nobody names one.
const DEFAULT_CHAIN: u64 = 1;

pub(crate) fn run(args: &ServiceArgs, named: Option<PathBuf>) -> Result<(), anyhow::Error> {
    let layers = config::layers(args)?;
    let config = config::checked(&layers, Starts::Node)?;
    start_log(&config.log)?;
    tracing::info!("configuration: {}", config::shown_file(layers.file_read()));
    let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    let data = open(&path, &config)?;
    let service =
        Service::start(data, &config, Options { observe: None, any_port: AnyPort::default() })?;
    // For scripts: everything answers from this line on.
    ui::print(&listening(&[("http", service.http), ("grpc", service.grpc)]))?;
    service.run()
}

/// Logs to standard error from now on.
pub(super) fn start_log(log: &Log) -> Result<(), anyhow::Error> {
    let filter = EnvFilter::try_new(&log.level)
        .map_err(|error| NodeError::Usage(format!("log.level = `{}`: {error}", log.level)))?;
    ui::log::is_json(log.json);
    let to = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(ui::log::writer);
    let started = if log.json { to.json().try_init() } else { to.with_target(false).try_init() };
    started.map_err(|error| NodeError::Failed(format!("the log cannot be started: {error}")).into())
}

/// Opens the directory, or makes it for the chain that is named or followed.
fn open(path: &Path, config: &Config) -> Result<DataDir, anyhow::Error> {
    let chain_id = match (config.chain.id, &config.follow) {
        (Some(id), _) => id,
        // A directory that is made already opens without its source, which may be down.
        (None, Some(follow)) => match chain_of(path)? {
            Some(id) => id,
            None => follow::ask_chain_id(follow)?,
        },
        (None, None) => DEFAULT_CHAIN,
    };
    let claimed = Claimed::existing_or_new(path, chain_id)?;
    let named = config.chain.id.is_some() || config.follow.is_some();
    if named && claimed.chain_id() != chain_id {
        return Err(NodeError::Refused(format!(
            "{} holds chain {}, and chain {chain_id} was asked for; name another directory with \
             --data",
            path.display(),
            claimed.chain_id()
        ))
        .into());
    }
    let mut fresh = fresh_store(&claimed, config)?;
    fresh.pruning_enabled = config.prunes_from_the_start()?;
    let data = claimed.open_or_create_store(fresh)?;
    agree(&data, config).context("applying the configuration to the store")?;
    if let Some(told) = part_over_budget(&data.store, config.archive.part_bytes) {
        tracing::warn!("{told}");
    }
    Ok(data)
}

/// The store that the configuration asks for, where there is none yet. Its kill switch is off.
pub(super) fn fresh_store(
    claimed: &Claimed,
    config: &Config,
) -> Result<StoreConfig, anyhow::Error> {
    let mut policy = PrunePolicy::default();
    config.apply_policy(&mut policy)?;
    let mut fresh = StoreConfig::new(claimed.chain_id(), random_store_id()?);
    fresh.layout = config.history.layout.unwrap_or(fresh.layout);
    fresh.classes = match fresh.layout {
        Layout::Packed => claimed.classes_for(policy.target_bytes),
        Layout::PerBlock => ClassTable::standard(),
    };
    fresh.policy = policy;
    config.history.apply(&mut fresh.settings);
    Ok(fresh)
}

/// What an operator should know of a budget that is smaller than what it waits for.
fn part_over_budget(store: &DiskStore, part_bytes: u64) -> Option<String> {
    let marks = store.policy().water_marks().filter(|_| store.settings().archive_hold)?;
    (marks.high < part_bytes).then(|| {
        format!(
            "pruning waits for the archive, and a part may be larger ({}, or a day) than what the \
             budget holds ({} at high water): an archiver of this node closes parts early when the \
             budget drains; without one the budget is not kept",
            format_bytes(part_bytes),
            format_bytes(marks.high)
        )
    })
}
