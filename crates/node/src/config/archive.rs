//! `[archive]`: where the archive is, and what a node does with it.

use std::path::PathBuf;

use secateur_archive::{ArchiveUrl, Credentials, Retry, S3Settings, Settings, check_endpoint};

use super::{Layers, fits, plainly, positive, seconds, truth};
use crate::error::NodeError;

/// An archive and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct ArchivePlace {
    pub(crate) url: ArchiveUrl,
    pub(crate) settings: Settings,
}

/// What a node is told of its archive.
#[derive(Debug, Clone)]
pub(crate) struct NodeArchive {
    /// Where it is; none means that acknowledged parts are believed as far as their hashes agree.
    pub(crate) place: Option<ArchivePlace>,
    /// Whether acknowledged parts are read back.
    pub(crate) verify_acks: bool,
    /// Whether pruning waits for the archive; none leaves the store as it is.
    pub(crate) hold: Option<bool>,
    /// Whether lookups of pruned blocks ask the archive.
    pub(crate) read_through: bool,
    /// How many do at once.
    pub(crate) concurrency: usize,
    /// The most bytes of a part, as archivers with this configuration make them.
    pub(crate) part_bytes: u64,
}

impl ArchivePlace {
    /// Where the archive is, if the configuration says so.
    pub(crate) fn of(layers: &Layers) -> Result<Option<Self>, NodeError> {
        let Some(url) = layers.read("archive.url", url)? else { return Ok(None) };
        Ok(Some(Self { url, settings: settings(layers)? }))
    }
}

impl NodeArchive {
    pub(super) fn of(layers: &Layers) -> Result<Self, NodeError> {
        let place = ArchivePlace::of(layers)?;
        // One that cannot be read is named all the same.
        let there = layers.get("archive.url").is_some();
        let verify_acks = layers.read("archive.verify_acks", truth)?.unwrap_or(there);
        let read_through = layers.must("archive.read_through", truth)?;
        if !there && (verify_acks || read_through) {
            layers.conflict(
                &["archive.verify_acks", "archive.read_through"],
                "archive.verify_acks and archive.read_through need archive.url",
            )?;
        }
        Ok(Self {
            place,
            verify_acks,
            hold: layers.read("archive.hold", truth)?.or(there.then_some(true)),
            read_through,
            concurrency: layers
                .must("archive.read_through_concurrency", |text| fits(positive(text)?))?,
            part_bytes: super::index::grain(layers)?.max_bytes,
        })
    }
}

fn url(text: &str) -> Result<ArchiveUrl, String> {
    text.parse().map_err(plainly::<secateur_archive::ArchiveError>)
}

/// How an archive is reached.
pub(super) fn settings(layers: &Layers) -> Result<Settings, NodeError> {
    let text = |name| layers.read(name, |text| Ok(text.to_owned()));
    let credentials = layers.read("archive.credentials", |text| Ok(PathBuf::from(text)))?;
    let request_timeout = layers.must("archive.timeout_seconds", seconds)?;
    let allow_http = layers.must("archive.allow_http", truth)?;
    Ok(Settings {
        s3: S3Settings {
            endpoint: layers.read("archive.endpoint", |text| {
                check_endpoint(text, allow_http).map(|()| text.to_owned()).map_err(plainly)
            })?,
            region: text("archive.region")?,
            allow_http,
            credentials: credentials.map_or(Credentials::Environment, Credentials::File),
        },
        retry: Retry { request_timeout, ..Retry::default() },
    })
}
