//! Which heights of the demo have blobs, which ones, and who proposes them: a function of the height
//! alone, so that a validator that missed a decision can be told it again.

use secateur_core::{CoreError, Height};
use secateur_sidecar::testdata::{self, POOL};
use secateur_sidecar::{Proposal, Round, ValidatorId};

/// How many validators there are.
pub(in crate::demo) const VALIDATORS: u8 = 4;
/// One height in so many has blobs. At 20 blocks a second that is less than 2 blobs a second; it has
/// no factor in common with the number of validators, so that each of them has its turn.
const EVERY: u64 = 21;
/// The first of them.
const FIRST: u64 = 10;
/// How many blobs such heights have, round and round.
const COUNTS: [usize; 3] = [1, 2, 2];
/// The round in which the demo decides.
const ROUND: Round = 0;

/// What validator `number` is called: 20 bytes, as EVM chains name theirs.
pub(super) fn validator_id(number: u8) -> Result<ValidatorId, CoreError> {
    let mut id = [0; 20];
    if let Some(last) = id.last_mut() {
        *last = number;
    }
    ValidatorId::new(&id)
}

/// Which blobs of the pool a height has.
pub(super) fn blobs(height: Height) -> Vec<usize> {
    let Some(since) = height.checked_sub(FIRST).filter(|since| since.is_multiple_of(EVERY)) else {
        return Vec::new();
    };
    let turn = usize::try_from(since / EVERY).unwrap_or(0);
    let count = COUNTS.get(turn % COUNTS.len()).copied().unwrap_or(1);
    (0..count).map(|index| (turn * 5 + index) % POOL).collect()
}

/// The newest height up to this one that has blobs.
pub(in crate::demo) fn newest_with_blobs(upto: Height) -> Option<Height> {
    Some(upto - upto.checked_sub(FIRST)? % EVERY)
}

/// What is proposed at a height.
pub(super) fn proposal(height: Height) -> Result<Proposal, CoreError> {
    let number = u8::try_from(height % u64::from(VALIDATORS)).unwrap_or(0) + 1;
    Ok(testdata::proposal(height, ROUND, &validator_id(number)?, &blobs(height)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_validator_has_its_turn_and_no_second_has_more_than_two_blobs() {
        let with_blobs: Vec<Height> = (0..2_000).filter(|at| !blobs(*at).is_empty()).collect();
        assert_eq!(with_blobs.first(), Some(&FIRST));
        let proposers: BTreeSet<ValidatorId> =
            with_blobs.iter().map(|at| proposal(*at).unwrap().proposer).collect();
        assert_eq!(proposers.len(), usize::from(VALIDATORS));
        for second in 0..100 {
            let count: usize = (second * 20..second * 20 + 20).map(|at| blobs(at).len()).sum();
            assert!(count <= 2, "{count} blobs in second {second}");
        }
    }

    #[test]
    fn the_newest_height_with_blobs_is_one_that_has_them() {
        assert_eq!(newest_with_blobs(FIRST - 1), None);
        for upto in FIRST..200 {
            let newest = newest_with_blobs(upto).unwrap();
            assert!(!blobs(newest).is_empty() && newest <= upto && upto - newest < EVERY);
        }
    }
}
