//! Raw durable writers: one preallocated file that was written once before, overwritten
//! round-robin, a write and a sync of its own for each group. The sync of a group runs beside the
//! write of the next. They keep no index and can find nothing again: they are what the disk gives.

mod buffered;
mod direct;
mod uring;
mod worker;

pub use buffered::Buffered;
pub use direct::Direct;
pub use uring::Uring;
pub use worker::Worker;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, FallocateFlags, OFlags};
use secateur_core::{Block, Segment};

use super::IN_FLIGHT;

/// Groups begin at multiples of this, so that no page is written twice.
const PAGE: usize = 4096;
/// Buffers of all groups in flight together, unless two groups are more.
const BUFFER_BYTES: usize = 128 << 20;

/// The file, and where the next group goes.
struct Ring {
    file: File,
    len: u64,
    next: u64,
}

impl Ring {
    /// Makes the file and writes it once from end to end, so that everything timed overwrites.
    fn create(directory: &Path, budget: u64, direct: bool) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join("raw");
        let file = File::create_new(&path)?;
        let len = budget.next_multiple_of(PAGE as u64);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)
            .context("preallocating the raw writer's file")?;
        let zeros = vec![0u8; 1 << 20];
        let mut at = 0;
        while at < len {
            let take = usize::try_from(len - at).unwrap_or(usize::MAX).min(zeros.len());
            let part = zeros.get(..take).unwrap_or_default();
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        file.sync_all()?;
        // The kernel counts a page-cache folio as written whole. Folios from the loop above are
        // larger than a small group and would be counted again and again; the writer makes its
        // own in the warm-up.
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .context("emptying the page cache of the raw writer's file")?;
        let file = if direct {
            let flags = i32::try_from(OFlags::DIRECT.bits())?;
            OpenOptions::new().write(true).custom_flags(flags).open(&path)?
        } else {
            file
        };
        Ok(Self { file, len, next: 0 })
    }

    /// The offset of a group of so many bytes.
    fn place(&mut self, bytes: usize) -> Result<u64> {
        let whole = bytes.next_multiple_of(PAGE) as u64;
        if whole > self.len {
            bail!("a group of {bytes} bytes does not fit into {}", self.len);
        }
        if self.next + whole > self.len {
            self.next = 0;
        }
        let at = self.next;
        self.next += whole;
        Ok(at)
    }

    fn settings(&self, how: &str) -> String {
        format!(
            "one file of {} MiB, preallocated and written once, overwritten round-robin, {how}, \
             one sync a group, no index",
            self.len >> 20
        )
    }
}

/// Payload bytes of a group.
fn group_bytes(group: &[Block]) -> usize {
    segments(group).map(<[u8]>::len).sum()
}

/// The payloads of a group in their order.
fn segments(group: &[Block]) -> impl Iterator<Item = &[u8]> {
    group.iter().flat_map(|block| Segment::ALL.map(|segment| block.payloads.segment(segment)))
}

/// How many groups of so many bytes may be in flight.
fn depth(bytes: usize) -> usize {
    (BUFFER_BYTES / bytes.max(1)).clamp(2, IN_FLIGHT)
}

/// Memory for direct I/O: it begins at a multiple of the page size.
struct Aligned {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let memory = vec![0u8; len + PAGE];
        let from = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { memory, from, len }
    }

    /// Copies a group in; what follows it up to the next page is whatever was there.
    fn fill(&mut self, group: &[Block]) -> Result<usize> {
        let bytes = group_bytes(group);
        if bytes.next_multiple_of(PAGE) > self.len {
            *self = Self::new(bytes.next_multiple_of(PAGE));
        }
        let mut rest = self.memory.get_mut(self.from..).unwrap_or_default();
        for segment in segments(group) {
            let Some((part, after)) = rest.split_at_mut_checked(segment.len()) else {
                bail!("a group does not fit into its buffer");
            };
            part.copy_from_slice(segment);
            rest = after;
        }
        Ok(bytes.next_multiple_of(PAGE))
    }

    fn bytes(&self, len: usize) -> &[u8] {
        self.memory.get(self.from..self.from + len).unwrap_or_default()
    }
}
