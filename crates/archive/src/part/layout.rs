//! Header, footer and seek table: the fixed shapes around a part's frames.
//!
//! Our own numbers are big-endian. The heads of skippable frames and the seek table belong to
//! Zstandard's formats and are little-endian.

use secateur_core::{BlockHash, CoreError, Height, Reader, Writer};

use super::{MAX_FRAME_RAW, MAX_FRAMES, MAX_PART_RAW, RECORD_HEAD_LEN};
use crate::{Codec, Day, Digest, Grain, Manifest, PART_VERSION};

const HEADER: &str = "part header";
const FOOTER: &str = "part footer";
const TABLE: &str = "part seek table";

const HEADER_MAGIC: [u8; 8] = *b"SECAPART";
const FOOTER_MAGIC: [u8; 8] = *b"SECAFOOT";
/// Zstandard's numbers for frames that a decoder skips; the last is the seek table's own.
const SKIP_HEADER: u32 = 0x184D_2A53;
const SKIP_FOOTER: u32 = 0x184D_2A54;
const SKIP_TABLE: u32 = 0x184D_2A5E;
const SEEKABLE_MAGIC: u32 = 0x8F92_EAB1;
const SKIP_HEAD: u64 = 8;

/// Bytes of the header's frame.
pub(super) const HEADER_LEN: u64 = SKIP_HEAD + 128;
/// Bytes at the very end that tell how long the rest of the end is.
pub(super) const TABLE_FOOTER_LEN: u64 = 9;
const ENTRY_LEN: u64 = 8;
const FOOTER_FIXED: u64 = 8 + 2 + 2 + 4 + 8 + 8 + 32 + 32;
const FOOTER_ENTRY: u64 = 8 + 32;

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

impl PartHeader {
    /// The header's whole frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&skip_head(SKIP_HEADER, 128)).bytes(&HEADER_MAGIC).u16(PART_VERSION);
        out.u8(self.codec.tag()).flag(self.grain.daily).u64(self.chain_id);
        out.u64(self.first).u64(self.last);
        out.bytes(&self.parent_hash.0).bytes(&self.last_hash.0);
        out.u32(self.day.number()).u64(self.origin);
        out.u64(self.grain.max_blocks.unwrap_or(0)).u64(self.grain.max_bytes);
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        let mut fields = Reader::new(HEADER, bytes);
        take_skip_head(&mut fields, SKIP_HEADER, 128)?;
        take_magic(&mut fields, HEADER_MAGIC)?;
        let tag = fields.u8()?;
        let codec = Codec::from_tag(tag)
            .ok_or_else(|| fields.error(format!("{tag} is not a codec of this build")))?;
        let daily = fields.flag()?;
        let (chain_id, first, last) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let parent_hash = BlockHash(fields.array()?);
        let last_hash = BlockHash(fields.array()?);
        let day = fields.u32()?;
        let day = Day::from_number(day)
            .ok_or_else(|| fields.error(format!("{day} is not the number of a day")))?;
        let origin = fields.u64()?;
        let max_blocks = Some(fields.u64()?).filter(|max| *max > 0);
        let grain = Grain { daily, max_blocks, max_bytes: fields.u64()? };
        if first > last || origin > first || grain.check().is_err() {
            return Err(fields.error("its range or its grain is impossible".to_owned()));
        }
        fields.finish()?;
        Ok(Self { chain_id, codec, day, first, last, parent_hash, last_hash, origin, grain })
    }

    /// What the manifest of a part with this header must say.
    pub(super) fn manifest(&self, table: &Table, size: u64, sha256: Digest) -> Manifest {
        Manifest {
            version: PART_VERSION,
            chain_id: self.chain_id,
            codec: self.codec,
            day: self.day,
            first: self.first,
            last: self.last,
            parent_hash: self.parent_hash,
            last_hash: self.last_hash,
            origin: self.origin,
            grain: self.grain,
            raw_size: table.raw_size,
            raw_sha256: table.raw_sha256,
            size,
            sha256,
        }
    }

    /// How many blocks it promises.
    pub(super) fn blocks(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// Where a frame is and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its first block.
    pub(super) first: Height,
    /// Its first byte in the part.
    pub(super) offset: u64,
    /// Its bytes.
    pub(super) size: u32,
    /// Its bytes when unpacked.
    pub(super) raw: u32,
    /// The SHA-256 of its bytes as they lie there.
    pub(super) sha256: Digest,
}

/// What the footer and the seek table say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) frames: Vec<Frame>,
    pub(super) blocks: u64,
    pub(super) raw_size: u64,
    pub(super) raw_sha256: Digest,
    pub(super) header_sha256: Digest,
}

impl Table {
    /// Footer and seek table, ready to be appended.
    pub(super) fn encode(&self) -> Result<Vec<u8>, CoreError> {
        let too_many = || CoreError::decode(TABLE, "a part of too many frames");
        let count = u32::try_from(self.frames.len()).map_err(|_| too_many())?;
        if count > MAX_FRAMES {
            return Err(too_many());
        }
        let footer_len = footer_len(count);
        let mut body = Writer::new();
        body.bytes(&FOOTER_MAGIC).u16(PART_VERSION).u16(0).u32(count);
        body.u64(self.blocks).u64(self.raw_size);
        body.bytes(&self.raw_sha256.0).bytes(&self.header_sha256.0);
        for frame in &self.frames {
            body.u64(frame.first).bytes(&frame.sha256.0);
        }
        let body = body.finish();
        let mut out = skip_head(SKIP_FOOTER, footer_len - SKIP_HEAD).to_vec();
        out.extend_from_slice(&body);
        out.extend_from_slice(&Digest::of(&body).0);

        let entries = u64::from(count) + 2;
        let table_len = entries * ENTRY_LEN + TABLE_FOOTER_LEN;
        out.extend_from_slice(&skip_head(SKIP_TABLE, table_len));
        // The header and the footer are frames too; they unpack to nothing.
        let narrow = |len: u64| u32::try_from(len).map_err(|_| too_many());
        let mut entry = |size: u32, raw: u32| {
            out.extend_from_slice(&le(size));
            out.extend_from_slice(&le(raw));
        };
        entry(narrow(HEADER_LEN)?, 0);
        for frame in &self.frames {
            entry(frame.size, frame.raw);
        }
        entry(narrow(footer_len)?, 0);
        out.extend_from_slice(&le(narrow(entries)?));
        out.push(0);
        out.extend_from_slice(&le(SEEKABLE_MAGIC));
        Ok(out)
    }

    /// Reads the end of a part of `size` bytes; `end` is exactly as long as [`end_len`] says.
    pub(super) fn decode(end: &[u8], size: u64) -> Result<Self, CoreError> {
        let count = frames_of(end)?;
        let (footer, table) = usize::try_from(footer_len(count))
            .ok()
            .and_then(|len| end.split_at_checked(len))
            .ok_or_else(|| CoreError::decode(FOOTER, "the part is cut off"))?;
        let mut result = decode_footer(footer, count)?;
        let mut entries = Reader::new(TABLE, table);
        let table_len = (u64::from(count) + 2) * ENTRY_LEN + TABLE_FOOTER_LEN;
        take_skip_head(&mut entries, SKIP_TABLE, table_len)?;
        let pair = |entries: &mut Reader<'_>| Ok((take_le(entries)?, take_le(entries)?));
        if pair(&mut entries)? != (u32::try_from(HEADER_LEN).unwrap_or(0), 0) {
            return Err(entries.error("the header's entry is wrong".to_owned()));
        }
        let mut offset = HEADER_LEN;
        let mut raw_size = 0u64;
        for frame in &mut result.frames {
            (frame.size, frame.raw) = pair(&mut entries)?;
            frame.offset = offset;
            offset += u64::from(frame.size);
            raw_size += u64::from(frame.raw);
            let raw = u64::from(frame.raw);
            if !(RECORD_HEAD_LEN..=MAX_FRAME_RAW).contains(&raw)
                || frame.size == 0
                || u64::from(frame.size) > 2 * MAX_FRAME_RAW
            {
                return Err(entries.error("a frame's size is impossible".to_owned()));
            }
        }
        if pair(&mut entries)? != (u32::try_from(footer.len()).unwrap_or(0), 0) {
            return Err(entries.error("the footer's entry is wrong".to_owned()));
        }
        if offset.checked_add(end.len() as u64) != Some(size) || raw_size != result.raw_size {
            return Err(entries.error("the sizes do not add up".to_owned()));
        }
        // The rest was read by `frames_of`.
        entries.take(usize::try_from(TABLE_FOOTER_LEN).unwrap_or(0))?;
        entries.finish()?;
        Ok(result)
    }

    /// Whether the header is the one that the footer was written for, and the two agree.
    pub(super) fn check_header(&self, header: &PartHeader, bytes: &[u8]) -> Result<(), CoreError> {
        let wrong = |reason: &str| Err(CoreError::decode(FOOTER, reason));
        if Digest::of(bytes) != self.header_sha256 {
            return wrong("the header's SHA-256 is another one");
        }
        if self.blocks != header.blocks() {
            return wrong("it counts other blocks than the header");
        }
        let mut firsts = self.frames.iter().map(|frame| frame.first);
        if firsts.next() != Some(header.first)
            || !self.frames.is_sorted_by(|a, b| a.first < b.first)
            || self.frames.last().is_none_or(|frame| frame.first > header.last)
        {
            return wrong("its frames' heights are impossible");
        }
        Ok(())
    }

    /// The place of the frame that has a block.
    pub(super) fn frame_of(&self, height: Height) -> Option<usize> {
        self.frames.partition_point(|frame| frame.first <= height).checked_sub(1)
    }

    /// A frame, and how many blocks it holds.
    pub(super) fn frame(&self, at: usize, last: Height) -> Option<(Frame, u64)> {
        let frame = *self.frames.get(at)?;
        let end = self.frames.get(at + 1).map_or(last.checked_add(1)?, |next| next.first);
        Some((frame, end.checked_sub(frame.first)?))
    }
}

fn decode_footer(bytes: &[u8], count: u32) -> Result<Table, CoreError> {
    let mut fields = Reader::new(FOOTER, bytes);
    take_skip_head(&mut fields, SKIP_FOOTER, bytes.len() as u64 - SKIP_HEAD)?;
    let body = fields.clone().take(fields.remaining().saturating_sub(32))?;
    take_magic(&mut fields, FOOTER_MAGIC)?;
    if fields.u16()? != 0 || fields.u32()? != count {
        return Err(fields.error("it counts other frames than the seek table".to_owned()));
    }
    let (blocks, raw_size) = (fields.u64()?, fields.u64()?);
    if raw_size > MAX_PART_RAW || blocks > raw_size / RECORD_HEAD_LEN {
        return Err(fields.error("its counts are impossible".to_owned()));
    }
    let (raw_sha256, header_sha256) = (Digest(fields.array()?), Digest(fields.array()?));
    // `count` was compared with the length of `bytes`.
    let mut frames = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (first, sha256) = (fields.u64()?, Digest(fields.array()?));
        frames.push(Frame { first, offset: 0, size: 0, raw: 0, sha256 });
    }
    if Digest(fields.array()?) != Digest::of(body) {
        return Err(fields.error("its own SHA-256 is another one".to_owned()));
    }
    fields.finish()?;
    Ok(Table { frames, blocks, raw_size, raw_sha256, header_sha256 })
}

/// How many bytes footer and seek table take, told by a part's last bytes.
pub(super) fn end_len(last_bytes: &[u8]) -> Result<u64, CoreError> {
    let count = frames_of(last_bytes)?;
    let table = SKIP_HEAD + (u64::from(count) + 2) * ENTRY_LEN + TABLE_FOOTER_LEN;
    Ok(footer_len(count) + table)
}

fn frames_of(last_bytes: &[u8]) -> Result<u32, CoreError> {
    let start = last_bytes.len().saturating_sub(usize::try_from(TABLE_FOOTER_LEN).unwrap_or(0));
    let mut fields = Reader::new(TABLE, last_bytes.get(start..).unwrap_or_default());
    let entries = take_le(&mut fields)?;
    let descriptor = fields.u8()?;
    if take_le(&mut fields)? != SEEKABLE_MAGIC || descriptor != 0 {
        return Err(fields.error("this is not the end of a part".to_owned()));
    }
    match entries.checked_sub(2) {
        Some(count) if (1..=MAX_FRAMES).contains(&count) => Ok(count),
        _ => Err(fields.error(format!("{entries} entries are impossible"))),
    }
}

fn footer_len(count: u32) -> u64 {
    SKIP_HEAD + FOOTER_FIXED + u64::from(count) * FOOTER_ENTRY + 32
}

fn take_magic(fields: &mut Reader<'_>, wanted: [u8; 8]) -> Result<(), CoreError> {
    if fields.array::<8>()? != wanted {
        return Err(fields.error("this is not a part".to_owned()));
    }
    let version = fields.u16()?;
    if version != PART_VERSION {
        return Err(fields.error(format!("version {version} is not known to this build")));
    }
    Ok(())
}

fn skip_head(magic: u32, len: u64) -> [u8; 8] {
    let mut head = [0u8; 8];
    let len = le(u32::try_from(len).unwrap_or(u32::MAX));
    for (to, from) in head.iter_mut().zip(le(magic).into_iter().chain(len)) {
        *to = from;
    }
    head
}

fn take_skip_head(fields: &mut Reader<'_>, magic: u32, len: u64) -> Result<(), CoreError> {
    if take_le(fields)? != magic || u64::from(take_le(fields)?) != len {
        return Err(fields.error("its frame's head is wrong".to_owned()));
    }
    Ok(())
}

#[expect(clippy::little_endian_bytes, reason = "Zstandard's formats are little-endian")]
fn le(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

#[expect(clippy::little_endian_bytes, reason = "Zstandard's formats are little-endian")]
fn take_le(fields: &mut Reader<'_>) -> Result<u32, CoreError> {
    Ok(u32::from_le_bytes(fields.array()?))
}
