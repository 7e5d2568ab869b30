//! A whole frame of a part at once, for whoever wants neighbours too. What deliberately does not
//! happen here: recomputing blocks; the caller does that for those it hands on.

use secateur_core::{Block, Height};

use super::frame::unpack;
use super::reader::{blocking, link};
use super::record::decode_records;
use super::{PartReader, RangeRead};
use crate::ArchiveError;

impl<R: RangeRead> PartReader<R> {
    /// The blocks of the frame that has a block, linked to one another; one range is read. They are
    /// as the part has them: [`crate::Check::block`] recomputes one.
    pub async fn frame_around(&self, height: Height) -> Result<Vec<Block>, ArchiveError> {
        let missing = || {
            let (first, last) = (self.header.first, self.header.last);
            let reason = format!("block {height} is not in it; it has {first} to {last}");
            ArchiveError::invalid("height", reason)
        };
        let at = self.table.frame_of(height).ok_or_else(missing)?;
        let (frame, count) = self.table.frame(at, self.header.last).ok_or_else(missing)?;
        let bytes = self.source.read(frame.offset..frame.offset + u64::from(frame.size)).await?;
        let mut previous = (at == 0).then_some(self.header.parent_hash);
        let take = move || -> Result<Vec<Block>, ArchiveError> {
            let blocks = decode_records(&unpack(&frame, &bytes)?, frame.first, count)?;
            for block in &blocks {
                link(previous.replace(block.meta.hash), block)?;
            }
            Ok(blocks)
        };
        let blocks = blocking(take).await.map_err(|e| self.damaged(&e))?;
        match blocks.last() {
            Some(last)
                if last.meta.height == self.header.last
                    && last.meta.hash != self.header.last_hash =>
            {
                let reason = "its last block is another one than its header says";
                Err(ArchiveError::damaged(self.source.name(), reason))
            }
            _ => Ok(blocks),
        }
    }
}
