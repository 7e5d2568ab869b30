//! The raw durable writer, buffered: one preallocated file, overwritten round-robin, one gathered
//! write and one fdatasync a group. It keeps no index and can find nothing again: it is what the
//! disk gives.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::Advice;
use secateur_core::{Block, Segment};

use super::{Contestant, Identity, Standing};

/// Groups begin at multiples of this, so that no page is written twice.
const PAGE: u64 = 4096;
/// The kernel takes at most 1,024 slices a call.
const MAX_SLICES: usize = 1023;

/// The writer.
pub struct RawBuffered {
    file: File,
    len: u64,
    next: u64,
    kept_blocks: u64,
    lap_blocks: u64,
}

impl RawBuffered {
    /// Makes the file and writes it once from end to end, so that everything timed overwrites.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let file = File::create_new(directory.join("raw"))?;
        let len = budget.next_multiple_of(PAGE);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)
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
        Ok(Self { file, len, next: 0, kept_blocks: 0, lap_blocks: 0 })
    }

    fn write_all(&self, slices: &mut [IoSlice<'_>], mut at: u64) -> Result<()> {
        for mut part in slices.chunks_mut(MAX_SLICES) {
            while !part.is_empty() {
                let written = rustix::io::pwritev(&self.file, part, at)?;
                if written == 0 {
                    bail!("the raw writer's file takes no more bytes");
                }
                at += written as u64;
                IoSlice::advance_slices(&mut part, written);
            }
        }
        Ok(())
    }
}

impl Contestant for RawBuffered {
    fn identity(&self) -> Identity {
        Identity {
            name: "raw writer, buffered".into(),
            version: "pwritev + fdatasync".into(),
            settings: format!(
                "one file of {} MiB, preallocated and written once, overwritten round-robin, one \
                 write and one sync a group, no index",
                self.len >> 20
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let total: u64 = group.iter().map(|block| block.payloads.total_len()).sum();
        if self.next + total > self.len {
            if total > self.len {
                bail!("a group of {total} bytes does not fit into {}", self.len);
            }
            (self.kept_blocks, self.lap_blocks, self.next) = (self.lap_blocks, 0, 0);
        }
        let mut slices: Vec<IoSlice<'_>> = group
            .iter()
            .flat_map(|block| Segment::ALL.map(|s| IoSlice::new(block.payloads.segment(s))))
            .collect();
        self.write_all(&mut slices, self.next)?;
        self.file.sync_data()?;
        self.next = (self.next + total).next_multiple_of(PAGE);
        self.lap_blocks += group.len() as u64;
        self.kept_blocks = self.kept_blocks.max(self.lap_blocks);
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        Ok(())
    }

    fn standing(&mut self) -> Result<Standing> {
        let (kept_blocks, len) = (self.kept_blocks, self.len);
        Ok(Standing { kept_blocks, used_bytes: len, arena_bytes: len })
    }
}
