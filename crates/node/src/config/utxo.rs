//! `[utxo]`: what `secateur utxo` is told.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use secateur_archive::ArchiveUrl;
use secateur_core::{TimeUnit, parse_span};
use secateur_sql::postgres::Address;
use secateur_utxo::teranode::{ApiKey, ChainOptions};
use secateur_utxo::{Following, MAX_BODY, Rules, SafeMode, Settings, Subscribed, TriggerMode};
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::archive::settings;
use super::{
    ArchivePlace, DEFAULT_FILE, Layers, address, fits, number, plainly, positive, seconds, size,
    truth,
};
use crate::cli::UtxoArgs;
use crate::error::NodeError;
use crate::indexer::no_password;
use crate::security::check_private;

/// How an address of an Aerospike cluster begins.
const AEROSPIKE: &str = "aerospike://";

/// A file with a key is no longer than this.
const MAX_KEY_BYTES: u64 = 4_096;

/// The database of records.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RecordsIn {
    /// One file.
    Sqlite(PathBuf),
    /// Its address, which may hold a password: it is never shown.
    Postgres(String),
    /// The address of a cluster.
    Aerospike(String),
}

/// Why an address of Aerospike is refused by a program that was built without its client.
pub(crate) const WITHOUT_AEROSPIKE: &str = "this program is built without Aerospike; build it with \
    `cargo build --release -p secateur --features aerospike`, or keep records in sqlite:///path or \
    postgres://…";

impl std::fmt::Debug for RecordsIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(_) => f.write_str("Postgres(…)"),
            Self::Aerospike(address) => f.debug_tuple("Aerospike").field(address).finish(),
        }
    }
}

/// What the UTXO service is told.
#[derive(Debug, Clone)]
pub(crate) struct UtxoSettings {
    /// Whether the service starts at all.
    pub(crate) start: bool,
    pub(crate) listen: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Where health answers without TLS and token, and nothing else does.
    pub(crate) open_health: Option<SocketAddr>,
    /// Where records are; none means in the data directory.
    pub(crate) store: Option<RecordsIn>,
    /// Where external files are; none means beside an SQLite store.
    pub(crate) files: Option<ArchiveUrl>,
    /// How object storage is reached.
    pub(crate) objects: secateur_archive::Settings,
    pub(crate) inline_bytes: usize,
    pub(crate) rules: Rules,
    pub(crate) pruner: Settings,
    pub(crate) following: Following,
    pub(crate) chain: Option<ChainOptions>,
    pub(crate) assembly: Option<ChainOptions>,
    /// The file with the key that both are shown.
    pub(crate) api_key_file: Option<PathBuf>,
}

/// Reads the layers of the UTXO service. The file that is read is the named one, else that of its
/// directory, of the data directory, or of the current one.
pub(crate) fn utxo_layers(args: &UtxoArgs, data: &Path) -> Result<Layers, anyhow::Error> {
    let own = [crate::utxo::directory(data).join(DEFAULT_FILE), data.join(DEFAULT_FILE)];
    let file = args.config.clone().or_else(|| own.into_iter().find(|file| file.is_file()));
    let mut layers = super::load(file.as_deref())?;
    // Aerospike's has no place for one.
    if let Some(store) = args.store.as_ref().filter(|store| !store.starts_with(AEROSPIKE)) {
        no_password("store", "utxo.store", store)?;
    }
    layers.flag("utxo.store", "store", args.store.clone());
    layers.flag("utxo.files", "files", args.files.clone());
    Ok(layers)
}

impl UtxoSettings {
    pub(super) fn of(layers: &Layers) -> Result<Self, NodeError> {
        let timeout = layers.must("utxo.timeout_seconds", seconds)?;
        let chain = |name| layers.read(name, |text| chain(text, timeout));
        let blockchain = chain("utxo.blockchain_url")?;
        let settings = Self {
            start: layers.must("utxo.start", truth)?,
            listen: layers.must("utxo.listen", address)?,
            http: layers.must("utxo.http", address)?,
            open_health: layers.read("utxo.open_health", address)?,
            store: layers.read("utxo.store", store)?,
            files: layers.read("utxo.files", |text| text.parse().map_err(plainly::<_>))?,
            objects: settings(layers)?,
            inline_bytes: layers.must("utxo.inline_bytes", inline)?,
            rules: Rules {
                block_height_retention: layers.must("utxo.block_height_retention", blocks)?,
                coinbase_maturity: layers.must("utxo.coinbase_maturity", blocks)?,
            },
            pruner: pruner(layers)?,
            following: Following {
                enabled: layers.must("utxo.enabled", truth)?,
                mode: layers.must("utxo.trigger", one_of::<TriggerMode>)?,
                persister_absent: layers.must("utxo.persister_absent", truth)?,
                persister_stale_blocks: layers.must("utxo.persister_stale_blocks", blocks)?,
                max_lag_blocks: layers.must("utxo.max_lag_blocks", blocks)?,
                max_jump_blocks: layers.must("utxo.max_jump_blocks", blocks)?,
                max_unfed_blocks: layers.must("utxo.max_unfed_blocks", blocks)?,
                // Who serves, listens.
                subscribed: blockchain
                    .as_ref()
                    .map_or(Subscribed::Nowhere, |_| Subscribed::Elsewhere),
            },
            chain: blockchain,
            assembly: chain("utxo.assembly_url")?,
            api_key_file: layers.read("utxo.api_key_file", |text| Ok(PathBuf::from(text)))?,
        };
        if settings.following.persister_absent && settings.following.mode == TriggerMode::Persisted
        {
            let reason = "utxo.trigger = persisted waits for a persister, and utxo.persister_absent \
                          says that there is none";
            layers.conflict(&["utxo.trigger", "utxo.persister_absent"], reason)?;
        }
        if let Err(error) = settings.pruner.check() {
            let keys = ["utxo.chunk_size", "utxo.chunk_group_limit", "utxo.defensive_batch_read"];
            layers.conflict(&keys, format!("utxo: {}", plainly(error)))?;
        }
        Ok(settings)
    }

    /// The key that the chain is shown, read from its file.
    pub(crate) fn api_key(&self) -> Result<Option<ApiKey>, anyhow::Error> {
        let Some(path) = &self.api_key_file else { return Ok(None) };
        check_private(path)?;
        let refuse = |reason: String| {
            NodeError::Usage(format!("utxo.api_key_file = {}: {reason}", path.display()))
        };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_KEY_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| refuse(error.to_string()))?;
        if text.len() as u64 > MAX_KEY_BYTES {
            return Err(refuse(format!("it is longer than {MAX_KEY_BYTES} bytes")).into());
        }
        let mut lines = text.lines().map(str::trim);
        let key = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        let key = key.ok_or_else(|| refuse("it holds no key".into()))?;
        Ok(Some(ApiKey::new(key).map_err(|error| refuse(plainly(error)))?))
    }

    /// What an operator should know of the key before it is shown.
    pub(crate) fn key_warnings(&self) -> Vec<String> {
        if self.api_key_file.is_none() {
            return Vec::new();
        }
        let chains = [("utxo.blockchain_url", &self.chain), ("utxo.assembly_url", &self.assembly)];
        let chains = chains.map(|(key, chain)| Some((key, chain.as_ref()?.url.as_str())));
        let shown: Vec<_> = chains.into_iter().flatten().collect();
        if shown.is_empty() {
            let unused = "utxo.api_key_file is set, and the key is shown to no chain: neither \
                          utxo.blockchain_url nor utxo.assembly_url is set";
            return vec![unused.to_owned()];
        }
        let in_clear = shown.into_iter().filter(|(_, url)| goes_in_the_clear(url));
        let warning = |(key, url)| {
            format!(
                "{key} = {url}: the API key goes in the clear to another machine; https:// hides it"
            )
        };
        in_clear.map(warning).collect()
    }

    /// Where external files are, for records in that place.
    pub(crate) fn files_of(&self, store: &RecordsIn) -> Option<ArchivePlace> {
        let beside = match store {
            RecordsIn::Sqlite(path) => Some(ArchiveUrl::Directory(path.with_file_name("files"))),
            RecordsIn::Postgres(_) | RecordsIn::Aerospike(_) => None,
        };
        let url = self.files.clone().or(beside)?;
        Some(ArchivePlace { url, settings: self.objects.clone() })
    }
}

fn pruner(layers: &Layers) -> Result<Settings, NodeError> {
    let count = |name| layers.must(name, |text| fits(positive(text)?));
    Ok(Settings {
        unmined_tx_retention: layers.read("utxo.unmined_tx_retention", blocks)?,
        parent_preservation_blocks: layers.must("utxo.parent_preservation_blocks", blocks)?,
        chunk_size: count("utxo.chunk_size")?,
        chunk_group_limit: count("utxo.chunk_group_limit")?,
        defensive: layers.must("utxo.defensive", truth)?,
        defensive_batch_read: count("utxo.defensive_batch_read")?,
        delete: layers.must("utxo.delete", truth)?,
        missing_files_are_gone: layers.must("utxo.missing_files_are_gone", truth)?,
        safe: layers.must("utxo.safe_height", one_of::<SafeMode>)?,
        job_timeout: layers.must("utxo.job_timeout_seconds", seconds)?,
        progress_interval: layers.must("utxo.progress_seconds", some_or_no_seconds)?,
    })
}

/// A span of time in seconds; 0 is none.
fn some_or_no_seconds(text: &str) -> Result<Duration, String> {
    parse_span(text, TimeUnit::Seconds).map(Duration::from_secs).map_err(plainly)
}

/// Blocks of a chain whose heights have 32 bits.
fn blocks(text: &str) -> Result<u64, String> {
    number::<u32>(text).map(u64::from)
}

fn inline(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if bytes > MAX_BODY { Err(format!("at most {MAX_BODY} bytes fit a record")) } else { Ok(bytes) }
}

fn chain(text: &str, timeout: Duration) -> Result<ChainOptions, String> {
    let options = ChainOptions { timeout, ..ChainOptions::new(text) };
    options.check().map_err(plainly)?;
    Ok(options)
}

/// Whether what is sent there can be read on the way.
fn goes_in_the_clear(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    uri.scheme_str() == Some("http") && !is_here
}

/// A word of a list.
fn one_of<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let word: StrDeserializer<'_, ValueError> =
        serde::de::IntoDeserializer::into_deserializer(text);
    T::deserialize(word).map_err(|error| error.to_string())
}

fn store(text: &str) -> Result<RecordsIn, String> {
    if let Some(path) = text.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("after sqlite: comes the path of a file".into());
        }
        return Ok(RecordsIn::Sqlite(PathBuf::from(path)));
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        Address::parse(text).map_err(plainly)?;
        return Ok(RecordsIn::Postgres(text.to_owned()));
    }
    if text.starts_with(AEROSPIKE) {
        return aerospike(text, cfg!(feature = "aerospike"));
    }
    Err("sqlite:///path, postgres://… or aerospike://… is wanted".into())
}

fn aerospike(text: &str, has_client: bool) -> Result<RecordsIn, String> {
    if !has_client {
        return Err(WITHOUT_AEROSPIKE.into());
    }
    #[cfg(feature = "aerospike")]
    secateur_utxo::AerospikeStore::check(text).map_err(plainly)?;
    Ok(RecordsIn::Aerospike(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_can_be_read_on_its_way_to_another_machine_is_warned_of() {
        for (url, is_clear) in [
            ("http://127.0.0.1:8087", false),
            ("http://[::1]:8087", false),
            ("http://localhost:8087", false),
            ("https://10.0.0.7:8087", false),
            ("http://10.0.0.7:8087", true),
            ("http://[2001:db8::1]:8087", true),
            ("http://teranode:8087", true),
            ("http://localhost.example.com", true),
        ] {
            assert_eq!(goes_in_the_clear(url), is_clear, "{url}");
        }
    }

    #[test]
    fn without_its_client_an_address_of_aerospike_is_refused_and_how_to_build_it_is_said() {
        let refused = aerospike("aerospike://me:secret@host/test", false).unwrap_err();
        assert!(refused.contains("cargo build --release -p secateur --features aerospike"));
        assert!(!refused.contains("secret"), "{refused}");
        assert_eq!(store("aerospike://host/test").is_ok(), cfg!(feature = "aerospike"));
    }
}
