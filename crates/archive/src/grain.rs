//! Where one part ends and the next begins.
//!
//! Boundaries depend on the blocks, the archive's first height and the grain, and on nothing else:
//! not on the clock, not on when a worker was stopped. Two writers make the same parts. Only where
//! parts were lost do new ones end where those did, and where somebody's disk waits for a part it is
//! closed early ([`crate::Archiver::close`]).

use secateur_core::Block;
use serde::{Deserialize, Serialize};

use crate::part::{MAX_PART_RAW, record_len};
use crate::{ArchiveError, Day};

/// How much goes into a part. Whichever limit comes first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grain {
    /// A block of a later day (UTC) begins a new part.
    pub daily: bool,
    /// The most blocks of a part.
    pub max_blocks: Option<u64>,
    /// The most raw bytes of a part. A single block that is larger is a part of its own.
    pub max_bytes: u64,
}

impl Default for Grain {
    /// One part a day, or one for every GiB before compression.
    fn default() -> Self {
        Self { daily: true, max_blocks: None, max_bytes: 1 << 30 }
    }
}

impl Grain {
    /// Refuses a grain that no part could follow.
    pub fn check(&self) -> Result<(), ArchiveError> {
        if self.max_blocks == Some(0) || self.max_bytes == 0 {
            return Err(ArchiveError::invalid("archive grain", "a part of nothing"));
        }
        if self.max_bytes > MAX_PART_RAW {
            let reason = format!("a part is at most {MAX_PART_RAW} bytes before compression");
            return Err(ArchiveError::invalid("archive grain", reason));
        }
        Ok(())
    }
}

/// Which of some grains may have cut a part of so many blocks that is not there to ask: one that
/// always does, or else one that may have.
pub(crate) fn that_cuts(grains: impl Iterator<Item = Grain> + Clone, blocks: u64) -> Option<Grain> {
    let always = grains.clone().find(|grain| grain.max_blocks == Some(blocks));
    always.or_else(|| {
        let mut grains = grains;
        grains.find(|grain| grain.max_blocks.is_none_or(|max| blocks < max))
    })
}

/// What is in a part so far, as far as its end depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filling {
    /// The day the part is filed under.
    pub(crate) day: Day,
    /// Its blocks.
    pub(crate) blocks: u64,
    /// Their bytes.
    pub(crate) raw: u64,
}

impl Filling {
    /// A part that begins with this block, after a part of the day `before`. A clock that goes
    /// back does not open an old day again: keys then sort as heights do.
    pub(crate) fn begin(block: &Block, before: Option<Day>) -> Self {
        let day = Day::of_timestamp(block.meta.timestamp);
        Self { day: before.map_or(day, |before| before.max(day)), blocks: 0, raw: 0 }
    }

    /// Counts one more block.
    pub(crate) fn add(&mut self, block: &Block) {
        self.blocks += 1;
        self.raw += record_len(block);
    }

    /// Whether this block begins the next part.
    pub(crate) fn ends_before(&self, block: &Block, grain: &Grain) -> bool {
        self.blocks > 0
            && ((grain.daily && Day::of_timestamp(block.meta.timestamp) > self.day)
                || grain.max_blocks.is_some_and(|max| self.blocks >= max)
                || self.raw + record_len(block) > grain.max_bytes)
    }

    /// Whether no further block fits, whatever it is: the part need not wait for it.
    pub(crate) fn is_full(&self, grain: &Grain) -> bool {
        grain.max_blocks.is_some_and(|max| self.blocks >= max) || self.raw >= grain.max_bytes
    }
}
