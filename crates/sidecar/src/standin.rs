//! Standing in for a dead proposer: where the policy lets any validator sign after a while, the
//! others take their turn one after another, so that one copy is made and not one by each.

use secateur_core::Height;

use crate::ValidatorId;
use crate::notice::{Signers, Validators};

/// The head from which on it is this validator's turn to archive a height that nobody has signed
/// for; none for never. The first after the proposer, in the order of names, begins as soon as the
/// policy allows it, the next so many blocks later, and so on.
pub(crate) fn turn(
    signers: Signers,
    validators: &Validators,
    us: &ValidatorId,
    proposer: &ValidatorId,
    height: Height,
) -> Option<Height> {
    let Signers::AnyValidatorAfter(blocks) = signers else { return None };
    let names: Vec<&ValidatorId> = validators.at(height).collect();
    let place = |who: &ValidatorId| names.iter().position(|name| *name == who);
    let ours = place(us)?;
    let rank = match place(proposer) {
        Some(theirs) => (ours + names.len() - theirs) % names.len(),
        None => ours + 1,
    };
    let wait = blocks.checked_mul(u64::try_from(rank).ok()?)?;
    height.checked_add(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::{NoticeKey, ValidatorTerm};

    fn id(number: u8) -> ValidatorId {
        ValidatorId::new(&[number; 20]).unwrap()
    }

    fn term(number: u8) -> ValidatorTerm {
        let public_key = NoticeKey::from_secret(&[number; 32]).public_key();
        ValidatorTerm { id: id(number), public_key, from_height: 0, to_height: None }
    }

    #[test]
    fn the_others_take_turns_after_the_proposer_and_strangers_never_do() {
        let validators = Validators::new(&[term(1), term(2), term(3), term(4)]).unwrap();
        let after = Signers::AnyValidatorAfter(10);
        let turn_of = |us: u8, proposer: u8| turn(after, &validators, &id(us), &id(proposer), 100);
        assert_eq!([4, 1, 2].map(|us| turn_of(us, 3)), [Some(110), Some(120), Some(130)]);
        assert_eq!(turn_of(3, 3), Some(100), "the proposer has its turn at once");
        assert_eq!(turn_of(9, 3), None);
        assert_eq!(turn_of(2, 9), Some(120), "a proposer that has left the set");
        assert_eq!(turn(Signers::ProposerOnly, &validators, &id(1), &id(3), 100), None);
    }
}
