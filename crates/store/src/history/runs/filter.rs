//! The filter of a run: "surely not here", or "look".
//!
//! A run holds up to a million ids and there are up to 64 runs, so a lookup must not read a page
//! of each. A filter answers from memory, in about 2.25 bytes an id, and errs in one direction
//! only: it never denies an id that is there; it claims an absent one in 1 of 65,536 times. It
//! outlives its run as a tombstone.

use secateur_core::{CoreError, Reader, Writer};
use xorf::{BinaryFuse16, Descriptor, Filter as _};

const WHAT: &str = "filter";

/// The format's name and version: the first bytes of an encoded filter.
const MAGIC: [u8; 4] = *b"SFL\x01";

/// The length of the checksum at the end.
const SEAL_LEN: usize = 4;

/// `xorf` computes its sizes in 32 bits without a check; this is far below what overflows them.
const MAX_KEYS: usize = 1 << 28;

/// A set of keys that may be asked, with a small error, whether it holds a key.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    /// None for the empty set: an empty fuse filter would still claim 1 of 65,536 keys.
    fuse: Option<BinaryFuse16>,
}

impl Filter {
    /// The filter of `keys`: sorted, duplicates allowed. The same keys give the same bytes.
    ///
    /// It is an error, never a panic and never a bad filter, when the keys are not sorted or the
    /// construction fails. Every key is looked up before the filter is handed out, since a lookup
    /// that is denied here is never corrected later.
    pub(crate) fn build(keys: &[u64]) -> Result<Self, CoreError> {
        if !keys.is_sorted() {
            return Err(CoreError::decode(WHAT, "its keys are not sorted"));
        }
        if keys.len() > MAX_KEYS {
            return Err(CoreError::decode(WHAT, format!("{} keys are too many", keys.len())));
        }
        let mut distinct = keys.to_vec();
        distinct.dedup();
        if distinct.is_empty() {
            return Ok(Self { fuse: None });
        }
        let fuse = BinaryFuse16::try_from(distinct.as_slice())
            .map_err(|reason| CoreError::decode(WHAT, reason))?;
        if !distinct.iter().all(|key| fuse.contains(key)) {
            return Err(CoreError::decode(WHAT, "it was built and denies one of its keys"));
        }
        Ok(Self { fuse: Some(fuse) })
    }

    /// Whether the key may be in the set; `false` is certain.
    pub(crate) fn contains(&self, key: u64) -> bool {
        self.fuse.as_ref().is_some_and(|fuse| fuse.contains(&key))
    }

    /// Whether it is the filter of no keys at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.fuse.is_none()
    }

    /// The memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let fingerprints = self.fuse.as_ref().map_or(0, |fuse| fuse.fingerprints.len());
        size_of::<Self>() + fingerprints * size_of::<u16>()
    }

    /// Its bytes: magic, seed, segment length, segments' length, number of fingerprints, the
    /// fingerprints, and a CRC-32C over all before. The empty set has zeros for the numbers.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&MAGIC);
        match &self.fuse {
            None => {
                out.u64(0).u32(0).u32(0).u32(0);
            }
            Some(BinaryFuse16 { descriptor, fingerprints }) => {
                out.u64(descriptor.seed).u32(descriptor.segment_length);
                out.u32(descriptor.segment_count_length);
                out.u32(u32::try_from(fingerprints.len()).unwrap_or(u32::MAX));
                for fingerprint in fingerprints {
                    out.u16(*fingerprint);
                }
            }
        }
        seal(out.finish())
    }

    /// Reads a filter. Nothing is allocated beyond the input's length, and a filter that is
    /// accepted answers every key without reaching outside its fingerprints, whatever wrote it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new(WHAT, unseal(WHAT, bytes)?);
        if from.array()? != MAGIC {
            return Err(from.error("it does not begin as one of this version".into()));
        }
        let seed = from.u64()?;
        let (segment_length, segment_count_length) = (from.u32()?, from.u32()?);
        let count = from.u32()?;
        if (seed, segment_length, segment_count_length, count) == (0, 0, 0, 0) {
            from.finish()?;
            return Ok(Self { fuse: None });
        }
        if fingerprints_of(segment_length, segment_count_length) != Some(count) {
            return Err(from.error(format!(
                "{count} fingerprints, segments of {segment_length} up to {segment_count_length}"
            )));
        }
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<u16>()));
        let Some(len) = len else {
            return Err(from.error(format!("{count} fingerprints are too many")));
        };
        let (pairs, _) = from.take(len)?.as_chunks();
        let fingerprints = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
        from.finish()?;
        let descriptor = Descriptor {
            seed,
            segment_length,
            segment_length_mask: segment_length.wrapping_sub(1),
            segment_count_length,
        };
        Ok(Self { fuse: Some(BinaryFuse16 { descriptor, fingerprints }) })
    }
}

/// How many fingerprints a filter of this shape has; None for a shape that cannot be.
///
/// A key is looked up at three places: `h0`, anywhere below `segment_count_length`, and one place
/// in each of the two segments behind the one `h0` is in. The place inside a segment is made by
/// xor with a mask, which stays inside only if a segment's length is a power of two and the
/// segments fill `segment_count_length`. So this many fingerprints are enough, none is too many,
/// and all three indices fit 32 bits.
fn fingerprints_of(segment_length: u32, segment_count_length: u32) -> Option<u32> {
    let whole = segment_length.is_power_of_two()
        && segment_count_length != 0
        && segment_count_length.is_multiple_of(segment_length);
    let behind = segment_length.checked_mul(2)?;
    segment_count_length.checked_add(behind).filter(|_| whole)
}

/// Appends the CRC-32C of `bytes`.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

/// What [`seal`] was given, if the checksum matches.
pub(super) fn unseal<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], CoreError> {
    match bytes.split_last_chunk::<SEAL_LEN>() {
        Some((body, crc)) if crc32c::crc32c(body).to_be_bytes() == *crc => Ok(body),
        _ => Err(CoreError::decode(what, "its checksum does not match")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    /// `count` keys that look random, sorted; sets of different seeds share none in practice.
    fn keys(seed: u64, count: u64) -> Vec<u64> {
        let mut keys: Vec<u64> =
            (0..count).map(|i| xxh3_64_with_seed(&i.to_be_bytes(), seed) >> 8).collect();
        keys.sort_unstable();
        keys
    }

    proptest! {
        #[test]
        fn no_key_is_denied_not_even_after_the_disk(
            mut keys in prop::collection::vec(any::<u64>(), 0..5000),
            again in any::<prop::sample::Index>(),
        ) {
            if !keys.is_empty() {
                keys.push(keys[again.index(keys.len())]);
            }
            keys.sort_unstable();
            let filter = Filter::build(&keys).unwrap();
            let bytes = filter.encode();
            let back = Filter::decode(&bytes).unwrap();
            prop_assert!(keys.iter().all(|key| filter.contains(*key) && back.contains(*key)));
            prop_assert_eq!(back.encode(), bytes);
            prop_assert_eq!(back.memory_bytes(), filter.memory_bytes());
        }

        /// Whatever decodes answers without a panic: the shape is drawn around valid ones and the
        /// checksum is made right, so only the validation of the shape stands in between.
        #[test]
        fn a_shape_that_is_accepted_answers_every_key(
            seed in any::<u64>(),
            length in prop_oneof![0u32..40, (0u32..10).prop_map(|bits| 1 << bits)],
            segments in 0u32..5, off in prop_oneof![Just(0u32), 0u32..3],
            more in -1i64..2,
            asked in prop::collection::vec(any::<u64>(), 200),
        ) {
            let count_length = segments * length + off;
            let count = i64::from(count_length) + 2 * i64::from(length) + more;
            let count = u32::try_from(count.max(0)).unwrap();
            let bytes = shaped(seed, length, count_length, count, count as usize);
            if let Ok(filter) = Filter::decode(&bytes) {
                for key in asked {
                    filter.contains(key);
                }
                prop_assert_eq!(filter.encode(), bytes);
            } else {
                let whole = length.is_power_of_two() && count_length > 0
                    && count_length % length == 0 && more == 0;
                prop_assert!(!whole, "{}, {}, {}", length, count_length, count);
            }
        }
    }

    /// A filter's bytes with a right checksum around any numbers.
    fn shaped(seed: u64, length: u32, count_length: u32, count: u32, held: usize) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&MAGIC).u64(seed).u32(length).u32(count_length).u32(count);
        out.bytes(&vec![7; 2 * held]);
        seal(out.finish())
    }

    #[test]
    fn every_small_number_of_keys_builds_and_the_same_keys_give_the_same_bytes() {
        for count in 0..600 {
            let keys = keys(count, count);
            let filter = Filter::build(&keys).unwrap();
            assert!(keys.iter().all(|key| filter.contains(*key)), "{count}");
            assert_eq!(filter.is_empty(), count == 0);
            assert_eq!(filter.encode(), Filter::build(&keys).unwrap().encode());
        }
    }

    /// The lengths just behind a step of `xorf`'s segment length are the ones that fail to peel.
    #[test]
    fn the_hard_sizes_build() {
        for count in [9, 29, 94, 312, 1_039, 3_459, 11_515, 38_344, 127_684] {
            for near in count - 1..=count + 3 {
                let filter = Filter::build(&keys(near, near)).unwrap();
                Filter::decode(&filter.encode()).unwrap();
            }
        }
    }

    #[test]
    fn an_absent_key_is_claimed_as_seldom_as_documented() {
        let filter = Filter::build(&keys(1, 100_000)).unwrap();
        let asked = keys(2, 1 << 20);
        let wrong = asked.iter().filter(|key| filter.contains(**key)).count();
        assert!(wrong > 0 && wrong < 52, "{wrong} of 2^20 is over 5e-5 (expected: 16)");
        assert!(filter.memory_bytes() < 240_000, "{} bytes", filter.memory_bytes());
    }

    #[test]
    fn the_empty_set_holds_nothing() {
        let filter = Filter::build(&[]).unwrap();
        let back = Filter::decode(&filter.encode()).unwrap();
        let asked = keys(3, 1 << 18);
        assert!(!asked.iter().any(|key| filter.contains(*key) || back.contains(*key)));
        assert!(back.is_empty());
    }

    #[test]
    fn keys_out_of_order_are_refused() {
        assert!(Filter::build(&[2, 1]).is_err());
    }

    #[test]
    fn every_flipped_byte_and_every_truncation_is_an_error() {
        for count in [0, 1, 20] {
            let bytes = Filter::build(&keys(4, count)).unwrap().encode();
            for at in 0..bytes.len() {
                assert!(Filter::decode(&bytes[..at]).is_err(), "cut at {at}");
                for flip in 1..=255 {
                    let mut bad = bytes.clone();
                    bad[at] ^= flip;
                    assert!(Filter::decode(&bad).is_err(), "byte {at}");
                }
            }
            assert!(Filter::decode(&[bytes, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_allocated() {
        for (length, count_length, count) in [
            (1 << 31, 1 << 31, u32::MAX),
            (1 << 30, 1 << 30, 3 << 30),
            (1, u32::MAX - 2, u32::MAX),
            (1, u32::MAX, 1),
            (0, 0, u32::MAX),
            (4, 0, 8),
            (4, 6, 14),
            (3, 3, 9),
        ] {
            assert!(Filter::decode(&shaped(1, length, count_length, count, 14)).is_err());
        }
        assert!(Filter::decode(&shaped(1, 4, 4, 12, 12)).is_ok());
        assert!(Filter::decode(&shaped(1, 4, 4, 12, 13)).is_err());
        assert!(Filter::decode(&shaped(0, 0, 0, 0, 1)).is_err());
    }
}
