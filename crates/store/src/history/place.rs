//! Places: where a thing's bytes are, in either layout, and the arena ranges behind them.
//!
//! In the per-block layout a thing has regions of its own. In the packed layout it has a position
//! in one of three endless *streams*: history, runs, filters. A stream is cut into stretches of
//! the largest class; the table of streams says which region is behind which stretch. Positions
//! only ever grow, so nothing that was written is ever written over, and because all three
//! streams take regions of one size, what one gives back any other can use.

use std::fmt;
use std::ops::{ControlFlow, Range};

use secateur_core::{CoreError, Reader, Writer};

use super::state::Header;
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};
use crate::regions::region::{BlobPtr, read_ptrs, write_ptrs};
use crate::rows::Rows;

/// The streams of a packed store. The numbers are on-disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Blocks, oldest first.
    History = 0,
    /// Sealed runs of ids, oldest first.
    Runs = 1,
    /// Their filters, which stay longer.
    Filters = 2,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(stream_name(*self as u8))
    }
}

/// The name of a stream by its number, of which a damaged key may have any.
pub(crate) const fn stream_name(number: u8) -> &'static str {
    match number {
        0 => "history",
        1 => "runs",
        2 => "filters",
        _ => "unknown",
    }
}

/// How many streams there are.
pub(crate) const STREAMS: usize = 3;

/// Where a thing's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In regions of its own, end to end.
    Regions(Vec<BlobPtr>),
    /// At a position of a stream, end to end with its neighbours.
    Stream(u64),
}

impl Place {
    pub(crate) fn write(&self, out: &mut Writer) -> Result<(), StoreError> {
        match self {
            Self::Regions(ptrs) => {
                out.u8(0);
                write_ptrs(out, ptrs)
            }
            Self::Stream(position) => {
                out.u8(1).u64(*position);
                Ok(())
            }
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        match from.u8()? {
            0 => Ok(Self::Regions(read_ptrs(from)?)),
            1 => Ok(Self::Stream(read_position(from)?)),
            other => Err(from.error(format!("{other} is not a kind of place"))),
        }
    }

    /// Whether it is a position of a stream, in which things lie end to end.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether `len` bytes can be there.
    pub(crate) fn holds(&self, len: u64) -> bool {
        match self {
            Self::Regions(ptrs) => ptrs.iter().map(|ptr| u64::from(ptr.len)).sum::<u64>() == len,
            Self::Stream(position) => position.checked_add(len).is_some(),
        }
    }
}

/// Reads a stream position; none ever comes near the end of the numbers.
pub(crate) fn read_position(from: &mut Reader<'_>) -> Result<u64, CoreError> {
    let position = from.u64()?;
    if position >= MAX_POSITION {
        return Err(from.error(format!("{position} is no position of a stream")));
    }
    Ok(position)
}

/// Positions stay below this, so that adding to one cannot overflow.
pub(crate) const MAX_POSITION: u64 = 1 << 62;

/// A range of the arena, and the region that it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub offset: u64,
    pub len: u64,
    pub region: BlobPtr,
}

/// The key of a stretch in the table of streams.
pub(crate) fn stretch_key(stream: Stream, number: u64) -> Vec<u8> {
    let mut key = Writer::new();
    key.u8(stream as u8).u64(number);
    key.finish()
}

/// Reads such a key: the stream's number, and the stretch's.
pub(crate) fn read_stretch_key(key: &[u8]) -> Result<(u8, u64), StoreError> {
    let mut reader = Reader::new("stream key", key);
    let mut read = || Ok((reader.u8()?, reader.u64()?));
    let stretch = read().map_err(row_error("streams"))?;
    reader.finish().map_err(row_error("streams"))?;
    Ok(stretch)
}

/// Reads the region of a stretch.
pub(crate) fn read_stretch(body: &[u8]) -> Result<BlobPtr, StoreError> {
    let mut from = Reader::new("stream row", body);
    let ptr = BlobPtr::read(&mut from).map_err(row_error("streams"))?;
    from.finish().map_err(row_error("streams"))?;
    Ok(ptr)
}

/// The arena ranges of `len` bytes from `start` on, inside a place.
pub(crate) fn pieces(
    rows: &impl Snapshot,
    header: &Header,
    stream: Stream,
    place: &Place,
    start: u64,
    len: u64,
) -> Result<Vec<Piece>, StoreError> {
    match place {
        Place::Regions(ptrs) => region_pieces(ptrs, start, len),
        Place::Stream(position) => stream_pieces(rows, header, stream, position + start, len),
    }
}

fn region_pieces(ptrs: &[BlobPtr], start: u64, len: u64) -> Result<Vec<Piece>, StoreError> {
    let (mut skip, mut left) = (start, len);
    let mut found = Vec::new();
    for ptr in ptrs {
        let held = u64::from(ptr.len);
        if skip >= held {
            skip -= held;
            continue;
        }
        if left == 0 {
            break;
        }
        let take = (held - skip).min(left);
        found.push(Piece { offset: ptr.offset + skip, len: take, region: *ptr });
        (skip, left) = (0, left - take);
    }
    if left > 0 {
        return Err(StoreError::corrupt("blocks", "the regions end before the bytes do"));
    }
    Ok(found)
}

fn stream_pieces(
    rows: &impl Snapshot,
    header: &Header,
    stream: Stream,
    position: u64,
    len: u64,
) -> Result<Vec<Piece>, StoreError> {
    let size = header.stretch_len();
    let (mut at, end) = (position, position.saturating_add(len));
    let mut found: Vec<Piece> = Vec::new();
    while at < end {
        let (number, inside) = (at / size, at % size);
        let body = rows.row(Table::Streams, &stretch_key(stream, number))?.ok_or_else(|| {
            let detail = format!("stretch {number} of the stream {stream} has no region");
            StoreError::corrupt("streams", detail)
        })?;
        let region = read_stretch(&body)?;
        if u64::from(region.class) != size {
            return Err(StoreError::corrupt("streams", "a region of another class"));
        }
        let take = (size - inside).min(end - at);
        found.push(Piece { offset: region.offset + inside, len: take, region });
        at += take;
    }
    Ok(found)
}

/// The regions behind a range of a stream's stretches.
pub(crate) fn stretches(
    rows: &impl Snapshot,
    stream: Stream,
    numbers: Range<u64>,
) -> Result<Vec<(u64, BlobPtr)>, StoreError> {
    let mut found = Vec::new();
    if numbers.is_empty() {
        return Ok(found);
    }
    rows.rows(Table::Streams, &stretch_key(stream, numbers.start), |key, body| {
        let (at, number) = read_stretch_key(key)?;
        if at != stream as u8 || number >= numbers.end {
            return Ok(ControlFlow::Break(()));
        }
        found.push((number, read_stretch(body)?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
