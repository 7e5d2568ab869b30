//! Stable memory that can be taken back to where a message found it.

use std::collections::HashMap;

const PAGE: usize = 65_536;
/// What is remembered of what a message writes over, at a time.
const GRAIN: usize = 4096;

/// A stable memory.
#[derive(Debug, Default)]
pub struct Stable {
    bytes: Vec<u8>,
    /// The length before the message, and what it wrote over.
    before: usize,
    over: HashMap<usize, Vec<u8>>,
    /// The subnet has no more of it to give.
    pub is_all: bool,
}

impl Stable {
    /// A memory with these bytes.
    pub fn of(image: &[u8]) -> Self {
        Self { bytes: image.to_vec(), ..Self::default() }
    }

    /// All of it.
    pub fn image(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// Pages that it has.
    pub fn pages(&self) -> u64 {
        (self.bytes.len() / PAGE) as u64
    }

    /// A message begins.
    pub fn begin(&mut self) {
        self.before = self.bytes.len();
        self.over.clear();
    }

    /// A message ended, and what it did stays or does not.
    pub fn end(&mut self, stays: bool) {
        let over = std::mem::take(&mut self.over);
        if stays {
            return;
        }
        self.bytes.truncate(self.before);
        for (grain, was) in over {
            let at = grain * GRAIN;
            self.bytes[at..at + was.len()].copy_from_slice(&was);
        }
    }

    /// Makes it longer; -1 says that there is no more.
    pub fn grow(&mut self, pages: u64) -> i64 {
        if self.is_all && pages > 0 {
            return -1;
        }
        let had = self.pages();
        let more = usize::try_from(pages).unwrap();
        self.bytes.resize(self.bytes.len() + more * PAGE, 0);
        i64::try_from(had).unwrap()
    }

    /// Bytes of a range that must be there.
    pub fn read(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }

    /// Writes to a range that must be there.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        let from = usize::try_from(offset).ok()?;
        let end = from.checked_add(bytes.len()).filter(|end| *end <= self.bytes.len())?;
        for grain in from / GRAIN..end.div_ceil(GRAIN) {
            let at = grain * GRAIN;
            if at < self.before && !self.over.contains_key(&grain) {
                self.over.insert(grain, self.bytes[at..at + GRAIN].to_vec());
            }
        }
        self.bytes[from..end].copy_from_slice(bytes);
        Some(())
    }
}
