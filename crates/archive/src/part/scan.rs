//! Walking over a whole part: every byte is read once and hashed, every block is linked.

use bytes::Bytes;
use secateur_core::{Block, BlockHash};
use sha2::{Digest as _, Sha256};

use super::frame::unpack;
use super::layout::{Frame, HEADER_LEN, PartHeader, TABLE_FOOTER_LEN, end_len};
use super::reader::{blocking, link};
use super::record::decode_records;
use super::{PartReader, RangeRead};
use crate::{ArchiveError, Check, Codec, Digest, Manifest};

/// Frames are read together up to this many bytes.
const READ_TARGET: u64 = 4 << 20;

/// A walk over a whole part.
#[derive(Debug)]
pub struct PartScan<'a, R> {
    reader: &'a PartReader<R>,
    /// `None` only while a frame is being checked, or after that failed.
    state: Option<State>,
    /// The next frame.
    at: usize,
    /// What was read ahead; begins with the next frame.
    ahead: Bytes,
}

/// What the walk carries from frame to frame.
#[derive(Debug)]
struct State {
    raw: Sha256,
    object: Sha256,
    previous: BlockHash,
    codec: Codec,
    chain_id: u64,
    check: Check,
}

impl State {
    fn new(header: &PartHeader, header_bytes: &[u8], check: Check) -> Self {
        let mut object = Sha256::new();
        object.update(header_bytes);
        let (codec, chain_id) = (header.codec, header.chain_id);
        let previous = header.parent_hash;
        Self { raw: Sha256::new(), object, previous, codec, chain_id, check }
    }

    /// Takes the next frame.
    fn frame(
        &mut self,
        frame: &Frame,
        count: u64,
        bytes: &[u8],
    ) -> Result<Vec<Block>, ArchiveError> {
        self.object.update(bytes);
        let raw = unpack(frame, bytes)?;
        self.raw.update(&raw);
        let blocks = decode_records(&raw, frame.first, count)?;
        for block in &blocks {
            link(Some(self.previous), block)?;
            self.check.block(self.codec, self.chain_id, block)?;
            self.previous = block.meta.hash;
        }
        Ok(blocks)
    }

    /// Compares what was seen with what the part says, and makes its manifest.
    fn finish<R: RangeRead>(mut self, reader: &PartReader<R>) -> Result<Manifest, ArchiveError> {
        let wrong = |reason: &str| Err(ArchiveError::damaged(reader.source.name(), reason));
        self.object.update(&reader.end_bytes);
        let (header, table) = (&reader.header, &reader.table);
        if self.previous != header.last_hash {
            return wrong("its last block is another one than its header says");
        }
        let raw_sha256 = Digest::from_hasher(self.raw);
        if raw_sha256 != table.raw_sha256 {
            return wrong("the SHA-256 of its raw stream is another one than its footer says");
        }
        let sha256 = Digest::from_hasher(self.object);
        Ok(header.manifest(table, reader.source.size(), sha256))
    }
}

impl<'a, R: RangeRead> PartScan<'a, R> {
    pub(super) fn new(reader: &'a PartReader<R>, check: Check) -> Self {
        let state = Some(State::new(&reader.header, &reader.header_bytes, check));
        Self { reader, state, at: 0, ahead: Bytes::new() }
    }

    /// The blocks of the next frame; `None` behind the last.
    pub async fn next_blocks(&mut self) -> Result<Option<Vec<Block>>, ArchiveError> {
        let Some((frame, count)) = self.reader.table.frame(self.at, self.reader.header.last) else {
            return Ok(None);
        };
        let Some(mut state) = self.state.take() else {
            return Err(ArchiveError::damaged(self.reader.source.name(), "it was given up before"));
        };
        let size = frame.size as usize;
        if self.ahead.len() < size {
            self.ahead = self.read_ahead(&frame).await?;
        }
        // `read_ahead` reads whole frames, this one at least.
        let bytes = self.ahead.split_to(size.min(self.ahead.len()));
        let take = move || {
            let blocks = state.frame(&frame, count, &bytes)?;
            Ok((state, blocks))
        };
        let (state, blocks) = blocking(take).await.map_err(|e| self.reader.damaged(&e))?;
        self.state = Some(state);
        self.at += 1;
        Ok(Some(blocks))
    }

    async fn read_ahead(&self, from: &Frame) -> Result<Bytes, ArchiveError> {
        let mut end = from.offset + u64::from(from.size);
        for frame in self.reader.table.frames.iter().skip(self.at + 1) {
            let next = frame.offset + u64::from(frame.size);
            if next - from.offset > READ_TARGET {
                break;
            }
            end = next;
        }
        self.reader.source.read(from.offset..end).await
    }

    /// Reads what is left, and gives what the part's manifest must say: every byte was hashed.
    pub async fn finish(mut self) -> Result<Manifest, ArchiveError> {
        while self.next_blocks().await?.is_some() {}
        match self.state.take() {
            Some(state) => state.finish(self.reader),
            None => Err(ArchiveError::damaged(self.reader.source.name(), "it was given up before")),
        }
    }
}

/// Reads a whole part that is in memory, without a runtime.
pub fn read_part(bytes: &Bytes, check: Check) -> Result<(Manifest, Vec<Block>), ArchiveError> {
    let short = || ArchiveError::damaged("the part in memory", "it is too short for a part");
    let size = bytes.len() as u64;
    if size < HEADER_LEN + TABLE_FOOTER_LEN {
        return Err(short());
    }
    let slice = |range: std::ops::Range<u64>| {
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end).unwrap_or(usize::MAX);
        bytes.get(start..end).map(|part| bytes.slice_ref(part)).ok_or_else(short)
    };
    let start = size.checked_sub(end_len(bytes)?).filter(|start| *start >= HEADER_LEN);
    let end = slice(start.ok_or_else(short)?..size)?;
    let reader = PartReader::from_ends(bytes.clone(), slice(0..HEADER_LEN)?, end)?;
    let mut state = State::new(&reader.header, &reader.header_bytes, check);
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some((frame, count)) = reader.table.frame(at, reader.header.last) {
        let bytes = slice(frame.offset..frame.offset + u64::from(frame.size))?;
        blocks.extend(state.frame(&frame, count, &bytes)?);
        at += 1;
    }
    Ok((state.finish(&reader)?, blocks))
}
