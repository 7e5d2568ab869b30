//! When a job that failed is tried again: from 1 s, twice as long each time, at most 60 s, each wait
//! shortened by up to a quarter so that jobs which failed together do not come back together. The
//! jitter is made of a seed, the blob and the attempt: the same history waits the same.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::BlobKey;

const FIRST_MILLIS: u64 = 1_000;
const MOST_MILLIS: u64 = 60_000;

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    seed: u64,
}

impl Backoff {
    /// Waits with this seed's jitter.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Milliseconds to wait after so many attempts in vain.
    pub fn wait(self, key: BlobKey, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(16);
        let whole = (FIRST_MILLIS << doublings).min(MOST_MILLIS);
        let mut bytes = [0; 16];
        let (height, rest) = bytes.split_at_mut(8);
        height.copy_from_slice(&key.height.to_be_bytes());
        let (index, tries) = rest.split_at_mut(4);
        index.copy_from_slice(&key.index.to_be_bytes());
        tries.copy_from_slice(&attempts.to_be_bytes());
        whole - xxh3_64_with_seed(&bytes, self.seed) % (whole / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_1_s_to_60_s_with_a_quarter_of_jitter_and_the_same_seed_waits_the_same() {
        let key = BlobKey { height: 7, index: 1 };
        for (attempts, most) in [(1, 1_000), (2, 2_000), (6, 32_000), (7, 60_000), (99, 60_000)] {
            let wait = Backoff::new(3).wait(key, attempts);
            assert!(wait <= most && wait > most * 3 / 4, "{attempts}: {wait}");
            assert_eq!(wait, Backoff::new(3).wait(key, attempts));
        }
        let others: std::collections::BTreeSet<u64> =
            (0..16).map(|index| Backoff::new(3).wait(BlobKey { height: 7, index }, 7)).collect();
        assert!(others.len() > 8, "{others:?}");
    }
}
