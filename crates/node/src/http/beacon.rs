//! `/eth/v1/beacon/…`: blobs in the shapes of the Beacon API, with its errors: `code` and `message`.
//!
//! An empty list is said only of a block that truly has no blobs. What was pruned is 410, with where
//! the blobs are. The legacy route needs the signed header and the inclusion proofs of the source;
//! where it gave none, the answer says so.

use std::sync::Arc;

use alloy_primitives::hex;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use secateur_core::Height;
use secateur_sidecar::engine::{BlobMeta, HeightRecord, StoredBlob};
use secateur_sidecar::{BLOB_LEN, MAX_BLOBS, SidecarError, VersionedHash};
use serde_json::{Map, Value, json};

use super::App;
use super::answers::{self, BYTES, JSON};
use super::errors::Refusal;
use crate::blobs::DiskSidecars;
use crate::blobs::header::{SignedHeader, ssz_number};
use crate::service::{ApiError, Node, Room};

/// Newest heights among which a block's root is looked for.
const ROOTS: u64 = 4_096;
/// The fork whose sidecars the legacy route speaks of; later ones have the same.
const VERSION: &str = "deneb";

/// Why there is no answer, as the Beacon API says it.
#[derive(Debug)]
pub(super) struct Sorry {
    status: StatusCode,
    message: String,
    details: Map<String, Value>,
}

impl Sorry {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), details: Map::new() }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }
}

impl From<ApiError> for Sorry {
    fn from(error: ApiError) -> Self {
        let (status, message, details) = Refusal::from(error).into_parts();
        Self { status, message, details }
    }
}

impl From<SidecarError> for Sorry {
    fn from(error: SidecarError) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for Sorry {
    fn into_response(self) -> Response {
        let mut body = self.details;
        body.insert("code".into(), json!(self.status.as_u16()));
        body.insert("message".into(), json!(self.message));
        answers::json_with(self.status, &Value::Object(body))
    }
}

type Answer = Result<Response, Sorry>;

/// How a block is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockId {
    Head,
    Finalized,
    Genesis,
    Height(Height),
    Root([u8; 32]),
}

impl BlockId {
    fn parse(text: &str) -> Result<Self, Sorry> {
        let invalid = || {
            let shown: String = text.chars().take(80).collect();
            Sorry::bad(format!("Invalid block ID: {shown}"))
        };
        match text {
            "head" => Ok(Self::Head),
            "finalized" => Ok(Self::Finalized),
            "genesis" => Ok(Self::Genesis),
            text if text.starts_with("0x") => {
                let mut root = [0; 32];
                hex::decode_to_slice(text, &mut root).map_err(|_| invalid())?;
                Ok(Self::Root(root))
            }
            text if text.bytes().all(|digit| digit.is_ascii_digit()) => {
                text.parse().map(Self::Height).map_err(|_| invalid())
            }
            _ => Err(invalid()),
        }
    }

    /// Finds the block, and whether it is final.
    async fn resolve(self, node: &Node) -> Result<(HeightRecord, bool), Sorry> {
        let found = node.ask_blobs(move |store| {
            let summary = store.summary()?;
            let record = match self {
                Self::Head => by_height(store, summary.latest_decided)?,
                Self::Finalized => by_height(store, summary.finalized)?,
                Self::Genesis => store.height(0)?,
                Self::Height(height) => store.height(height)?,
                Self::Root(root) => by_root(store, summary.latest_decided, root)?,
            };
            Ok((record, summary.finalized))
        });
        let (record, finalized) = found.await?;
        let Some(record) = record else {
            return Err(Sorry::unknown(match self {
                Self::Root(_) => format!(
                    "Block not found: none of the newest {ROOTS} heights came with a signed header \
                     of this root; ask by slot"
                ),
                _ => "Block not found".to_owned(),
            }));
        };
        let is_final = finalized.is_some_and(|finalized| record.height <= finalized);
        Ok((record, is_final))
    }
}

fn by_height(
    store: &DiskSidecars,
    height: Option<Height>,
) -> Result<Option<HeightRecord>, SidecarError> {
    height.map_or(Ok(None), |height| store.height(height))
}

/// The block with this root among the newest ones: there is no index of roots.
fn by_root(
    store: &DiskSidecars,
    latest: Option<Height>,
    root: [u8; 32],
) -> Result<Option<HeightRecord>, SidecarError> {
    let Some(latest) = latest else { return Ok(None) };
    for height in (latest.saturating_sub(ROOTS - 1)..=latest).rev() {
        let Some(record) = store.height(height)? else { continue };
        let header = record.signed_header.as_deref().and_then(SignedHeader::read);
        if header.is_some_and(|header| header.root() == root) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

type Asked = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The values of the one parameter that a route has: given several times, or with commas.
fn values(asked: Asked, name: &str) -> Result<Vec<String>, Sorry> {
    let Query(pairs) = asked.map_err(|error| Sorry::bad(error.to_string()))?;
    let mut found = Vec::new();
    for (key, value) in pairs {
        if key != name {
            return Err(Sorry::bad(format!("there is no parameter but {name}")));
        }
        found.extend(value.split(',').filter(|one| !one.is_empty()).map(str::to_owned));
        if found.len() > MAX_BLOBS as usize {
            return Err(Sorry::bad(format!("at most {MAX_BLOBS} are taken")));
        }
    }
    Ok(found)
}

/// Whether bytes are wanted instead of JSON.
fn wants_bytes(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let place = |kind: &str| accept.find(kind).unwrap_or(usize::MAX);
    place(BYTES) < place(JSON).min(place("*/*"))
}

/// The blobs of a block that are named, in the order of the block, and the room that they take as
/// an answer. One that the block does not have is an error: a shorter list would look like all.
async fn wanted(
    node: &Node,
    height: Height,
    named: impl Fn(&BlobMeta) -> bool + Send + Sync + 'static,
    is_whole: impl FnOnce(&[BlobMeta]) -> Result<(), Sorry>,
) -> Result<(Vec<StoredBlob>, Room), Sorry> {
    let metas = node.ask_blobs(move |store| store.blob_metas(height)).await?;
    is_whole(&metas)?;
    let count = metas.iter().filter(|meta| named(meta)).count();
    // The bytes, and twice as much where they are written as digits.
    let room = node.rooms.take(count.saturating_mul(3 * BLOB_LEN))?;
    Ok((node.blobs()?.blobs(height, named).await?, room))
}

pub(super) async fn blobs(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    asked: Asked,
    headers: HeaderMap,
) -> Answer {
    let Path(id) = id.map_err(|error| Sorry::bad(error.to_string()))?;
    let id = BlockId::parse(&id)?;
    let parse = |text: &String| {
        text.parse::<VersionedHash>()
            .map_err(|_| Sorry::bad("a versioned hash is 0x and 64 hexadecimal digits"))
    };
    let hashes = values(asked, "versioned_hashes")?;
    let hashes: Vec<VersionedHash> = hashes.iter().map(parse).collect::<Result<_, _>>()?;
    let (record, is_final) = id.resolve(&app.node).await?;
    let named = hashes.clone();
    let named = move |meta: &BlobMeta| named.is_empty() || named.contains(&meta.versioned_hash);
    let is_whole = |metas: &[BlobMeta]| {
        let there = |hash: &&VersionedHash| metas.iter().any(|meta| meta.versioned_hash == **hash);
        match hashes.iter().find(|hash| !there(hash)) {
            Some(hash) => Err(Sorry::unknown(format!("the block has no blob {hash}"))),
            None => Ok(()),
        }
    };
    let (found, room) = wanted(&app.node, record.height, named, is_whole).await?;
    if wants_bytes(&headers) {
        let bytes: Vec<u8> = found.iter().flat_map(|blob| blob.blob.iter().copied()).collect();
        return Ok(answers::body(StatusCode::OK, BYTES, room.around(bytes)));
    }
    let mut out = format!("{{\"execution_optimistic\":false,\"finalized\":{is_final},\"data\":[")
        .into_bytes();
    for (at, blob) in found.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(hex::encode_prefixed(&blob.blob).as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"]}");
    Ok(answers::body(StatusCode::OK, JSON, room.around(out)))
}

pub(super) async fn sidecars(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    asked: Asked,
    headers: HeaderMap,
) -> Answer {
    let Path(id) = id.map_err(|error| Sorry::bad(error.to_string()))?;
    let id = BlockId::parse(&id)?;
    let parse =
        |text: &String| text.parse::<u32>().map_err(|_| Sorry::bad("an index is a whole number"));
    let indices = values(asked, "indices")?;
    let indices: Vec<u32> = indices.iter().map(parse).collect::<Result<_, _>>()?;
    let (record, is_final) = id.resolve(&app.node).await?;
    let header = header_of(&record)?;
    let named = indices.clone();
    let named = move |meta: &BlobMeta| named.is_empty() || named.contains(&meta.index);
    let is_whole = |metas: &[BlobMeta]| {
        let unknown = indices.iter().find(|index| **index as usize >= metas.len());
        if let Some(index) = unknown {
            return Err(Sorry::unknown(format!("the block has no blob with index {index}")));
        }
        metas.iter().filter(|meta| named_by(&indices, meta)).try_for_each(check_legacy)
    };
    let (found, room) = wanted(&app.node, record.height, named, is_whole).await?;
    let mut response = if wants_bytes(&headers) {
        let bytes = found.iter().flat_map(|blob| sidecar_ssz(blob, &record)).collect();
        answers::body(StatusCode::OK, BYTES, room.around(bytes))
    } else {
        let out = sidecars_json(&found, header.as_ref(), is_final)?;
        answers::body(StatusCode::OK, JSON, room.around(out))
    };
    response.headers_mut().insert(
        HeaderName::from_static("eth-consensus-version"),
        HeaderValue::from_static(VERSION),
    );
    Ok(response)
}

fn named_by(indices: &[u32], meta: &BlobMeta) -> bool {
    indices.is_empty() || indices.contains(&meta.index)
}

/// The header of a block that has blobs. Without one there is nothing that the legacy route could
/// truly say.
fn header_of(record: &HeightRecord) -> Result<Option<SignedHeader>, Sorry> {
    let header = record.signed_header.as_deref().and_then(SignedHeader::read);
    if header.is_none() && record.blob_count > 0 {
        let height = record.height;
        return Err(Sorry::unknown(format!(
            "the source of height {height} gave no signed block header, which this route needs; \
             /eth/v1/beacon/blobs/{height} has the blobs"
        )));
    }
    Ok(header)
}

fn check_legacy(meta: &BlobMeta) -> Result<(), Sorry> {
    let missing = match (&meta.proof, &meta.inclusion) {
        (None, _) => "KZG proof",
        (_, None) => "inclusion proof",
        _ => return Ok(()),
    };
    let BlobMeta { height, index, .. } = meta;
    Err(Sorry::unknown(format!(
        "the source gave no {missing} for blob {index} of height {height}, which this route needs; \
         /eth/v1/beacon/blobs/{height} has the blobs"
    )))
}

fn sidecars_json(
    found: &[StoredBlob],
    header: Option<&SignedHeader>,
    is_final: bool,
) -> Result<Vec<u8>, Sorry> {
    let header = header.map(|header| {
        json!({
            "message": {
                "slot": header.slot.to_string(),
                "proposer_index": header.proposer_index.to_string(),
                "parent_root": hex::encode_prefixed(header.parent_root),
                "state_root": hex::encode_prefixed(header.state_root),
                "body_root": hex::encode_prefixed(header.body_root),
            },
            "signature": hex::encode_prefixed(header.signature),
        })
    });
    let mut out = format!(
        "{{\"version\":\"{VERSION}\",\"execution_optimistic\":false,\"finalized\":{is_final},\
         \"data\":["
    )
    .into_bytes();
    for (at, StoredBlob { meta, blob }) in found.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let branch = meta.inclusion.iter().flat_map(|inclusion| &inclusion.proof);
        let sidecar = json!({
            "index": meta.index.to_string(),
            "blob": hex::encode_prefixed(blob),
            "kzg_commitment": meta.commitment,
            "kzg_proof": meta.proof,
            "signed_block_header": header,
            "kzg_commitment_inclusion_proof":
                branch.map(hex::encode_prefixed).collect::<Vec<String>>(),
        });
        serde_json::to_writer(&mut out, &sidecar)
            .map_err(|error| Sorry::from(ApiError::Internal(error.to_string())))?;
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// A sidecar as SSZ writes it: every field has its fixed length.
fn sidecar_ssz(found: &StoredBlob, record: &HeightRecord) -> Vec<u8> {
    let StoredBlob { meta, blob } = found;
    let mut out = Vec::with_capacity(BLOB_LEN + 1_024);
    out.extend(ssz_number(u64::from(meta.index)));
    out.extend_from_slice(blob);
    out.extend(meta.commitment.0);
    out.extend(meta.proof.map_or([0; 48], |proof| proof.0));
    out.extend_from_slice(record.signed_header.as_deref().unwrap_or_default());
    out.extend(meta.inclusion.iter().flat_map(|inclusion| inclusion.proof.iter().flatten()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_named_as_the_beacon_api_names_it_and_in_no_other_way() {
        let parse = |text: &str| BlockId::parse(text).ok();
        assert_eq!(parse("head"), Some(BlockId::Head));
        assert_eq!(parse("genesis"), Some(BlockId::Genesis));
        assert_eq!(parse("finalized"), Some(BlockId::Finalized));
        assert_eq!(parse("12"), Some(BlockId::Height(12)));
        let root = format!("0x{}", "ab".repeat(32));
        assert_eq!(parse(&root), Some(BlockId::Root([0xab; 32])));
        for bad in ["", "-1", "+1", "current", "0x", "0x12", "18446744073709551616", "1.0", " 1"] {
            assert_eq!(BlockId::parse(bad).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn bytes_are_sent_to_whoever_prefers_them() {
        let asks = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(text));
            wants_bytes(&headers)
        };
        assert!(asks("application/octet-stream"));
        assert!(asks("application/octet-stream, application/json;q=0.9"));
        assert!(!asks("application/json"));
        assert!(!asks("application/json, application/octet-stream"));
        assert!(!asks("*/*"));
        assert!(!wants_bytes(&HeaderMap::new()));
    }
}
