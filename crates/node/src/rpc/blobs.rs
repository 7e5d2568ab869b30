//! `engine_getBlobsV1`: blobs by the hashes that transactions name them by, as far as they are here.

use std::sync::Arc;

use alloy_primitives::hex;
use secateur_sidecar::engine::StoredBlob;
use secateur_sidecar::{BLOB_LEN, VersionedHash};

use super::errors::RpcError;
use crate::service::Node;

/// A JSON array with a blob and its proof for each hash, or `null`; None if `room` is too small.
pub(super) async fn answer(
    node: &Arc<Node>,
    hashes: Vec<VersionedHash>,
    room: usize,
) -> Result<Option<Vec<u8>>, RpcError> {
    let blobs = Arc::clone(node.blobs()?);
    // The bytes, and twice as much where they are written as digits.
    let _memory = node.rooms.take(hashes.len().saturating_mul(3 * BLOB_LEN))?;
    let mut found = blobs.by_hashes(hashes).await?;
    blobs.prove(&mut found).await?;
    Ok(node.reading.run(move || Ok(write(&found, room))).await?)
}

fn write(found: &[Option<StoredBlob>], room: usize) -> Option<Vec<u8>> {
    let mut out = String::from("[");
    for one in found {
        if out.len() > 1 {
            out.push(',');
        }
        let Some(one) = one else {
            out.push_str("null");
            continue;
        };
        let proof = one.meta.proof.map(|proof| hex::encode_prefixed(proof.0)).unwrap_or_default();
        let blob = hex::encode_prefixed(&one.blob);
        out.extend(["{\"blob\":\"", &blob, "\",\"proof\":\"", &proof, "\"}"]);
        if out.len() > room {
            return None;
        }
    }
    out.push(']');
    (out.len() <= room).then(|| out.into_bytes())
}
