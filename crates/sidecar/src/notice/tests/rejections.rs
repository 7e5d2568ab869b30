//! Every check of a notice by itself, and what is accepted.

use secateur_core::notice::{MAX_NOTICE_LEN, NoticeForm, Statement};

use super::scene::{CHAIN, HEIGHT, INDEX, ROUND, Scene, blob, id, key, locator, term};
use crate::notice::{
    Accepted, Addition, Rejection, Signers, ValidatorTerm, Validators, notice_digest, sign,
};
use crate::{BlobKeccak, SidecarError};

#[test]
fn a_notice_that_is_right_is_accepted_as_new() {
    let scene = Scene::new();
    let accepted = scene.verify().unwrap();
    let expected = Accepted { notice: scene.notice(), signer: id(1), addition: Addition::New };
    assert_eq!(accepted, expected);
}

#[test]
fn a_notice_that_is_too_long_is_refused_unread() {
    let mut scene = Scene::new();
    scene.spoil.push(|bytes| bytes.resize(MAX_NOTICE_LEN + 1, 0));
    assert_eq!(scene.verify().unwrap_err(), Rejection::Oversized { len: MAX_NOTICE_LEN + 1 });
    scene.spoil.push(|bytes| bytes.truncate(MAX_NOTICE_LEN));
    assert_eq!(scene.label(), "malformed");
}

#[test]
fn bytes_that_are_no_notice_are_malformed() {
    let mut scene = Scene::new();
    scene.verifier.accept_v0 = true;
    for as_v0 in [false, true] {
        scene.as_v0 = as_v0;
        let good = scene.bytes();
        for len in 0..good.len() {
            let label = scene.verify_bytes(&good[..len]).unwrap_err().label();
            assert_eq!(label, "malformed", "{len}");
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(scene.verify_bytes(&longer).unwrap_err().label(), "malformed");
        let mut other = good.clone();
        other[0] = 2;
        assert_eq!(scene.verify_bytes(&other).unwrap_err().label(), "malformed");
    }
}

#[test]
fn a_notice_of_another_chain_is_refused() {
    let mut scene = Scene::new();
    scene.body.chain_id = CHAIN + 1;
    let expected = Rejection::WrongChain { said: CHAIN + 1, here: CHAIN };
    assert_eq!(scene.verify().unwrap_err(), expected);
}

#[test]
fn a_notice_cannot_be_moved_to_another_chain_by_rewriting_its_chain() {
    let mut scene = Scene::new();
    scene.body.chain_id = CHAIN + 1;
    // Byte 8 is the last one of the chain id: 1338 becomes 1337.
    scene.spoil.push(|bytes| bytes[8] -= 1);
    assert_eq!(scene.label(), "bad_signature");
}

#[test]
fn somebody_who_is_no_validator_is_refused() {
    let scene = Scene::new().signed_by(9);
    let expected = Rejection::UnknownValidator { signer: id(9), height: HEIGHT };
    assert_eq!(scene.verify().unwrap_err(), expected);
}

#[test]
fn a_validator_signs_only_for_heights_of_its_term_and_with_its_key_of_then() {
    let terms = [
        ValidatorTerm { to_height: Some(HEIGHT - 1), ..term(1) },
        // From this height on validator 1 has the key of number 7.
        ValidatorTerm {
            public_key: key(7).public_key(),
            from_height: HEIGHT,
            to_height: Some(HEIGHT),
            ..term(1)
        },
    ];
    let mut scene = Scene::new();
    scene.verifier.validators = Validators::new(&terms).unwrap();
    assert_eq!(scene.label(), "bad_signature", "the key of the term before");
    scene.signed_by = 7;
    assert_eq!(scene.verify().unwrap().addition, Addition::New);
    scene.body.height = HEIGHT + 1;
    assert_eq!(scene.label(), "unknown_validator", "its term is over");
    scene.body.height = HEIGHT - 1;
    assert_eq!(scene.label(), "bad_signature", "the key of the next term");
    // Whether it is a validator at the head does not matter.
    scene.body.height = HEIGHT;
    scene.head = HEIGHT + 1_000;
    assert!(scene.verify().is_ok());
}

#[test]
fn a_signature_of_another_validator_is_refused() {
    let mut scene = Scene::new();
    scene.signed_by = 2;
    assert_eq!(scene.verify().unwrap_err(), Rejection::BadSignature { signer: id(1) });
}

/// A key of small order accepts signatures that nobody made.
#[test]
fn keys_of_small_order_are_refused_where_they_are_configured() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let weak = ValidatorTerm { public_key: crate::PublicKey(identity), ..term(1) };
    assert!(Validators::new(&[weak]).is_err());
}

#[test]
fn a_height_that_is_not_decided_here_is_refused_for_now() {
    let mut scene = Scene::new();
    scene.known.heights.clear();
    let rejection = scene.verify().unwrap_err();
    assert_eq!(rejection, Rejection::NoMetadata { height: HEIGHT });
    assert!(rejection.is_retryable());
}

#[test]
fn an_index_that_the_height_does_not_have_is_refused() {
    let mut scene = Scene::new();
    for index in [3, u32::MAX] {
        scene.body.blob_index = index;
        let expected = Rejection::IndexOutOfRange { height: HEIGHT, index, blob_count: 3 };
        assert_eq!(scene.verify().unwrap_err(), expected);
    }
}

#[test]
fn only_the_proposer_signs() {
    let scene = Scene::new().signed_by(2);
    let expected = Rejection::NotProposer { height: HEIGHT, signer: id(2), proposer: id(1) };
    assert_eq!(scene.verify().unwrap_err(), expected);
    assert!(!expected.is_retryable());
}

#[test]
fn after_so_many_blocks_any_validator_signs() {
    let mut scene = Scene::new().signed_by(2);
    scene.verifier.signers = Signers::AnyValidatorAfter(10);
    scene.head = HEIGHT + 9;
    let rejection = scene.verify().unwrap_err();
    let (height, signer, from) = (HEIGHT, id(2), HEIGHT + 10);
    assert_eq!(rejection, Rejection::NotYetPermitted { height, signer, from });
    assert!(rejection.is_retryable());
    scene.head = HEIGHT + 10;
    assert_eq!(scene.verify().unwrap().addition, Addition::New);
    // The proposer never waits, and a stranger never signs.
    scene.head = HEIGHT;
    assert!(scene.signed_by(1).verify().is_ok());
    let mut scene = Scene::new().signed_by(9);
    scene.verifier.signers = Signers::AnyValidatorAfter(0);
    assert_eq!(scene.label(), "unknown_validator");
    // A number of blocks that no chain reaches is never over.
    let mut scene = Scene::new().signed_by(2);
    scene.verifier.signers = Signers::AnyValidatorAfter(u64::MAX);
    scene.head = u64::MAX;
    assert_eq!(scene.label(), "not_proposer");
}

#[test]
fn a_round_that_was_not_decided_is_refused() {
    let mut scene = Scene::new();
    for round in [ROUND + 1, ROUND - 1, -1] {
        scene.body.round = round;
        let expected = Rejection::WrongRound { height: HEIGHT, said: round, decided: ROUND };
        assert_eq!(scene.verify().unwrap_err(), expected);
    }
}

#[test]
fn another_commitment_is_refused() {
    let mut scene = Scene::new();
    scene.body.kzg_commitment[47] ^= 1;
    assert_eq!(scene.label(), "commitment_mismatch");
}

#[test]
fn another_keccak_is_refused_with_the_bytes_and_without_them() {
    let mut scene = Scene::new();
    scene.body.blob_keccak[31] ^= 1;
    assert_eq!(scene.label(), "keccak_mismatch");
    assert_eq!(scene.known.reads.get(), 0, "the stored hash was enough");
    scene.known.bytes.clear();
    assert_eq!(scene.label(), "keccak_mismatch");
}

#[test]
fn the_keccak_is_recomputed_from_the_bytes_where_they_are_here() {
    let mut scene = Scene::new();
    scene.known.bytes.get_mut(&(HEIGHT, INDEX)).unwrap()[7] ^= 1;
    assert_eq!(scene.label(), "keccak_mismatch", "the hash stored is right and the bytes are not");
    // Pruned bytes cannot be hashed; what was stored when they came still decides.
    scene.known.bytes.clear();
    assert!(scene.verify().is_ok());
}

#[test]
fn a_hash_is_never_learned_from_a_notice() {
    let mut scene = Scene::new();
    let other = blob(2);
    scene.body.blob_keccak = alloy_primitives::keccak256(&other).0;
    scene.known.bytes.insert((HEIGHT, INDEX), other);
    assert_eq!(scene.label(), "keccak_mismatch", "the bytes agree, what was decided does not");
    let stored = scene.known.heights.get_mut(&HEIGHT).unwrap();
    stored.2[1].keccak = BlobKeccak([0; 32]);
    assert_eq!(scene.label(), "keccak_mismatch");
}

#[test]
fn the_same_from_the_same_signer_is_accepted_silently() {
    let mut scene = Scene::new();
    scene.record(Statement::V1(scene.body.clone()));
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate);
    // Another time beside it changes nothing of what was signed.
    scene.archived_at += 1;
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate);
    assert_eq!(scene.known.reads.get(), 0, "a repetition costs no hash of a blob");
}

#[test]
fn something_else_from_the_same_signer_is_a_conflict() {
    let changes: [fn(&mut Scene); 3] = [
        |scene| scene.body.locators.truncate(1),
        |scene| scene.body.locators.reverse(),
        |scene| scene.body.archived_at_height += 1,
    ];
    for change in changes {
        let mut scene = Scene::new();
        scene.record(Statement::V1(scene.body.clone()));
        change(&mut scene);
        let (height, index, signer) = (HEIGHT, INDEX, id(1));
        assert_eq!(scene.verify().unwrap_err(), Rejection::Conflict { height, index, signer });
    }
}

#[test]
fn another_permitted_signer_adds_its_locators() {
    let mut scene = Scene::new();
    scene.record(Statement::V1(scene.body.clone()));
    let mut scene = scene.signed_by(2);
    scene.body.locators = vec![locator("elsewhere")];
    assert_eq!(scene.label(), "not_proposer");
    scene.verifier.signers = Signers::AnyValidatorAfter(5);
    let accepted = scene.verify().unwrap();
    assert_eq!(accepted.addition, Addition::AddsLocators);
    assert_eq!(accepted.notice.claim().locators, [locator("elsewhere")]);
    scene.record(Statement::V1(scene.body.clone()));
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate);
}

#[test]
fn v0_is_off_unless_it_is_turned_on() {
    let mut scene = Scene::new();
    scene.as_v0 = true;
    assert_eq!(scene.verify().unwrap_err(), Rejection::V0Disabled);
    scene.verifier.accept_v0 = true;
    let accepted = scene.verify().unwrap();
    assert_eq!(accepted.addition, Addition::New);
    assert_eq!(accepted.notice.form(), NoticeForm::V0);
    // It names no chain, so it is accepted on any.
    scene.verifier.chain_id += 1;
    assert!(scene.verify().is_ok());
}

#[test]
fn a_v0_record_never_stands_in_the_way_of_the_signers_own_v1_notice() {
    let mut scene = Scene::new();
    let mut replayed = scene.body_v0();
    replayed.locator = locator("on another chain");
    scene.record(Statement::V0(replayed));
    assert_eq!(scene.verify().unwrap().addition, Addition::AddsLocators);
    scene.record(Statement::V1(scene.body.clone()));
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate);
}

#[test]
fn a_v0_notice_repeats_or_contradicts_what_its_signer_said_before() {
    let mut scene = Scene::new();
    scene.verifier.accept_v0 = true;
    scene.as_v0 = true;
    scene.record(Statement::V1(scene.body.clone()));
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate, "one of its locators");
    scene.body.locators[0] = locator("elsewhere");
    assert_eq!(scene.label(), "conflict");
    let mut scene = Scene::new();
    scene.verifier.accept_v0 = true;
    scene.as_v0 = true;
    scene.record(Statement::V0(scene.body_v0()));
    assert_eq!(scene.verify().unwrap().addition, Addition::Duplicate);
    scene.archived_at += 1;
    assert_eq!(scene.label(), "conflict", "in V0 the time is signed");
}

#[test]
fn an_error_of_our_own_is_no_rejection() {
    let mut scene = Scene::new();
    scene.known.broken = true;
    let result = scene.verifier.verify(&scene.bytes(), scene.head, &&scene.known);
    assert!(matches!(result, Err(SidecarError::Refused { .. })), "{result:?}");
}

#[test]
fn signing_the_same_record_again_gives_the_same_bytes() {
    let scene = Scene::new();
    assert_eq!(scene.bytes(), scene.bytes());
    let later = sign(scene.body.clone(), 5, &key(1)).unwrap();
    let (later, notice) = (secateur_core::notice::Notice::V1(later), scene.notice());
    assert_eq!(later.signature(), notice.signature());
    assert_eq!(notice_digest(&later), notice_digest(&notice));
}

#[test]
fn what_no_notice_may_say_is_not_signed() {
    let scene = Scene::new();
    let mut body = scene.body.clone();
    body.locators.clear();
    assert!(sign(body, 0, &key(1)).is_err());
    let mut body = scene.body_v0();
    body.locator.key.clear();
    assert!(crate::notice::sign_v0(body, &key(1)).is_err());
}
