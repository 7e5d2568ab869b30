//! The index's first sector, kept twice.
//!
//! redb rewrites its header, magic and both commit slots in one sector at each commit. On a
//! medium where a sector that was being written can be garbage after a crash, that one sector
//! could lose the whole index. So the first 512 bytes live in two slots in turn, each with a
//! sequence number and a checksum: while one is being written the other is durable and untouched,
//! and a damaged slot is as if its write had never come.
//!
//! ```text
//! physical        0          4096         8192 + logical offset
//!                 slot 0     slot 1       the rest of redb's file, shifted
//! slot            magic 8 · sequence 8 · crc32c 4 · zeros to 512 · header 512
//! ```

use std::io;

use secateur_core::{Reader, Writer};

use super::volume::VolumeFile;

/// Bytes of the logical file that live in the slots.
pub(super) const HEADER_LEN: usize = 512;
/// How far the rest of the logical file is shifted.
pub(super) const SHIFT: u64 = 8192;

const SLOT_STRIDE: u64 = 4096;
const SLOT_LEN: usize = 1024;
const MAGIC: [u8; 8] = *b"SECINDEX";
/// redb writes its own magic last when it makes a file, and never without it afterwards.
const REDB_MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

type Header = [u8; HEADER_LEN];

/// The header as it is now, and which slot holds the durable one.
#[derive(Debug)]
pub(super) struct HeaderSlots {
    header: Header,
    durable: Option<(u64, u64)>,
    dirty: bool,
}

impl HeaderSlots {
    /// Reads the slots of a file. None means that the file was never finished being made: it has
    /// no durable header and can be made anew.
    pub(super) fn load(file: &impl VolumeFile) -> io::Result<Option<Self>> {
        if file.len()? < SHIFT {
            return Ok(None);
        }
        let slots = [Slot::read(file, 0)?, Slot::read(file, 1)?];
        let newest = slots
            .iter()
            .zip(0u64..)
            .filter_map(|(slot, at)| match slot {
                Slot::Whole(sequence, header) => Some((*sequence, at, header.clone())),
                _ => None,
            })
            .max_by_key(|(sequence, ..)| *sequence);
        match (newest, slots) {
            (Some((_, _, header)), _) if !header.starts_with(&REDB_MAGIC) => Ok(None),
            (Some((sequence, at, header)), _) => {
                Ok(Some(Self { header: *header, durable: Some((sequence, at)), dirty: false }))
            }
            // The second slot is written before anything is stored, so its absence dates a file
            // whose making was interrupted.
            (None, [_, Slot::Blank]) => Ok(None),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "both index headers are damaged")),
        }
    }

    /// No header yet.
    pub(super) fn blank() -> Self {
        Self { header: [0; HEADER_LEN], durable: None, dirty: false }
    }

    /// Copies what of the range lies in the header.
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        if let Some(from) = self.header.get(offset..offset + out.len()) {
            out.copy_from_slice(from);
        }
    }

    /// Changes the header and writes it into the slot that is not durable.
    pub(super) fn write(
        &mut self,
        file: &impl VolumeFile,
        offset: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        if let Some(to) = self.header.get_mut(offset..offset + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.dirty = true;
        let (sequence, slot) = self.next();
        file.write_at(slot * SLOT_STRIDE, &encode(sequence, &self.header))
    }

    fn next(&self) -> (u64, u64) {
        self.durable.map_or((1, 0), |(sequence, slot)| (sequence + 1, 1 - slot))
    }

    /// Called once the file is synced: the written slot is the durable one now.
    pub(super) fn synced(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.durable = Some(self.next());
        }
    }
}

fn encode(sequence: u64, header: &Header) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(&MAGIC).u64(sequence).u32(checksum(sequence, header));
    let mut slot = out.finish();
    slot.resize(SLOT_LEN - HEADER_LEN, 0);
    slot.extend_from_slice(header);
    slot
}

fn checksum(sequence: u64, header: &Header) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_be_bytes()), header)
}

enum Slot {
    Whole(u64, Box<Header>),
    Blank,
    Damaged,
}

impl Slot {
    fn read(file: &impl VolumeFile, at: u64) -> io::Result<Self> {
        let mut bytes = [0u8; SLOT_LEN];
        file.read_at(at * SLOT_STRIDE, &mut bytes)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Self::Blank);
        }
        Ok(Self::decode(&bytes).unwrap_or(Self::Damaged))
    }

    fn decode(bytes: &[u8]) -> Result<Self, secateur_core::CoreError> {
        let mut from = Reader::new("index header slot", bytes);
        let (magic, sequence, crc) = (from.array::<8>()?, from.u64()?, from.u32()?);
        let padding = from.take(SLOT_LEN - HEADER_LEN - 20)?;
        let header: Header = from.array()?;
        let whole = magic == MAGIC
            && crc == checksum(sequence, &header)
            && padding.iter().all(|byte| *byte == 0);
        Ok(if whole { Self::Whole(sequence, Box::new(header)) } else { Self::Damaged })
    }
}
