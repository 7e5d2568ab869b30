//! Packing and unpacking one frame. Unpacking is bounded: the output is exactly as long as the
//! frame table says, and the table's own numbers were bounded before.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use secateur_core::CoreError;

use super::layout::Frame;
use crate::{ArchiveError, Digest};

/// Speed first.
const LEVEL: i32 = 3;

pub(super) fn packer() -> Result<Compressor<'static>, ArchiveError> {
    let wrong = |e: std::io::Error| ArchiveError::invalid("compressor", e.to_string());
    let mut packer = Compressor::new(LEVEL).map_err(wrong)?;
    // `zstd -t` can then check a part without knowing our hashes.
    packer.set_parameter(CParameter::ChecksumFlag(true)).map_err(wrong)?;
    Ok(packer)
}

/// Checks a frame's bytes and unpacks them.
pub(super) fn unpack(frame: &Frame, bytes: &[u8]) -> Result<Vec<u8>, CoreError> {
    let wrong = |reason: String| CoreError::decode("part frame", reason);
    if bytes.len() as u64 != u64::from(frame.size) {
        return Err(wrong(format!("{} bytes came, {} are wanted", bytes.len(), frame.size)));
    }
    if Digest::of(bytes) != frame.sha256 {
        return Err(wrong(format!("block {} and up: the SHA-256 is another one", frame.first)));
    }
    let mut unpacker = Decompressor::new().map_err(|e| wrong(e.to_string()))?;
    let raw = unpacker
        .decompress(bytes, frame.raw as usize)
        .map_err(|e| wrong(format!("block {} and up: {e}", frame.first)))?;
    if raw.len() as u64 != u64::from(frame.raw) {
        return Err(wrong(format!("{} raw bytes came, {} are wanted", raw.len(), frame.raw)));
    }
    Ok(raw)
}
