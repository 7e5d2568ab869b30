//! The raw writer on `io_uring`, direct: each group is one write with its sync linked behind it;
//! several groups are in flight.

#![allow(
    unsafe_code,
    reason = "the kernel reads buffers after the call that names them has returned; the queue \
              cannot be filled without saying so"
)]

use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use io_uring::{IoUring, opcode, squeue, types};
use secateur_core::Block;

use super::{Aligned, Ring, depth, group_bytes};
use crate::contestants::{Contestant, IN_FLIGHT, Identity};

/// One group in flight: its buffer must stay where it is until both parts are done.
struct Slot {
    buffer: Aligned,
    len: usize,
    /// Completions to come: the write and the sync.
    pending: u8,
}

/// The writer.
pub struct Uring {
    ring: Ring,
    queue: IoUring,
    slots: Vec<Slot>,
}

impl Uring {
    /// A new file.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        let ring = Ring::create(directory, budget, true)?;
        let queue = IoUring::new(2 * u32::try_from(IN_FLIGHT)?).context("setting io_uring up")?;
        let slots = (0..IN_FLIGHT).map(|_| Slot { buffer: Aligned::new(0), len: 0, pending: 0 });
        Ok(Self { ring, queue, slots: slots.collect() })
    }

    fn in_flight(&self) -> usize {
        self.slots.iter().filter(|slot| slot.pending > 0).count()
    }

    /// Takes completions; waits for one if asked to.
    fn reap(&mut self, wait: bool) -> Result<()> {
        if wait {
            self.queue.submit_and_wait(1).context("waiting for io_uring")?;
        }
        for done in self.queue.completion() {
            let is_write = done.user_data() & 1 == 0;
            let at = usize::try_from(done.user_data() >> 1)?;
            let slot = self.slots.get_mut(at).context("io_uring answered for no slot")?;
            slot.pending -= 1;
            let wanted = if is_write { i32::try_from(slot.len)? } else { 0 };
            if done.result() != wanted {
                let what = if is_write { "write" } else { "sync" };
                bail!("io_uring: a {what} of {} bytes gave {}", slot.len, done.result());
            }
        }
        Ok(())
    }
}

impl Contestant for Uring {
    fn identity(&self) -> Identity {
        Identity {
            key: "io_uring",
            name: "raw writer, io_uring".into(),
            version: "O_DIRECT write linked to fdatasync".into(),
            settings: self.ring.settings(
                "each group copied into one aligned buffer, several \
                                          groups in flight",
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let bytes = group_bytes(group);
        self.reap(false)?;
        while self.in_flight() >= depth(bytes) {
            self.reap(true)?;
        }
        let at = self.ring.place(bytes)?;
        let free = self.slots.iter().position(|slot| slot.pending == 0);
        let number = free.context("no slot is free")?;
        let slot = self.slots.get_mut(number).context("no slot is free")?;
        slot.len = slot.buffer.fill(group)?;
        slot.pending = 2;
        let memory = slot.buffer.bytes(slot.len);
        let (pointer, len) = (memory.as_ptr(), u32::try_from(memory.len())?);
        let file = types::Fd(self.ring.file.as_raw_fd());
        let user = 2 * number as u64;
        let write = opcode::Write::new(file, pointer, len)
            .offset(at)
            .build()
            .flags(squeue::Flags::IO_LINK)
            .user_data(user);
        let sync =
            opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build().user_data(user + 1);
        // SAFETY: the slot's buffer is neither moved, changed nor freed before both completions
        // have come (`pending`), and dropping this waits for them; the file outlives the queue's
        // use of it for the same reason.
        unsafe { self.queue.submission().push_multiple(&[write, sync]) }
            .context("io_uring's queue is full")?;
        self.queue.submit().context("submitting to io_uring")?;
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while self.in_flight() > 0 {
            self.reap(true)?;
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A failure has been answered already; the kernel still owns the other buffers.
        while self.in_flight() > 0 {
            if self.reap(true).is_err() && self.queue.submit_and_wait(1).is_err() {
                std::process::abort();
            }
        }
    }
}
