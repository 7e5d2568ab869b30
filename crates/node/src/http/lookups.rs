//! Blocks, transactions and receipts by number and by hash, with honest answers where there is
//! nothing to give.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use secateur_core::{BlockHash, BlockMeta, Height, LookupError, Segment, TxId};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{BlockRecord, StoreError};
use serde::{Deserialize, Serialize};

use super::App;
use super::answers::{self, BYTES};
use super::errors::Refusal;
use super::v1::{Answer, said};
use crate::service::ApiError;

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
}

impl From<BlockRecord> for BlockAnswer {
    fn from(record: BlockRecord) -> Self {
        let [block, receipts, tx_index] = Segment::ALL.map(|segment| {
            let (bytes, checksum) = measure(&record, segment);
            PayloadMeta { bytes, crc32c: format!("{checksum:08x}") }
        });
        Self {
            tx_count: record.tx_count,
            payload_bytes: record.payload_bytes(),
            region_bytes: record.region_bytes(),
            meta: record.meta,
            block,
            receipts,
            tx_index,
        }
    }
}

/// The length and checksum of a payload.
fn measure(record: &BlockRecord, segment: Segment) -> (u32, u32) {
    let ([l0, l1, l2], [c0, c1, c2]) = (record.lens, record.checksums);
    match segment {
        Segment::Block => (l0, c0),
        Segment::Receipts => (l1, c1),
        Segment::TxIndex => (l2, c2),
    }
}

/// Says of a block that was cut where it went, if that is known.
fn with_locator(store: &DiskStore, height: Height, error: StoreError) -> ApiError {
    match error {
        StoreError::Lookup(LookupError::Pruned { pruned_before_block }) => {
            match store.find_part(height) {
                Ok(part) => {
                    let locator = part.map(|part| part.locator);
                    ApiError::Pruned { pruned_before_block, locator }
                }
                Err(error) => error.into(),
            }
        }
        error => error.into(),
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
        let record = app.node.ask(move |store| record(store, name)).await?;
        return Ok(answers::json(&BlockAnswer::from(record)));
    };
    let segment = payload.segment();
    let known = headers.get(IF_NONE_MATCH).cloned();
    let found = app.node.ask(move |store| payload_of(store, name, segment, known.as_ref()));
    let (record, bytes) = found.await?;
    let bytes = bytes.map(|bytes| held(&app, bytes)).transpose()?;
    Ok(payload_answer(&record, segment, bytes))
}

/// Bytes on their way out, in their room.
fn held(app: &App, bytes: Vec<u8>) -> Result<Bytes, ApiError> {
    Ok(app.node.rooms.take(bytes.len())?.around(bytes))
}

/// A payload of a block; no bytes if the client has them already.
fn payload_of(
    store: &DiskStore,
    name: Name,
    segment: Segment,
    known: Option<&HeaderValue>,
) -> Result<(BlockRecord, Option<Vec<u8>>), ApiError> {
    let has_it =
        |record: &BlockRecord| known.is_some_and(|known| is_known(known, &etag(record, segment)));
    match name.number(store)? {
        Ok(height) => {
            let honest = |error| with_locator(store, height, error);
            if known.is_some() {
                let record = store.get_record(height).map_err(honest)?;
                if has_it(&record) {
                    return Ok((record, None));
                }
            }
            let (record, bytes) = store.get_payload(height, segment).map_err(honest)?;
            Ok((record, Some(bytes)))
        }
        Err(hash) => {
            let (record, bytes) = store.get_payload_by_hash(&hash, segment)?;
            let bytes = (!has_it(&record)).then_some(bytes);
            Ok((record, bytes))
        }
    }
}

/// What the index knows of a block.
fn record(store: &DiskStore, name: Name) -> Result<BlockRecord, ApiError> {
    match name.number(store)? {
        Ok(height) => store.get_record(height).map_err(|error| with_locator(store, height, error)),
        // The shortest payload comes along; it is not needed.
        Err(hash) => Ok(store.get_payload_by_hash(&hash, Segment::TxIndex)?.0),
    }
}

/// Names the bytes of a payload: they never change under one hash.
fn etag(record: &BlockRecord, segment: Segment) -> String {
    let (_, checksum) = measure(record, segment);
    format!("\"{}-{}-{checksum:08x}\"", record.meta.hash, segment.tag())
}

fn is_known(known: &HeaderValue, etag: &str) -> bool {
    let known = known.to_str().unwrap_or_default();
    known
        .split(',')
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag)
}

fn payload_answer(record: &BlockRecord, segment: Segment, bytes: Option<Bytes>) -> Response {
    let mut response = match bytes {
        Some(bytes) => answers::body(StatusCode::OK, BYTES, bytes),
        None => StatusCode::NOT_MODIFIED.into_response(),
    };
    let headers = response.headers_mut();
    // It may be kept, but asked for again: it can be pruned here.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    for (name, value) in [
        (ETAG, etag(record, segment)),
        (HeaderName::from_static("secateur-block-number"), record.meta.height.to_string()),
        (HeaderName::from_static("secateur-block-hash"), record.meta.hash.to_string()),
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
    Ok(answers::json(&app.node.ask(move |store| place(store, tx_id)).await?))
}

fn place(store: &DiskStore, tx_id: TxId) -> Result<TransactionAnswer, ApiError> {
    let found = store.get_transaction(&tx_id)?;
    let (height, index) = (found.location.height, found.location.index);
    Ok(TransactionAnswer { tx_id, height, index, block_hash: found.block_hash })
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
    if said(asked)?.payload == Some(ReceiptPayload::Receipt) {
        let bytes = app.node.ask(move |store| Ok(store.get_receipt(&tx_id)?)).await?;
        return Ok(answers::body(StatusCode::OK, BYTES, held(&app, bytes)?));
    }
    let found = app.node.ask(move |store| {
        let receipt_bytes = store.get_receipt(&tx_id)?.len();
        Ok(ReceiptAnswer { transaction: place(store, tx_id)?, receipt_bytes })
    });
    Ok(answers::json(&found.await?))
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
