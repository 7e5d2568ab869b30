//! The raw writer, buffered: one gathered write a group into the page cache, and a thread that
//! syncs.

use std::io::IoSlice;
use std::path::Path;

use anyhow::{Result, bail};
use secateur_core::Block;

use super::worker::Worker;
use super::{Ring, group_bytes, segments};
use crate::contestants::{Contestant, IN_FLIGHT, Identity};

/// The kernel takes at most 1,024 slices a call.
const MAX_SLICES: usize = 1023;

/// The writer.
pub struct Buffered {
    ring: Ring,
    syncs: Worker<(), ()>,
}

impl Buffered {
    /// A new file.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        let ring = Ring::create(directory, budget, false)?;
        let file = ring.file.try_clone()?;
        let syncs = Worker::start("raw-sync", IN_FLIGHT, move |()| Ok(file.sync_data()?))?;
        Ok(Self { ring, syncs })
    }
}

impl Contestant for Buffered {
    fn identity(&self) -> Identity {
        Identity {
            key: "buffered",
            name: "raw writer, buffered".into(),
            version: "pwritev + fdatasync".into(),
            settings: self.ring.settings("one gathered write a group, syncs in a thread"),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let mut at = self.ring.place(group_bytes(group))?;
        let mut slices: Vec<IoSlice<'_>> = segments(group).map(IoSlice::new).collect();
        for mut part in slices.chunks_mut(MAX_SLICES) {
            while !part.is_empty() {
                let written = rustix::io::pwritev(&self.ring.file, part, at)?;
                if written == 0 {
                    bail!("the raw writer's file takes no more bytes");
                }
                at += written as u64;
                IoSlice::advance_slices(&mut part, written);
            }
        }
        self.syncs.submit((), IN_FLIGHT)?;
        while self.syncs.take().is_some() {}
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.syncs.finish()
    }
}
