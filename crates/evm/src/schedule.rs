//! Who sends how many transactions in which block.
//!
//! Nonces must run on from block to block, yet block `n` must not need the blocks below it. So how
//! much a sender has sent up to a height is a formula, and what it sends in a block is the
//! difference of two values of it. Busy and quiet blocks come from a seeded cycle of weights whose
//! running total is part of the formula.

use std::ops::Range;

use secateur_core::Height;

use crate::seeded::Seeded;
use crate::{ChainSpec, EvmError};

/// After this many blocks the busy and quiet ones repeat. A prime, so that it beats against round
/// numbers of blocks.
const CYCLE: u64 = 61;

/// One sender's part of the traffic.
struct Part {
    /// Its share among the shares of all senders.
    share: u128,
    /// Where in its rhythm it starts, so that senders do not all send in the same block.
    phase: u128,
}

/// The traffic of a chain.
pub(super) struct Schedule {
    /// The total weight of the first `i` blocks of a cycle, at place `i`.
    totals: Vec<u64>,
    cycle_weight: u64,
    peak_weight: u64,
    transactions_per_block: u64,
    parts: Vec<Part>,
    /// What a sender's scaled share of the work is divided by.
    divisor: u128,
}

impl Schedule {
    /// The schedule of `senders` senders under `spec`.
    pub(super) fn new(spec: &ChainSpec, senders: u64) -> Self {
        let mut draws = Seeded::new(spec.seed, "schedule", 0);
        let mut totals = vec![0];
        let (mut cycle_weight, mut peak_weight) = (0, 0);
        for place in 1..=CYCLE {
            // The last block of a cycle is never empty, so that the weight of a cycle is not zero.
            let empty = place < CYCLE && draws.chance(1, 20);
            let weight = if empty { 0 } else { draws.between(3, 7) };
            cycle_weight += weight;
            peak_weight = peak_weight.max(weight);
            totals.push(cycle_weight);
        }
        // The first sender sends about seven times as much as the last of 24.
        let shares: Vec<u64> = (0..senders).map(|sender| 240 / (sender + 4)).collect();
        let all_shares: u64 = shares.iter().sum();
        let divisor = u128::from(all_shares) * u128::from(cycle_weight);
        let parts = shares
            .into_iter()
            .map(|share| Part {
                share: u128::from(share),
                phase: u128::from(draws.below(all_shares * cycle_weight)),
            })
            .collect();
        Self {
            totals,
            cycle_weight,
            peak_weight,
            transactions_per_block: u64::from(spec.transactions_per_block),
            parts,
            divisor,
        }
    }

    /// The nonces each sender uses in block `height`, in the order of the senders.
    pub(super) fn nonces(&self, height: Height) -> Result<Vec<Range<u64>>, EvmError> {
        let before = self.work(height.saturating_sub(1));
        let after = self.work(height);
        self.parts
            .iter()
            .map(|part| {
                let start = self.sent(part, before, height)?;
                Ok(start..self.sent(part, after, height)?)
            })
            .collect()
    }

    /// No block has more transactions than this.
    pub(super) fn peak_transactions(&self) -> u64 {
        let scaled = self.transactions_per_block * self.peak_weight * CYCLE;
        // Each sender's count is rounded on its own, by less than one transaction.
        scaled / self.cycle_weight.max(1) + self.parts.len() as u64
    }

    /// The weight of all blocks from 1 to `height`.
    fn work(&self, height: Height) -> u128 {
        let place = usize::try_from(height % CYCLE).unwrap_or(0);
        let begun = self.totals.get(place).copied().unwrap_or(0);
        u128::from(height / CYCLE) * u128::from(self.cycle_weight) + u128::from(begun)
    }

    /// How many transactions a sender has sent when `work` is done.
    fn sent(&self, part: &Part, work: u128, height: Height) -> Result<u64, EvmError> {
        // At most 2^67 of work times 2^9 transactions times 2^6 blocks times a share of 2^6.
        let scaled =
            work * u128::from(self.transactions_per_block) * u128::from(CYCLE) * part.share;
        let sent = (scaled + part.phase).checked_div(self.divisor).unwrap_or(0);
        u64::try_from(sent).map_err(|_| EvmError::HeightOutOfRange { height, what: "nonce" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDERS: u64 = 24;

    fn count(schedule: &Schedule, height: Height) -> u64 {
        let ranges = schedule.nonces(height).unwrap();
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn each_senders_nonces_go_on_where_the_block_below_stopped() {
        let schedule = Schedule::new(&ChainSpec::default(), SENDERS);
        let mut next = vec![0; usize::try_from(SENDERS).unwrap()];
        for height in 0..500 {
            for (next, range) in next.iter_mut().zip(schedule.nonces(height).unwrap()) {
                assert_eq!(range.start, *next);
                *next = range.end;
            }
        }
        assert!(next.iter().all(|sent| *sent > 0));
    }

    #[test]
    fn genesis_is_empty_and_the_average_is_what_the_spec_asks_for() {
        for transactions_per_block in [1, 12, 100, 512] {
            let spec = ChainSpec { transactions_per_block, ..ChainSpec::default() };
            let schedule = Schedule::new(&spec, SENDERS);
            assert_eq!(count(&schedule, 0), 0);
            let blocks = 50 * CYCLE;
            let all: u64 = (1..=blocks).map(|height| count(&schedule, height)).sum();
            let wanted = u64::from(transactions_per_block) * blocks;
            assert!(all.abs_diff(wanted) <= SENDERS, "{all} of {wanted}");
        }
    }

    #[test]
    fn blocks_differ_in_their_number_of_transactions_and_stay_under_the_peak() {
        let schedule = Schedule::new(&ChainSpec::default(), SENDERS);
        let counts: Vec<u64> = (1..1000).map(|height| count(&schedule, height)).collect();
        let most = counts.iter().max().copied().unwrap();
        assert!(most <= schedule.peak_transactions() && most >= 15, "{most}");
        assert!(counts.contains(&0));
    }

    #[test]
    fn a_nonce_over_64_bits_is_an_error() {
        let schedule = Schedule::new(&ChainSpec::default(), SENDERS);
        assert!(schedule.nonces(1 << 60).is_ok());
        let spec = ChainSpec { transactions_per_block: 512, ..ChainSpec::default() };
        let error = Schedule::new(&spec, SENDERS).nonces(u64::MAX).unwrap_err();
        assert!(matches!(error, EvmError::HeightOutOfRange { what: "nonce", .. }));
    }
}
