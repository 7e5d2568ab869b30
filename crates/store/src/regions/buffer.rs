//! Buffers for groups on their way to the arena: aligned, so that they can bypass the page cache,
//! and used again, because fresh memory costs as much as the copy into it.

use parking_lot::Mutex;

use crate::class::ALIGNMENT;

const ALIGN: usize = ALIGNMENT as usize;
/// Buffers that are kept for reuse, and how much they may take together.
const KEPT: usize = 6;
const KEPT_BYTES: usize = 128 << 20;

/// Bytes whose first one lies on a page border.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

/// The buffers that wait to be used again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<Buffer>>,
}

impl Buffers {
    /// An empty buffer with room for `len` bytes and the padding behind them.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let found = {
            let mut free = self.free.lock();
            let fits = |buffer: &Buffer| buffer.bytes.capacity() >= len + 2 * ALIGN;
            let at = free.iter().position(fits).or(free.len().checked_sub(1));
            at.map(|at| free.swap_remove(at))
        };
        let mut buffer = found.unwrap_or_default();
        buffer.bytes.clear();
        buffer.bytes.reserve(len + 2 * ALIGN);
        buffer.start = buffer.bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        buffer.bytes.resize(buffer.start, 0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&self, buffer: Buffer) {
        let mut free = self.free.lock();
        let kept: usize = free.iter().map(|buffer| buffer.bytes.capacity()).sum();
        if free.len() < KEPT && kept + buffer.bytes.capacity() <= KEPT_BYTES {
            free.push(buffer);
        }
    }
}

impl Buffer {
    /// Adds bytes.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Fills the last page with zeros.
    pub(crate) fn pad(&mut self) {
        let len = self.len().next_multiple_of(ALIGN);
        self.bytes.resize(self.start + len, 0);
    }

    /// How many bytes are in it.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_padded_and_used_again() {
        let buffers = Buffers::default();
        for len in [0usize, 1, 4096, 10_000, 3 << 20] {
            let mut buffer = buffers.take(len);
            buffer.extend(&vec![7; len]);
            buffer.pad();
            assert_eq!(buffer.len(), len.next_multiple_of(4096));
            assert_eq!(buffer.as_slice().as_ptr().align_offset(4096) % 4096, 0, "{len}");
            assert!(buffer.as_slice()[..len].iter().all(|byte| *byte == 7));
            assert!(buffer.as_slice()[len..].iter().all(|byte| *byte == 0));
            buffers.give_back(buffer);
        }
        assert_eq!(buffers.free.lock().len(), 1);
    }
}
