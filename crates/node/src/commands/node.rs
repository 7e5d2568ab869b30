//! `node`: opens or makes the data directory, then serves until it is told to stop.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_core::PrunePolicy;
use secateur_store::{ClassTable, Finality, Settings, StoreConfig};
use tracing_subscriber::EnvFilter;

use crate::cli::ServiceArgs;
use crate::config::{self, Config, Log};
use crate::data_dir::{Claimed, DEFAULT_DATA, DataDir, chain_of, random_store_id};
use crate::error::NodeError;
use crate::follow;
use crate::security::check_bind;
use crate::service::{Options, Service};
use crate::ui::{self, words::listening};

/// The chain of a new directory where nobody names one.
const DEFAULT_CHAIN: u64 = 1;

pub(crate) fn run(args: &ServiceArgs, named: Option<PathBuf>) -> Result<(), anyhow::Error> {
    let config = Config::of(&config::layers(args)?)?;
    check_bind(&config)?;
    start_log(&config.log)?;
    let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    let data = open(&path, &config)?;
    let service = Service::start(data, &config, Options { observe: None, any_port: false })?;
    // For scripts: everything answers from this line on.
    ui::print(&listening(service.http, service.grpc))?;
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
    let mut policy = PrunePolicy::default();
    config.apply_policy(&mut policy)?;
    let mut fresh = StoreConfig::new(claimed.chain_id(), random_store_id()?);
    fresh.classes = ClassTable::for_budget(policy.target_bytes);
    fresh.policy = policy;
    let data = claimed.open_or_create_store(fresh)?;
    agree(&data, config).context("applying the configuration to the store")?;
    Ok(data)
}

/// Brings what the store remembers in line with what the configuration names.
fn agree(data: &DataDir, config: &Config) -> Result<(), anyhow::Error> {
    let store = &data.store;
    let old = store.policy();
    let mut new = old.clone();
    config.apply_policy(&mut new)?;
    if new != old {
        tracing::info!(?old, ?new, "the configuration changes the policy");
        store.set_prune_policy(new)?;
    }
    if store.head().is_none() {
        store.set_pruning_enabled(config.pruning)?;
    }
    let settings = store.settings();
    let following = config.follow.as_ref().map(|_| Finality::Explicit);
    // What was final stays final; a followed chain is final where its source says so.
    let finality = config.chain.finality.or(following);
    if let Some(finality) = finality.filter(|finality| *finality != settings.finality) {
        tracing::info!(?finality, "the configuration changes finality");
        store.set_settings(Settings { finality, ..store.settings() })?;
    }
    if let Some(archive_hold) = config.archive.hold.filter(|hold| *hold != settings.archive_hold) {
        tracing::info!(archive_hold, "the configuration changes whether pruning waits for archive");
        store.set_settings(Settings { archive_hold, ..store.settings() })?;
    }
    Ok(())
}
