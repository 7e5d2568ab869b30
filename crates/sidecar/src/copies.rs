//! Copies of blobs, read back: what comes out of here has the hash that was asked for. Whoever
//! archives, prunes under `trust = fetch` or serves what was pruned reads through this.

use std::collections::HashMap;
use std::sync::Arc;

use alloy_primitives::keccak256;
use bytes::Bytes;
use secateur_core::Locator;
use tokio::sync::Semaphore;

use crate::engine::BlobMeta;
use crate::provider::{Provider, ProviderError};
use crate::{BLOB_LEN, BlobKeccak};

/// Whether bytes are the blob with this hash.
pub(crate) fn is_blob(bytes: &[u8], keccak: BlobKeccak) -> bool {
    bytes.len() == BLOB_LEN && keccak256(bytes).0 == keccak.0
}

/// What looking for a blob's copies came to.
#[derive(Debug)]
pub(crate) enum Looked {
    /// A copy is there, and it is right.
    Found(Bytes),
    /// Nothing is where copies were said to be, or something else.
    NotThere,
    /// Nothing was found, and a locator names a provider or has a form that this node does not know. That may
    /// be this node's own lack, so it says nothing about the signer.
    Unreadable,
    /// Somebody could not be asked: nothing is known.
    Unknown,
}

/// Whether an error says that the blob is not where it was looked for.
fn is_absence(error: &ProviderError) -> bool {
    matches!(
        error,
        ProviderError::Missing { .. }
            | ProviderError::TooLong { .. }
            | ProviderError::Conflict { .. }
    )
}

/// The providers that this node can read from, by their names.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    providers: HashMap<String, Arc<dyn Provider>>,
    /// Blobs that may be looked for at once, by all that share these.
    places: Option<Arc<Semaphore>>,
}

impl Copies {
    /// Reads from these.
    pub fn new(providers: &[Arc<dyn Provider>]) -> Self {
        let named = |provider: &Arc<dyn Provider>| (provider.id().to_owned(), Arc::clone(provider));
        Self { providers: providers.iter().map(named).collect(), places: None }
    }

    /// The same, with no more than so many blobs looked for at once; others wait.
    #[must_use]
    pub fn bounded(self, at_once: usize) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(at_once.max(1)))), ..self }
    }

    /// The blob from the first locator that really has it; none if no one has. Locators may come
    /// from anybody, and a provider that is not configured here is not asked.
    pub async fn fetch(&self, meta: &BlobMeta, locators: &[Locator]) -> Option<Bytes> {
        match self.look(meta, locators).await {
            Looked::Found(bytes) => Some(bytes),
            Looked::NotThere | Looked::Unreadable | Looked::Unknown => None,
        }
    }

    /// The same, and what its absence means.
    pub(crate) async fn look(&self, meta: &BlobMeta, locators: &[Locator]) -> Looked {
        let _place = match &self.places {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        let (mut is_known, mut is_readable) = (true, true);
        for locator in locators {
            let Some(provider) = self.providers.get(&locator.provider) else {
                is_readable = false;
                continue;
            };
            let (height, index, provider_id) = (meta.height, meta.index, provider.id());
            match provider.get(&locator.key, BLOB_LEN).await {
                Ok(bytes) if is_blob(&bytes, meta.keccak) => return Looked::Found(bytes),
                Ok(_) => {
                    tracing::warn!(height, index, provider_id, "a copy of a blob has other bytes");
                }
                Err(error) => {
                    tracing::warn!(
                        %error, height, index, provider_id, "a copy of a blob could not be read"
                    );
                    match error {
                        ProviderError::Invalid { .. } => is_readable = false,
                        error => is_known &= is_absence(&error),
                    }
                }
            }
        }
        match (is_known, is_readable) {
            (false, _) => Looked::Unknown,
            (true, false) => Looked::Unreadable,
            (true, true) => Looked::NotThere,
        }
    }
}
