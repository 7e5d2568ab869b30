//! A beacon node's JSON. Numbers are decimal texts there, bytes are `0x…`; what is not needed is not
//! read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use alloy_primitives::{B256, FixedBytes};
use bytes::Bytes;
use secateur_sidecar::BLOB_LEN;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Every answer is in an envelope.
#[derive(Deserialize)]
pub(super) struct Answer<T> {
    pub(super) data: T,
}

/// A block in its envelope, which says how to read it.
#[derive(Deserialize)]
pub(super) struct BlockAnswer {
    pub(super) version: String,
    pub(super) data: SignedBlock,
}

#[derive(Deserialize)]
pub(super) struct HeaderData {
    pub(super) root: B256,
    pub(super) header: SignedHeader,
}

/// A header with its signature.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct SignedHeader {
    pub(super) message: Header,
    pub(super) signature: FixedBytes<96>,
}

/// A beacon block's header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Header {
    #[serde(deserialize_with = "decimal")]
    pub(super) slot: u64,
    #[serde(deserialize_with = "decimal")]
    pub(super) proposer_index: u64,
    pub(super) parent_root: B256,
    pub(super) state_root: B256,
    pub(super) body_root: B256,
}

#[derive(Deserialize)]
pub(super) struct SignedBlock {
    pub(super) message: Block,
}

#[derive(Deserialize)]
pub(super) struct Block {
    #[serde(deserialize_with = "decimal")]
    pub(super) slot: u64,
    #[serde(deserialize_with = "decimal")]
    pub(super) proposer_index: u64,
    pub(super) parent_root: B256,
    pub(super) state_root: B256,
    pub(super) body: Body,
}

#[derive(Deserialize)]
pub(super) struct Body {
    /// Its fields as they came: most are kept as they are.
    #[serde(default)]
    pub(super) execution_payload: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    pub(super) blob_kzg_commitments: Option<Vec<FixedBytes<48>>>,
}

/// A sidecar of the legacy endpoint.
#[derive(Deserialize)]
pub(super) struct LegacySidecar {
    #[serde(deserialize_with = "decimal")]
    pub(super) index: u64,
    pub(super) blob: BlobText,
    pub(super) kzg_commitment: FixedBytes<48>,
    pub(super) kzg_proof: FixedBytes<48>,
    pub(super) signed_block_header: SignedHeader,
    pub(super) kzg_commitment_inclusion_proof: Vec<B256>,
}

/// The chain that deposits come from.
#[derive(Deserialize)]
pub(super) struct DepositContract {
    #[serde(deserialize_with = "decimal")]
    pub(super) chain_id: u64,
}

/// A blob. One of another length is not even decoded.
pub(super) struct BlobText(pub(super) Bytes);

impl<'de> Deserialize<'de> for BlobText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = BlobText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a blob of {BLOB_LEN} bytes as 0x…")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<BlobText, E> {
                let digits = text.strip_prefix("0x").unwrap_or_default();
                if digits.len() != BLOB_LEN * 2 {
                    return Err(E::invalid_length(digits.len() / 2, &self));
                }
                let bytes = alloy_primitives::hex::decode(digits).map_err(E::custom)?;
                Ok(BlobText(bytes.into()))
            }
        }
        from.deserialize_str(Text)
    }
}

fn decimal<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = Cow::<'de, str>::deserialize(from)?;
    text.parse().map_err(|_| D::Error::custom("a decimal number in quotes is wanted"))
}
