//! A generated EVM chain in memory: what the archive and the index are measured with.

use anyhow::Result;
use secateur_core::{Block, BlockHash};
use secateur_evm::{ChainSpec, Generator};

/// The chain's id.
pub const CHAIN_ID: u64 = 1337;

/// A chain with so many transactions in a block.
pub fn spec(transactions_per_block: u32) -> ChainSpec {
    ChainSpec {
        seed: 20_261_101,
        chain_id: CHAIN_ID,
        transactions_per_block,
        ..ChainSpec::default()
    }
}

/// The blocks of a chain, one after another, from block 0.
pub struct Chain {
    generator: Generator,
    height: u64,
    parent: BlockHash,
}

impl Chain {
    /// The start of a chain.
    pub fn new(spec: ChainSpec) -> Result<Self> {
        Ok(Self { generator: Generator::new(spec)?, height: 0, parent: BlockHash::default() })
    }

    /// The next block.
    pub fn next(&mut self) -> Result<Block> {
        let block = self.generator.block(self.height, self.parent)?;
        self.height += 1;
        self.parent = block.meta.hash;
        Ok(block)
    }
}
