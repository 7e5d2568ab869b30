//! Other stores that do the same work: payloads by height, transaction ids to their place, every
//! group durable, the oldest blocks gone when the budget is full.
//!
//! All of them keep payloads and ids by *epoch* and drop whole epochs, which is far cheaper for
//! each of them than deleting single rows. An epoch is a sixteenth of our budget, as ours is.

mod fjall;
mod flat_fjall;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
#[cfg(feature = "rocksdb")]
mod rocks_ffi;
mod sqlite;

pub use redb::VERSION as REDB_VERSION;

/// What of fjall is used elsewhere too.
pub mod fjall_parts {
    pub use super::fjall::{VERSION, id_options, open};
}

/// What of `RocksDB` is used elsewhere too.
#[cfg(feature = "rocksdb")]
pub mod rocks_parts {
    pub use super::rocks::{IDS, version};
    pub use super::rocks_ffi::{Db, Options, TableWriter};
}

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, Result, bail};
use secateur_core::{Block, Height, TX_INDEX_ENTRY_LEN, TxIndexEntry, tx_index};

use super::Contestant;

/// A store that can be asked again what it was given.
pub trait Peer: Contestant {
    /// The place of a transaction.
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>>;
    /// Payload bytes of a kept block.
    fn payload_len(&mut self, height: Height) -> Result<Option<u64>>;
}

/// Height and index of a transaction, as every peer stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub height: Height,
    /// The place in it.
    pub index: u32,
}

impl Place {
    /// Its stored form.
    pub fn encode(self) -> [u8; 12] {
        let mut bytes = [0u8; 12];
        let (height, index) = bytes.split_at_mut(8);
        height.copy_from_slice(&self.height.to_be_bytes());
        index.copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// From its stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (height, index) = bytes.split_first_chunk().context("a place is too short")?;
        let index = index.first_chunk().context("a place is too short")?;
        Ok(Self { height: u64::from_be_bytes(*height), index: u32::from_be_bytes(*index) })
    }
}

/// A peer by its key.
pub struct Kind {
    /// Its key in results.
    pub key: &'static str,
    /// Whether it counts for the best peer; flat files have a figure of their own.
    pub is_store: bool,
    /// A new one in a directory with a budget, for blocks of about so many bytes.
    pub create: fn(&Path, &Budget) -> Result<Box<dyn Peer>>,
}

/// All peers that this build has.
pub const KINDS: &[Kind] = &[
    #[cfg(feature = "rocksdb")]
    Kind {
        key: "rocksdb",
        is_store: true,
        create: |at, b| Ok(Box::new(rocks::Rocks::create(at, b)?)),
    },
    Kind {
        key: "fjall",
        is_store: true,
        create: |at, b| Ok(Box::new(fjall::Fjall::create(at, b)?)),
    },
    Kind { key: "redb", is_store: true, create: |at, b| Ok(Box::new(redb::Redb::create(at, b)?)) },
    Kind {
        key: "sqlite",
        is_store: true,
        create: |at, b| Ok(Box::new(sqlite::Sqlite::create(at, b)?)),
    },
    Kind {
        key: "flat-fjall",
        is_store: false,
        create: |at, b| Ok(Box::new(flat_fjall::FlatFjall::create(at, b)?)),
    },
];

/// What a peer may hold.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Payload bytes.
    pub bytes: u64,
    /// Payload bytes of an epoch.
    pub epoch_bytes: u64,
    /// Payload bytes of a block, on average.
    pub block_bytes: u64,
}

impl Budget {
    fn epoch_blocks(&self) -> u64 {
        (self.epoch_bytes / self.block_bytes.max(1)).max(1)
    }

    fn words(&self) -> String {
        format!("budget {} MiB, epochs of {} blocks", self.bytes >> 20, self.epoch_blocks())
    }
}

/// Which epochs are kept, and how large they are.
struct Epochs {
    budget: Budget,
    kept: VecDeque<(u64, u64)>,
    total: u64,
}

impl Epochs {
    fn new(budget: &Budget) -> Self {
        Self { budget: *budget, kept: VecDeque::new(), total: 0 }
    }

    /// The epoch of a height.
    fn of(&self, height: Height) -> u64 {
        height.saturating_sub(1) / self.budget.epoch_blocks()
    }

    /// A group's blocks by their epochs, in order.
    fn parts<'g>(&self, group: &'g [Block]) -> Vec<(u64, &'g [Block])> {
        group
            .chunk_by(|a, b| self.of(a.meta.height) == self.of(b.meta.height))
            .filter_map(|part| Some((self.of(part.first()?.meta.height), part)))
            .collect()
    }

    /// Counts a block.
    fn add(&mut self, block: &Block) {
        let (epoch, bytes) = (self.of(block.meta.height), block.payloads.total_len());
        match self.kept.back_mut() {
            Some((last, sum)) if *last == epoch => *sum += bytes,
            _ => self.kept.push_back((epoch, bytes)),
        }
        self.total += bytes;
    }

    /// The oldest epoch, if the budget is over and it must go; it is counted as gone.
    fn due(&mut self) -> Option<u64> {
        if self.total <= self.budget.bytes || self.kept.len() < 2 {
            return None;
        }
        let (epoch, bytes) = self.kept.pop_front()?;
        self.total -= bytes;
        Some(epoch)
    }

    /// The kept epochs, newest first.
    fn newest_first(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().rev().map(|(epoch, _)| *epoch)
    }
}

/// The ids of one epoch's blocks with their places, sorted: every store takes them in faster so.
fn sorted_ids(blocks: &[Block]) -> Result<Vec<([u8; 32], [u8; 12])>> {
    let bytes: usize = blocks.iter().map(|block| block.payloads.tx_index.len()).sum();
    let mut ids = Vec::with_capacity(bytes / TX_INDEX_ENTRY_LEN);
    for entry in blocks.iter().flat_map(|block| tx_index(&block.payloads.tx_index)) {
        let TxIndexEntry { tx_id, height, index } = entry?;
        ids.push((tx_id.0, Place { height, index }.encode()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Makes sure that a peer really kept what it was given last.
pub fn check_newest(peer: &mut dyn Peer, block: &Block) -> Result<()> {
    let who = peer.identity().name;
    for entry in tx_index(&block.payloads.tx_index) {
        let TxIndexEntry { tx_id, height, index } = entry?;
        let found = peer.find(&tx_id.0)?;
        if found != Some(Place { height, index }) {
            bail!("{who} answers {found:?} for transaction {index} of block {height}");
        }
    }
    let len = peer.payload_len(block.meta.height)?;
    if len != Some(block.payloads.total_len()) {
        bail!("{who} has {len:?} bytes of block {}", block.meta.height);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Feed, Pool, Shape, Sizes};

    #[test]
    fn every_peer_finds_what_it_keeps_and_drops_what_is_over_the_budget() {
        let place = std::env::temp_dir().join(format!("bench-peers-{}", std::process::id()));
        let shape = Shape { bytes: 20_000, transactions: 10 };
        let budget = Budget { bytes: 4 << 20, epoch_bytes: 4 << 16, block_bytes: 20_000 };
        for kind in KINDS {
            let mut pool = Pool::new(Sizes::Fixed(shape), 8, 60, 1).unwrap();
            let mut feed = Feed::new(2);
            feed.prepare(&mut pool);
            let mut peer = (kind.create)(&place.join(kind.key), &budget).unwrap();
            for group in pool.groups() {
                peer.append(group).unwrap();
                peer.prune().unwrap();
            }
            peer.finish().unwrap();
            let blocks: Vec<&Block> = pool.groups().flatten().collect();
            for block in blocks.iter().rev().take(190) {
                check_newest(peer.as_mut(), block).unwrap();
            }
            let first = blocks.first().unwrap();
            assert_eq!(peer.payload_len(1).unwrap(), None, "{}", kind.key);
            let id = first.payloads.tx_index.first_chunk().unwrap();
            assert_eq!(peer.find(id).unwrap(), None, "{}", kind.key);
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
