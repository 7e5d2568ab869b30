//! Where is this hash? Transaction ids and block hashes → height, in a room of their own:
//! *insert block, cut block, roll back, look up*, and nothing else is known outside.
//!
//! The maps are derived data in memory, a list of droppable segments of consecutive blocks, built
//! from stored `tx_index` payloads when the first lookup asks. Cutting a block costs nothing
//! here until its segment is empty, and then one drop.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use secateur_core::{BlockHash, Height, TxId};

/// Blocks in one droppable segment.
const SEGMENT_BLOCKS: u64 = 1024;

/// Where a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxLocation {
    /// Its block.
    pub height: Height,
    /// Its place in the block.
    pub index: u32,
}

/// The ids of one block.
#[derive(Debug)]
pub(crate) struct BlockIds {
    pub height: Height,
    pub hash: BlockHash,
    pub transactions: Vec<(TxId, u32)>,
}

#[derive(Debug, Default)]
struct Segment {
    first: Height,
    last: Height,
    transactions: HashMap<TxId, TxLocation>,
    /// Older places of ids that came again, for when the newer one is rolled back.
    shadowed: Vec<(TxId, TxLocation)>,
    blocks: HashMap<BlockHash, Height>,
}

#[derive(Debug, Default)]
pub(crate) struct Maps {
    segments: VecDeque<Segment>,
    /// Blocks whose ids could not be read.
    damaged: Vec<Height>,
}

/// The room. Nothing is in it before the first lookup.
#[derive(Debug, Default)]
pub(crate) struct HashRoom {
    maps: RwLock<Option<Maps>>,
    insertions: AtomicU64,
}

impl Maps {
    /// Adds the ids of the block above all others.
    pub(crate) fn insert_block(&mut self, ids: BlockIds) {
        let full = |segment: &Segment| ids.height - segment.first >= SEGMENT_BLOCKS;
        if self.segments.back().is_none_or(full) {
            self.segments.push_back(Segment { first: ids.height, ..Segment::default() });
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.last = ids.height;
            segment.blocks.insert(ids.hash, ids.height);
            for (id, index) in ids.transactions {
                let place = TxLocation { height: ids.height, index };
                if let Some(older) = segment.transactions.insert(id, place) {
                    segment.shadowed.push((id, older));
                }
            }
        }
    }

    /// Remembers a block whose ids could not be read.
    pub(crate) fn note_damaged(&mut self, height: Height) {
        self.damaged.push(height);
    }

    fn roll_back(&mut self, to: Option<Height>) {
        let gone = |height: Height| to.is_none_or(|to| height > to);
        self.damaged.retain(|height| !gone(*height));
        while self.segments.back().is_some_and(|segment| gone(segment.first)) {
            self.segments.pop_back();
        }
        if let (Some(segment), Some(to)) = (self.segments.back_mut(), to) {
            segment.last = segment.last.min(to);
            segment.transactions.retain(|_, at| !gone(at.height));
            segment.blocks.retain(|_, height| !gone(*height));
            for (id, older) in std::mem::take(&mut segment.shadowed) {
                if !gone(older.height) && !segment.transactions.contains_key(&id) {
                    segment.transactions.insert(id, older);
                } else if !gone(older.height) {
                    segment.shadowed.push((id, older));
                }
            }
        }
    }
}

impl HashRoom {
    /// Whether the maps are there.
    pub(crate) fn is_built(&self) -> bool {
        self.maps.read().is_some()
    }

    /// How often blocks were taken in: a lookup that missed compares it before and after.
    pub(crate) fn insertions(&self) -> u64 {
        self.insertions.load(Ordering::Acquire)
    }

    /// Moves finished maps in. The caller keeps writers away while it builds them.
    pub(crate) fn fill(&self, maps: Maps) {
        *self.maps.write() = Some(maps);
    }

    /// Takes in appended blocks, if anybody ever asked for a hash.
    pub(crate) fn insert_blocks(&self, blocks: impl Iterator<Item = BlockIds>) {
        if let Some(maps) = self.maps.write().as_mut() {
            blocks.for_each(|ids| maps.insert_block(ids));
            self.insertions.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Drops what lies wholly at or below the boundary; what shares a segment with kept blocks
    /// stays until its segment goes, and is masked by the boundary.
    pub(crate) fn cut_block(&self, boundary: Height) {
        if let Some(maps) = self.maps.write().as_mut() {
            while maps.segments.front().is_some_and(|segment| segment.last <= boundary) {
                maps.segments.pop_front();
            }
        }
    }

    /// Forgets every block above `to`, or all of them.
    pub(crate) fn roll_back(&self, to: Option<Height>) {
        if let Some(maps) = self.maps.write().as_mut() {
            maps.roll_back(to);
        }
    }

    /// A block above the boundary whose ids could not be read, if there is one.
    pub(crate) fn damaged(&self, boundary: Option<Height>) -> Option<Height> {
        let maps = self.maps.read();
        let kept = |height: &&Height| boundary.is_none_or(|boundary| **height > boundary);
        maps.as_ref()?.damaged.iter().find(kept).copied()
    }

    /// Where a transaction is, newest first.
    pub(crate) fn transaction(&self, id: &TxId) -> Option<TxLocation> {
        let maps = self.maps.read();
        maps.as_ref()?.segments.iter().rev().find_map(|s| s.transactions.get(id).copied())
    }

    /// Where a block is.
    pub(crate) fn block(&self, hash: &BlockHash) -> Option<Height> {
        let maps = self.maps.read();
        maps.as_ref()?.segments.iter().rev().find_map(|s| s.blocks.get(hash).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(height: Height) -> BlockIds {
        let mut id = [0u8; 32];
        id[..8].copy_from_slice(&height.to_be_bytes());
        BlockIds { height, hash: BlockHash(id), transactions: vec![(TxId(id), 3)] }
    }

    #[test]
    fn ids_are_found_until_their_segment_is_cut_or_rolled_back() {
        let room = HashRoom::default();
        room.fill(Maps::default());
        room.insert_blocks((0..3000).map(ids));
        let find = |h| room.transaction(&ids(h).transactions[0].0).map(|at| at.height);
        assert_eq!(find(2500), Some(2500));
        assert_eq!(room.block(&ids(1024).hash), Some(1024));
        room.cut_block(1023);
        assert_eq!((find(1023), find(1024)), (None, Some(1024)));
        room.roll_back(Some(2100));
        assert_eq!((find(2100), find(2101)), (Some(2100), None));
        room.roll_back(None);
        assert_eq!(find(1500), None);
    }
}
