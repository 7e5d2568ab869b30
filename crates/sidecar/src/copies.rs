//! Copies of blobs, read back: what comes out of here has the hash that was asked for. Whoever
//! archives, prunes under `trust = fetch` or serves what was pruned reads through this.

use std::collections::HashMap;
use std::sync::Arc;

use alloy_primitives::keccak256;
use bytes::Bytes;
use secateur_core::Locator;

use crate::engine::BlobMeta;
use crate::provider::Provider;
use crate::{BLOB_LEN, BlobKeccak};

/// Whether bytes are the blob with this hash.
pub(crate) fn is_blob(bytes: &[u8], keccak: BlobKeccak) -> bool {
    bytes.len() == BLOB_LEN && keccak256(bytes).0 == keccak.0
}

/// The providers that this node can read from, by their names.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    providers: HashMap<String, Arc<dyn Provider>>,
}

impl Copies {
    /// Reads from these.
    pub fn new(providers: &[Arc<dyn Provider>]) -> Self {
        let named = |provider: &Arc<dyn Provider>| (provider.id().to_owned(), Arc::clone(provider));
        Self { providers: providers.iter().map(named).collect() }
    }

    /// The blob from the first locator that really has it; none if no one has. Locators may come
    /// from anybody, and a provider that is not configured here is not asked.
    pub async fn fetch(&self, meta: &BlobMeta, locators: &[Locator]) -> Option<Bytes> {
        for locator in locators {
            let Some(provider) = self.providers.get(&locator.provider) else { continue };
            let (height, index, provider_id) = (meta.height, meta.index, provider.id());
            match provider.get(&locator.key, BLOB_LEN).await {
                Ok(bytes) if is_blob(&bytes, meta.keccak) => return Some(bytes),
                Ok(_) => {
                    tracing::warn!(height, index, provider_id, "a copy of a blob has other bytes");
                }
                Err(error) => tracing::warn!(
                    %error, height, index, provider_id, "a copy of a blob could not be read"
                ),
            }
        }
        None
    }
}
