//! Chunks and frames into whole blocks, and every rule of the export (`docs/format/export.md`) that
//! a consumer can check. A source that breaks one is not believed: `InvalidCursor`.

use secateur_core::{
    BlockMeta, Chunk, Cursor, ExportReply, Height, MAX_SEGMENT_LEN, Payloads, Segment,
};
use secateur_proto::export::v2::Frame;

use super::SourceBlock;
use crate::IndexError;

fn broken(reason: &str) -> IndexError {
    IndexError::InvalidCursor(format!("the source breaks the rules of export: {reason}"))
}

fn shown(cursor: Option<Cursor>) -> String {
    cursor.map_or_else(|| "none".into(), |cursor| cursor.to_string())
}

/// Where the next byte is, and what of its block is here already.
#[derive(Debug)]
pub struct Assembler {
    /// None before the first block of a source that was asked for its oldest.
    height: Option<Height>,
    /// None behind the last byte of the block.
    segment: Option<Segment>,
    offset: u32,
    /// Of the segment that is being read, once it is known.
    payload_len: Option<u32>,
    meta: Option<BlockMeta>,
    payloads: Payloads,
}

impl Assembler {
    /// Begins at a block, or at whichever the source's oldest one is.
    pub fn new(from: Option<Height>) -> Self {
        Self {
            height: from,
            segment: Some(Segment::Block),
            offset: 0,
            payload_len: None,
            meta: None,
            payloads: Payloads::default(),
        }
    }

    /// What to ask for next; none only before the first block.
    pub fn cursor(&self) -> Option<Cursor> {
        let block_number = self.height?;
        let segment = self.segment.unwrap_or(Segment::Block).tag();
        Some(Cursor { block_number, segment, byte_offset: self.offset })
    }

    /// Whether a block has begun and is not whole.
    pub fn is_inside(&self) -> bool {
        self.segment != Some(Segment::Block) || self.offset > 0
    }

    /// Takes an answer of export v1 to the question [`Self::cursor`] with that byte budget. The
    /// block, if it is whole now.
    pub fn take_reply(
        &mut self,
        reply: ExportReply,
        max_bytes: u32,
    ) -> Result<Option<SourceBlock>, IndexError> {
        let ExportReply { chunks, next_cursor } = reply;
        if chunks.is_empty() {
            // Caught up.
            return if next_cursor == self.cursor() {
                Ok(None)
            } else {
                Err(broken(&format!(
                    "no chunks, yet the next cursor is {} after {}",
                    shown(next_cursor),
                    shown(self.cursor())
                )))
            };
        }
        let sum = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum::<u64>();
        if sum > u64::from(max_bytes) {
            return Err(broken(&format!("{sum} bytes where {max_bytes} were asked for")));
        }
        for chunk in chunks {
            self.take_chunk(&chunk)?;
        }
        self.check_next(next_cursor)?;
        self.take_whole()
    }

    /// Takes a frame of export v2, with the meta that may be on it. The block, if it is whole now.
    pub fn take_frame(
        &mut self,
        frame: Frame,
        meta: Option<BlockMeta>,
    ) -> Result<Option<SourceBlock>, IndexError> {
        let Frame { block_number, segment, start, bytes, payload_len, ends_block, .. } = frame;
        let wanted = *self.height.get_or_insert(block_number);
        if block_number != wanted {
            return Err(broken(&format!("a frame of block {block_number} instead of {wanted}")));
        }
        let segment = u8::try_from(segment)
            .ok()
            .and_then(|tag| Segment::try_from(tag).ok())
            .ok_or_else(|| broken(&format!("segment {segment}")))?;
        self.take_meta(meta, segment, start)?;
        self.take_bytes(segment, start, &bytes, payload_len)?;
        if ends_block != self.segment.is_none() {
            return Err(broken(&format!(
                "a frame of block {block_number} {} end it, but says otherwise",
                if ends_block { "does not" } else { "does" }
            )));
        }
        self.take_whole()
    }

    fn take_meta(
        &mut self,
        meta: Option<BlockMeta>,
        segment: Segment,
        start: u32,
    ) -> Result<(), IndexError> {
        let Some(meta) = meta else { return Ok(()) };
        if segment != Segment::Block || start != 0 {
            return Err(broken("meta that is not on the first frame of its block"));
        }
        if Some(meta.height) != self.height {
            let on = self.height.map_or_else(|| "no block".into(), |height| height.to_string());
            return Err(broken(&format!("meta of block {} on {on}", meta.height)));
        }
        self.meta = Some(meta);
        Ok(())
    }

    fn take_chunk(&mut self, chunk: &Chunk) -> Result<(), IndexError> {
        self.take_bytes(chunk.segment, chunk.start, &chunk.bytes, chunk.payload_len)
    }

    fn take_bytes(
        &mut self,
        segment: Segment,
        start: u32,
        bytes: &[u8],
        payload_len: u32,
    ) -> Result<(), IndexError> {
        if self.segment != Some(segment) || self.offset != start {
            return Err(broken(&format!(
                "bytes of segment {} from {start} on, where {} from {} on was next",
                segment.tag(),
                self.segment.map_or_else(|| "none".into(), |segment| segment.tag().to_string()),
                self.offset
            )));
        }
        if payload_len > MAX_SEGMENT_LEN {
            return Err(broken(&format!("a segment of {payload_len} bytes")));
        }
        let known = *self.payload_len.get_or_insert(payload_len);
        if known != payload_len {
            return Err(broken(&format!("a segment of {known} bytes that became {payload_len}")));
        }
        let left = u64::from(payload_len).saturating_sub(u64::from(start));
        if bytes.len() as u64 > left {
            return Err(broken(&format!("{} bytes where {left} are left", bytes.len())));
        }
        if bytes.is_empty() && left > 0 {
            return Err(broken("an empty piece in the middle of a segment"));
        }
        let payload = match segment {
            Segment::Block => &mut self.payloads.block,
            Segment::Receipts => &mut self.payloads.receipts,
            Segment::TxIndex => &mut self.payloads.tx_index,
        };
        if start == 0 {
            payload.reserve_exact(payload_len as usize);
        }
        payload.extend_from_slice(bytes);
        if bytes.len() as u64 == left {
            (self.segment, self.offset, self.payload_len) = (segment.next(), 0, None);
        } else {
            // It is below the payload's length, which fits.
            self.offset = start.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// The next cursor is where the chunks end, in its normal form.
    fn check_next(&mut self, next: Option<Cursor>) -> Result<(), IndexError> {
        let Some(next) = next else {
            return Err(broken("chunks, but no next cursor"));
        };
        let whole = self.segment.is_none();
        // The first block of all is known by its end.
        let height = match self.height {
            Some(height) => height,
            None if whole => next
                .block_number
                .checked_sub(1)
                .ok_or_else(|| broken("a whole block before block 0"))?,
            None => next.block_number,
        };
        self.height = Some(height);
        let wanted = if whole {
            let above = height.checked_add(1);
            Cursor::at_block(above.ok_or_else(|| broken("a block above all numbers"))?)
        } else {
            let segment = self.segment.unwrap_or(Segment::Block).tag();
            Cursor { block_number: height, segment, byte_offset: self.offset }
        };
        if next == wanted {
            return Ok(());
        }
        Err(broken(&format!("the next cursor is {next} where {wanted} follows the chunks")))
    }

    /// The block, if it is whole; then the next one begins.
    fn take_whole(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        if self.segment.is_some() {
            return Ok(None);
        }
        let height = self.height.ok_or_else(|| broken("a block without a number"))?;
        let above = height.checked_add(1);
        let fresh = Self::new(Some(above.ok_or_else(|| broken("a block above all numbers"))?));
        let done = std::mem::replace(self, fresh);
        Ok(Some(SourceBlock { height, meta: done.meta, payloads: done.payloads }))
    }
}
