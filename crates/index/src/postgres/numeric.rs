//! `numeric(78,0)` on the wire: an unsigned 256-bit number as PostgreSQL's own base-10,000 digits,
//! both ways. Numbers only; what they are sent in lives in `encode`.

use std::error::Error;

use alloy_primitives::U256;
use bytes::BufMut;
use tokio_postgres::types::{FromSql, Type};

/// Digits of base 10,000 in the largest number: 78 decimal digits.
const MOST_DIGITS: usize = 20;
/// Four digits of base 10,000 at once: the largest power of it that divides in 64 bits.
const FOUR_DIGITS: u64 = 10_000_000_000_000_000;
/// The head: how many digits, the weight of the first, the sign, how many decimals.
const HEAD: usize = 8;
/// The largest encoding.
const MOST_BYTES: usize = HEAD + 2 * MOST_DIGITS;

/// Divides a number in limbs, least first, by [`FOUR_DIGITS`]; the remainder is given back.
fn divide(limbs: &mut [u64; 4]) -> u64 {
    let mut remainder = 0_u64;
    for limb in limbs.iter_mut().rev() {
        let whole = (u128::from(remainder) << 64) | u128::from(*limb);
        // The remainder is below the divisor, so the quotient has 64 bits.
        *limb = u64::try_from(whole / u128::from(FOUR_DIGITS)).unwrap_or(u64::MAX);
        remainder = u64::try_from(whole % u128::from(FOUR_DIGITS)).unwrap_or(0);
    }
    remainder
}

/// A number as PostgreSQL's `numeric`, and how many of the bytes it takes.
pub(super) fn encoded(value: U256) -> ([u8; MOST_BYTES], usize) {
    let mut bytes = [0; MOST_BYTES];
    let mut out = bytes.as_mut_slice();
    put(value, &mut out);
    let left = out.len();
    (bytes, MOST_BYTES.saturating_sub(left))
}

fn put(value: U256, out: &mut impl BufMut) {
    let mut limbs = value.into_limbs();
    // Least digit first.
    let mut digits = [0_u16; MOST_DIGITS];
    let mut places = digits.iter_mut();
    let mut used = 0_usize;
    let mut place = 0_usize;
    while limbs.iter().any(|limb| *limb != 0) {
        let mut four = divide(&mut limbs);
        for digit in places.by_ref().take(4) {
            *digit = u16::try_from(four % 10_000).unwrap_or(0);
            four /= 10_000;
            place = place.saturating_add(1);
            if *digit != 0 {
                used = place;
            }
        }
    }
    let low = digits.iter().take(used).take_while(|digit| **digit == 0).count();
    let count = i16::try_from(used.saturating_sub(low)).unwrap_or(0);
    let weight = i16::try_from(used.saturating_sub(1)).unwrap_or(0);
    out.put_i16(count);
    out.put_i16(weight);
    out.put_u16(0);
    out.put_u16(0);
    for digit in digits.iter().take(used).skip(low).rev() {
        out.put_u16(*digit);
    }
}

/// A `numeric` that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numeric(pub U256);

fn not_a_number(why: &str) -> Box<dyn Error + Sync + Send> {
    format!("it is not a whole number of at most 256 bits: {why}").into()
}

/// Reads what [`put`] wrote.
fn get(raw: &[u8]) -> Result<U256, Box<dyn Error + Sync + Send>> {
    let (words, []) = raw.as_chunks::<2>() else { return Err(not_a_number("odd length")) };
    let mut words = words.iter().map(|word| u16::from_be_bytes(*word));
    let (Some(count), Some(weight), Some(sign), Some(_scale)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(not_a_number("it is cut short"));
    };
    if sign != 0 {
        return Err(not_a_number("it is negative, infinite or none"));
    }
    if usize::from(count) != words.len() || usize::from(count) > MOST_DIGITS {
        return Err(not_a_number("its length is wrong"));
    }
    if count == 0 {
        return Ok(U256::ZERO);
    }
    let whole = usize::from(weight).saturating_add(1);
    if whole > MOST_DIGITS || usize::from(count) > whole {
        return Err(not_a_number("it is out of range"));
    }
    let base = U256::from(10_000);
    let mut value = U256::ZERO;
    for digit in words.chain(std::iter::repeat(0)).take(whole) {
        value = value
            .checked_mul(base)
            .and_then(|value| value.checked_add(U256::from(digit)))
            .ok_or_else(|| not_a_number("it is out of range"))?;
    }
    Ok(value)
}

impl<'a> FromSql<'a> for Numeric {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        get(raw).map(Self)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    use proptest::prelude::*;

    fn encoded(value: U256) -> Vec<u8> {
        let (bytes, length) = super::encoded(value);
        bytes[..length].to_vec()
    }

    /// The digits as text, from the encoding alone.
    fn text(raw: &[u8]) -> String {
        let words: Vec<u16> =
            raw.chunks(2).map(|word| u16::from_be_bytes([word[0], word[1]])).collect();
        let mut text = String::new();
        for place in 0..=usize::from(words[1]) {
            let digit = words.get(4 + place).copied().unwrap_or(0);
            write!(text, "{digit:04}").unwrap();
        }
        let text = text.trim_start_matches('0');
        if text.is_empty() { "0".into() } else { text.into() }
    }

    #[test]
    fn known_numbers_have_their_known_bytes() {
        assert_eq!(encoded(U256::ZERO), [0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encoded(U256::from(1)), [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(encoded(U256::from(10_000)), [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(encoded(U256::from(10_001)), [0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1]);
        assert_eq!(encoded(U256::MAX).len(), MOST_BYTES);
        assert_eq!(text(&encoded(U256::MAX)), U256::MAX.to_string());
    }

    #[test]
    fn what_is_no_number_of_256_bits_is_refused() {
        let refused: [&[u8]; 7] = [
            &[],
            &[0, 1, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0x40, 0, 0, 0, 0, 1],
            &[0, 1, 0xff, 0xff, 0, 0, 0, 4, 0, 1],
            &[0, 2, 0, 0, 0, 0, 0, 4, 0, 1, 0, 1],
            &[0, 1, 0, 19, 0, 0, 0, 0, 0x27, 0x0f],
        ];
        for raw in refused {
            assert!(get(raw).is_err(), "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_the_same_as_its_text(limbs: [u64; 4], shift in 0_usize..256) {
            let value = U256::from_limbs(limbs) >> shift;
            let raw = encoded(value);
            prop_assert_eq!(text(&raw), value.to_string());
            prop_assert_eq!(get(&raw).unwrap(), value);
        }

        #[test]
        fn round_numbers_are_the_same_as_their_text(few in 0_u64..100_000, zeros in 0_u64..72) {
            let value = U256::from(few) * U256::from(10).pow(U256::from(zeros));
            let raw = encoded(value);
            prop_assert_eq!(text(&raw), value.to_string());
            prop_assert_eq!(get(&raw).unwrap(), value);
        }
    }
}
