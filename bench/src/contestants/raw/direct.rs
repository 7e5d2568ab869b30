//! The raw writer, direct and coalesced: the payloads of a group are copied into one aligned
//! buffer; one thread writes it past the page cache with one call, another syncs.

use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;
use secateur_core::Block;

use super::worker::Worker;
use super::{Aligned, Ring, depth, group_bytes};
use crate::contestants::{Contestant, IN_FLIGHT, Identity};

enum Job {
    Write { buffer: Aligned, len: usize, at: u64 },
    Finish,
}

/// The writer.
pub struct Direct {
    ring: Ring,
    writes: Worker<Job, Option<Aligned>>,
    spare: Vec<Aligned>,
}

impl Direct {
    /// A new file.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        let ring = Ring::create(directory, budget, true)?;
        let (file, synced) = (ring.file.try_clone()?, ring.file.try_clone()?);
        let mut syncs = Worker::start("raw-sync", IN_FLIGHT, move |()| Ok(synced.sync_data()?))?;
        let writes = Worker::start("raw-write", IN_FLIGHT, move |job| match job {
            Job::Write { buffer, len, at } => {
                file.write_all_at(buffer.bytes(len), at)?;
                syncs.submit((), IN_FLIGHT)?;
                while syncs.take().is_some() {}
                Ok(Some(buffer))
            }
            Job::Finish => syncs.finish().map(|()| None),
        })?;
        Ok(Self { ring, writes, spare: Vec::new() })
    }
}

impl Contestant for Direct {
    fn identity(&self) -> Identity {
        Identity {
            key: "direct",
            name: "raw writer, coalesced direct".into(),
            version: "O_DIRECT pwrite + fdatasync".into(),
            settings: self.ring.settings(
                "each group copied into one aligned buffer and written with one call in a \
                 thread, syncs in another",
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        while let Some(done) = self.writes.take() {
            self.spare.extend(done);
        }
        let bytes = group_bytes(group);
        let mut buffer = self.spare.pop().unwrap_or_else(|| Aligned::new(0));
        let len = buffer.fill(group)?;
        let at = self.ring.place(bytes)?;
        self.writes.submit(Job::Write { buffer, len, at }, depth(bytes))
    }

    fn prune(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.writes.submit(Job::Finish, IN_FLIGHT)?;
        self.writes.finish()
    }
}
