//! Blocks made ahead in a thread of their own, so that making the next group overlaps appending
//! this one.

use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use anyhow::Context as _;
use secateur_core::{Block, BlockHash, Height};

use super::engine::Pace;
use secateur_evm::{EvmError, Generator};

/// Groups that wait at most.
const AHEAD: usize = 2;

type Group = Result<Vec<Block>, EvmError>;

/// A running generator. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Feed {
    groups: Option<Receiver<Group>>,
    thread: Option<JoinHandle<()>>,
}

/// Where the chain stands while it is being made.
struct Tip {
    next: Height,
    parent: BlockHash,
    left: u64,
}

impl Feed {
    /// Goes on above the head, for at most `limit` blocks.
    pub(super) fn start(
        generator: Generator,
        head: Option<Height>,
        head_hash: Option<BlockHash>,
        pace: &Pace,
        limit: Option<u64>,
    ) -> Result<Self, anyhow::Error> {
        let (sender, groups) = mpsc::sync_channel(AHEAD);
        let mut tip = Tip {
            next: head.map_or(0, |head| head + 1),
            parent: head_hash.unwrap_or_default(),
            left: limit.unwrap_or(u64::MAX),
        };
        let size = pace.group;
        let thread = std::thread::Builder::new()
            .name("secateur-generate".into())
            .spawn(move || {
                while tip.left > 0 {
                    let group = tip.group(&generator, size);
                    let failed = group.is_err();
                    // Nobody takes groups any more, or this was the last one.
                    if sender.send(group).is_err() || failed {
                        return;
                    }
                }
            })
            .context("starting the generator thread")?;
        Ok(Self { groups: Some(groups), thread: Some(thread) })
    }

    /// The next group; none when the limit is reached.
    pub(super) fn next(&self) -> Option<Group> {
        self.groups.as_ref()?.recv().ok()
    }
}

impl Tip {
    fn group(&mut self, generator: &Generator, size: u64) -> Group {
        let size = size.min(self.left);
        let mut group = Vec::new();
        for _ in 0..size {
            let block = generator.block(self.next, self.parent)?;
            self.next += 1;
            self.parent = block.meta.hash;
            group.push(block);
        }
        self.left -= size;
        Ok(group)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // A generator that waits to hand over a group learns now that nobody takes it.
        drop(self.groups.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // The panic was printed by the panic hook already.
        }
    }
}
