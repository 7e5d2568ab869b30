//! Seeded draws. Everything that looks random in a generated chain comes from here.
//!
//! The draws are spelled out rather than taken from a distribution library, whose algorithms may
//! change between releases: a chain must keep its bytes when a dependency is updated.

use alloy_primitives::{Address, B256, Keccak256};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of draws that depends on a seed, a purpose and a number, and on nothing else.
pub(super) struct Seeded(ChaCha8Rng);

impl Seeded {
    /// The stream for `purpose` number `number` under `seed`.
    pub(super) fn new(seed: u64, purpose: &str, number: u64) -> Self {
        let mut hasher = Keccak256::new();
        hasher.update(seed.to_be_bytes());
        hasher.update(number.to_be_bytes());
        hasher.update(purpose);
        Self(ChaCha8Rng::from_seed(hasher.finalize().0))
    }

    /// A number below `limit`, or zero if the limit is zero. Limits here are far below 2^40, so
    /// the bias of the remainder is far below anything a test could see.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64().checked_rem(limit).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `part` of `of` cases.
    pub(super) fn chance(&mut self, part: u64, of: u64) -> bool {
        self.below(of) < part
    }

    /// An index below `len`, low ones more often: the smaller of two draws.
    pub(super) fn index(&mut self, len: usize) -> usize {
        let len = len as u64;
        let drawn = self.below(len).min(self.below(len));
        usize::try_from(drawn).unwrap_or(0)
    }

    /// One of `from`, the first ones more often, so that some addresses are busy and some rare.
    pub(super) fn pick<T: Copy + Default>(&mut self, from: &[T]) -> T {
        let index = self.index(from.len());
        from.get(index).copied().unwrap_or_default()
    }

    /// 32 seeded bytes.
    pub(super) fn word(&mut self) -> B256 {
        let mut word = B256::ZERO;
        self.0.fill_bytes(word.as_mut_slice());
        word
    }

    /// A seeded address.
    pub(super) fn address(&mut self) -> Address {
        let mut address = Address::ZERO;
        self.0.fill_bytes(address.as_mut_slice());
        address
    }

    /// Fills `bytes`.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Puts `items` in a seeded order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.below(end as u64 + 1);
            items.swap(end, usize::try_from(other).unwrap_or(end));
        }
    }
}
