//! Beyond the boundary: what can be said of something that was cut here. Its block comes from the
//! archive where the node reads through, else the answer says where it is.

use secateur_core::{BlockHash, Height, Locator, TxId};
use secateur_store::StoreError;
use secateur_store::ground::disk::DiskStore;

use super::{ApiError, Node};
use crate::http::metrics::ReadThrough;
use crate::vault::Archived;

/// What a lookup asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    Height(Height),
    Block(BlockHash),
    Transaction(TxId),
}

impl Node {
    /// The block behind an answer that says pruned. Every other error stays as it is.
    pub(crate) fn beyond(&self, sought: Sought, error: ApiError) -> Result<Archived, ApiError> {
        let ApiError::Pruned { pruned_before_block, .. } = error else { return Err(error) };
        if let Some(found) = self.archived(sought)? {
            return Ok(found);
        }
        let locator = locator(&self.store, sought)?;
        Err(ApiError::Pruned { pruned_before_block, locator })
    }

    /// What the archive has of something that was cut; none where the node does not read through.
    pub(crate) fn archived(&self, sought: Sought) -> Result<Option<Archived>, ApiError> {
        let Some(vault) = self.vault.as_ref().filter(|vault| vault.reads_through()) else {
            return Ok(None);
        };
        let found = match sought {
            Sought::Height(height) => vault.block(&self.store, height),
            Sought::Block(hash) => vault.block_by_hash(&self.store, &hash),
            Sought::Transaction(id) => vault.block_of(&self.store, &id),
        };
        self.metrics.read_through(match &found {
            Ok(Some(_)) => ReadThrough::Served,
            Ok(None) => ReadThrough::Missing,
            // The request has no time left, and the archive was not asked.
            Err(ApiError::Timeout | ApiError::ArchiveSilent { asked: false, .. }) => return found,
            Err(ApiError::ArchiveBusy { .. }) => ReadThrough::Busy,
            Err(ApiError::ArchiveSilent { .. }) => ReadThrough::Timeout,
            Err(_) => ReadThrough::Failed,
        });
        found
    }
}

/// Where something that was cut is: the part of its height, or the one part of all heights at which
/// it may have been.
pub(crate) fn locator(store: &DiskStore, sought: Sought) -> Result<Option<Locator>, StoreError> {
    let traces = match sought {
        Sought::Height(height) => return Ok(store.find_part(height)?.map(|part| part.locator)),
        Sought::Block(hash) => store.trace_block(&hash)?,
        Sought::Transaction(id) => store.trace_transaction(&id)?,
    };
    let mut only = None;
    for range in traces {
        match store.find_part(*range.start())? {
            Some(part) if part.covers(*range.end()) => {
                if only.as_ref().is_some_and(|known| *known != part) {
                    return Ok(None);
                }
                only = Some(part);
            }
            _ => return Ok(None),
        }
    }
    Ok(only.map(|part| part.locator))
}
