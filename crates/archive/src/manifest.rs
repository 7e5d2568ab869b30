//! A part's manifest: the small JSON object beside it that lists it.
//!
//! A part is in the archive when its manifest is. Everything in it can be recomputed from the part,
//! and it has one spelling only, so a flipped byte shows.

use secateur_core::{BlockHash, Height, Locator, Part};
use serde::{Deserialize, Serialize};

use crate::part::{MAX_PART_RAW, RECORD_HEAD_LEN};
use crate::{ArchiveError, Codec, Day, Digest, Grain, PartKey};

/// The longest manifest that is read.
pub const MAX_MANIFEST_LEN: u64 = 4_096;
/// The version of parts and manifests that this build writes.
pub const PART_VERSION: u16 = 1;

/// What a part's manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the part's format.
    pub version: u16,
    /// The chain.
    pub chain_id: u64,
    /// How its blocks are read.
    pub codec: Codec,
    /// The day it is filed under: of its first block, or of the part before it if that is later.
    pub day: Day,
    /// Its first block.
    pub first: Height,
    /// Its last block.
    pub last: Height,
    /// The parent of its first block.
    pub parent_hash: BlockHash,
    /// Its last block's hash.
    pub last_hash: BlockHash,
    /// The height at which this archive begins.
    pub origin: Height,
    /// The grain it was cut with.
    pub grain: Grain,
    /// Bytes before compression.
    pub raw_size: u64,
    /// The SHA-256 of those.
    pub raw_sha256: Digest,
    /// Bytes of the object.
    pub size: u64,
    /// The SHA-256 of the object.
    pub sha256: Digest,
}

impl Manifest {
    /// The part's name.
    pub fn key(&self) -> PartKey {
        PartKey::new(self.chain_id, self.day, self.first, self.last, &self.sha256)
    }

    /// How many blocks are in it.
    pub fn blocks(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether a block is in it.
    pub fn covers(&self, height: Height) -> bool {
        (self.first..=self.last).contains(&height)
    }

    /// What a node remembers of it.
    pub fn part(&self, provider: &str) -> Part {
        Part {
            first: self.first,
            last: self.last,
            parent_hash: self.parent_hash,
            last_hash: self.last_hash,
            locator: Locator { provider: provider.to_owned(), key: self.key().object() },
            sha256: self.sha256.to_string(),
            size: self.size,
        }
    }

    /// Its one spelling.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|e| ArchiveError::invalid("manifest", e.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads one. Only its one spelling is accepted, and it must contradict neither itself nor the
    /// name it was found under.
    pub fn from_bytes(key: &PartKey, bytes: &[u8]) -> Result<Self, ArchiveError> {
        let wrong = |reason: String| ArchiveError::damaged(key.manifest(), reason);
        if bytes.len() as u64 > MAX_MANIFEST_LEN {
            return Err(wrong(format!("{} bytes are too many for a manifest", bytes.len())));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|e| wrong(e.to_string()))?;
        if manifest.version != PART_VERSION {
            let version = manifest.version;
            return Err(wrong(format!("version {version} is not known to this build")));
        }
        manifest.check().map_err(|reason| wrong(reason.to_owned()))?;
        if manifest.key() != *key {
            return Err(wrong("it speaks of another part than its name".to_owned()));
        }
        if manifest.to_bytes()? != bytes {
            return Err(wrong("it is not spelt as manifests are".to_owned()));
        }
        Ok(manifest)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.first > self.last {
            return Err("its last block is below its first one");
        }
        if self.origin > self.first {
            return Err("it begins below the archive's first height");
        }
        if self.last - self.first >= MAX_PART_RAW / RECORD_HEAD_LEN {
            return Err("it claims more blocks than a part can hold");
        }
        if self.raw_size < self.blocks().saturating_mul(RECORD_HEAD_LEN)
            || self.raw_size > MAX_PART_RAW
            || self.size == 0
        {
            return Err("its sizes are impossible");
        }
        self.grain.check().map_err(|_| "its grain is impossible")
    }
}
