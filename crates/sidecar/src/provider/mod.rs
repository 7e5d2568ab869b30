//! Archive providers: where copies of blobs are put, found again and read back.
//!
//! What lives here: the seam [`Provider`], what a blob is told apart by ([`BlobTags`]), and two ways
//! to carry it out: objects in a directory or a bucket ([`ObjectProvider`]), and load-s3-agent over
//! HTTP ([`LoadS3`]). What deliberately does not: when something is tried again, how many copies
//! are enough, and the comparison of what reads back; those are the archiver's. A provider is never
//! believed: whoever reads compares the keccak.

mod error;
mod key;
mod load_s3;
mod object;

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use secateur_core::Height;

pub use error::ProviderError;
pub use key::ObjectName;
pub use load_s3::{Access, LoadS3, LoadS3Options};
pub use object::ObjectProvider;

use crate::{BLOB_LEN, BlobKeccak, Commitment, MAX_BLOBS, Round, ValidatorId, VersionedHash};

/// A provider's name is no longer than this.
pub const MAX_PROVIDER_ID_LEN: usize = 64;

/// What a blob is told apart by where it is archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobTags {
    /// The chain.
    pub chain_id: u64,
    /// The height it was decided at.
    pub height: Height,
    /// The round it was decided in.
    pub round: Round,
    /// Its place in the block.
    pub blob_index: u32,
    /// The commitment to it.
    pub kzg_commitment: Commitment,
    /// The hash that transactions name it by.
    pub versioned_hash: VersionedHash,
    /// Who proposed it.
    pub proposer: ValidatorId,
    /// The keccak of its bytes.
    pub blob_keccak: BlobKeccak,
}

impl BlobTags {
    /// Refuses what no height can have.
    fn check(&self) -> Result<(), ProviderError> {
        if self.blob_index >= MAX_BLOBS {
            let reason = format!("blob {} is beyond the limit of {MAX_BLOBS}", self.blob_index);
            return Err(ProviderError::Invalid { what: "blob", reason });
        }
        Ok(())
    }
}

/// A place for copies of blobs. All calls end in bounded time, and may be made again: a blob that
/// is there already is not a failure.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name by which notices refer to this provider. Nodes that are to fetch from it give it
    /// the same name.
    fn id(&self) -> &str;

    /// Whether a blob's place is known from its tags: then putting it again makes no second copy, and
    /// what is not there now never was.
    fn is_in_place(&self) -> bool {
        false
    }

    /// Puts a blob and answers its locator's text. It is not read back here.
    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>>;

    /// The bytes under a locator: at most `max_len` of them, and never more than a blob has. The
    /// locator may come from anybody.
    fn get<'a>(
        &'a self,
        locator: &'a str,
        max_len: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>>;

    /// Looks for a blob that an earlier [`Provider::put`] may have put before its answer was lost.
    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>>;
}

/// Refuses a name that cannot stand in a notice or a log line.
pub fn check_id(id: &str) -> Result<(), ProviderError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.len() > MAX_PROVIDER_ID_LEN || !id.chars().all(plain) {
        let reason =
            format!("1 to {MAX_PROVIDER_ID_LEN} letters, digits, '-', '_' and '.' are wanted");
        return Err(ProviderError::Invalid { what: "provider name", reason });
    }
    Ok(())
}

/// Refuses what is not a blob.
fn check_blob(tags: &BlobTags, blob: &Bytes) -> Result<(), ProviderError> {
    tags.check()?;
    if blob.len() != BLOB_LEN {
        let reason = format!("a blob has {BLOB_LEN} bytes, not {}", blob.len());
        return Err(ProviderError::Invalid { what: "blob", reason });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tags() -> BlobTags {
        BlobTags {
            chain_id: 7,
            height: 42,
            round: 0,
            blob_index: 3,
            kzg_commitment: Commitment([0xc0; 48]),
            versioned_hash: VersionedHash([1; 32]),
            proposer: ValidatorId::new(&[9; 20]).unwrap(),
            blob_keccak: BlobKeccak([0xab; 32]),
        }
    }

    #[test]
    fn names_and_blobs_that_are_none_are_refused() {
        for id in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(check_id(id).is_err(), "{id:?}");
        }
        check_id("load-s3.eu_1").unwrap();
        let blob = Bytes::from(vec![0; BLOB_LEN]);
        check_blob(&tags(), &blob).unwrap();
        assert!(check_blob(&tags(), &blob.slice(1..)).is_err());
        assert!(check_blob(&BlobTags { blob_index: MAX_BLOBS, ..tags() }, &blob).is_err());
    }
}
