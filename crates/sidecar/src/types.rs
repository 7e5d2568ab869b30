//! The words of this family: blobs, what names them, and the proposal they come with.

use std::fmt;

use bytes::Bytes;
use secateur_core::{CoreError, Height};

/// The bytes of a blob.
pub const BLOB_LEN: usize = 131_072;
/// Blobs of a height, at most, however it is configured.
pub const MAX_BLOBS: u32 = 4_096;
/// Blobs of a height, at most, unless something else is configured.
pub const DEFAULT_MAX_BLOBS: u32 = 64;
/// The bytes of a payload header or a signed block header, at most.
pub const MAX_ROUND_HEADER_LEN: usize = 64 * 1024;

/// The hashes of an inclusion proof, at most.
pub const MAX_INCLUSION_LEN: usize = 64;

/// A round of consensus at a height. Consensus counts from 0; −1 means none.
pub type Round = i32;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&alloy_primitives::hex::encode_prefixed(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = CoreError;

            fn from_str(text: &str) -> Result<Self, CoreError> {
                let mut bytes = [0; $len];
                alloy_primitives::hex::decode_to_slice(text, &mut bytes).map_err(|error| {
                    CoreError::Decode { what: stringify!($name), reason: error.to_string() }
                })?;
                Ok(Self(bytes))
            }
        }
    };
}

name!(
    /// The KZG commitment to a blob.
    Commitment,
    48
);
name!(
    /// The KZG proof of a blob.
    Proof,
    48
);
name!(
    /// What a transaction names a blob by: `0x01` and the last 31 bytes of its commitment's SHA-256.
    VersionedHash,
    32
);
name!(
    /// The keccak-256 of a blob's bytes, computed here and never learned from anybody.
    BlobKeccak,
    32
);

name!(
    /// The Ed25519 key that a validator's notices are verified with.
    PublicKey,
    32
);

/// Who proposes and signs: 1 to 32 bytes, as the chain names its validators.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValidatorId(Vec<u8>);

impl ValidatorId {
    /// The longest.
    pub const MAX_LEN: usize = 32;

    /// Refuses a name that is empty or too long.
    pub fn new(bytes: &[u8]) -> Result<Self, CoreError> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            let reason = format!("1 to {} bytes are wanted, not {}", Self::MAX_LEN, bytes.len());
            return Err(CoreError::Decode { what: "validator id", reason });
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ValidatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&alloy_primitives::hex::encode_prefixed(&self.0))
    }
}

impl fmt::Debug for ValidatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for ValidatorId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl std::str::FromStr for ValidatorId {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let bytes = alloy_primitives::hex::decode(text).map_err(|error| CoreError::Decode {
            what: "validator id",
            reason: error.to_string(),
        })?;
        Self::new(&bytes)
    }
}

/// What proves that a commitment is in a beacon block; only the legacy endpoint asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inclusion {
    /// The branch, from the leaf up.
    pub proof: Vec<[u8; 32]>,
}

/// A blob with what comes beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// Its place in the block.
    pub index: u32,
    /// [`BLOB_LEN`] bytes.
    pub blob: Bytes,
    /// The commitment to it.
    pub commitment: Commitment,
    /// Its proof; none where the source has none any more (the commitment is recomputed then).
    pub proof: Option<Proof>,
    /// Where it stands in a beacon block, if the source says so.
    pub inclusion: Option<Inclusion>,
}

/// The blobs that were proposed for a height in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The height.
    pub height: Height,
    /// The round.
    pub round: Round,
    /// Who proposed it.
    pub proposer: ValidatorId,
    /// The execution payload's header, as the chain encodes it; kept for ever, never looked into.
    pub payload_header: Bytes,
    /// The signed block header, where there is one (SSZ); the legacy endpoint needs it.
    pub signed_header: Option<Bytes>,
    /// The blobs, in the order of their indexes, without a gap.
    pub sidecars: Vec<Sidecar>,
}

/// Where a blob is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlobState {
    /// Its bytes are here, and nobody has signed for a copy.
    Pending,
    /// Its bytes are here, and a verified notice names a copy.
    Archived,
    /// Its bytes are gone from here; the notice says where they are.
    Pruned,
}

/// What must be true of an archived blob before its bytes may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// A verified v1 notice, or our own record: safe if signers are honest.
    #[default]
    Signature,
    /// The blob was fetched from a locator and compared here: safe whatever a signer says.
    Fetch,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signature => "signature",
            Self::Fetch => "fetch",
        })
    }
}

impl std::str::FromStr for Trust {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        match text {
            "signature" => Ok(Self::Signature),
            "fetch" => Ok(Self::Fetch),
            _ => Err(CoreError::InvalidInput {
                what: "trust",
                reason: "it is signature or fetch".into(),
            }),
        }
    }
}
