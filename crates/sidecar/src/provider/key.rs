//! A blob's name in an object storage: `chain=<id>/blob/height=<20 digits>/<index>-<hash>.bin`.
//!
//! The name says which blob it is, so it is the same however often the blob is put. It is read only
//! from the text that it prints: a locator from elsewhere can name nothing but a blob.

use std::fmt;
use std::str::FromStr;

use secateur_core::Height;

use super::{BlobTags, ProviderError};
use crate::{BlobKeccak, MAX_BLOBS};

/// The longest that can be printed.
const MAX_LEN: usize = 96;

/// A blob's name in an object storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectName {
    /// The chain.
    pub chain_id: u64,
    /// The height.
    pub height: Height,
    /// The blob's place in its block.
    pub index: u32,
    /// The first bytes of its keccak.
    pub hash: [u8; 4],
}

impl ObjectName {
    /// The name of a blob.
    pub fn of(tags: &BlobTags) -> Self {
        let BlobKeccak([a, b, c, d, ..]) = tags.blob_keccak;
        Self {
            chain_id: tags.chain_id,
            height: tags.height,
            index: tags.blob_index,
            hash: [a, b, c, d],
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain_id, height, index, hash } = self;
        let hash = u32::from_be_bytes(*hash);
        write!(f, "chain={chain_id}/blob/height={height:020}/{index:04}-{hash:08x}.bin")
    }
}

impl FromStr for ObjectName {
    type Err = ProviderError;

    fn from_str(text: &str) -> Result<Self, ProviderError> {
        let parsed = parse(text).filter(|key| key.index < MAX_BLOBS && key.to_string() == text);
        parsed.ok_or_else(|| ProviderError::Invalid {
            what: "locator",
            reason: "it is not the name of a blob".to_owned(),
        })
    }
}

/// Reads the numbers; whether they were printed like this is for the caller to see.
fn parse(text: &str) -> Option<ObjectName> {
    if text.len() > MAX_LEN {
        return None;
    }
    let (chain_id, rest) = text.strip_prefix("chain=")?.split_once("/blob/height=")?;
    let (height, rest) = rest.split_once('/')?;
    let (index, hash) = rest.strip_suffix(".bin")?.split_once('-')?;
    Some(ObjectName {
        chain_id: chain_id.parse().ok()?,
        height: height.parse().ok()?,
        index: index.parse().ok()?,
        hash: u32::from_str_radix(hash, 16).ok()?.to_be_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::tags;
    use super::*;

    #[test]
    fn a_key_reads_back_what_it_prints_and_nothing_else() {
        let key = ObjectName::of(&tags());
        let text = key.to_string();
        assert_eq!(text, "chain=7/blob/height=00000000000000000042/0003-abababab.bin");
        assert_eq!(text.parse::<ObjectName>().unwrap(), key);
        let widest =
            ObjectName { chain_id: u64::MAX, height: u64::MAX, index: 4_095, hash: [255; 4] };
        assert_eq!(widest.to_string().parse::<ObjectName>().unwrap(), widest);
        for text in [
            "",
            "chain=7",
            "chain=07/blob/height=00000000000000000042/0003-abababab.bin",
            "chain=+7/blob/height=00000000000000000042/0003-abababab.bin",
            "chain=7/blob/height=42/0003-abababab.bin",
            "chain=7/blob/height=00000000000000000042/3-abababab.bin",
            "chain=7/blob/height=00000000000000000042/4096-abababab.bin",
            "chain=7/blob/height=00000000000000000042/0003-ABABABAB.bin",
            "chain=7/blob/height=00000000000000000042/0003-abababab.bin/",
            "chain=7/blob/height=00000000000000000042/../0003-abababab.bin",
            "/chain=7/blob/height=00000000000000000042/0003-abababab.bin",
            &"x".repeat(10_000),
        ] {
            assert!(text.parse::<ObjectName>().is_err(), "{text}");
        }
    }
}
