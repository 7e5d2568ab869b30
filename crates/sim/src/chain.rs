//! A plain chain for tests: linked blocks with seeded bytes and well-formed payloads.

use secateur_core::{
    Block, BlockHash, BlockMeta, Height, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::rng::Rng;

/// How large a block is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the block segment.
    pub block_len: usize,
    /// Transactions, each with a receipt.
    pub transactions: u32,
    /// Bytes of each receipt.
    pub receipt_len: usize,
}

/// Makes a block above `parent`. `salt` tells forks apart.
pub fn block(height: Height, parent: BlockHash, shape: Shape, seed: u64, salt: u64) -> Block {
    let mut rng = Rng::new(seed ^ salt.rotate_left(32), height);
    let mut payloads = Payloads { block: rng.bytes(shape.block_len), ..Payloads::default() };
    for index in 0..shape.transactions {
        let tx_id = tx_id(height, index, seed ^ salt);
        let receipt = rng.bytes(shape.receipt_len);
        // A receipt of a test is far below the limit, so this cannot fail.
        push_receipt(&mut payloads.receipts, &tx_id, &receipt).unwrap_or_default();
        push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height, index });
    }
    let meta = BlockMeta {
        height,
        hash: BlockHash(id(height, seed ^ salt, 7)),
        parent_hash: parent,
        timestamp: timestamp(height),
    };
    Block { meta, payloads }
}

/// When a block was made, as the chain says.
pub fn timestamp(height: Height) -> u64 {
    1_700_000_000 + height * 12
}

/// The id of a transaction.
pub fn tx_id(height: Height, index: u32, seed: u64) -> TxId {
    TxId(id(height, seed, 1000 + u64::from(index)))
}

fn id(height: Height, seed: u64, purpose: u64) -> [u8; 32] {
    let low =
        xxh3_128_with_seed(&height.to_be_bytes(), seed.wrapping_mul(31).wrapping_add(purpose));
    let high = xxh3_128_with_seed(&low.to_be_bytes(), purpose);
    let mut id = [0u8; 32];
    for (bytes, word) in id.as_chunks_mut::<16>().0.iter_mut().zip([low, high]) {
        *bytes = word.to_be_bytes();
    }
    id
}
