//! Export v1: cursor, chunks, and the rules that turn a cursor and a byte budget into chunks.
//!
//! [`read_chunks`] is the whole protocol; where the payloads come from is its caller's business
//! ([`PayloadSource`]). It pulls, never pushes, and the same cursor always gives the same bytes.

use serde::{Deserialize, Serialize};

use crate::{CoreError, Height};

/// The byte budget of a call that names none.
pub const DEFAULT_EXPORT_BYTES: u32 = 1_000_000;
/// A larger byte budget is clamped to this.
pub const MAX_EXPORT_BYTES: u32 = 1_500_000;

/// The three payloads of a block, in export order. The numbers are wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Segment {
    /// The block's own bytes.
    Block = 0,
    /// Its receipts.
    Receipts = 1,
    /// Its transaction index.
    TxIndex = 2,
}

impl Segment {
    /// All segments in order.
    pub const ALL: [Self; 3] = [Self::Block, Self::Receipts, Self::TxIndex];

    /// The segment's name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block segment",
            Self::Receipts => "receipts segment",
            Self::TxIndex => "tx_index segment",
        }
    }

    /// The segment's tag on the wire.
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The segment after this one.
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::Block => Some(Self::Receipts),
            Self::Receipts => Some(Self::TxIndex),
            Self::TxIndex => None,
        }
    }
}

impl TryFrom<u8> for Segment {
    type Error = CoreError;

    fn try_from(tag: u8) -> Result<Self, CoreError> {
        match tag {
            0 => Ok(Self::Block),
            1 => Ok(Self::Receipts),
            2 => Ok(Self::TxIndex),
            _ => Err(CoreError::decode("segment tag", format!("{tag} is not 0, 1 or 2"))),
        }
    }
}

/// A place in the stream of payloads. `segment` stays a raw tag because a cursor comes from
/// outside; [`read_chunks`] judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The block.
    pub block_number: Height,
    /// The segment's tag.
    pub segment: u8,
    /// Bytes of the payload already taken.
    pub byte_offset: u32,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { block_number, segment, byte_offset } = self;
        write!(f, "block {block_number}, segment {segment}, byte {byte_offset}")
    }
}

impl Cursor {
    /// The first byte of a block.
    pub const fn at_block(block_number: Height) -> Self {
        Self { block_number, segment: 0, byte_offset: 0 }
    }
}

/// A piece of one payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Which payload.
    pub segment: Segment,
    /// Where in it the bytes start.
    pub start: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The payload's whole length.
    pub payload_len: u32,
}

/// What one export call returns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportReply {
    /// The pieces, all of one block.
    pub chunks: Vec<Chunk>,
    /// Where to go on; none only when no cursor was given and nothing can be exported yet.
    pub next_cursor: Option<Cursor>,
}

/// Why an export call has no chunks to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ExportError {
    /// The cursor stands in a block that was cut.
    #[error("pruned: everything at or below block {pruned_before_block} is gone from this store")]
    Pruned {
        /// The boundary.
        pruned_before_block: Height,
    },
    /// The cursor names a place that cannot exist.
    #[error("invalid cursor: {reason}")]
    InvalidCursor {
        /// What is wrong with it.
        reason: String,
    },
    /// The byte budget cannot be served.
    #[error("limit: {reason}")]
    Limit {
        /// What is wrong with it.
        reason: String,
    },
}

/// The heights an export may speak of, and the payloads behind them.
pub trait PayloadSource {
    /// The source's own failure; it carries the protocol's answers too.
    type Error: From<ExportError>;

    /// The first height the source ever held.
    fn first_height(&self) -> Option<Height>;
    /// The boundary: everything at or below it is gone.
    fn pruned_before(&self) -> Option<Height>;
    /// The newest exportable block, if there is one at or above the oldest kept.
    fn export_head(&self) -> Option<Height>;
    /// The oldest kept block.
    fn oldest_kept(&self) -> Option<Height>;
    /// The lengths of a kept block's payloads, in segment order.
    fn payload_lens(&self, height: Height) -> Result<[u32; 3], Self::Error>;
    /// One payload of a kept block, whole and verified.
    fn payload(&self, height: Height, segment: Segment) -> Result<Vec<u8>, Self::Error>;
}

/// Answers one export call (the rules are in `docs/format/export.md`).
pub fn read_chunks<S: PayloadSource>(
    source: &S,
    cursor: Option<Cursor>,
    max_bytes: u32,
) -> Result<ExportReply, S::Error> {
    if max_bytes == 0 {
        return Err(ExportError::Limit { reason: "max_bytes is 0".into() }.into());
    }
    let Some(cursor) = cursor.or_else(|| start_of(source)) else {
        return Ok(ExportReply::default());
    };
    let segment = Segment::try_from(cursor.segment)
        .map_err(|_| invalid(format!("segment {} is not 0, 1 or 2", cursor.segment)))?;
    if !is_exportable(source, cursor)? {
        return Ok(ExportReply { chunks: Vec::new(), next_cursor: Some(cursor) });
    }
    let lens = source.payload_lens(cursor.block_number)?;
    let payload_len = len_of(lens, segment);
    if cursor.byte_offset > payload_len {
        let offset = cursor.byte_offset;
        return Err(invalid(format!("offset {offset} is past the payload's {payload_len}")).into());
    }
    fill(source, cursor, segment, lens, max_bytes.min(MAX_EXPORT_BYTES))
}

fn start_of<S: PayloadSource>(source: &S) -> Option<Cursor> {
    let (oldest, head) = (source.oldest_kept()?, source.export_head()?);
    (oldest <= head).then(|| Cursor::at_block(oldest))
}

/// Whether the cursor's block can be read now; `false` means that the consumer has caught up.
fn is_exportable<S: PayloadSource>(source: &S, cursor: Cursor) -> Result<bool, S::Error> {
    let height = cursor.block_number;
    if let Some(first) = source.first_height()
        && height < first
    {
        return Err(invalid(format!("block {height} is below the first block, {first}")).into());
    }
    if let Some(pruned_before_block) = source.pruned_before()
        && height <= pruned_before_block
    {
        return Err(ExportError::Pruned { pruned_before_block }.into());
    }
    Ok(source.export_head().is_some_and(|head| height <= head))
}

fn fill<S: PayloadSource>(
    source: &S,
    cursor: Cursor,
    first: Segment,
    lens: [u32; 3],
    max_bytes: u32,
) -> Result<ExportReply, S::Error> {
    let height = cursor.block_number;
    let (mut segment, mut start, mut left) = (first, cursor.byte_offset, max_bytes);
    let mut chunks = Vec::new();
    loop {
        let payload_len = len_of(lens, segment);
        let take = left.min(payload_len - start);
        let bytes = if take == 0 {
            Vec::new()
        } else {
            slice_of(source.payload(height, segment)?, start, take)
        };
        chunks.push(Chunk { segment, start, bytes, payload_len });
        left -= take;
        start += take;
        if start < payload_len {
            let next = Cursor { block_number: height, segment: segment.tag(), byte_offset: start };
            return Ok(ExportReply { chunks, next_cursor: Some(next) });
        }
        let Some(next) = segment.next() else {
            let next_cursor = Some(Cursor::at_block(height + 1));
            return Ok(ExportReply { chunks, next_cursor });
        };
        if left == 0 {
            let next = Cursor { block_number: height, segment: next.tag(), byte_offset: 0 };
            return Ok(ExportReply { chunks, next_cursor: Some(next) });
        }
        (segment, start) = (next, 0);
    }
}

fn slice_of(mut payload: Vec<u8>, start: u32, take: u32) -> Vec<u8> {
    let (start, take) = (start as usize, take as usize);
    payload.truncate(start.saturating_add(take));
    payload.drain(..start.min(payload.len()));
    payload
}

fn len_of(lens: [u32; 3], segment: Segment) -> u32 {
    let [block, receipts, tx_index] = lens;
    match segment {
        Segment::Block => block,
        Segment::Receipts => receipts,
        Segment::TxIndex => tx_index,
    }
}

fn invalid(reason: String) -> ExportError {
    ExportError::InvalidCursor { reason }
}

#[cfg(test)]
mod tests;
