//! `/v1/blobs…`: the figures and stories of blob sidecars.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use secateur_core::Height;
use secateur_sidecar::engine::{BlobKey, BlobMeta, KeptRecord, Summary};
use secateur_sidecar::{BlobKeccak, Commitment, VersionedHash};
use serde::{Deserialize, Serialize};

use super::errors::Refusal;
use super::v1::{Answer, said};
use super::{App, answers};
use crate::blobs::{DiskSidecars, Told};

/// Heights that a plan looks at.
const PLANNED: usize = 10_000;
/// Blobs of a page of records, where nobody says how many, and at most.
const USUAL: usize = 100;
pub(super) const MOST: usize = 1_000;
/// Blobs that are read at a time, and the bytes of locators after which a page ends early.
const STEP: usize = 32;
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    summary: Summary,
    over_budget: bool,
    archival_lag: u64,
    peers: Vec<PeerNow>,
}

#[derive(Debug, Serialize)]
struct PeerNow {
    name: String,
    connected: bool,
}

pub(super) async fn summary(State(app): State<Arc<App>>) -> Answer {
    let summary = app.node.ask_blobs(DiskSidecars::summary).await?;
    let peers = app.node.blobs()?.peers().into_iter();
    let peers = peers.map(|peer| PeerNow { name: peer.name, connected: peer.connected }).collect();
    let (over_budget, archival_lag) = (summary.over_budget(), summary.archival_lag());
    Ok(answers::json(&Figures { summary, over_budget, archival_lag, peers }))
}

pub(super) async fn plan(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::json(&app.node.ask_blobs(|store| store.plan(PLANNED)).await?))
}

fn whole<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| Refusal::bad(format!("{what} is a whole number")))
}

pub(super) async fn height(
    State(app): State<Arc<App>>,
    height: Result<Path<String>, PathRejection>,
) -> Answer {
    let height: Height = whole("a height", &said(height)?.0)?;
    let status = app.node.ask_blobs(move |store| store.status(height)).await?;
    Ok(answers::json(&Told::height(status, app.node.blobs()?.sidecars().verifier())))
}

pub(super) async fn story(
    State(app): State<Arc<App>>,
    key: Result<Path<(String, String)>, PathRejection>,
) -> Answer {
    let Path((height, index)) = said(key)?;
    let (height, index) = (whole("a height", &height)?, whole("an index", &index)?);
    let story = app.node.ask_blobs(move |store| store.explain(height, index)).await?;
    Ok(answers::json(&Told::blob(story, app.node.blobs()?.sidecars().verifier())))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsAsked {
    from: Option<String>,
    limit: Option<usize>,
}

/// What is known of a blob's copies.
#[derive(Debug, Serialize)]
struct BlobRecord {
    height: Height,
    index: u32,
    commitment: Commitment,
    versioned_hash: VersionedHash,
    keccak: BlobKeccak,
    records: Vec<KeptRecord>,
}

#[derive(Debug, Serialize)]
struct Records {
    records: Vec<BlobRecord>,
    /// Where the next page begins, if there may be one.
    next: Option<String>,
}

impl From<(BlobMeta, Vec<KeptRecord>)> for BlobRecord {
    fn from((meta, records): (BlobMeta, Vec<KeptRecord>)) -> Self {
        Self {
            height: meta.height,
            index: meta.index,
            commitment: meta.commitment,
            versioned_hash: meta.versioned_hash,
            keccak: meta.keccak,
            records,
        }
    }
}

/// `7`, or `7:3` for the third blob behind the first.
fn blob_key(text: &str) -> Result<BlobKey, Refusal> {
    let (height, index) = text.split_once(':').unwrap_or((text, "0"));
    Ok(BlobKey { height: whole("a height", height)?, index: whole("an index", index)? })
}

pub(super) async fn records(
    State(app): State<Arc<App>>,
    asked: Result<Query<RecordsAsked>, QueryRejection>,
) -> Answer {
    let Query(RecordsAsked { from, limit }) = said(asked)?;
    let from = blob_key(from.as_deref().unwrap_or("0"))?;
    let limit = limit.unwrap_or(USUAL).clamp(1, MOST);
    let page = app.node.ask_blobs(move |store| {
        let (mut found, mut from, mut bytes) = (Vec::<BlobRecord>::new(), Some(from), 0);
        while let Some(key) = from.filter(|_| found.len() < limit && bytes < PAGE_BYTES) {
            let step = STEP.min(limit - found.len());
            let some = store.list_records(key, step)?;
            let last = some.last().filter(|_| some.len() == step).map(|(meta, _)| meta.key());
            from = last.and_then(|key| Some(BlobKey { index: key.index.checked_add(1)?, ..key }));
            let locators = some.iter().flat_map(|(_, kept)| kept);
            let locators = locators.flat_map(|kept| &kept.record.locators);
            bytes += locators.map(|at| at.key.len() + at.provider.len()).sum::<usize>();
            found.extend(some.into_iter().map(BlobRecord::from));
        }
        let next = from.map(|key| format!("{}:{}", key.height, key.index));
        Ok(Records { records: found, next })
    });
    Ok(answers::json(&page.await?))
}
