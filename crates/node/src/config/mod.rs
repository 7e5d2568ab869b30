//! The configuration: read from a file, the environment and flags, checked once, then typed.
//!
//! What deliberately does not live here: what the store remembers by itself. A policy that the
//! configuration names is handed to the store at every start; one that it does not name is the
//! store's own.

mod archive;
mod beacon;
mod canister;
mod index;
mod keys;
mod layers;
mod sidecar;
#[cfg(test)]
mod tests;
mod utxo;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secateur_core::{PrunePolicy, parse_bytes};
use secateur_store::Finality;

pub(crate) use archive::{ArchivePlace, NodeArchive};
pub(crate) use beacon::Beacon;
pub(crate) use index::{check_index, index_layers, job};
pub(crate) use keys::Key;
pub(crate) use layers::{Layers, Value};
pub(crate) use sidecar::{BlobLimits, BlobPlace, NodeBlobs};
#[cfg(not(feature = "aerospike"))]
pub(crate) use utxo::WITHOUT_AEROSPIKE;
pub(crate) use utxo::{RecordsIn, UtxoSettings, utxo_layers};

use crate::cli::ServiceArgs;
use crate::error::NodeError;

/// The file in the current directory that is read when none is named.
pub(crate) const DEFAULT_FILE: &str = "secateur.toml";

/// Everything that a node is told.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) chain: Chain,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) auth: TokenFiles,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) follow: Option<Follow>,
    pub(crate) beacon: Option<Beacon>,
    pub(crate) archive: NodeArchive,
    pub(crate) sidecar: NodeBlobs,
    pub(crate) utxo: UtxoSettings,
    /// Whether the prune daemon of a new store works.
    pub(crate) pruning: bool,
    /// The policy keys that are named, with their values.
    pub(crate) policy: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    pub(crate) id: Option<u64>,
    pub(crate) finality: Option<Finality>,
    pub(crate) blob_update_fraction: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TokenFiles {
    pub(crate) read: Option<PathBuf>,
    pub(crate) admin: Option<PathBuf>,
}

/// The named limits of every interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) body_bytes: usize,
    pub(crate) message_bytes: usize,
    pub(crate) answer_bytes: usize,
    pub(crate) concurrency: usize,
    pub(crate) waiting: usize,
    pub(crate) requests_per_second: u32,
    pub(crate) timeout: Duration,
    pub(crate) batch: usize,
    pub(crate) log_blocks: u64,
    pub(crate) log_results: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) json: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Follow {
    pub(crate) url: String,
    pub(crate) start: Start,
    pub(crate) confirmations: Option<u64>,
    pub(crate) batch: usize,
    pub(crate) concurrency: usize,
    pub(crate) poll: Duration,
    /// How long the source may be silent.
    pub(crate) timeout: Duration,
}

/// The first block of a store that is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    At(u64),
    Finalized,
}

/// Reads what everybody reads: the named file, or the default one if it is there, and the
/// environment.
pub(crate) fn base(file: Option<&Path>) -> Result<Layers, anyhow::Error> {
    let mut layers = Layers::defaults();
    match file {
        Some(path) => layers.file(path)?,
        None if Path::new(DEFAULT_FILE).is_file() => layers.file(Path::new(DEFAULT_FILE))?,
        None => {}
    }
    layers.environment(std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    }))?;
    Ok(layers)
}

/// Reads all layers of a node.
pub(crate) fn layers(args: &ServiceArgs) -> Result<Layers, anyhow::Error> {
    let mut layers = base(args.config.as_deref())?;
    layers.flag("http.addr", "http", args.http.clone());
    layers.flag("grpc.addr", "grpc", args.grpc.clone());
    layers.flag("log.level", "log", args.log.clone());
    layers.flag("log.json", "json-logs", args.json_logs.then(|| "true".into()));
    layers.flag("follow.url", "follow", args.follow.clone());
    layers.flag("follow.start", "start", args.start.clone());
    layers.flag("beacon.url", "follow-beacon", args.follow_beacon.clone());
    layers.flag("beacon.start", "beacon-start", args.beacon_start.clone());
    layers.flag("policy.target_bytes", "budget", args.budget.clone());
    layers.flag("chain.id", "chain-id", args.chain_id.map(|id| id.to_string()));
    Ok(layers)
}

impl Config {
    /// Checks and types every value; the first bad one is named with its origin.
    pub(crate) fn of(layers: &Layers) -> Result<Self, NodeError> {
        let path = |name| layers.read(name, |text| Ok(PathBuf::from(text)));
        let tls = match (path("tls.cert")?, path("tls.key")?) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, None) => None,
            _ => return Err(NodeError::Usage("tls.cert and tls.key go together".into())),
        };
        let config = Self {
            chain: Chain {
                id: layers.read("chain.id", number)?,
                finality: layers.read("chain.finality", finality)?,
                blob_update_fraction: layers.read("chain.blob_update_fraction", positive)?,
            },
            http: layers.must("http.addr", address)?,
            grpc: layers.must("grpc.addr", address)?,
            tls,
            auth: TokenFiles { read: path("auth.read_tokens")?, admin: path("auth.admin_tokens")? },
            limits: limits(layers)?,
            log: Log::of(layers)?,
            follow: follow(layers)?,
            beacon: Beacon::of(layers)?,
            archive: NodeArchive::of(layers)?,
            sidecar: NodeBlobs::of(layers)?,
            utxo: UtxoSettings::of(layers)?,
            pruning: layers.must("pruning.enabled", truth)?,
            policy: policy(layers),
        };
        config.apply_policy(&mut PrunePolicy::default())?;
        config.sidecar.check_room(config.limits.answer_bytes)?;
        if config.beacon.is_some() && !config.sidecar.enabled {
            let reason = "beacon.url needs a place for blobs: set sidecar.enabled";
            return Err(NodeError::Usage(reason.into()));
        }
        Ok(config)
    }

    /// Changes a policy as the configuration says.
    pub(crate) fn apply_policy(&self, policy: &mut PrunePolicy) -> Result<(), NodeError> {
        for (key, value) in &self.policy {
            policy
                .set(key, value)
                .map_err(|error| NodeError::Usage(format!("policy.{key}: {}", plainly(error))))?;
        }
        Ok(())
    }
}

impl Log {
    /// What is logged, and how.
    pub(crate) fn of(layers: &Layers) -> Result<Self, NodeError> {
        Ok(Self {
            level: layers.must("log.level", |text| Ok(text.to_owned()))?,
            json: layers.must("log.json", truth)?,
        })
    }
}

fn limits(layers: &Layers) -> Result<Limits, NodeError> {
    let count = |name| layers.must(name, |text| fits(positive(text)?));
    Ok(Limits {
        body_bytes: layers.must("limits.body_bytes", size)?,
        message_bytes: layers.must("limits.message_bytes", size)?,
        answer_bytes: layers.must("limits.answer_bytes", size)?,
        concurrency: count("limits.concurrency")?,
        waiting: count("limits.waiting")?,
        requests_per_second: layers.must("limits.requests_per_second", number)?,
        timeout: Duration::from_secs(layers.must("limits.timeout_seconds", positive)?),
        batch: count("limits.batch")?,
        log_blocks: layers.must("limits.log_blocks", positive)?,
        log_results: count("limits.log_results")?,
    })
}

fn follow(layers: &Layers) -> Result<Option<Follow>, NodeError> {
    let Some(url) = layers.read("follow.url", |text| Ok(text.to_owned()))? else {
        return Ok(None);
    };
    let few = |most: u64| {
        move |text: &str| {
            let number = positive(text)?;
            if number > most { Err(format!("at most {most} is allowed")) } else { fits(number) }
        }
    };
    Ok(Some(Follow {
        url,
        start: layers.must("follow.start", Start::of)?,
        confirmations: layers.read("follow.confirmations", number)?,
        batch: layers.must("follow.batch", few(256))?,
        concurrency: layers.must("follow.concurrency", few(64))?,
        poll: Duration::from_millis(layers.must("follow.poll_ms", positive)?),
        timeout: Duration::from_secs(layers.must("follow.timeout_seconds", positive)?),
    }))
}

fn policy(layers: &Layers) -> Vec<(&'static str, String)> {
    let named = layers.all().filter(|(_, value)| !value.text.is_empty());
    named
        .filter_map(|(key, value)| Some((key.name.strip_prefix("policy.")?, value.text.clone())))
        .collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.replace('_', "").parse().map_err(|_| "a whole number is wanted".into())
}

fn positive(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("0 is not allowed".into()),
        number => Ok(number),
    }
}

fn fits(number: u64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| "too large".into())
}

fn size(text: &str) -> Result<usize, String> {
    fits(parse_bytes(text).map_err(plainly)?)
}

/// An error's words without its end: whoever wraps it says that nothing was changed as well.
pub(crate) fn plainly<E: std::fmt::Display>(error: E) -> String {
    let text = error.to_string();
    text.strip_suffix("; nothing was changed").unwrap_or(&text).to_owned()
}

fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false is wanted".into())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address such as 127.0.0.1:7740 or [::1]:0 is wanted".into())
}

fn finality(text: &str) -> Result<Finality, String> {
    match text {
        "instant" => Ok(Finality::Instant),
        "explicit" => Ok(Finality::Explicit),
        _ => Err("instant or explicit is wanted".into()),
    }
}
