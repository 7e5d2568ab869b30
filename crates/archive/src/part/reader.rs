//! Reading a part.

use bytes::Bytes;
use secateur_core::{Block, BlockHash, Height};

use super::RangeRead;
use crate::{ArchiveError, Check, Codec, Day, Grain, Manifest};

/// What a part says of itself at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHeader {
    /// The chain.
    pub chain_id: u64,
    /// How its blocks are read.
    pub codec: Codec,
    /// The day it is filed under.
    pub day: Day,
    /// Its first block.
    pub first: Height,
    /// Its last block.
    pub last: Height,
    /// The parent of its first block.
    pub parent_hash: BlockHash,
    /// Its last block's hash.
    pub last_hash: BlockHash,
    /// The height at which the archive begins.
    pub origin: Height,
    /// The grain it was cut with.
    pub grain: Grain,
}

/// An open part: its header and frame table were read and agree with one another.
#[derive(Debug)]
pub struct PartReader<R> {
    source: R,
    header: PartHeader,
}

impl<R: RangeRead> PartReader<R> {
    /// Reads the part's end and its beginning.
    pub async fn open(source: R) -> Result<Self, ArchiveError> {
        let _ = source.read(0..0).await?;
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// What it says of itself.
    pub fn header(&self) -> &PartHeader {
        &self.header
    }

    /// Where its bytes come from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// One block, checked: one more range is read.
    pub async fn block(&self, _height: Height, _check: Check) -> Result<Block, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// All blocks in order, with every hash checked on the way.
    pub fn scan(&self, check: Check) -> PartScan<'_, R> {
        PartScan { reader: self, check }
    }
}

/// A walk over a whole part.
#[derive(Debug)]
pub struct PartScan<'a, R> {
    #[expect(dead_code, reason = "soon")]
    reader: &'a PartReader<R>,
    #[expect(dead_code, reason = "soon")]
    check: Check,
}

impl<R: RangeRead> PartScan<'_, R> {
    /// The blocks of the next frame; `None` behind the last.
    pub async fn next_blocks(&mut self) -> Result<Option<Vec<Block>>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Reads what is left, and what the part's manifest must say: every byte was hashed.
    pub async fn finish(self) -> Result<Manifest, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}

/// Reads a whole part that is in memory, without a runtime.
pub fn read_part(_bytes: &Bytes, _check: Check) -> Result<(PartHeader, Vec<Block>), ArchiveError> {
    Err(ArchiveError::invalid("archive", "not built yet"))
}
