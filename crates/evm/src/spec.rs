//! What a generated chain is made from.

use crate::EvmError;

/// The most transactions a block may have on average.
pub const MAX_TRANSACTIONS_PER_BLOCK: u32 = 512;
/// The most calldata a block may have on average. A large block carries up to 30 times as much,
/// and must still fit a segment.
pub const MAX_CALLDATA_PER_BLOCK: u64 = 128 * 1024;
/// The largest chain id whose EIP-155 signatures fit 64 bits (EIP-2294).
pub const MAX_CHAIN_ID: u64 = u64::MAX / 2 - 36;

/// What a generated chain is made from. Two equal specs give the same chain, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainSpec {
    /// What every drawn value depends on, the senders' keys included.
    pub seed: u64,
    /// The chain that transactions are signed for.
    pub chain_id: u64,
    /// The timestamp of block 0, in seconds since 1970.
    pub genesis_time: u64,
    /// The seconds from one block to the next.
    pub block_time: u64,
    /// How many transactions a block has on average; single blocks have none to twice as many.
    pub transactions_per_block: u32,
    /// About how many bytes of calldata a transaction has on average. Half of these bytes go to
    /// ordinary calls; the other half is bundled into one large block in about forty, which is
    /// what makes block sizes differ as they do on real chains.
    pub mean_calldata: u32,
}

impl Default for ChainSpec {
    /// Twelve transactions a block: most blocks take 2 to 20 KB, one in about forty 60 to 200 KB.
    fn default() -> Self {
        Self {
            seed: 1,
            chain_id: 1337,
            genesis_time: 1_700_000_000,
            block_time: 12,
            transactions_per_block: 12,
            mean_calldata: 512,
        }
    }
}

impl ChainSpec {
    /// The calldata of a block on average.
    pub(super) fn calldata_per_block(&self) -> u64 {
        u64::from(self.transactions_per_block) * u64::from(self.mean_calldata)
    }

    /// Refuses a spec that could give a block no reader would accept.
    pub(super) fn check(&self) -> Result<(), EvmError> {
        let within = |field, value, low, high| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(EvmError::Spec { field, value, wanted: format!("{low} to {high} is accepted") })
        };
        within("chain_id", self.chain_id, 1, MAX_CHAIN_ID)?;
        // Time must pass from block to block: a reader refuses a child as old as its parent.
        within("block_time", self.block_time, 1, u64::MAX)?;
        within(
            "transactions_per_block",
            u64::from(self.transactions_per_block),
            0,
            u64::from(MAX_TRANSACTIONS_PER_BLOCK),
        )?;
        within(
            "transactions_per_block times mean_calldata",
            self.calldata_per_block(),
            0,
            MAX_CALLDATA_PER_BLOCK,
        )
    }
}
