//! The blocks that contestants are fed with: seeded, incompressible, made before the clock runs.
//!
//! Payload bytes are drawn once into a pool and used again in every turn; ids and heights are
//! fresh for every block, because an index that meets the same id again has less to do. All of it
//! is put in place before a turn, so that nothing but the contestant runs while the clock does.

use anyhow::Result;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use secateur_core::{
    Block, BlockHash, BlockMeta, Height, Payloads, TX_INDEX_ENTRY_LEN, TxId, TxIndexEntry,
    push_receipt, push_tx_index,
};

/// Bytes of a receipt, and of its head (id and length) in the payload.
const RECEIPT_LEN: usize = 300;
const RECEIPT_HEAD: usize = 36;
const GENESIS_TIME: u64 = 1_700_000_000;

/// How large a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of its three payloads together.
    pub bytes: usize,
    /// Transactions, each with a receipt.
    pub transactions: u32,
}

/// How large the blocks of a pool are.
#[derive(Debug, Clone, Copy)]
pub enum Sizes {
    /// All alike.
    Fixed(Shape),
    /// Seeded, evenly spread over the decades from 20 KB to 2 MB, a transaction for each KB.
    Mixed,
}

/// Blocks whose bytes are drawn already: one turn's worth.
pub struct Pool {
    group: usize,
    blocks: Vec<Block>,
    mixed: bool,
}

/// Where one contestant is on its chain.
pub struct Feed {
    rng: ChaCha8Rng,
    height: Height,
    parent: BlockHash,
    /// Payload bytes of every block that was appended, from height 1 on.
    sizes: Vec<u64>,
}

impl Sizes {
    /// Payload bytes of a block on average.
    pub fn mean_bytes(self) -> u64 {
        match self {
            Self::Fixed(shape) => shape.bytes as u64,
            // Evenly spread over the logarithm: (2,000,000 - 20,000) / ln(100).
            Self::Mixed => 430_000,
        }
    }

    fn next(self, rng: &mut ChaCha8Rng) -> Shape {
        match self {
            Self::Fixed(shape) => shape,
            Self::Mixed => {
                let decades = f64::from(rng.next_u32()) / f64::from(u32::MAX) * 2.0;
                let (mut bytes, whole) = (20_000_u32, 10f64.powf(decades) * 20_000.0);
                while f64::from(bytes) < whole {
                    bytes += 1_000;
                }
                let bytes = bytes.min(2_000_000);
                Shape { bytes: bytes as usize, transactions: bytes / 1_000 }
            }
        }
    }
}

impl Pool {
    /// Draws a pool of so many groups of so many blocks.
    pub fn new(sizes: Sizes, group: usize, groups: usize, seed: u64) -> Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let blocks = (0..groups.max(1) * group)
            .map(|_| {
                let shape = sizes.next(&mut rng);
                draw(&mut rng, shape)
            })
            .collect::<Result<_>>()?;
        Ok(Self { group, blocks, mixed: matches!(sizes, Sizes::Mixed) })
    }

    /// Its groups, in the order in which they were prepared.
    pub fn groups(&self) -> impl Iterator<Item = &[Block]> {
        self.blocks.chunks(self.group)
    }
}

impl Feed {
    /// The start of a chain.
    pub fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { rng, height: 0, parent: BlockHash::default(), sizes: Vec::new() }
    }

    /// Makes the pool the next blocks of this chain.
    pub fn prepare(&mut self, pool: &mut Pool) {
        if pool.mixed {
            let len = pool.blocks.len() as u64;
            for at in 0..pool.blocks.len() {
                let other = usize::try_from(self.rng.next_u64() % len).unwrap_or(at);
                pool.blocks.swap(at, other);
            }
        }
        let (mut height, mut parent_hash) = (self.height, self.parent);
        for block in &mut pool.blocks {
            height += 1;
            let hash = BlockHash(id(&mut self.rng));
            let timestamp = GENESIS_TIME + height;
            block.meta = BlockMeta { height, hash, parent_hash, timestamp };
            parent_hash = hash;
            self.rename(&mut block.payloads, height);
        }
    }

    /// Remembers that the first so many groups of the prepared pool were appended.
    pub fn appended(&mut self, pool: &Pool, groups: usize) {
        for block in pool.groups().take(groups).flatten() {
            self.height = block.meta.height;
            self.parent = block.meta.hash;
            self.sizes.push(block.payloads.total_len());
        }
    }

    /// The newest block that was appended.
    pub fn height(&self) -> Height {
        self.height
    }

    /// Payload bytes of the newest so many blocks.
    pub fn newest_bytes(&self, blocks: u64) -> u64 {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        self.sizes.iter().rev().take(blocks).sum()
    }

    /// Fresh transaction ids in both payloads that name them.
    fn rename(&mut self, payloads: &mut Payloads, height: Height) {
        payloads.tx_index.clear();
        let receipts = payloads.receipts.chunks_exact_mut(RECEIPT_HEAD + RECEIPT_LEN);
        for (receipt, index) in receipts.zip(0..) {
            let tx_id = TxId(id(&mut self.rng));
            if let Some(head) = receipt.first_chunk_mut::<32>() {
                *head = tx_id.0;
            }
            push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height, index });
        }
    }
}

fn draw(rng: &mut ChaCha8Rng, shape: Shape) -> Result<Block> {
    let mut payloads = Payloads::default();
    let mut receipt = vec![0u8; RECEIPT_LEN];
    for _ in 0..shape.transactions {
        rng.fill_bytes(&mut receipt);
        push_receipt(&mut payloads.receipts, &TxId(id(rng)), &receipt)?;
    }
    let index_len = TX_INDEX_ENTRY_LEN * usize::try_from(shape.transactions)?;
    payloads.tx_index.reserve_exact(index_len);
    payloads.block = vec![0u8; shape.bytes.saturating_sub(payloads.receipts.len() + index_len)];
    rng.fill_bytes(&mut payloads.block);
    let (hash, parent_hash) = (BlockHash::default(), BlockHash::default());
    Ok(Block { meta: BlockMeta { height: 0, hash, parent_hash, timestamp: 0 }, payloads })
}

fn id(rng: &mut ChaCha8Rng) -> [u8; 32] {
    let mut id = [0u8; 32];
    rng.fill_bytes(&mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use secateur_core::MAX_SEGMENT_LEN;

    #[test]
    fn groups_are_a_linked_chain_of_the_asked_size_with_fresh_ids() {
        let shape = Shape { bytes: 20_000, transactions: 10 };
        let mut pool = Pool::new(Sizes::Fixed(shape), 4, 3, 1).unwrap();
        let (mut feed, mut parent, mut seen) = (Feed::new(2), BlockHash::default(), Vec::new());
        for turn in 0..3 {
            feed.prepare(&mut pool);
            // The last group of every turn is not taken: the next turn goes on before it.
            for (block, height) in pool.groups().take(2).flatten().zip(turn * 8 + 1..) {
                assert_eq!(block.meta.height, height);
                assert_eq!(block.meta.parent_hash, parent);
                assert_eq!(block.check(MAX_SEGMENT_LEN).unwrap(), 10);
                assert_eq!(block.payloads.total_len(), 20_000);
                parent = block.meta.hash;
                seen.push(block.payloads.tx_index[..32].to_vec());
            }
            feed.appended(&pool, 2);
        }
        assert_eq!(feed.newest_bytes(5), 100_000);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 24);
    }

    #[test]
    fn mixed_sizes_lie_between_20_kb_and_2_mb() {
        let pool = Pool::new(Sizes::Mixed, 8, 8, 1).unwrap();
        let sizes: Vec<u64> = pool.groups().flatten().map(|b| b.payloads.total_len()).collect();
        assert!(sizes.iter().all(|size| (19_999..=2_000_000).contains(size)), "{sizes:?}");
        assert!(sizes.iter().max() > sizes.iter().min());
    }
}
