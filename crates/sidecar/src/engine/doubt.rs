//! Doubts: blobs no signed copy of which was found, though none of their places failed to answer (`trust = fetch`):
//! nothing is there, or the locator cannot be read here, which is no fault of its signer.
//!
//! A doubt cuts nothing and takes nothing back: the records stay as evidence, and their copies are
//! looked for again. It only lets others speak: another notice counts although its signer has said
//! something else before, peers are asked for one, and validators stand in as if there were none. It
//! lives in memory; after a restart the pruner finds the same again.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use secateur_core::Height;
use secateur_store::{Arena, Index};

use super::SidecarStore;
use super::facts::{BlobKey, Hold};
use super::prune::{Rule, hold_of_blob};
use crate::error::SidecarError;
use crate::types::Trust;

/// Doubts that are remembered, at most: the lowest heights are pruned first.
const MOST: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<BTreeSet<BlobKey>>);

impl Doubts {
    pub(super) fn has(&self, key: BlobKey) -> bool {
        self.0.lock().contains(&key)
    }

    /// Something new is known of it.
    pub(super) fn end(&self, key: BlobKey) {
        self.0.lock().remove(&key);
    }

    /// Heights with such a blob, from `from` on.
    pub(super) fn heights(&self, from: Height, max: usize) -> Vec<Height> {
        let doubts = self.0.lock();
        let mut heights: Vec<Height> =
            doubts.range(BlobKey { height: from, index: 0 }..).map(|key| key.height).collect();
        heights.dedup();
        heights.truncate(max);
        heights
    }

    fn begin(&self, key: BlobKey) -> bool {
        let mut doubts = self.0.lock();
        let new = doubts.insert(key);
        if doubts.len() > MOST {
            doubts.pop_last();
        }
        new
    }
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Says that every copy that was signed for was looked for and none is there; true if that is
    /// new. Of a blob whose copy was seen once it is not believed.
    pub fn doubt(&self, key: BlobKey) -> Result<bool, SidecarError> {
        Ok(self.is_unseen(key)? && self.doubts.begin(key))
    }

    /// Whether a blob is doubted.
    pub fn is_doubted(&self, key: BlobKey) -> bool {
        self.doubts.has(key)
    }

    /// Whether somebody has signed for a blob and no copy of it was ever seen here, though that is
    /// wanted (`trust = fetch`).
    pub fn is_unseen(&self, key: BlobKey) -> Result<bool, SidecarError> {
        if self.config.trust != Trust::Fetch {
            return Ok(false);
        }
        let view = self.shelf.view()?;
        let rule = Rule::load(&self.config, &view)?;
        Ok(hold_of_blob(&rule, &view, key)? == Some(Hold::NotFetched))
    }
}
