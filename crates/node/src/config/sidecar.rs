//! `[sidecar]`: which blobs a node keeps, who it is among the validators, where copies go and who
//! its peers are. What deliberately is not here: opening anything; that is `blobs`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use secateur_archive::{ArchiveUrl, check_endpoint};
use secateur_core::{CoreError, TimeUnit, format_bytes, parse_span};
use secateur_sidecar::gossip::{MeshOptions, Peer};
use secateur_sidecar::notice::{Signers, ValidatorTerm, Validators};
use secateur_sidecar::provider::check_id;
use secateur_sidecar::reader::ServeArchived;
use secateur_sidecar::{BLOB_LEN, MAX_BLOBS, Trust, ValidatorId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Layers, fits, number, plainly, positive, seconds, truth, web_address};
use crate::error::NodeError;

/// How much may be kept, and when it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobLimits {
    pub(crate) budget_bytes: u64,
    pub(crate) retain_blocks: u64,
    pub(crate) max_blobs: u32,
    pub(crate) max_undecided: u32,
    pub(crate) trust: Trust,
}

/// A validator that this node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validator {
    pub(crate) id: ValidatorId,
    pub(crate) key_file: PathBuf,
}

/// A place for copies of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub(crate) enum BlobPlace {
    /// A directory.
    #[serde(rename = "fs")]
    Fs { name: String, path: PathBuf },
    /// A bucket. Credentials come from a file of their own or from the environment.
    #[serde(rename = "s3")]
    S3 {
        name: String,
        url: String,
        endpoint: Option<String>,
        region: Option<String>,
        #[serde(default)]
        allow_http: bool,
        credentials: Option<PathBuf>,
        #[serde(default = "minute", deserialize_with = "seconds_in_a_list")]
        timeout_seconds: u64,
    },
    /// load-s3-agent and its gateway.
    #[serde(rename = "load-s3-agent")]
    LoadS3 {
        name: String,
        agent: String,
        gateway: String,
        token_file: Option<PathBuf>,
        ca_file: Option<PathBuf>,
        /// Private uploads, which are refused: they cannot be read back.
        bucket: Option<String>,
        folder: Option<String>,
        #[serde(default)]
        allow_http: bool,
        #[serde(default = "half_a_minute", deserialize_with = "seconds_in_a_list")]
        timeout_seconds: u64,
    },
}

const fn minute() -> u64 {
    60
}

const fn half_a_minute() -> u64 {
    30
}

/// Seconds as a number, or a text with a unit such as `1min`.
fn seconds_in_a_list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Span {
        Seconds(u64),
        Text(String),
    }
    match Span::deserialize(from)? {
        Span::Seconds(seconds) => Ok(seconds),
        Span::Text(text) => parse_span(&text, TimeUnit::Seconds)
            .map_err(|error| serde::de::Error::custom(plainly(error))),
    }
}

impl BlobPlace {
    /// The name by which notices refer to it.
    pub(crate) fn name(&self) -> &str {
        let (Self::Fs { name, .. } | Self::S3 { name, .. } | Self::LoadS3 { name, .. }) = self;
        name
    }

    /// Judges its addresses, without showing them: they may hold a secret.
    fn check_addresses(&self) -> Result<(), String> {
        match self {
            Self::Fs { .. } => Ok(()),
            Self::S3 { url, endpoint, allow_http, .. } => {
                let url = url.parse::<ArchiveUrl>().map_err(plainly)?;
                if matches!(url, ArchiveUrl::Directory(_)) {
                    return Err("url: s3://bucket/prefix is wanted".into());
                }
                let check = |endpoint: &String| check_endpoint(endpoint, *allow_http);
                endpoint.as_ref().map_or(Ok(()), check).map_err(plainly)
            }
            Self::LoadS3 { agent, gateway, .. } => {
                web_address(agent).map_err(|reason| format!("agent: {reason}"))?;
                web_address(gateway).map(drop).map_err(|reason| format!("gateway: {reason}"))
            }
        }
    }

    fn timeout(&self) -> u64 {
        match self {
            Self::Fs { .. } => minute(),
            Self::S3 { timeout_seconds, .. } | Self::LoadS3 { timeout_seconds, .. } => {
                *timeout_seconds
            }
        }
    }
}

/// What a node is told of its blobs.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub(crate) struct NodeBlobs {
    pub(crate) enabled: bool,
    pub(crate) limits: BlobLimits,
    pub(crate) signers: Signers,
    pub(crate) accept_v0: bool,
    pub(crate) also_send_v0: bool,
    pub(crate) serve_archived: ServeArchived,
    pub(crate) read_through: bool,
    pub(crate) identity: Option<Validator>,
    pub(crate) terms: Vec<ValidatorTerm>,
    pub(crate) providers: Vec<BlobPlace>,
    pub(crate) min_copies: usize,
    pub(crate) at_once: usize,
    pub(crate) rebroadcast_blocks: u64,
    /// The peers, the token that is sent to them and wanted of them, how often they are asked.
    pub(crate) mesh: MeshOptions,
}

impl NodeBlobs {
    /// Reads and checks everything, whether blobs are kept or not: commands on a directory need it
    /// too.
    pub(crate) fn of(layers: &Layers) -> Result<Self, NodeError> {
        let path = |name| layers.read(name, |text| Ok(PathBuf::from(text)));
        let read = Self {
            enabled: layers.must("sidecar.enabled", truth)?,
            limits: limits(layers)?,
            signers: layers.must("sidecar.signers", parsed)?,
            accept_v0: layers.must("sidecar.accept_v0", truth)?,
            also_send_v0: layers.must("sidecar.also_send_v0", truth)?,
            serve_archived: layers.must("sidecar.serve_archived", serve)?,
            read_through: layers.must("sidecar.read_through", truth)?,
            identity: identity(layers)?,
            terms: layers.read("sidecar.validators", list)?.unwrap_or_default(),
            providers: layers.read("sidecar.providers", list)?.unwrap_or_default(),
            min_copies: layers.must("sidecar.min_copies", |text| few(text, 16))?,
            at_once: layers.must("sidecar.at_once", |text| few(text, 256))?,
            rebroadcast_blocks: layers.must("sidecar.rebroadcast_blocks", positive)?,
            mesh: MeshOptions {
                peers: peers(layers)?,
                token_file: path("sidecar.token_file")?,
                ca_file: path("sidecar.ca_file")?,
                ask_every: layers.must("sidecar.ask_seconds", seconds)?,
                ..MeshOptions::default()
            },
        };
        read.check(layers)?;
        Ok(read)
    }

    /// What does not go together.
    fn check(&self, layers: &Layers) -> Result<(), NodeError> {
        if self.limits.max_undecided < self.limits.max_blobs {
            let reason = format!(
                "sidecar.max_undecided_blobs = {} is less than sidecar.max_blobs = {}: no full \
                 proposal could be stored",
                self.limits.max_undecided, self.limits.max_blobs
            );
            layers.conflict(&["sidecar.max_undecided_blobs", "sidecar.max_blobs"], reason)?;
        }
        if let Err(error) = Validators::new(&self.terms) {
            let reason = format!("sidecar.validators: {error}");
            layers.conflict(&["sidecar.validators"], reason)?;
        }
        self.check_places(layers)?;
        self.check_peers(layers)?;
        let there = self.providers.len();
        let needs = [
            (self.identity.is_some(), "sidecar.identity", "sidecar.identity"),
            (self.read_through, "sidecar.read_through", "sidecar.read_through"),
            (self.limits.trust == Trust::Fetch, "sidecar.trust", "sidecar.trust = fetch"),
        ];
        for (wanted, key, what) in needs {
            if wanted && there == 0 {
                let reason = format!("{what} needs a place for copies in sidecar.providers");
                layers.conflict(&[key, "sidecar.providers"], reason)?;
            }
        }
        if self.identity.is_some() && there > 0 && self.min_copies > there {
            let wanted = self.min_copies;
            let reason = format!(
                "sidecar.min_copies = {wanted} is more than the {there} of sidecar.providers"
            );
            layers.conflict(&["sidecar.min_copies", "sidecar.providers"], reason)?;
        }
        match &self.identity {
            Some(Validator { id, .. }) if !self.terms.iter().any(|term| term.id == *id) => {
                let reason = format!("sidecar.identity {id} is not in sidecar.validators");
                layers.conflict(&["sidecar.identity", "sidecar.validators"], reason)
            }
            _ => Ok(()),
        }
    }

    fn check_places(&self, layers: &Layers) -> Result<(), NodeError> {
        let refuse = |what: String| {
            layers.conflict(&["sidecar.providers"], format!("sidecar.providers: {what}"))
        };
        let mut names = BTreeSet::new();
        for place in &self.providers {
            let name = place.name();
            if let Err(error) = check_id(name) {
                refuse(error.to_string())?;
            }
            if !names.insert(name) {
                refuse(format!("two are called {name}"))?;
            }
            if let BlobPlace::Fs { path, .. } = place
                && (path.as_os_str().is_empty() || path.is_file())
            {
                refuse(format!("path of {name} is no directory"))?;
            }
            if let BlobPlace::LoadS3 { bucket, folder, .. } = place
                && (bucket.is_some() || folder.is_some())
            {
                refuse(format!(
                    "bucket and folder of {name} ask for private uploads, and load-s3-agent's gateway does \
                     not resolve those: no copy could be read back, so no blob would ever count as archived \
                     or be pruned. Leave both out (public uploads), or name the bucket itself as a place of \
                     kind = \"s3\""
                ))?;
            }
            if place.timeout() == 0 {
                refuse(format!("timeout_seconds of {name} is 0"))?;
            }
            if let Err(reason) = place.check_addresses() {
                refuse(format!("{name}: {reason}"))?;
            }
        }
        Ok(())
    }

    fn check_peers(&self, layers: &Layers) -> Result<(), NodeError> {
        let refuse =
            |what: String| layers.conflict(&["sidecar.peers"], format!("sidecar.peers: {what}"));
        let mut names = BTreeSet::new();
        for Peer { name, url } in &self.mesh.peers {
            if !names.insert(name) {
                refuse(format!("two are called {name}"))?;
            }
            let web = url.starts_with("http://") || url.starts_with("https://");
            if name.is_empty() || !web || url.contains('@') {
                // The address is not repeated: it may hold a secret that was put there by mistake.
                refuse(format!(
                    "peer `{name}` needs a name and an address, http://… or https://…, without a \
                     user"
                ))?;
            }
        }
        Ok(())
    }

    /// Refuses heights that would not fit into the memory of answers: they could never be read.
    pub(super) fn check_room(&self, layers: &Layers, answer_bytes: usize) -> Result<(), NodeError> {
        // The bytes themselves, and twice as much where they are written as digits.
        let needed = (self.limits.max_blobs as usize).saturating_mul(3 * BLOB_LEN);
        if self.enabled && needed > answer_bytes {
            let reason = format!(
                "sidecar.max_blobs = {} take {} as an answer, and limits.answer_bytes is {}; a height \
                 must fit into it",
                self.limits.max_blobs,
                format_bytes(needed as u64),
                format_bytes(answer_bytes as u64)
            );
            layers.conflict(&["sidecar.max_blobs", "limits.answer_bytes"], reason)?;
        }
        Ok(())
    }
}

fn limits(layers: &Layers) -> Result<BlobLimits, NodeError> {
    let bytes =
        |text: &str| secateur_core::parse_bytes(text).map_err(|error: CoreError| error.to_string());
    Ok(BlobLimits {
        budget_bytes: layers.must("sidecar.budget_bytes", bytes)?,
        retain_blocks: layers.must("sidecar.retain_blocks", number)?,
        max_blobs: layers.must("sidecar.max_blobs", |text| match positive(text)? {
            most if most <= u64::from(MAX_BLOBS) => u32::try_from(most).map_err(|e| e.to_string()),
            _ => Err(format!("at most {MAX_BLOBS} are allowed")),
        })?,
        max_undecided: layers.must("sidecar.max_undecided_blobs", |text| {
            u32::try_from(positive(text)?).map_err(|error| error.to_string())
        })?,
        trust: layers.must("sidecar.trust", parsed)?,
    })
}

fn identity(layers: &Layers) -> Result<Option<Validator>, NodeError> {
    let id = layers.read("sidecar.identity", parsed)?;
    let key_file = layers.read("sidecar.key_file", |text| Ok(PathBuf::from(text)))?;
    match (id, key_file) {
        (Some(id), Some(key_file)) => Ok(Some(Validator { id, key_file })),
        (None, None) => Ok(None),
        _ => {
            let keys = ["sidecar.identity", "sidecar.key_file"];
            layers.conflict(&keys, "sidecar.identity and sidecar.key_file go together")?;
            Ok(None)
        }
    }
}

fn peers(layers: &Layers) -> Result<Vec<Peer>, NodeError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        name: String,
        url: String,
    }
    let peers = layers.read("sidecar.peers", list::<Entry>)?.unwrap_or_default();
    Ok(peers.into_iter().map(|Entry { name, url }| Peer { name, url }).collect())
}

/// A list of tables as TOML writes it in one line.
fn list<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole<T> {
        list: Vec<T>,
    }
    let whole: Result<Whole<T>, _> = toml::from_str(&format!("list = {text}"));
    whole.map(|whole| whole.list).map_err(|error| error.message().to_owned())
}

fn parsed<T: std::str::FromStr<Err = CoreError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: CoreError| error.to_string())
}

fn few(text: &str, most: u64) -> Result<usize, String> {
    match positive(text)? {
        number if number <= most => fits(number),
        _ => Err(format!("at most {most} is allowed")),
    }
}

fn serve(text: &str) -> Result<ServeArchived, String> {
    match text {
        "until_pruned" => Ok(ServeArchived::UntilPruned),
        "refuse" => Ok(ServeArchived::Refuse),
        _ => Err("until_pruned or refuse is wanted".into()),
    }
}
