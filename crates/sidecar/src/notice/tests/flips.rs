//! A notice that is changed on its way, by a bit or by more.

use proptest::prelude::*;
use secateur_core::notice::Notice;

use super::scene::{Scene, locator};
use crate::notice::Addition;

/// Where the unsigned time lies: before the signature.
fn is_time(bytes: &[u8], at: usize) -> bool {
    (bytes.len() - 72..bytes.len() - 64).contains(&at)
}

#[test]
fn any_bit_that_is_flipped_makes_a_notice_refused_unless_it_is_of_the_unsigned_time() {
    let mut scene = Scene::new();
    scene.verifier.accept_v0 = true;
    for as_v0 in [false, true] {
        scene.as_v0 = as_v0;
        let good = scene.bytes();
        assert!(scene.verify_bytes(&good).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let result = scene.verify_bytes(&bytes);
            if as_v0 || !is_time(&bytes, bit / 8) {
                assert!(result.is_err(), "v0: {as_v0}, bit {bit}: {result:?}");
                continue;
            }
            // It says the same thing: that is all that the time may do.
            let accepted = result.unwrap();
            assert_eq!(accepted.notice.statement(), scene.notice().statement());
            assert_eq!(accepted.notice.signature(), scene.notice().signature());
        }
    }
}

#[test]
fn a_time_that_was_changed_makes_no_second_record() {
    let mut scene = Scene::new();
    scene.record(scene.notice().statement());
    let mut bytes = scene.bytes();
    let at = bytes.len() - 65;
    bytes[at] ^= 1;
    assert_eq!(scene.verify_bytes(&bytes).unwrap().addition, Addition::Duplicate);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn bits_of_any_notice_that_are_flipped_make_it_refused(
        as_v0: bool,
        texts in prop::collection::hash_set("[a-z/ü]{1,60}", 1..=16),
        archived_at_height: u64,
        archived_at: u64,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 1..4),
    ) {
        let mut scene = Scene::new();
        scene.verifier.accept_v0 = true;
        scene.as_v0 = as_v0;
        scene.body.locators = texts.iter().map(|text| locator(text)).collect();
        scene.body.archived_at_height = archived_at_height;
        scene.archived_at = archived_at;
        let good = scene.bytes();
        prop_assert!(scene.verify_bytes(&good).is_ok());
        let mut bytes = good.clone();
        for (at, bit) in &flips {
            bytes[at.index(good.len())] ^= 1 << bit;
        }
        let changed = |at: usize| bytes[at] != good[at] && (as_v0 || !is_time(&good, at));
        if (0..good.len()).any(changed) {
            prop_assert!(scene.verify_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn no_bytes_make_verification_panic_and_none_are_accepted(
        bytes in prop::collection::vec(any::<u8>(), 0..400), first in 0..12u8,
    ) {
        let mut scene = Scene::new();
        scene.verifier.accept_v0 = true;
        let mut framed = vec![first];
        framed.extend_from_slice(&bytes);
        prop_assert!(scene.verify_bytes(&bytes).is_err());
        prop_assert!(scene.verify_bytes(&framed).is_err());
        prop_assert!(Notice::decode(&framed).is_err());
    }
}
