//! `RocksDB` with blob files: a column family of payloads and one of ids for each epoch.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use secateur_core::{Block, Height, Segment};

use super::fjall::payload_key;
use super::rocks_ffi::{Batch, Db, Family, Options, Tuning};
use super::{Budget, Epochs, Peer, Place, sorted_ids};
use crate::contestants::{Contestant, Identity};

const PAYLOADS: Tuning = Tuning { memtable: 64 << 20, cache: 32 << 20, blobs_from: Some(1024) };
/// Ids, also where they are alone.
pub const IDS: Tuning = Tuning { memtable: 64 << 20, cache: 256 << 20, blobs_from: None };

struct Families {
    payloads: Family,
    ids: Family,
}

/// The peer.
pub struct Rocks {
    batch: Batch,
    families: HashMap<u64, Families>,
    payload_options: Options,
    id_options: Options,
    db: Db,
    directory: PathBuf,
    epochs: Epochs,
}

/// The version of the library that runs, from the head of the log that it writes.
pub fn version(directory: &Path) -> String {
    let log = std::fs::read_to_string(directory.join("LOG")).unwrap_or_default();
    let found = log.lines().find_map(|line| Some(line.split_once("RocksDB version:")?.1.trim()));
    found.unwrap_or("unknown").to_owned()
}

impl Rocks {
    /// A new database.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let (payload_options, id_options) = (Options::new(&PAYLOADS)?, Options::new(&IDS)?);
        Ok(Self {
            batch: Batch::new(),
            families: HashMap::new(),
            db: Db::open(directory, &id_options)?,
            payload_options,
            id_options,
            directory: directory.to_owned(),
            epochs: Epochs::new(budget),
        })
    }

    /// Makes the column families of an epoch. Those of the epoch before get nothing more: they
    /// are flushed in the background, so that their log can go.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        if self.families.contains_key(&epoch) {
            return Ok(());
        }
        if let Some(before) = epoch.checked_sub(1).and_then(|before| self.families.get(&before)) {
            self.db.flush(&before.payloads)?;
            self.db.flush(&before.ids)?;
        }
        let payloads =
            self.db.create_family(&format!("payloads-{epoch}"), &self.payload_options)?;
        let ids = self.db.create_family(&format!("ids-{epoch}"), &self.id_options)?;
        self.families.insert(epoch, Families { payloads, ids });
        Ok(())
    }
}

impl Contestant for Rocks {
    fn identity(&self) -> Identity {
        Identity {
            key: "rocksdb",
            name: "RocksDB".into(),
            version: version(&self.directory),
            settings: format!(
                "blob files from {} bytes on, payload and id column families by epoch, flushed \
                 when the epoch ends and dropped whole, one batch a group with sync, recycled \
                 logs, no compression, memtables of {} MiB, bloom filters of 10 bits, {} MiB \
                 cache, 2 background threads; {}",
                PAYLOADS.blobs_from.unwrap_or(0),
                IDS.memtable >> 20,
                IDS.cache >> 20,
                self.epochs.budget.words()
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        self.batch.clear();
        for (epoch, blocks) in self.epochs.parts(group) {
            self.begin(epoch)?;
            let families = self.families.get(&epoch).context("an epoch is missing")?;
            for block in blocks {
                for (at, segment) in Segment::ALL.into_iter().enumerate() {
                    let key = payload_key(block.meta.height, at);
                    self.batch.put(Some(&families.payloads), &key, block.payloads.segment(segment));
                }
                self.epochs.add(block);
            }
            for (id, place) in sorted_ids(blocks)? {
                self.batch.put(Some(&families.ids), &id, &place);
            }
        }
        self.db.write(&self.batch)
    }

    fn prune(&mut self) -> Result<()> {
        while let Some(epoch) = self.epochs.due() {
            let Families { payloads, ids } =
                self.families.remove(&epoch).context("an epoch is missing")?;
            self.batch.clear();
            self.db.drop_family(payloads)?;
            self.db.drop_family(ids)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Peer for Rocks {
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>> {
        for epoch in self.epochs.newest_first() {
            let families = self.families.get(&epoch).context("an epoch is missing")?;
            if let Some(place) = self.db.get(Some(&families.ids), id, Place::decode)? {
                return place.map(Some);
            }
        }
        Ok(None)
    }

    fn payload_len(&mut self, height: Height) -> Result<Option<u64>> {
        let Some(families) = self.families.get(&self.epochs.of(height)) else { return Ok(None) };
        let mut sum = None;
        for segment in 0..Segment::ALL.len() {
            let key = payload_key(height, segment);
            let len = self.db.get(Some(&families.payloads), &key, <[u8]>::len)?;
            if let Some(len) = len {
                sum = Some(sum.unwrap_or(0) + len as u64);
            }
        }
        Ok(sum)
    }
}
