//! Where an id was whose block is cut: what runs and tombstones still know of it.
//!
//! It is a hint for whoever looks into an archive. Keys are short and filters err, so only the full
//! id, found in a block, decides.

use std::ops::RangeInclusive;

use secateur_core::{BlockHash, Height, TxId};

use super::runs::format::{IdKind, key_of};
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

impl<A: Arena, I: Index> Store<A, I> {
    /// The heights at which a cut block of this hash may have been, newest first: a single one
    /// where the run that knows it is still here, all of a tombstone's else.
    pub fn trace_block(&self, hash: &BlockHash) -> Result<Vec<RangeInclusive<Height>>, StoreError> {
        self.trace(key_of(IdKind::Block, self.header.hash_seed(), &hash.0))
    }

    /// The same for a transaction.
    pub fn trace_transaction(&self, id: &TxId) -> Result<Vec<RangeInclusive<Height>>, StoreError> {
        self.trace(key_of(IdKind::Transaction, self.header.hash_seed(), &id.0))
    }

    fn trace(&self, key: u64) -> Result<Vec<RangeInclusive<Height>>, StoreError> {
        self.build_hashes()?;
        let view = self.view()?;
        let Some(boundary) = view.state.boundary else { return Ok(Vec::new()) };
        let trail = self.trail(&view, key)?;
        let mut found: Vec<_> = trail
            .places
            .iter()
            .filter(|(height, _)| *height <= boundary)
            .map(|(height, _)| *height..=*height)
            .collect();
        let cut = |(first, last): (Height, Height)| first..=last.min(boundary);
        found.extend(self.hashes.burials(key).into_iter().map(cut));
        found.dedup();
        Ok(found)
    }
}
