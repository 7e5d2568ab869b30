//! fjall with key-value separation: a keyspace of payloads and one of ids for each epoch.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    config::CompressionPolicy,
};
use secateur_core::{Block, Height, Segment};

use super::{Budget, Epochs, Peer, Place, sorted_ids};
use crate::contestants::{Contestant, Identity};

/// The version in this build's lock file.
pub const VERSION: &str = "3.1.13";
pub const CACHE: u64 = 256 << 20;
const MEMTABLE: u64 = 64 << 20;

/// An open database, as every user of fjall here opens it.
pub fn open(directory: &Path, cache: u64) -> Result<Database> {
    let database = Database::builder(directory)
        .cache_size(cache)
        .journal_compression(CompressionType::None)
        .open()?;
    Ok(database)
}

/// A keyspace for ids.
pub fn id_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
}

fn payload_options() -> KeyspaceCreateOptions {
    let separated = KvSeparationOptions::default()
        .compression(CompressionType::None)
        .file_target_size(MEMTABLE * 4);
    id_options().with_kv_separation(Some(separated))
}

/// Keyspaces by epoch, of one sort.
pub struct ByEpoch {
    name: &'static str,
    options: fn() -> KeyspaceCreateOptions,
    open: HashMap<u64, Keyspace>,
}

impl ByEpoch {
    /// None yet.
    pub fn new(name: &'static str, options: fn() -> KeyspaceCreateOptions) -> Self {
        Self { name, options, open: HashMap::new() }
    }

    /// Keyspaces of ids.
    pub fn ids() -> Self {
        Self::new("ids", id_options)
    }

    /// The keyspace of an epoch, made when it is new. What is in memory of the epoch before is
    /// then flushed in the background: nothing is added to it any more.
    pub fn of(&mut self, database: &Database, epoch: u64) -> Result<Keyspace> {
        if let Some(found) = self.open.get(&epoch) {
            return Ok(found.clone());
        }
        if let Some(before) = epoch.checked_sub(1).and_then(|before| self.open.get(&before)) {
            before.rotate_memtable()?;
        }
        let made = database.keyspace(&format!("{}-{epoch}", self.name), self.options)?;
        self.open.insert(epoch, made.clone());
        Ok(made)
    }

    /// Drops an epoch.
    pub fn remove(&mut self, database: &Database, epoch: u64) -> Result<()> {
        let gone = self.open.remove(&epoch).context("an epoch is missing")?;
        Ok(database.delete_keyspace(gone)?)
    }

    /// A row of an epoch.
    pub fn get(&self, epoch: u64, key: &[u8]) -> Result<Option<fjall::Slice>> {
        self.open.get(&epoch).map_or(Ok(None), |keyspace| Ok(keyspace.get(key)?))
    }
}

/// The key of one payload.
pub fn payload_key(height: Height, segment: usize) -> [u8; 9] {
    let mut key = [0u8; 9];
    if let Some((last, head)) = key.split_last_mut() {
        head.copy_from_slice(&height.to_be_bytes());
        *last = u8::try_from(segment).unwrap_or(u8::MAX);
    }
    key
}

/// The peer.
pub struct Fjall {
    database: Database,
    payloads: ByEpoch,
    ids: ByEpoch,
    epochs: Epochs,
}

impl Fjall {
    /// A new database.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Self> {
        let (payloads, ids) = (ByEpoch::new("payloads", payload_options), ByEpoch::ids());
        Ok(Self { database: open(directory, CACHE)?, payloads, ids, epochs: Epochs::new(budget) })
    }
}

impl Contestant for Fjall {
    fn identity(&self) -> Identity {
        Identity {
            key: "fjall",
            name: "fjall".into(),
            version: VERSION.into(),
            settings: format!(
                "key-value separation, payload and id keyspaces by epoch, flushed when the epoch \
                 ends and deleted whole, one batch a group with SyncData, no compression, {} MiB \
                 cache and memtables of {} MiB; {}",
                CACHE >> 20,
                MEMTABLE >> 20,
                self.epochs.budget.words()
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let rows = group.iter().map(|block| 3 + block.payloads.tx_index.len() / 48).sum();
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), rows)
            .durability(Some(PersistMode::SyncData));
        for (epoch, blocks) in self.epochs.parts(group) {
            let payloads = self.payloads.of(&self.database, epoch)?;
            let ids = self.ids.of(&self.database, epoch)?;
            for block in blocks {
                for (at, segment) in Segment::ALL.into_iter().enumerate() {
                    let key = payload_key(block.meta.height, at);
                    batch.insert(&payloads, key, block.payloads.segment(segment));
                }
                self.epochs.add(block);
            }
            for (id, place) in sorted_ids(blocks)? {
                batch.insert(&ids, id, place);
            }
        }
        Ok(batch.commit()?)
    }

    fn prune(&mut self) -> Result<()> {
        while let Some(epoch) = self.epochs.due() {
            self.payloads.remove(&self.database, epoch)?;
            self.ids.remove(&self.database, epoch)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Peer for Fjall {
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>> {
        for epoch in self.epochs.newest_first() {
            if let Some(place) = self.ids.get(epoch, id)? {
                return Place::decode(&place).map(Some);
            }
        }
        Ok(None)
    }

    fn payload_len(&mut self, height: Height) -> Result<Option<u64>> {
        let epoch = self.epochs.of(height);
        let mut sum = None;
        for segment in 0..Segment::ALL.len() {
            if let Some(bytes) = self.payloads.get(epoch, &payload_key(height, segment))? {
                sum = Some(sum.unwrap_or(0) + bytes.len() as u64);
            }
        }
        Ok(sum)
    }
}
