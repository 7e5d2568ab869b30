//! What was read from parts last: a few runs of blocks as they came out of one frame each. They
//! are recomputed before they are served, and a block never changes.

use std::collections::VecDeque;
use std::sync::Arc;

use secateur_archive::Codec;
use secateur_core::{Block, Height, Locator};

/// The blocks that are kept take at most about so much memory.
const BYTES: u64 = 32 << 20;

/// The blocks of one frame, in their order.
#[derive(Debug)]
struct Frame {
    origin: Origin,
    blocks: Vec<Arc<Block>>,
    bytes: u64,
}

/// Where a frame is from, and how its blocks are read.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) codec: Codec,
    pub(super) locator: Locator,
}

/// The frames that were used last, the newest in front.
#[derive(Debug, Default)]
pub(super) struct Frames {
    kept: VecDeque<Frame>,
    bytes: u64,
}

impl Frame {
    fn find(&self, height: Height) -> Option<&Arc<Block>> {
        let first = self.blocks.first()?.meta.height;
        let place = usize::try_from(height.checked_sub(first)?).ok()?;
        self.blocks.get(place).filter(|block| block.meta.height == height)
    }
}

impl Frames {
    /// A block, if its frame is here.
    pub(super) fn get(&mut self, height: Height) -> Option<(Origin, Arc<Block>)> {
        let place = self.kept.iter().position(|frame| frame.find(height).is_some())?;
        let frame = self.kept.remove(place)?;
        let found = frame.find(height).map(|block| (frame.origin.clone(), Arc::clone(block)));
        self.kept.push_front(frame);
        found
    }

    /// Keeps the blocks of a frame; those that were not used for longest go.
    pub(super) fn keep(&mut self, origin: Origin, blocks: &[Arc<Block>]) {
        let bytes = blocks.iter().map(|block| 128 + block.payloads.total_len()).sum();
        // One that would push out everything else is read again when it is wanted.
        if bytes > BYTES / 2 {
            return;
        }
        self.kept.push_front(Frame { origin, blocks: blocks.to_vec(), bytes });
        self.bytes += bytes;
        while self.bytes > BYTES {
            let Some(oldest) = self.kept.pop_back() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::{BlockHash, BlockMeta, Payloads};

    use super::*;

    fn frame(first: Height, count: u64, len: usize) -> Vec<Arc<Block>> {
        let block = |height| {
            let hash = BlockHash::default();
            let meta = BlockMeta { height, hash, parent_hash: hash, timestamp: 0 };
            Arc::new(Block {
                meta,
                payloads: Payloads { block: vec![7; len], ..Payloads::default() },
            })
        };
        (first..first + count).map(block).collect()
    }

    fn origin() -> Origin {
        let locator = Locator { provider: "file:///a".into(), key: "k".into() };
        Origin { codec: Codec::Opaque, locator }
    }

    #[test]
    fn frames_that_were_used_last_stay_and_the_bytes_stay_below_their_limit() {
        let mut frames = Frames::default();
        for first in 0..12 {
            frames.keep(origin(), &frame(first * 10, 10, 300_000));
            assert!(frames.bytes <= BYTES);
            assert!(frames.get(5).is_some(), "it is used every time");
        }
        assert!(frames.get(15).is_none(), "it was used longest ago");
        assert_eq!(frames.get(119).unwrap().1.meta.height, 119);
        assert!(frames.get(120).is_none());
        frames.keep(origin(), &frame(200, 1, 20 << 20));
        assert!(frames.get(200).is_none(), "it is too large to be kept");
    }
}
