//! A source of payloads for the export, made of a few numbers, and consistent as a store is.

use std::sync::LazyLock;

use secateur_core::{Cursor, ExportError, Height, PayloadSource, Segment};

/// Lengths that matter: nothing, one, around one index entry, over the budget, over the clamp.
const LENS: [u32; 16] =
    [0, 0, 0, 1, 2, 35, 36, 47, 48, 49, 255, 256, 4096, 65_537, 1_499_999, 1_500_001];

/// The most blocks that a source has.
pub const MAX_BLOCKS: u64 = 8;

/// Payloads are pieces of this; two that begin at other places of a period differ.
const PERIOD: u64 = 251;
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let most = u64::from(LENS.iter().copied().max().unwrap_or(0)) + PERIOD;
    (0..most).map(|at| u8::try_from(at % PERIOD).unwrap_or(0)).collect()
});

/// A chain of at most [`MAX_BLOCKS`] blocks, of which the oldest may be cut and the newest may
/// not be final.
#[derive(Debug)]
pub struct Source {
    /// The first height that ever was.
    pub first: Height,
    /// Blocks that ever were.
    pub blocks: u64,
    /// How many of them are cut.
    pub cut: u64,
    /// How many of the newest are not exportable.
    pub unfinal: u64,
    /// Which lengths the payloads have.
    pub seed: u8,
}

/// What a call can answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The protocol's own answers.
    Export(ExportError),
    /// A height that the protocol should never have asked for.
    OutOfRange(Height),
}

impl From<ExportError> for Answer {
    fn from(error: ExportError) -> Self {
        Self::Export(error)
    }
}

/// One call: the source, the cursor and the budget.
#[derive(Debug)]
pub struct Call {
    /// The chain.
    pub source: Source,
    /// Where to begin.
    pub cursor: Option<Cursor>,
    /// The budget.
    pub max_bytes: u32,
}

impl Call {
    /// Reads a call from exactly the bytes that `bytes` gives; what is missing is zero.
    ///
    /// `first u64 · blocks u8 · cut u8 · unfinal u8 · seed u8 · cursor flag u8 · delta i16 ·
    /// segment u8 · byte_offset u32 · max_bytes u32`
    pub fn read(bytes: &[u8]) -> Self {
        let mut all = [0u8; 24];
        for (to, from) in all.iter_mut().zip(bytes) {
            *to = *from;
        }
        let number = |at: usize, len: usize| {
            all.iter().skip(at).take(len).fold(0u64, |n, byte| n << 8 | u64::from(*byte))
        };
        // A store refuses the last height, so the highest head is one below it.
        let first = number(0, 8).min(u64::MAX - 1 - MAX_BLOCKS);
        let blocks = number(8, 1) % (MAX_BLOCKS + 1);
        // At least one block is always kept.
        let cut = number(9, 1) % blocks.max(1);
        let unfinal = number(10, 1) % (blocks + 1);
        let seed = u8::try_from(number(11, 1)).unwrap_or(0);
        let source = Source { first, blocks, cut, unfinal, seed };
        let delta = number(13, 2);
        let near = first.wrapping_add(delta).wrapping_sub(16);
        let cursor = Cursor {
            // Most cursors are near the chain; the rest are anywhere.
            block_number: if delta < 0xff00 { near } else { near.rotate_left(32) },
            segment: u8::try_from(number(15, 1)).unwrap_or(0),
            byte_offset: u32::try_from(number(16, 4)).unwrap_or(0),
        };
        let max_bytes = u32::try_from(number(20, 4)).unwrap_or(0);
        Self { source, cursor: (number(12, 1) % 8 != 0).then_some(cursor), max_bytes }
    }
}

impl Source {
    /// The oldest and newest kept heights.
    pub fn kept(&self) -> Option<(Height, Height)> {
        (self.blocks > 0).then(|| (self.first + self.cut, self.first + self.blocks - 1))
    }

    /// The length of a payload.
    pub fn len_of(&self, height: Height, segment: Segment) -> u32 {
        let mix = height.wrapping_mul(5).wrapping_add(u64::from(segment.tag()) * 3);
        let at = usize::try_from((mix ^ u64::from(self.seed)) % 16).unwrap_or(0);
        LENS.get(at).copied().unwrap_or(0)
    }

    /// The bytes of a payload.
    pub fn bytes_of(&self, height: Height, segment: Segment) -> Vec<u8> {
        let len = self.len_of(height, segment) as usize;
        let salt = height.wrapping_mul(3).wrapping_add(u64::from(segment.tag())) % PERIOD;
        let salt = usize::try_from(salt).unwrap_or(0);
        PATTERN.get(salt..salt + len).unwrap_or_default().to_vec()
    }

    fn check(&self, height: Height) -> Result<(), Answer> {
        match (self.kept(), self.export_head()) {
            (Some((oldest, _)), Some(head)) if (oldest..=head).contains(&height) => Ok(()),
            _ => Err(Answer::OutOfRange(height)),
        }
    }
}

impl PayloadSource for Source {
    type Error = Answer;

    fn first_height(&self) -> Option<Height> {
        (self.blocks > 0).then_some(self.first)
    }

    fn pruned_before(&self) -> Option<Height> {
        (self.cut > 0).then(|| self.first + self.cut - 1)
    }

    fn export_head(&self) -> Option<Height> {
        let last = self.blocks.checked_sub(self.unfinal + 1)?;
        Some(self.first + last)
    }

    fn oldest_kept(&self) -> Option<Height> {
        self.kept().map(|(oldest, _)| oldest)
    }

    fn payload_lens(&self, height: Height) -> Result<[u32; 3], Answer> {
        self.check(height)?;
        Ok(Segment::ALL.map(|segment| self.len_of(height, segment)))
    }

    fn payload(&self, height: Height, segment: Segment) -> Result<Vec<u8>, Answer> {
        self.check(height)?;
        Ok(self.bytes_of(height, segment))
    }
}
