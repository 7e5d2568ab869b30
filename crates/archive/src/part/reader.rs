//! Opening a part, and reading one block of it: the end, the beginning and one frame.

use bytes::Bytes;
use secateur_core::{Block, CoreError, Height};

use super::frame::unpack;
use super::layout::{HEADER_LEN, PartHeader, TABLE_FOOTER_LEN, Table, end_len};
use super::record::decode_records;
use super::{PartScan, RangeRead};
use crate::{ArchiveError, Check, Manifest};

/// How much of the end is read at once. The end of a part of 1 GiB is about 60 KiB long.
const END_GUESS: u64 = 64 * 1024;

/// An open part: its header and frame table were read and agree with one another.
#[derive(Debug)]
pub struct PartReader<R> {
    pub(super) source: R,
    pub(super) header: PartHeader,
    pub(super) header_bytes: Bytes,
    pub(super) table: Table,
    pub(super) end_bytes: Bytes,
}

impl<R: RangeRead> PartReader<R> {
    /// Reads the part's end and its beginning.
    pub async fn open(source: R) -> Result<Self, ArchiveError> {
        let size = source.size();
        if size < HEADER_LEN + TABLE_FOOTER_LEN {
            return Err(ArchiveError::damaged(source.name(), "it is too short for a part"));
        }
        let guess = size - END_GUESS.min(size);
        let mut end = source.read(guess..size).await?;
        let wanted = end_len(&end).map_err(damage(&source))?;
        let Some(start) = size.checked_sub(wanted).filter(|start| *start >= HEADER_LEN) else {
            return Err(ArchiveError::damaged(source.name(), "it is shorter than its table"));
        };
        if start < guess {
            let more = source.read(start..guess).await?;
            end = [more, end].concat().into();
        } else {
            // What lies before the end was read too; it is not needed.
            end = end.slice(usize::try_from(start - guess).unwrap_or(0)..);
        }
        let header_bytes = source.read(0..HEADER_LEN).await?;
        Self::from_ends(source, header_bytes, end)
    }

    /// Puts an open part together from its beginning and its end.
    pub(super) fn from_ends(
        source: R,
        header_bytes: Bytes,
        end_bytes: Bytes,
    ) -> Result<Self, ArchiveError> {
        let table = Table::decode(&end_bytes, source.size()).map_err(damage(&source))?;
        let header = PartHeader::decode(&header_bytes).map_err(damage(&source))?;
        table.check_header(&header, &header_bytes).map_err(damage(&source))?;
        Ok(Self { source, header, header_bytes, table, end_bytes })
    }

    /// What it says of itself.
    pub fn header(&self) -> &PartHeader {
        &self.header
    }

    /// Where its bytes come from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// One block, checked. One frame is read; blocks of it must link up to the wanted one.
    pub async fn block(&self, height: Height, check: Check) -> Result<Block, ArchiveError> {
        let missing = || {
            let (first, last) = (self.header.first, self.header.last);
            let reason = format!("block {height} is not in it; it has {first} to {last}");
            ArchiveError::invalid("height", reason)
        };
        if !(self.header.first..=self.header.last).contains(&height) {
            return Err(missing());
        }
        let at = self.table.frame_of(height).ok_or_else(missing)?;
        let (frame, count) = self.table.frame(at, self.header.last).ok_or_else(missing)?;
        let range = frame.offset..frame.offset + u64::from(frame.size);
        let bytes = self.source.read(range).await?;
        let (codec, chain_id) = (self.header.codec, self.header.chain_id);
        let mut previous = (at == 0).then_some(self.header.parent_hash);
        let take = move || -> Result<Option<Block>, ArchiveError> {
            let raw = unpack(&frame, &bytes)?;
            for block in decode_records(&raw, frame.first, count)? {
                link(previous.replace(block.meta.hash), &block)?;
                if block.meta.height == height {
                    check.block(codec, chain_id, &block)?;
                    return Ok(Some(block));
                }
            }
            Ok(None)
        };
        let block = blocking(take).await.map_err(|e| self.damaged(&e))?.ok_or_else(missing)?;
        if height == self.header.last && block.meta.hash != self.header.last_hash {
            let reason = "its last block is another one than its header says";
            return Err(ArchiveError::damaged(self.source.name(), reason));
        }
        Ok(block)
    }

    /// All blocks in order, with every hash checked on the way.
    pub fn scan(&self, check: Check) -> PartScan<'_, R> {
        PartScan::new(self, check)
    }

    /// Whether a manifest says what header and table say; the object's own hash is not looked at.
    pub(crate) fn agrees_with(&self, manifest: &Manifest) -> bool {
        *manifest == self.header.manifest(&self.table, self.source.size(), manifest.sha256)
    }

    pub(super) fn damaged(&self, error: &ArchiveError) -> ArchiveError {
        ArchiveError::damaged(self.source.name(), error.to_string())
    }
}

/// Refuses a block that does not stand on `previous`.
pub(super) fn link(
    previous: Option<secateur_core::BlockHash>,
    block: &Block,
) -> Result<(), ArchiveError> {
    match previous {
        Some(expected) if expected != block.meta.parent_hash => Err(ArchiveError::WrongParent {
            height: block.meta.height,
            expected,
            got: block.meta.parent_hash,
        }),
        _ => Ok(()),
    }
}

/// Runs what computes for milliseconds where it does not hold up other tasks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(ArchiveError::invalid("reading a part", e.to_string())),
    }
}

fn damage<R: RangeRead>(source: &R) -> impl FnOnce(CoreError) -> ArchiveError {
    let name = source.name().to_owned();
    move |e| ArchiveError::damaged(name, e.to_string())
}
