//! What a follower asks its own store, beside the threads that serve sockets.

use std::sync::Arc;

use secateur_core::{BlockHash, Height, LookupError};
use secateur_store::StoreError;
use secateur_store::ground::disk::DiskStore;

use super::FollowError;

/// The store of a follower.
#[derive(Debug, Clone)]
pub(super) struct Ours(pub(super) Arc<DiskStore>);

/// The newest block here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) height: Height,
    pub(super) hash: BlockHash,
}

impl Ours {
    /// Runs a call that may block.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&DiskStore) -> T + Send + 'static,
    ) -> Result<T, FollowError> {
        let store = Arc::clone(&self.0);
        let ended = tokio::task::spawn_blocking(move || call(&store)).await;
        ended.map_err(|error| FollowError::Fatal(error.into()))
    }

    /// The newest block.
    pub(super) async fn tip(&self) -> Result<Option<Tip>, FollowError> {
        let found = self.run(|store| {
            let Some(height) = store.head() else { return Ok(None) };
            let hash = store.get_record(height)?.meta.hash;
            Ok::<_, StoreError>(Some(Tip { height, hash }))
        });
        Ok(found.await??)
    }

    /// The newest final block, below which nothing is ever taken back.
    pub(super) fn last_final(&self) -> Option<Height> {
        self.0.get_head()
    }

    /// The hash of a block that is here, or of the one below the oldest that is here.
    pub(super) async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, FollowError> {
        let found = self.run(move |store| {
            if let Some(record) = kept(store.get_record(height))? {
                return Ok(Some(record.meta.hash));
            }
            let above = height.checked_add(1).map(|above| store.get_record(above));
            let above = above.map(kept).transpose()?.flatten();
            Ok::<_, StoreError>(above.map(|record| record.meta.parent_hash))
        });
        Ok(found.await??)
    }

    /// Moves finality up to a block, if the block is here.
    pub(super) async fn finalize(&self, height: Height) -> Result<(), FollowError> {
        if self.last_final().is_some_and(|before| before >= height) {
            return Ok(());
        }
        let moved = self.run(move |store| {
            // A store that begins above what is final has nothing to move.
            if kept(store.get_record(height))?.is_some() {
                store.set_finalized(height)?;
                tracing::debug!(height, "final");
            }
            Ok::<_, StoreError>(())
        });
        Ok(moved.await??)
    }
}

/// An answer that there is no such block is no error here.
fn kept<T>(found: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Lookup(LookupError::NotFound { .. } | LookupError::Pruned { .. })) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
