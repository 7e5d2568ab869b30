//! Seeded randomness: the same seed always draws the same numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A seeded source of numbers.
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// A source for `seed` and a purpose, so that two users of one seed do not share draws.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut key = [0u8; 32];
        let words = [seed, purpose, 0x5eca_7e0e, 1];
        for (bytes, word) in key.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.u64().checked_rem(bound).unwrap_or(0)
    }

    /// A coin.
    pub fn flip(&mut self) -> bool {
        self.u64() & 1 == 1
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
