//! Calldata: how much a transaction carries, and what it looks like.

use alloy_primitives::{Address, Bytes, U256};

use crate::ChainSpec;
use crate::seeded::Seeded;

const SELECTOR_LEN: usize = 4;
const WORD_LEN: usize = 32;
/// Contract creation code may not be longer (EIP-3860).
const MAX_INITCODE_LEN: usize = 49_152;
/// No single transaction carries a longer batch: pools refuse transactions over 128 KiB.
const MAX_BATCH_LEN: u64 = 96 * 1024;
/// One block in this many is large.
const LARGE_EVERY: u64 = 40;
/// A large block's batches, in averages of a block's calldata: 20 in the middle, so that large
/// blocks carry half of all calldata.
const LARGE_TIMES: (u64, u64) = (10, 30);
/// Ordinary lengths in eighths of their average: many short ones, a few long ones.
const LENGTHS_IN_EIGHTHS: [u64; 8] = [1, 2, 3, 4, 6, 8, 12, LONGEST_IN_EIGHTHS];
const LONGEST_IN_EIGHTHS: u64 = 28;
/// Around each of them a length is spread from half to one and a half, here in 256ths: the average
/// stays what it is.
const SPREAD_IN_256THS: (u64, u64) = (128, 384);
/// Selectors of ordinary calls; the first is `transfer(address,uint256)`.
const SELECTORS: [[u8; SELECTOR_LEN]; 6] = [
    [0xa9, 0x05, 0x9c, 0xbb],
    [0x09, 0x5e, 0xa7, 0xb3],
    [0x38, 0xed, 0x17, 0x39],
    [0x7f, 0xf3, 0x6a, 0xb5],
    [0x18, 0xcb, 0xaf, 0xe5],
    [0x5a, 0xe4, 0x01, 0xdc],
];
/// How contract creation code commonly begins.
const INITCODE_START: [u8; 5] = [0x60, 0x80, 0x60, 0x40, 0x52];

/// The lengths of one block's calldata.
pub(super) struct Lengths {
    /// Batch bytes still to be given out, and how many at a time.
    batch_left: u64,
    batch_len: u64,
    /// The average length of an ordinary call.
    ordinary: u64,
}

impl Lengths {
    /// Draws whether a block is large, and how large.
    pub(super) fn draw(draws: &mut Seeded, spec: &ChainSpec) -> Self {
        let (low, high) = LARGE_TIMES;
        let large = draws.chance(1, LARGE_EVERY);
        let batch_left =
            if large { spec.calldata_per_block() * draws.between(low, high) } else { 0 };
        let pieces = batch_left.div_ceil(MAX_BATCH_LEN).max(1);
        Self { batch_left, batch_len: batch_left.div_ceil(pieces), ordinary: ordinary_mean(spec) }
    }

    /// The next batch, if the block is large and still has some to carry.
    pub(super) fn next_batch(&mut self) -> Option<usize> {
        let len = self.batch_left.min(self.batch_len);
        self.batch_left -= len;
        usize::try_from(len).ok().filter(|len| *len > 0)
    }

    /// The length of an ordinary call's calldata.
    pub(super) fn ordinary(&self, draws: &mut Seeded) -> usize {
        let place = usize::try_from(draws.below(LENGTHS_IN_EIGHTHS.len() as u64)).unwrap_or(0);
        let eighths = LENGTHS_IN_EIGHTHS.get(place).copied().unwrap_or(8);
        let (low, high) = SPREAD_IN_256THS;
        let len = self.ordinary * eighths * draws.between(low, high) / (8 * 256);
        usize::try_from(len).unwrap_or(0)
    }
}

/// The most calldata a block with `transactions` transactions can carry.
pub(super) fn most_calldata(spec: &ChainSpec, transactions: u64) -> u64 {
    let longest = ordinary_mean(spec) * LONGEST_IN_EIGHTHS * SPREAD_IN_256THS.1 / (8 * 256);
    // Calls are rounded up to whole words behind their selector.
    let rounded = longest + 2 * WORD_LEN as u64;
    spec.calldata_per_block() * LARGE_TIMES.1 + transactions * rounded
}

/// Half of all calldata is in ordinary calls, and 13 transactions in 20 have some.
fn ordinary_mean(spec: &ChainSpec) -> u64 {
    u64::from(spec.mean_calldata) * 10 / 13
}

/// A call of about `len` bytes: a selector, a party, an amount, and more arguments. Like real
/// calldata it is full of zeros, so that it compresses as real calldata does.
pub(super) fn call(draws: &mut Seeded, to: Address, amount: U256, len: usize) -> Bytes {
    let words = len.saturating_sub(SELECTOR_LEN).div_ceil(WORD_LEN);
    let mut data = Vec::with_capacity(SELECTOR_LEN + words * WORD_LEN);
    data.extend_from_slice(&draws.pick(&SELECTORS));
    for place in 0..words {
        let word = match place {
            0 => to.into_word(),
            1 => amount.into(),
            _ if draws.chance(1, 3) => draws.word(),
            _ => U256::from(draws.below(1 << 32)).into(),
        };
        data.extend_from_slice(word.as_slice());
    }
    data.into()
}

/// A batch of exactly `len` bytes. Batches are compressed before they are posted, so these bytes
/// do not compress further.
pub(super) fn batch(draws: &mut Seeded, len: usize) -> Bytes {
    let mut data = vec![0; len];
    draws.fill(&mut data);
    data.into()
}

/// Contract creation code of about `len` bytes.
pub(super) fn initcode(draws: &mut Seeded, len: usize) -> Bytes {
    let len = len.clamp(INITCODE_START.len(), MAX_INITCODE_LEN);
    let mut code = vec![0; len];
    draws.fill(&mut code);
    for (byte, start) in code.iter_mut().zip(INITCODE_START) {
        *byte = start;
    }
    code.into()
}
