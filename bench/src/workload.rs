//! The blocks that contestants are fed with: seeded, incompressible, made before the clock runs.
//!
//! Payload bytes are drawn once into a pool and used again in turns; ids and heights are fresh
//! for every block, because an index that meets the same id again has less to do.

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
/// The pool holds at least so many bytes, so that no cache holds it whole.
const POOL_BYTES: usize = 128 << 20;
const GENESIS_TIME: u64 = 1_700_000_000;

/// How large a block is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Its name in results.
    pub label: &'static str,
    /// Bytes of its three payloads together.
    pub bytes: usize,
    /// Transactions, each with a receipt.
    pub transactions: u32,
}

/// Blocks whose bytes are drawn already.
pub struct Pool {
    shape: Shape,
    group: usize,
    blocks: Vec<Block>,
}

/// Where one contestant is on its chain.
pub struct Feed {
    rng: ChaCha8Rng,
    height: Height,
    parent: BlockHash,
    at: usize,
}

impl Pool {
    /// Draws a pool for groups of so many blocks.
    pub fn new(shape: Shape, group: usize, seed: u64) -> Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let groups = POOL_BYTES.div_ceil(shape.bytes * group).max(2);
        let blocks = (0..groups * group).map(|_| draw(&mut rng, shape)).collect::<Result<_>>()?;
        Ok(Self { shape, group, blocks })
    }

    /// How its blocks are made.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Blocks in a group.
    pub fn group(&self) -> usize {
        self.group
    }

    fn groups(&self) -> usize {
        self.blocks.len() / self.group
    }
}

impl Feed {
    /// The start of a chain.
    pub fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { rng, height: 0, parent: BlockHash::default(), at: 0 }
    }

    /// The next group of the chain, made in place in the pool.
    pub fn next_group<'p>(&mut self, pool: &'p mut Pool) -> &'p [Block] {
        let (group, transactions) = (pool.group, pool.shape.transactions);
        let at = self.at % pool.groups() * group;
        self.at += 1;
        let blocks = pool.blocks.get_mut(at..at + group).unwrap_or_default();
        for block in blocks.iter_mut() {
            self.height += 1;
            let hash = BlockHash(id(&mut self.rng));
            let (height, timestamp) = (self.height, GENESIS_TIME + self.height);
            block.meta = BlockMeta { height, hash, parent_hash: self.parent, timestamp };
            self.parent = hash;
            self.rename(&mut block.payloads, height, transactions);
        }
        blocks
    }

    /// Fresh transaction ids in both payloads that name them.
    fn rename(&mut self, payloads: &mut Payloads, height: Height, transactions: u32) {
        payloads.tx_index.clear();
        let receipts = payloads.receipts.chunks_exact_mut(RECEIPT_HEAD + RECEIPT_LEN);
        for (receipt, index) in receipts.zip(0..transactions) {
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
        let shape = Shape { label: "20KB", bytes: 20_000, transactions: 10 };
        let mut pool = Pool::new(shape, 4, 1).unwrap();
        pool.blocks.truncate(8);
        let (mut feed, mut parent, mut seen) = (Feed::new(2), BlockHash::default(), Vec::new());
        for group in 0..5 {
            for (block, height) in feed.next_group(&mut pool).iter().zip(group * 4 + 1..) {
                assert_eq!(block.meta.height, height);
                assert_eq!(block.meta.parent_hash, parent);
                assert_eq!(block.check(MAX_SEGMENT_LEN).unwrap(), 10);
                assert_eq!(block.payloads.total_len(), 20_000);
                parent = block.meta.hash;
                seen.push(block.payloads.tx_index[..32].to_vec());
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 20);
    }
}
