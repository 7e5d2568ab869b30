//! Blocks, transactions and receipts by number and by hash, with honest answers where there is
//! nothing to give.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use secateur_core::{
    BlockHash, BlockMeta, Height, Locator, Segment, TxId, tx_index as core_tx_index,
};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{BlockRecord, checksum};
use serde::{Deserialize, Serialize};

use super::App;
use super::answers::{self, BYTES};
use super::errors::Refusal;
use super::v1::{Answer, said};
use crate::service::{ApiError, Node, Sought};
use crate::vault::Archived;

/// Digits of a hash; a number has fewer.
const HASH_DIGITS: usize = 64;

/// How a block is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Number(Height),
    Hash(BlockHash),
    Latest,
    Finalized,
    Earliest,
}

impl Name {
    fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "latest" => Ok(Self::Latest),
            "finalized" => Ok(Self::Finalized),
            "earliest" => Ok(Self::Earliest),
            text if text.starts_with("0x") || text.len() == HASH_DIGITS => {
                said(text.parse()).map(Self::Hash)
            }
            text => text.parse().map(Self::Number).map_err(|_| {
                Refusal::bad(
                    "a block is named by its number, its hash, `latest`, `finalized` or `earliest`",
                )
            }),
        }
    }

    /// The number that the name means now; a hash has none before it is looked up.
    fn number(self, store: &DiskStore) -> Result<Result<Height, BlockHash>, ApiError> {
        let number = match self {
            Self::Number(number) => Some(number),
            Self::Hash(hash) => return Ok(Err(hash)),
            Self::Latest => store.head(),
            Self::Finalized => store.get_head(),
            Self::Earliest => store.get_prune_status()?.oldest_kept_block,
        };
        number.map(Ok).ok_or(ApiError::NotFound { searched_from: None })
    }
}

/// A payload by its name in the query.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Payload {
    Block,
    Receipts,
    TxIndex,
}

impl Payload {
    const fn segment(self) -> Segment {
        match self {
            Self::Block => Segment::Block,
            Self::Receipts => Segment::Receipts,
            Self::TxIndex => Segment::TxIndex,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockAsked {
    payload: Option<Payload>,
}

#[derive(Debug, Serialize)]
struct PayloadMeta {
    bytes: u32,
    crc32c: String,
}

/// What is known of a block.
#[derive(Debug, Serialize)]
struct BlockAnswer {
    #[serde(flatten)]
    meta: BlockMeta,
    tx_count: u32,
    payload_bytes: u64,
    region_bytes: u64,
    block: PayloadMeta,
    receipts: PayloadMeta,
    tx_index: PayloadMeta,
    /// The archive part that it came from; none if it is here.
    locator: Option<Locator>,
}

/// A block as it was found: here, or in the archive.
#[derive(Debug)]
enum Found {
    Kept(BlockRecord),
    Archived(Archived),
}

impl Found {
    fn meta(&self) -> &BlockMeta {
        match self {
            Self::Kept(record) => &record.meta,
            Self::Archived(found) => &found.block.meta,
        }
    }

    /// The length and checksum of a payload.
    fn measure(&self, segment: Segment) -> (u32, u32) {
        match self {
            Self::Kept(record) => record.measured(segment),
            Self::Archived(found) => {
                let bytes = found.block.payloads.segment(segment);
                (u32::try_from(bytes.len()).unwrap_or(u32::MAX), checksum(bytes))
            }
        }
    }
}

impl From<Found> for BlockAnswer {
    fn from(found: Found) -> Self {
        let [block, receipts, tx_index] = Segment::ALL.map(|segment| {
            let (bytes, checksum) = found.measure(segment);
            PayloadMeta { bytes, crc32c: format!("{checksum:08x}") }
        });
        let meta = found.meta().clone();
        let (tx_count, payload_bytes, region_bytes, locator) = match found {
            Found::Kept(kept) => (kept.tx_count, kept.payload_bytes(), kept.region_bytes(), None),
            Found::Archived(Archived { block, locator }) => {
                let count = core_tx_index(&block.payloads.tx_index).count();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                (count, block.payloads.total_len(), 0, Some(locator))
            }
        };
        Self { meta, tx_count, payload_bytes, region_bytes, block, receipts, tx_index, locator }
    }
}

pub(super) async fn block(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    asked: Result<Query<BlockAsked>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let name = Name::parse(&said(name)?.0)?;
    let Some(payload) = said(asked)?.payload else {
        let found = app.node.look(move |node| record(node, name)).await?;
        return Ok(answers::json(&BlockAnswer::from(found)));
    };
    let segment = payload.segment();
    let known = headers.get(IF_NONE_MATCH).cloned();
    let found = app.node.look(move |node| payload_of(node, name, segment, known.as_ref()));
    let (found, bytes) = found.await?;
    let bytes = bytes.map(|bytes| held(&app, bytes)).transpose()?;
    Ok(payload_answer(&found, segment, bytes))
}

/// Bytes on their way out, in their room.
fn held(app: &App, bytes: Vec<u8>) -> Result<Bytes, ApiError> {
    Ok(app.node.rooms.take(bytes.len())?.around(bytes))
}

/// A payload of a block; no bytes if the client has them already.
fn payload_of(
    node: &Node,
    name: Name,
    segment: Segment,
    known: Option<&HeaderValue>,
) -> Result<(Found, Option<Vec<u8>>), ApiError> {
    let store = &node.store;
    let has_it = |found: &Found| known.is_some_and(|known| is_known(known, &etag(found, segment)));
    let (sought, read) = match name.number(store)? {
        Ok(height) => {
            if known.is_some()
                && let Ok(record) = store.get_record(height)
            {
                let found = Found::Kept(record);
                if has_it(&found) {
                    return Ok((found, None));
                }
            }
            (Sought::Height(height), store.get_payload(height, segment))
        }
        Err(hash) => (Sought::Block(hash), store.get_payload_by_hash(&hash, segment)),
    };
    let (found, bytes) = match read {
        Ok((record, bytes)) => (Found::Kept(record), bytes),
        Err(error) => {
            let found = node.beyond(sought, error.into())?;
            let bytes = found.block.payloads.segment(segment).to_vec();
            (Found::Archived(found), bytes)
        }
    };
    let bytes = (!has_it(&found)).then_some(bytes);
    Ok((found, bytes))
}

/// What is known of a block.
fn record(node: &Node, name: Name) -> Result<Found, ApiError> {
    let store = &node.store;
    let (sought, read) = match name.number(store)? {
        Ok(height) => (Sought::Height(height), store.get_record(height)),
        Err(hash) => (Sought::Block(hash), store.get_record_by_hash(&hash)),
    };
    match read {
        Ok(record) => Ok(Found::Kept(record)),
        Err(error) => node.beyond(sought, error.into()).map(Found::Archived),
    }
}

/// Names the bytes of a payload: they never change under one hash.
fn etag(found: &Found, segment: Segment) -> String {
    let (_, checksum) = found.measure(segment);
    format!("\"{}-{}-{checksum:08x}\"", found.meta().hash, segment.tag())
}

fn is_known(known: &HeaderValue, etag: &str) -> bool {
    let known = known.to_str().unwrap_or_default();
    known
        .split(',')
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

fn payload_answer(found: &Found, segment: Segment, bytes: Option<Bytes>) -> Response {
    let mut response = match bytes {
        Some(bytes) => answers::body(StatusCode::OK, BYTES, bytes),
        None => StatusCode::NOT_MODIFIED.into_response(),
    };
    let headers = response.headers_mut();
    // It may be kept, but asked for again: it can be pruned here.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    for (name, value) in [
        (ETAG, etag(found, segment)),
        (HeaderName::from_static("secateur-block-number"), found.meta().height.to_string()),
        (HeaderName::from_static("secateur-block-hash"), found.meta().hash.to_string()),
    ] {
        // Digits, quotes and dashes: always a value.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    response
}

/// Where a transaction is.
#[derive(Debug, Serialize)]
struct TransactionAnswer {
    tx_id: TxId,
    height: Height,
    index: u32,
    block_hash: BlockHash,
}

pub(super) async fn transaction(
    State(app): State<Arc<App>>,
    hash: Result<Path<String>, PathRejection>,
) -> Answer {
    let tx_id: TxId = said(said(hash)?.0.parse())?;
    let found = app.node.look(move |node| place(node, tx_id).map(|(place, _)| place));
    Ok(answers::json(&found.await?))
}

/// Where a transaction is, and its block if that came from the archive.
fn place(node: &Node, tx_id: TxId) -> Result<(TransactionAnswer, Option<Archived>), ApiError> {
    match node.store.get_location(&tx_id) {
        Ok((at, record)) => {
            let (height, index, block_hash) = (at.height, at.index, record.meta.hash);
            Ok((TransactionAnswer { tx_id, height, index, block_hash }, None))
        }
        Err(error) => {
            let found = node.beyond(Sought::Transaction(tx_id), error.into())?;
            let index = found.place_of(&tx_id).unwrap_or_default();
            let meta = &found.block.meta;
            let (height, block_hash) = (meta.height, meta.hash);
            Ok((TransactionAnswer { tx_id, height, index, block_hash }, Some(found)))
        }
    }
}

/// A receipt's bytes and where its transaction is.
fn receipt_of(node: &Node, tx_id: TxId) -> Result<(TransactionAnswer, Vec<u8>), ApiError> {
    let (place, archived) = place(node, tx_id)?;
    let receipt = match archived {
        None => node.store.get_receipt(&tx_id)?,
        Some(found) => found
            .receipt_of(&tx_id)
            .map(<[u8]>::to_vec)
            .ok_or(ApiError::NotFound { searched_from: None })?,
    };
    Ok((place, receipt))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReceiptPayload {
    Receipt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptAsked {
    payload: Option<ReceiptPayload>,
}

/// Where a receipt is.
#[derive(Debug, Serialize)]
struct ReceiptAnswer {
    #[serde(flatten)]
    transaction: TransactionAnswer,
    receipt_bytes: usize,
}

pub(super) async fn receipt(
    State(app): State<Arc<App>>,
    hash: Result<Path<String>, PathRejection>,
    asked: Result<Query<ReceiptAsked>, QueryRejection>,
) -> Answer {
    let tx_id: TxId = said(said(hash)?.0.parse())?;
    let (transaction, receipt) = app.node.look(move |node| receipt_of(node, tx_id)).await?;
    if said(asked)?.payload == Some(ReceiptPayload::Receipt) {
        return Ok(answers::body(StatusCode::OK, BYTES, held(&app, receipt)?));
    }
    Ok(answers::json(&ReceiptAnswer { transaction, receipt_bytes: receipt.len() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_named_in_five_ways_and_no_other() {
        let hash = BlockHash([0xab; 32]);
        let text = hash.to_string();
        assert_eq!(Name::parse("0").unwrap(), Name::Number(0));
        assert_eq!(Name::parse(&u64::MAX.to_string()).unwrap(), Name::Number(u64::MAX));
        assert_eq!(Name::parse(&text).unwrap(), Name::Hash(hash));
        assert_eq!(Name::parse(&text[2..]).unwrap(), Name::Hash(hash));
        assert_eq!(Name::parse("latest").unwrap(), Name::Latest);
        for bad in ["", "-1", "0x", "0x12", "newest", "18446744073709551616", "1.0", " 1"] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_that_a_client_has_are_recognised_in_every_form_of_the_header() {
        let known = |text: &'static str| is_known(&HeaderValue::from_static(text), "\"a-0-1\"");
        assert!(
            known("\"a-0-1\"") && known("W/\"a-0-1\"") && known("\"x\", \"a-0-1\"") && known("*")
        );
        assert!(!known("\"a-0-2\"") && !known("") && !known("a-0-1"));
    }
}
