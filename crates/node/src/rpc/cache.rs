//! What is remembered between calls, by block hash: decoded blocks with the senders that were
//! recovered, and the blooms that log scans look at. A hash names its content for ever, so
//! nothing here grows wrong; whether a block is still here is asked of the store every time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use alloy_primitives::Bloom;
use parking_lot::Mutex;
use secateur_core::BlockHash;

use super::blocks::Decoded;

/// Decoded blocks take at most about so much memory.
const BLOCK_BYTES: usize = 32 << 20;
/// So many blooms are kept; each takes less than 400 bytes with its key.
const BLOOMS: usize = 1 << 16;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Cache {
    blocks: Mutex<Blocks>,
    blooms: Mutex<Blooms>,
}

#[derive(Default)]
struct Blocks {
    by_hash: HashMap<BlockHash, (u64, Arc<Decoded>)>,
    /// By their last use.
    by_use: BTreeMap<u64, BlockHash>,
    uses: u64,
    bytes: usize,
}

#[derive(Default)]
struct Blooms {
    by_hash: HashMap<BlockHash, Box<Bloom>>,
    by_age: VecDeque<BlockHash>,
}

impl Cache {
    pub(super) fn block(&self, hash: &BlockHash) -> Option<Arc<Decoded>> {
        self.blocks.lock().get(hash)
    }

    pub(super) fn keep_block(&self, hash: BlockHash, block: &Arc<Decoded>) {
        self.blocks.lock().insert(hash, block, BLOCK_BYTES);
    }

    pub(super) fn bloom(&self, hash: &BlockHash) -> Option<Bloom> {
        self.blooms.lock().by_hash.get(hash).map(|bloom| **bloom)
    }

    pub(super) fn keep_bloom(&self, hash: BlockHash, bloom: Bloom) {
        self.blooms.lock().insert(hash, bloom, BLOOMS);
    }
}

impl Blocks {
    fn get(&mut self, hash: &BlockHash) -> Option<Arc<Decoded>> {
        let (used, block) = self.by_hash.get_mut(hash)?;
        self.uses += 1;
        self.by_use.remove(used);
        self.by_use.insert(self.uses, *hash);
        *used = self.uses;
        Some(Arc::clone(block))
    }

    fn insert(&mut self, hash: BlockHash, block: &Arc<Decoded>, most_bytes: usize) {
        let bytes = block.memory();
        // One that would push everything else out is decoded again when it is wanted.
        if bytes > most_bytes / 2 || self.by_hash.contains_key(&hash) {
            return;
        }
        self.uses += 1;
        self.by_use.insert(self.uses, hash);
        self.by_hash.insert(hash, (self.uses, Arc::clone(block)));
        self.bytes += bytes;
        while self.bytes > most_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            if let Some((_, gone)) = self.by_hash.remove(&oldest) {
                self.bytes -= gone.memory();
            }
        }
    }
}

impl Blooms {
    fn insert(&mut self, hash: BlockHash, bloom: Bloom, most: usize) {
        if self.by_hash.insert(hash, Box::new(bloom)).is_some() {
            return;
        }
        self.by_age.push_back(hash);
        while self.by_age.len() > most {
            let Some(oldest) = self.by_age.pop_front() else { return };
            self.by_hash.remove(&oldest);
        }
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("blocks", &self.blocks.lock().by_hash.len())
            .field("blooms", &self.blooms.lock().by_hash.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::tests_support::chain;

    #[test]
    fn blocks_that_were_used_last_stay_and_the_bytes_stay_below_their_limit() {
        let blocks: Vec<_> = chain(8)
            .into_iter()
            .map(|block| {
                let decoded = Decoded::new(&block.meta, &block.payloads.block).unwrap();
                (block.meta.hash, Arc::new(decoded))
            })
            .collect();
        let most = blocks.iter().map(|(_, block)| block.memory()).sum::<usize>() - 1;
        let mut cache = Blocks::default();
        for (hash, block) in &blocks[..7] {
            cache.insert(*hash, block, most);
        }
        assert!(cache.get(&blocks[0].0).is_some());
        cache.insert(blocks[7].0, &blocks[7].1, most);
        assert!(cache.get(&blocks[0].0).is_some(), "it was used");
        assert!(cache.get(&blocks[1].0).is_none(), "it was used longest ago");
        let held: usize = cache.by_hash.values().map(|(_, block)| block.memory()).sum();
        assert!(held == cache.bytes && held <= most);
        assert_eq!(cache.by_use.len(), cache.by_hash.len());
    }

    #[test]
    fn only_the_newest_blooms_stay() {
        let mut blooms = Blooms::default();
        for byte in 0..5 {
            blooms.insert(BlockHash([byte; 32]), Bloom::repeat_byte(byte), 3);
            blooms.insert(BlockHash([byte; 32]), Bloom::repeat_byte(byte), 3);
        }
        let kept = |byte| blooms.by_hash.contains_key(&BlockHash([byte; 32]));
        assert_eq!([0, 1, 2, 3, 4].map(kept), [false, false, true, true, true]);
        assert_eq!(blooms.by_age.len(), 3);
    }
}
