//! `engine_getBlobsV1`: blobs by the hashes that transactions name them by, as far as they are here.

use std::sync::Arc;

use alloy_primitives::hex;
use secateur_sidecar::engine::StoredBlob;
use secateur_sidecar::{BLOB_LEN, VersionedHash, kzg};

use super::errors::RpcError;
use crate::service::{ApiError, Node};

/// A JSON array with a blob and its proof for each hash, or `null`; None if `room` is too small.
pub(super) async fn answer(
    node: &Arc<Node>,
    hashes: Vec<VersionedHash>,
    room: usize,
) -> Result<Option<Vec<u8>>, RpcError> {
    let blobs = Arc::clone(node.blobs()?);
    // The bytes, and twice as much where they are written as digits.
    let _memory = node.rooms.take(hashes.len().saturating_mul(3 * BLOB_LEN))?;
    let found = blobs.by_hashes(hashes).await?;
    Ok(node.reading.run(move || write(&found, room)).await?)
}

fn write(found: &[Option<StoredBlob>], room: usize) -> Result<Option<Vec<u8>>, ApiError> {
    let mut out = String::from("[");
    for blob in found {
        if out.len() > 1 {
            out.push(',');
        }
        let Some(StoredBlob { meta, blob }) = blob else {
            out.push_str("null");
            continue;
        };
        // A source after Fulu gives none; it can be computed from the blob.
        let proof = match meta.proof {
            Some(proof) => proof,
            None => kzg::proof_of(blob, &meta.commitment)?,
        };
        let proof = hex::encode_prefixed(proof.0);
        out.extend(["{\"blob\":\"", &hex::encode_prefixed(blob), "\",\"proof\":\"", &proof, "\"}"]);
        if out.len() > room {
            return Ok(None);
        }
    }
    out.push(']');
    Ok((out.len() <= room).then(|| out.into_bytes()))
}
