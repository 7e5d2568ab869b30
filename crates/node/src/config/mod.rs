//! The configuration: read from a file, the environment and flags, checked once, then typed.
//!
//! What deliberately does not live here: what the store remembers by itself, and which of the two
//! wins (`agreed`).

mod archive;
mod beacon;
mod canister;
mod check;
mod file;
mod history;
mod index;
mod keys;
mod layers;
mod nearest;
mod problem;
mod sidecar;
#[cfg(test)]
mod tests;
mod utxo;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secateur_core::{
    CoreError, PrunePolicy, TimeUnit, format_bytes, parse_bytes, parse_span, spell_bytes,
};
use secateur_index::codec::CodecName;
use secateur_store::{ClassTable, Finality, StoreConfig};
use tracing_subscriber::EnvFilter;

pub(crate) use archive::{ArchivePlace, NodeArchive};
pub(crate) use beacon::Beacon;
pub(crate) use check::{Starts, checked};
pub(crate) use history::HistorySettings;
pub(crate) use index::{index_layers, job};
pub(crate) use keys::Key;
pub(crate) use layers::{Layers, Value};
pub(crate) use problem::Unsound;
pub(crate) use sidecar::{BlobLimits, BlobPlace, NodeBlobs};
#[cfg(not(feature = "aerospike"))]
pub(crate) use utxo::WITHOUT_AEROSPIKE;
pub(crate) use utxo::{RecordsIn, UtxoSettings, utxo_layers};

use crate::cli::ServiceArgs;
use crate::error::NodeError;
use crate::http::Origins;

/// The file in the current directory that is read when none is named.
pub(crate) const DEFAULT_FILE: &str = "secateur.toml";

/// Everything that a node is told.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) chain: Chain,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// Whose pages may read what HTTP answers.
    pub(crate) cors_origins: Origins,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) auth: TokenFiles,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) follow: Option<Follow>,
    pub(crate) beacon: Option<Beacon>,
    pub(crate) archive: NodeArchive,
    pub(crate) sidecar: NodeBlobs,
    pub(crate) utxo: UtxoSettings,
    /// What the store remembers besides its policy.
    pub(crate) history: HistorySettings,
    /// The kill switch, where it is named.
    pub(crate) pruning: Option<bool>,
    /// Whether pushed blocks are refused while the budget is in an emergency.
    pub(crate) backpressure: bool,
    /// The policy keys that are named, with their values.
    pub(crate) policy: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Chain {
    pub(crate) id: Option<u64>,
    pub(crate) finality: Option<Finality>,
    /// How blocks are read; unset where nothing was said.
    pub(crate) codec: Option<CodecName>,
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
    pub(crate) consumer: Option<PathBuf>,
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

/// Reads what every command reads: the named file, or the default one if it is there, and the
/// environment. What is wrong with them comes out when the values are read.
fn load(file: Option<&Path>) -> Result<Layers, anyhow::Error> {
    let mut layers = Layers::defaults();
    match file {
        Some(path) => layers.file(path)?,
        None if Path::new(DEFAULT_FILE).is_file() => layers.file(Path::new(DEFAULT_FILE))?,
        None => {}
    }
    layers.environment(std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    }));
    Ok(layers)
}

/// The same for a command that reads only a few keys.
pub(crate) fn base(file: Option<&Path>) -> Result<Layers, anyhow::Error> {
    Ok(load(file)?.sound()?)
}

/// Which file was read, in words.
pub(crate) fn shown_file(file: Option<&Path>) -> String {
    match file {
        Some(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            format!("read from {}", path.display())
        }
        None => format!("no file was read: none was named, and there is no ./{DEFAULT_FILE}"),
    }
}

/// Reads all layers of a node.
pub(crate) fn layers(args: &ServiceArgs) -> Result<Layers, anyhow::Error> {
    let mut layers = load(args.config.as_deref())?;
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
    /// Checks and types every value of every service; all that is bad is one error.
    pub(crate) fn of(layers: &Layers) -> Result<Self, NodeError> {
        layers.all_at_once(Self::read)
    }

    fn read(layers: &Layers) -> Result<Self, NodeError> {
        let path = |name| layers.read(name, |text| Ok(PathBuf::from(text)));
        let tls = match (path("tls.cert")?, path("tls.key")?) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, None) => None,
            _ => {
                layers.conflict(&["tls.cert", "tls.key"], "tls.cert and tls.key go together")?;
                None
            }
        };
        let config = Self {
            chain: Chain {
                id: layers.read("chain.id", number)?,
                finality: layers.read("chain.finality", finality)?,
                codec: layers
                    .read("chain.codec", |text| text.parse().map_err(plainly::<CoreError>))?,
                blob_update_fraction: layers.read("chain.blob_update_fraction", positive)?,
            },
            http: layers.must("http.addr", address)?,
            grpc: layers.must("grpc.addr", address)?,
            cors_origins: layers.read("http.cors_origins", Origins::parse)?.unwrap_or_default(),
            tls,
            auth: TokenFiles {
                read: path("auth.read_tokens")?,
                consumer: path("auth.consumer_tokens")?,
                admin: path("auth.admin_tokens")?,
            },
            limits: limits(layers)?,
            log: Log::of(layers)?,
            follow: follow(layers)?,
            beacon: Beacon::of(layers)?,
            archive: NodeArchive::of(layers)?,
            sidecar: NodeBlobs::of(layers)?,
            utxo: UtxoSettings::of(layers)?,
            history: HistorySettings::of(layers)?,
            pruning: layers.read("pruning.enabled", truth)?,
            backpressure: layers.must("pruning.backpressure", truth)?,
            policy: policy(layers),
        };
        check_policy(layers, &config.policy)?;
        config.sidecar.check_room(layers, config.limits.answer_bytes)?;
        if config.beacon.is_some() && !config.sidecar.enabled {
            let reason = "beacon.url needs a place for blobs: set sidecar.enabled";
            layers.conflict(&["beacon.url", "sidecar.enabled"], reason)?;
        }
        index::check_values(layers)?;
        Ok(config)
    }

    /// The kill switch of a store that is made now: as it is named, and otherwise on only where a
    /// budget or a retention is named too.
    pub(crate) fn prunes_from_the_start(&self) -> Result<bool, NodeError> {
        let mut policy = PrunePolicy::default();
        self.apply_policy(&mut policy)?;
        Ok(self.pruning.unwrap_or(policy.has_limit()))
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

/// Judges the policy that is named as a new store would.
fn check_policy(layers: &Layers, named: &[(&'static str, String)]) -> Result<(), NodeError> {
    let mut policy = PrunePolicy::default();
    let mut keys = Vec::new();
    let mut bad = false;
    for (key, _) in layers.all().filter(|(key, _)| key.name.starts_with("policy.")) {
        let Some(short) = key.name.strip_prefix("policy.") else { continue };
        if !named.iter().any(|(name, _)| *name == short) {
            continue;
        }
        keys.push(key.name);
        let read = |text: &str| {
            let mut changed = policy.clone();
            changed.set(short, text).map_err(plainly)?;
            Ok(changed)
        };
        match layers.read(key.name, read)? {
            Some(changed) => policy = changed,
            None => bad = true,
        }
    }
    let mut fresh = StoreConfig::new(0, [0; 16]);
    fresh.classes = ClassTable::for_budget(policy.target_bytes);
    fresh.policy = policy;
    if let Err(reason) = check_budget(fresh.policy.target_bytes) {
        return layers.conflict(&["policy.target_bytes"], reason);
    }
    match fresh.check() {
        Err(error) if !bad => layers.conflict(&keys, plainly(error)),
        _ => Ok(()),
    }
}

/// Refuses a budget that no new store accepts.
fn check_budget(bytes: u64) -> Result<(), String> {
    let mut fresh = StoreConfig::new(0, [0; 16]);
    fresh.classes = ClassTable::for_budget(bytes);
    let least = fresh.least_target();
    if (1..least).contains(&bytes) {
        let (bytes, least) = (format_bytes(bytes), spell_bytes(least));
        return Err(format!(
            "a budget of {bytes} is too small; the least is {least}, and 0 is none"
        ));
    }
    Ok(())
}

impl Log {
    /// What is logged, and how.
    pub(crate) fn of(layers: &Layers) -> Result<Self, NodeError> {
        Ok(Self {
            level: layers.must("log.level", log_level)?,
            json: layers.must("log.json", truth)?,
        })
    }
}

/// A level, or a filter of tracing. A word alone would be a filter too, for a part of the program
/// that has this name, and everything else would be silent.
fn log_level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let words = text.split(',').map(str::trim);
    let word = words.clone().find(|word| !word.contains(['=', '[']) && !is_level(word));
    if let Some(word) = word {
        let near = nearest::did_you_mean(word, LEVELS.into_iter());
        return Err(format!(
            "`{word}` is no level (error, warn, info, debug, trace or off){near}; for a part of the \
             program write its name and its level: secateur_store=debug"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
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
        timeout: layers.must("limits.timeout_seconds", seconds)?,
        batch: count("limits.batch")?,
        log_blocks: layers.must("limits.log_blocks", positive)?,
        log_results: count("limits.log_results")?,
    })
}

fn follow(layers: &Layers) -> Result<Option<Follow>, NodeError> {
    let Some(url) = layers.read("follow.url", web_address)? else {
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
        poll: layers.must("follow.poll_ms", millis)?,
        timeout: layers.must("follow.timeout_seconds", seconds)?,
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

/// A span of time in seconds, such as 30 or 30s; never none.
fn seconds(text: &str) -> Result<Duration, String> {
    some_time(text, TimeUnit::Seconds).map(Duration::from_secs)
}

/// A span of time in milliseconds, such as 500 or 500ms; never none.
fn millis(text: &str) -> Result<Duration, String> {
    some_time(text, TimeUnit::Millis).map(Duration::from_millis)
}

fn some_time(text: &str, unit: TimeUnit) -> Result<u64, String> {
    match parse_span(text, unit).map_err(plainly)? {
        0 => Err("0 is not allowed".into()),
        span => Ok(span),
    }
}

/// The address of a service that speaks HTTP. What is wrong with it is said without showing it: it
/// may hold a password or a key.
fn web_address(text: &str) -> Result<String, String> {
    crate::follow::check_url(text).map_err(|reason| {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let known = ["http", "https"].into_iter().filter(|known| *known != scheme);
        format!("{reason}{}", nearest::did_you_mean(scheme, known))
    })?;
    Ok(text.to_owned())
}

/// An error's words without its end: whoever wraps it says that nothing was changed as well.
pub(crate) fn plainly<E: std::fmt::Display>(error: E) -> String {
    let text = error.to_string();
    text.strip_suffix("; nothing was changed").unwrap_or(&text).to_owned()
}

fn truth(text: &str) -> Result<bool, String> {
    let near = || nearest::did_you_mean(text, ["true", "false"].into_iter());
    text.parse().map_err(|_| format!("true or false is wanted{}", near()))
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
