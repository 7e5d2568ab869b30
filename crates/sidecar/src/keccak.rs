//! The keccak256 of many blobs at once.
//!
//! A sponge cannot be divided, but blobs are all of one length, so that several go through it side
//! by side: eight in a register of AVX-512, four in one of AVX2. Where a processor has neither, and
//! for a single blob, each is hashed as everywhere else. Which it is, is asked of the processor when
//! it runs; `pulp` has the safe way to these instructions.

use alloy_primitives::keccak256;

use crate::{BLOB_LEN, BlobKeccak};

/// A blob's bytes.
pub(crate) type BlobBytes = [u8; BLOB_LEN];

/// The hash of each, in their order.
pub(crate) fn keccak_all(blobs: &[&BlobBytes]) -> Vec<BlobKeccak> {
    #[cfg(target_arch = "x86_64")]
    if blobs.len() > 1 {
        if let Some(wide) = pulp::x86::V4::try_new() {
            return lanes::side_by_side::<_, 8>(wide, blobs);
        }
        if let Some(wide) = pulp::x86::V3::try_new() {
            return lanes::side_by_side::<_, 4>(wide, blobs);
        }
    }
    blobs.iter().map(|blob| BlobKeccak(keccak256(blob).0)).collect()
}

#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::inline_always,
    clippy::little_endian_bytes,
    clippy::many_single_char_names,
    reason = "what is not inlined lacks the instructions; keccak's words are little-endian, its rows a to e"
)]
mod lanes {
    use pulp::x86::{V3, V4};
    use pulp::{NullaryFnOnce, cast, u64x4, u64x8};

    use super::BlobBytes;
    use crate::BlobKeccak;

    /// Bytes and words of a block.
    const RATE: usize = 136;
    const WORDS: usize = RATE / 8;

    /// What each round adds.
    const ROUNDS: [u64; 24] = [
        0x0000_0000_0000_0001,
        0x0000_0000_0000_8082,
        0x8000_0000_0000_808A,
        0x8000_0000_8000_8000,
        0x0000_0000_0000_808B,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8009,
        0x0000_0000_0000_008A,
        0x0000_0000_0000_0088,
        0x0000_0000_8000_8009,
        0x0000_0000_8000_000A,
        0x0000_0000_8000_808B,
        0x8000_0000_0000_008B,
        0x8000_0000_0000_8089,
        0x8000_0000_0000_8003,
        0x8000_0000_0000_8002,
        0x8000_0000_0000_0080,
        0x0000_0000_0000_800A,
        0x8000_0000_8000_000A,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8080,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8008,
    ];

    /// Five rows of five words.
    type State<W> = [[W; 5]; 5];

    /// One word of each of `N` sponges, and what a round does with such.
    pub(super) trait Lanes<const N: usize>: Copy {
        type Word: Copy;
        /// Calls something with the instructions of this processor.
        fn with<F: NullaryFnOnce>(self, call: F) -> F::Output;
        fn splat(self, word: u64) -> Self::Word;
        fn load(self, words: [u64; N]) -> Self::Word;
        fn store(self, words: Self::Word) -> [u64; N];
        fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;
        /// `a ^ (!b & c)`.
        fn chi(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word;
        fn rotate<const BY: i32, const BACK: i32>(self, a: Self::Word) -> Self::Word;
    }

    impl Lanes<4> for V3 {
        type Word = u64x4;

        fn with<F: NullaryFnOnce>(self, call: F) -> F::Output {
            self.vectorize(call)
        }

        #[inline(always)]
        fn splat(self, word: u64) -> u64x4 {
            self.splat_u64x4(word)
        }

        #[inline(always)]
        fn load(self, words: [u64; 4]) -> u64x4 {
            cast(words)
        }

        #[inline(always)]
        fn store(self, words: u64x4) -> [u64; 4] {
            cast(words)
        }

        #[inline(always)]
        fn xor(self, a: u64x4, b: u64x4) -> u64x4 {
            cast(self.avx2._mm256_xor_si256(cast(a), cast(b)))
        }

        #[inline(always)]
        fn chi(self, a: u64x4, b: u64x4, c: u64x4) -> u64x4 {
            let masked = self.avx2._mm256_andnot_si256(cast(b), cast(c));
            cast(self.avx2._mm256_xor_si256(cast(a), masked))
        }

        #[inline(always)]
        fn rotate<const BY: i32, const BACK: i32>(self, a: u64x4) -> u64x4 {
            let up = self.avx2._mm256_slli_epi64::<BY>(cast(a));
            let down = self.avx2._mm256_srli_epi64::<BACK>(cast(a));
            cast(self.avx2._mm256_or_si256(up, down))
        }
    }

    impl Lanes<8> for V4 {
        type Word = u64x8;

        fn with<F: NullaryFnOnce>(self, call: F) -> F::Output {
            self.vectorize(call)
        }

        #[inline(always)]
        fn splat(self, word: u64) -> u64x8 {
            self.splat_u64x8(word)
        }

        #[inline(always)]
        fn load(self, words: [u64; 8]) -> u64x8 {
            cast(words)
        }

        #[inline(always)]
        fn store(self, words: u64x8) -> [u64; 8] {
            cast(words)
        }

        #[inline(always)]
        fn xor(self, a: u64x8, b: u64x8) -> u64x8 {
            cast(self.avx512f._mm512_xor_epi64(cast(a), cast(b)))
        }

        #[inline(always)]
        fn chi(self, a: u64x8, b: u64x8, c: u64x8) -> u64x8 {
            // The number is the truth table of a ^ (!b & c).
            cast(self.avx512f._mm512_ternarylogic_epi64::<0xD2>(cast(a), cast(b), cast(c)))
        }

        #[inline(always)]
        fn rotate<const BY: i32, const BACK: i32>(self, a: u64x8) -> u64x8 {
            cast(self.avx512f._mm512_rol_epi64::<BY>(cast(a)))
        }
    }

    /// The hashes of blobs, `N` of them at a time. The last ones may be fewer: then one of them is
    /// hashed in the places that are left, which costs nothing more.
    pub(super) fn side_by_side<L: Lanes<N>, const N: usize>(
        lanes: L,
        blobs: &[&BlobBytes],
    ) -> Vec<BlobKeccak> {
        let mut hashes = Vec::with_capacity(blobs.len().next_multiple_of(N));
        for some in blobs.chunks(N) {
            let Some(first) = some.first() else { break };
            let full = std::array::from_fn(|lane| *some.get(lane).unwrap_or(first));
            hashes.extend(lanes.with(Hash { lanes, blobs: full }));
        }
        hashes.truncate(blobs.len());
        hashes
    }

    struct Hash<'a, L, const N: usize> {
        lanes: L,
        blobs: [&'a BlobBytes; N],
    }

    impl<L: Lanes<N>, const N: usize> NullaryFnOnce for Hash<'_, L, N> {
        type Output = [BlobKeccak; N];

        #[inline(always)]
        fn call(self) -> [BlobKeccak; N] {
            hash(self.lanes, self.blobs)
        }
    }

    #[inline(always)]
    fn hash<L: Lanes<N>, const N: usize>(lanes: L, blobs: [&BlobBytes; N]) -> [BlobKeccak; N] {
        let mut state = [[lanes.splat(0); 5]; 5];
        let parts = blobs.map(|blob| blob.as_chunks::<RATE>());
        let mut blocks = parts.map(|(blocks, _)| blocks.iter());
        for _ in 0..size_of::<BlobBytes>() / RATE {
            // Each has as many as the others.
            let block = blocks.each_mut().map(|blocks| blocks.next().unwrap_or(&[0; RATE]));
            state = absorb(lanes, state, block);
        }
        let last = parts.map(|(_, rest)| padded(rest));
        state = absorb(lanes, state, last.each_ref());
        let [[one, two, three, four, _], ..] = state;
        let words = [one, two, three, four].map(|words| lanes.store(words));
        std::array::from_fn(|lane| {
            let mut hash = [0; 32];
            for (to, words) in hash.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = words.get(lane).copied().unwrap_or(0).to_le_bytes();
            }
            BlobKeccak(hash)
        })
    }

    /// What is left of a blob, filled up as keccak256 wants it.
    #[inline(always)]
    fn padded(rest: &[u8]) -> [u8; RATE] {
        let mut block = [0; RATE];
        for (to, byte) in block.iter_mut().zip(rest.iter().chain(&[1])) {
            *to = *byte;
        }
        if let Some(end) = block.last_mut() {
            *end |= 0x80;
        }
        block
    }

    #[inline(always)]
    fn absorb<L: Lanes<N>, const N: usize>(
        lanes: L,
        mut state: State<L::Word>,
        blocks: [&[u8; RATE]; N],
    ) -> State<L::Word> {
        let words = blocks.map(|block| block.as_chunks::<8>().0);
        for (at, word) in state.as_flattened_mut().iter_mut().take(WORDS).enumerate() {
            let read =
                |words: &[[u8; 8]]| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
            *word = lanes.xor(*word, lanes.load(words.map(read)));
        }
        for constant in ROUNDS {
            state = round(lanes, &state, constant);
        }
        state
    }

    #[inline(always)]
    fn round<L: Lanes<N>, const N: usize>(
        lanes: L,
        state: &State<L::Word>,
        constant: u64,
    ) -> State<L::Word> {
        let [t0, t1, t2, t3, t4] = beside(lanes, state);
        let [
            [a0, a1, a2, a3, a4],
            [b0, b1, b2, b3, b4],
            [c0, c1, c2, c3, c4],
            [d0, d1, d2, d3, d4],
            [e0, e1, e2, e3, e4],
        ] = *state;
        macro_rules! row {
            ($($word:ident $with:ident $by:literal),*) => {{
                let [a, b, c, d, e] =
                    [$(lanes.rotate::<$by, { 64 - $by }>(lanes.xor($word, $with))),*];
                let [a2, b2] = [lanes.chi(a, b, c), lanes.chi(b, c, d)];
                let [c2, d2] = [lanes.chi(c, d, e), lanes.chi(d, e, a)];
                [a2, b2, c2, d2, lanes.chi(e, a, b)]
            }};
        }
        let [first, rest @ ..] = row!(a0 t0 0, b1 t1 44, c2 t2 43, d3 t3 21, e4 t4 14);
        let [q1, q2, q3, q4] = rest;
        [
            [lanes.xor(first, lanes.splat(constant)), q1, q2, q3, q4],
            row!(a3 t3 28, b4 t4 20, c0 t0 3, d1 t1 45, e2 t2 61),
            row!(a1 t1 1, b2 t2 6, c3 t3 25, d4 t4 8, e0 t0 18),
            row!(a4 t4 27, b0 t0 36, c1 t1 10, d2 t2 15, e3 t3 56),
            row!(a2 t2 62, b3 t3 55, c4 t4 39, d0 t0 41, e1 t1 2),
        ]
    }

    /// For each column, the parities of the two beside it.
    #[inline(always)]
    fn beside<L: Lanes<N>, const N: usize>(lanes: L, state: &State<L::Word>) -> [L::Word; 5] {
        let [a, b, c, d, e] = *state;
        macro_rules! parity {
            ($($x:literal)*) => {
                [$(lanes.xor(
                    lanes.xor(lanes.xor(a[$x], b[$x]), lanes.xor(c[$x], d[$x])),
                    e[$x],
                )),*]
            };
        }
        let [p0, p1, p2, p3, p4] = parity!(0 1 2 3 4);
        macro_rules! with {
            ($($left:ident $right:ident),*) => {
                [$(lanes.xor($left, lanes.rotate::<1, 63>($right))),*]
            };
        }
        with!(p4 p1, p0 p2, p1 p3, p2 p4, p3 p0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blobs of bytes that follow from a number.
    fn blobs(count: u64) -> Vec<Box<BlobBytes>> {
        let blob = |which: u64| {
            let words = (0..BLOB_LEN as u64 / 32)
                .flat_map(move |at| keccak256([which.to_be_bytes(), at.to_be_bytes()].concat()).0);
            let bytes: Box<[u8]> = words.collect();
            Box::<BlobBytes>::try_from(bytes).unwrap()
        };
        (0..count).map(blob).collect()
    }

    #[test]
    fn any_number_of_blobs_has_the_hashes_that_each_has_by_itself() {
        let blobs = blobs(19);
        let blobs: Vec<&BlobBytes> = blobs.iter().map(Box::as_ref).collect();
        let each: Vec<_> = blobs.iter().map(|blob| BlobKeccak(keccak256(blob).0)).collect();
        for count in 0..=blobs.len() {
            assert_eq!(keccak_all(&blobs[..count]), each[..count], "{count} blobs");
        }
    }

    /// On a processor that has the wider ones, the narrower are never chosen.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_width_that_this_processor_has_gives_the_same_hashes() {
        let blobs = blobs(9);
        let blobs: Vec<&BlobBytes> = blobs.iter().map(Box::as_ref).collect();
        let each: Vec<_> = blobs.iter().map(|blob| BlobKeccak(keccak256(blob).0)).collect();
        if let Some(four) = pulp::x86::V3::try_new() {
            assert_eq!(lanes::side_by_side::<_, 4>(four, &blobs), each);
        }
        if let Some(eight) = pulp::x86::V4::try_new() {
            assert_eq!(lanes::side_by_side::<_, 8>(eight, &blobs), each);
        }
    }
}
