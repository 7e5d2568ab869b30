//! File contents as sparse pages that are cheap to copy, and what a crash makes of writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The unit of sharing between images.
pub const PAGE: usize = 4096;
/// The unit that a medium writes whole or leaves as garbage.
pub const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE]>;

/// The content of one file. Pages of zeros are not stored, so equal contents are equal images.
#[derive(Debug, Clone, Default)]
pub struct FileImage {
    len: u64,
    pages: BTreeMap<u64, Page>,
    digest: u128,
}

/// A change of a file that is not durable before the next sync.
#[derive(Debug, Clone)]
pub enum FileOp {
    /// Bytes at an offset.
    Write(u64, Arc<[u8]>),
    /// A new length.
    SetLen(u64),
    /// A range given back; it reads as zero.
    Punch(u64, u64),
}

fn page_digest(index: u64, page: &[u8; PAGE]) -> u128 {
    xxh3_128_with_seed(page, index.wrapping_add(1))
}

impl FileImage {
    /// The file's length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A digest of content and length.
    pub fn digest(&self) -> u128 {
        self.digest ^ u128::from(self.len).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }

    /// Bytes of the pages that are stored.
    pub fn given(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// The offsets of stored pages.
    pub fn stored_pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().map(|index| index * PAGE as u64)
    }

    /// Fills `out` from `offset`; false when it reaches past the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(end) = offset.checked_add(out.len() as u64).filter(|end| *end <= self.len) else {
            return false;
        };
        let mut at = offset;
        let mut rest = out;
        while at < end {
            let (index, start) = split(at);
            let take = (PAGE - start).min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            match self.pages.get(&index).and_then(|page| page.get(start..start + take)) {
                Some(from) => now.copy_from_slice(from),
                None => now.fill(0),
            }
            at += take as u64;
            rest = later;
        }
        true
    }

    /// Applies a change whole.
    pub fn apply(&mut self, op: &FileOp) {
        match op {
            FileOp::Write(offset, bytes) => self.write(*offset, bytes),
            FileOp::SetLen(len) => self.set_len(*len),
            FileOp::Punch(offset, len) => self.zero(*offset, offset.saturating_add(*len)),
        }
    }

    /// Applies a write of which only some sectors landed: `fate` says for each sector whether it
    /// is the new one, the old one, or garbage.
    pub fn apply_torn(&mut self, op: &FileOp, mut fate: impl FnMut() -> SectorFate) {
        let FileOp::Write(offset, bytes) = op else {
            return;
        };
        let mut at = *offset;
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            let in_sector = SECTOR - usize::try_from(at % SECTOR as u64).unwrap_or(0);
            let (now, later) = rest.split_at(in_sector.min(rest.len()));
            match fate() {
                SectorFate::New => self.write(at, now),
                SectorFate::Old => {}
                SectorFate::Garbage(noise) => {
                    let garbage: Vec<u8> = now
                        .iter()
                        .zip(noise.to_be_bytes().iter().cycle())
                        .map(|(byte, noise)| byte ^ noise)
                        .collect();
                    self.write(at, &garbage);
                }
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// Changes one byte.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        let mut byte = [0u8];
        if self.read(offset, &mut byte) {
            let [byte] = byte;
            self.write(offset, &[byte ^ mask]);
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        // A write past the end lengthens the file, as it does on a file system.
        self.len = self.len.max(offset + bytes.len() as u64);
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (index, start) = split(at);
            let (now, later) = rest.split_at((PAGE - start).min(rest.len()));
            self.edit(index, |page| {
                if let Some(to) = page.get_mut(start..start + now.len()) {
                    to.copy_from_slice(now);
                }
            });
            at += now.len() as u64;
            rest = later;
        }
    }

    /// Changes the length; bytes beyond a shorter end are gone.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len);
        }
        self.len = len;
    }

    fn zero(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> = self
            .pages
            .range(from / PAGE as u64..to.div_ceil(PAGE as u64))
            .map(|(i, _)| *i)
            .collect();
        for index in touched {
            let base = index * PAGE as u64;
            let start = usize::try_from(from.saturating_sub(base)).unwrap_or(PAGE).min(PAGE);
            let end = usize::try_from(to.saturating_sub(base)).unwrap_or(PAGE).min(PAGE);
            self.edit(index, |page| {
                if let Some(range) = page.get_mut(start..end) {
                    range.fill(0);
                }
            });
        }
    }

    fn edit(&mut self, index: u64, change: impl FnOnce(&mut [u8; PAGE])) {
        let before = self.pages.remove(&index);
        if let Some(page) = &before {
            self.digest ^= page_digest(index, page);
        }
        let mut page = before.unwrap_or_else(|| Arc::new([0u8; PAGE]));
        change(Arc::make_mut(&mut page));
        if page.iter().any(|byte| *byte != 0) {
            self.digest ^= page_digest(index, &page);
            self.pages.insert(index, page);
        }
    }
}

/// What became of a sector.
#[derive(Debug, Clone, Copy)]
pub enum SectorFate {
    /// It was written.
    New,
    /// It was not.
    Old,
    /// It is neither.
    Garbage(u64),
}

fn split(offset: u64) -> (u64, usize) {
    let page = PAGE as u64;
    (offset / page, usize::try_from(offset % page).unwrap_or(0))
}
