//! The validators of a height, as they are configured.

use std::slice;

use proptest::prelude::*;

use super::scene::{id, key, term};
use crate::Trust;
use crate::notice::{Signers, ValidatorTerm, Validators, Verifier};
use crate::{PublicKey, ValidatorId};

fn from_to(number: u8, from_height: u64, to_height: Option<u64>) -> ValidatorTerm {
    ValidatorTerm { from_height, to_height, ..term(number) }
}

#[track_caller]
fn refusal(terms: &[ValidatorTerm]) -> String {
    let error = Validators::new(terms).unwrap_err().to_string();
    assert!(error.ends_with("nothing was changed"), "{error}");
    error
}

#[test]
fn the_set_changes_with_the_height() {
    let terms = [
        from_to(1, 0, Some(9)),
        from_to(2, 5, None),
        from_to(1, 20, Some(29)),
        // It comes back with another key.
        ValidatorTerm { public_key: key(7).public_key(), ..from_to(1, 30, None) },
    ];
    let validators = Validators::new(&terms).unwrap();
    let at = |height| validators.at(height).cloned().collect::<Vec<_>>();
    assert_eq!(at(0), [id(1)]);
    assert_eq!(at(4), [id(1)]);
    assert_eq!(at(5), [id(1), id(2)]);
    assert_eq!(at(9), [id(1), id(2)]);
    assert_eq!(at(10), [id(2)]);
    assert_eq!(at(19), [id(2)]);
    assert_eq!(at(20), [id(1), id(2)]);
    assert_eq!(at(u64::MAX), [id(1), id(2)]);
    assert_eq!(validators.key_at(&id(1), 29), Some(key(1).public_key()));
    assert_eq!(validators.key_at(&id(1), 30), Some(key(7).public_key()));
    assert_eq!(validators.key_at(&id(1), 15), None);
    assert_eq!(validators.key_at(&id(3), 5), None);
}

#[test]
fn terms_of_one_validator_that_overlap_are_refused() {
    for (a, b) in [
        (from_to(1, 0, None), from_to(1, 5, None)),
        (from_to(1, 0, Some(5)), from_to(1, 5, Some(9))),
        (from_to(1, 3, Some(4)), from_to(1, 0, Some(9))),
        (from_to(1, 7, Some(7)), from_to(1, 7, Some(7))),
    ] {
        // With keys of their own, so that only the terms are at fault.
        let b = ValidatorTerm { public_key: key(8).public_key(), ..b };
        assert!(refusal(&[a.clone(), b.clone()]).contains("two terms"));
        assert!(refusal(&[b, from_to(2, 0, None), a]).contains("two terms"));
    }
    assert!(Validators::new(&[from_to(1, 0, Some(4)), from_to(1, 5, None)]).is_ok());
}

#[test]
fn a_key_that_two_validators_share_at_a_height_is_refused() {
    let shared = |number, from, to| ValidatorTerm { id: id(number), ..from_to(1, from, to) };
    assert!(refusal(&[shared(1, 0, Some(5)), shared(2, 5, None)]).contains("share a key"));
    assert!(Validators::new(&[shared(1, 0, Some(4)), shared(2, 5, None)]).is_ok());
}

#[test]
fn a_term_that_ends_before_it_begins_and_a_key_that_is_none_are_refused() {
    assert!(refusal(&[from_to(1, 5, Some(4))]).contains("ends before"));
    // No point of the curve has this y.
    let mut bytes = [0; 32];
    bytes[0] = 2;
    let no_point = ValidatorTerm { public_key: PublicKey(bytes), ..term(1) };
    assert!(refusal(&[no_point]).contains("is not a key"));
    let many = vec![term(1); crate::notice::MAX_VALIDATOR_TERMS + 1];
    assert!(refusal(&many).contains("are more than"));
}

#[test]
fn a_height_has_a_signer_if_its_proposer_or_anybody_else_may_ever_sign() {
    let has = |terms: &[ValidatorTerm], signers| {
        let validators = Validators::new(terms).unwrap();
        let verifier = Verifier { chain_id: 1, validators, signers, accept_v0: false };
        verifier.has_signer(&id(1), 5)
    };
    let (only, any) = (Signers::ProposerOnly, Signers::AnyValidatorAfter(3));
    assert!(has(&[term(1)], only) && has(&[term(1)], any));
    assert!(!has(&[term(2)], only) && has(&[term(2)], any));
    // A term that is over, or not begun.
    for gone in [from_to(1, 0, Some(4)), from_to(1, 6, None)] {
        assert!(!has(slice::from_ref(&gone), only) && !has(&[gone], any));
    }
}

#[test]
fn a_term_is_read_from_the_configuration() {
    let public_key = key(1).public_key();
    let text = format!(r#"{{"id":"{}","public_key":"{public_key}","from_height":3}}"#, id(1));
    let read: ValidatorTerm = serde_json::from_str(&text).unwrap();
    assert_eq!(read, from_to(1, 3, None));
    for wrong in [
        text.replace("from_height", "since"),
        text.replace("0x", "0xzz"),
        text.replace(&id(1).to_string(), ""),
        text.replace(&id(1).to_string(), &"11".repeat(33)),
        text.replace(&public_key.to_string(), "0x11"),
    ] {
        assert!(serde_json::from_str::<ValidatorTerm>(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn policies_read_back_what_they_print() {
    for signers in
        [Signers::ProposerOnly, Signers::AnyValidatorAfter(0), Signers::AnyValidatorAfter(64)]
    {
        assert_eq!(signers.to_string().parse::<Signers>().unwrap(), signers);
    }
    for trust in [Trust::Signature, Trust::Fetch] {
        assert_eq!(trust.to_string().parse::<Trust>().unwrap(), trust);
    }
    let wrong = ["", "any", "any_validator_after", "any_validator_after:", "any_validator_after:x"];
    for text in wrong.into_iter().chain(["any_validator_after:-1", "proposer_only:1"]) {
        assert!(text.parse::<Signers>().is_err(), "{text}");
    }
    assert!("none".parse::<Trust>().is_err());
    assert_eq!((Signers::default(), Trust::default()), (Signers::ProposerOnly, Trust::Signature));
}

proptest! {
    /// Against a list that is looked through from the front.
    #[test]
    fn a_lookup_finds_what_a_search_through_all_terms_finds(
        terms in prop::collection::vec((1..4u8, 0..30u64, prop::option::of(0..30u64)), 0..6),
    ) {
        let terms: Vec<_> = terms.into_iter().map(|(n, from, to)| from_to(n, from, to)).collect();
        let serves = |term: &ValidatorTerm, height: u64| {
            term.from_height <= height && term.to_height.is_none_or(|to| height <= to)
        };
        let backward = terms.iter().any(|t| t.to_height.is_some_and(|to| to < t.from_height));
        let twice = (0..31).any(|height| {
            let mut ids: Vec<&ValidatorId> =
                terms.iter().filter(|term| serves(term, height)).map(|term| &term.id).collect();
            ids.sort();
            let len = ids.len();
            ids.dedup();
            ids.len() < len
        });
        let validators = Validators::new(&terms);
        prop_assert_eq!(validators.is_err(), backward || twice);
        let Ok(validators) = validators else { return Ok(()) };
        for height in 0..32 {
            for number in 1..4 {
                let expected = terms.iter().find(|t| t.id == id(number) && serves(t, height));
                let found = validators.key_at(&id(number), height);
                prop_assert_eq!(found, expected.map(|term| term.public_key));
            }
        }
    }
}
