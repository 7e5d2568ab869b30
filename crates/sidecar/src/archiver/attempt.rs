//! One attempt: a blob is put to every provider, read back from each, and compared by our own hash.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use secateur_core::Locator;
use secateur_store::{Arena, Index};

use super::Made;
use crate::blocking::blocking;
use crate::copies::is_blob;
use crate::engine::{Job, SidecarStore};
use crate::provider::{BlobTags, Provider, ProviderError};
use crate::sabotage::Sabotage;
use crate::{BLOB_LEN, SidecarError};

/// Why a blob is not archived yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The bytes are not here any more, so there is nothing to archive.
    #[error("there are no bytes to archive: {0}")]
    Gone(SidecarError),
    /// The store did not give the blob.
    #[error(transparent)]
    Store(SidecarError),
    /// A provider failed.
    #[error("{provider}: {source}")]
    Provider {
        /// Which.
        provider: String,
        /// How.
        source: ProviderError,
    },
    /// What reads back is not what was put.
    #[error(
        "{provider} gives back other bytes than were put under {locator}; the blob is not archived"
    )]
    OtherBytes {
        /// Which.
        provider: String,
        /// Where.
        locator: String,
    },
}

/// What an attempt needs.
pub(super) struct Attempt<A, I> {
    pub(super) store: Arc<SidecarStore<A, I>>,
    pub(super) providers: Arc<[Arc<dyn Provider>]>,
    pub(super) chain_id: u64,
    pub(super) min_copies: usize,
}

impl<A: Arena, I: Index> Attempt<A, I> {
    /// Makes the copies. Enough of them are a success, whatever the other providers do.
    pub(super) async fn make(&self, job: &Job) -> Result<Made, AttemptError> {
        let key = job.key;
        let chain_id = self.chain_id;
        let read = move |store: &SidecarStore<A, I>| {
            let blob = store.get_blob(key.height, key.index)?;
            let height = store.height(key.height)?.ok_or(SidecarError::Unknown(key.height))?;
            let tags = BlobTags {
                chain_id,
                height: key.height,
                round: height.round,
                blob_index: key.index,
                kzg_commitment: blob.meta.commitment,
                versioned_hash: blob.meta.versioned_hash,
                proposer: height.proposer,
                blob_keccak: blob.meta.keccak,
            };
            let now = store.summary()?.latest_decided.unwrap_or(key.height);
            Ok((tags, blob.blob, now))
        };
        let (tags, blob, at_height) = blocking(&self.store, read).await.map_err(|error| {
            if error.is_gone() { AttemptError::Gone(error) } else { AttemptError::Store(error) }
        })?;
        let again = job.attempts > 0;
        let read_back = !self.store.config().sabotage.is(Sabotage::PruneBeforeReadBack);
        let put = |provider| copy(provider, &tags, &blob, again, read_back);
        let copies = self.providers.iter().map(put);
        let (mut locators, mut first) = (Vec::new(), None);
        for copied in join_all(copies).await {
            match copied {
                Ok(locator) => locators.push(locator),
                Err(error) => {
                    tracing::warn!(%error, height = key.height, index = key.index,
                        "a copy of a blob failed");
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) if locators.len() < self.min_copies => Err(error),
            _ => Ok(Made { locators, at_height }),
        }
    }
}

/// Puts a blob to a provider and reads it back.
async fn copy(
    provider: &Arc<dyn Provider>,
    tags: &BlobTags,
    blob: &Bytes,
    again: bool,
    read_back: bool,
) -> Result<Locator, AttemptError> {
    let failed = |source| AttemptError::Provider { provider: provider.id().to_owned(), source };
    // An earlier attempt may have put it, and its answer been lost.
    if again
        && let Ok(Some(key)) = provider.find(tags).await
        && let Ok(bytes) = provider.get(&key, BLOB_LEN).await
        && is_blob(&bytes, tags.blob_keccak)
    {
        return Ok(Locator { provider: provider.id().to_owned(), key });
    }
    let key = provider.put(tags, blob.clone()).await.map_err(failed)?;
    if !read_back {
        return Ok(Locator { provider: provider.id().to_owned(), key });
    }
    let bytes = provider.get(&key, BLOB_LEN).await.map_err(failed)?;
    if !is_blob(&bytes, tags.blob_keccak) {
        let provider = provider.id().to_owned();
        return Err(AttemptError::OtherBytes { provider, locator: key });
    }
    Ok(Locator { provider: provider.id().to_owned(), key })
}
