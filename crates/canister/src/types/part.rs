//! An archive part, as an archiver acknowledges it.

use candid::{CandidType, Deserialize};
use secateur_core::{BlockHash, Locator, Part};
use serde_bytes::ByteArray;

/// An archive part: which blocks are in it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct ArchivePart {
    /// Its first block.
    pub first: u64,
    /// Its last block.
    pub last: u64,
    /// The parent of its first block.
    pub parent_hash: ByteArray<32>,
    /// Its last block's hash.
    pub last_hash: ByteArray<32>,
    /// The archive that it is in: a directory or a bucket.
    pub provider: String,
    /// Its name there.
    pub key: String,
    /// The SHA-256 of the whole object.
    pub sha256: ByteArray<32>,
    /// The object's bytes.
    pub size: u64,
}

impl From<ArchivePart> for Part {
    fn from(part: ArchivePart) -> Self {
        let digits = part.sha256.iter().map(|byte| format!("{byte:02x}"));
        Self {
            first: part.first,
            last: part.last,
            parent_hash: BlockHash(part.parent_hash.into_array()),
            last_hash: BlockHash(part.last_hash.into_array()),
            locator: Locator { provider: part.provider, key: part.key },
            sha256: digits.collect(),
            size: part.size,
        }
    }
}
