//! redb alone: a table of payloads and one of ids for each epoch, in one file.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError};
use secateur_core::{Block, Height, Segment};

use super::fjall::payload_key;
use super::{Budget, Epochs, Peer, Place, sorted_ids};
use crate::contestants::{Contestant, Identity};

/// The version in this build's lock file.
pub const VERSION: &str = "4.4.0";
const CACHE: usize = 1 << 30;

type Ids<'a> = TableDefinition<'a, [u8; 32], [u8; 12]>;
type Payloads<'a> = TableDefinition<'a, [u8; 9], &'static [u8]>;

/// The peer.
pub struct Redb {
    database: Database,
    epochs: Epochs,
}

impl Redb {
    /// A new file.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let database = Database::builder().set_cache_size(CACHE).create(directory.join("redb"))?;
        Ok(Self { database, epochs: Epochs::new(budget) })
    }
}

fn ids(epoch: u64) -> String {
    format!("ids-{epoch}")
}

fn payloads(epoch: u64) -> String {
    format!("payloads-{epoch}")
}

impl Contestant for Redb {
    fn identity(&self) -> Identity {
        Identity {
            key: "redb",
            name: "redb".into(),
            version: VERSION.into(),
            settings: format!(
                "payload and id tables by epoch, deleted whole, one transaction a group with \
                 Durability::Immediate, {} MiB cache; {}",
                CACHE >> 20,
                self.epochs.budget.words()
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        for (epoch, blocks) in self.epochs.parts(group) {
            let (ids, payloads) = (ids(epoch), payloads(epoch));
            let mut payloads = write.open_table(Payloads::new(&payloads))?;
            for block in blocks {
                for (at, segment) in Segment::ALL.into_iter().enumerate() {
                    let key = payload_key(block.meta.height, at);
                    payloads.insert(key, block.payloads.segment(segment))?;
                }
            }
            let mut table = write.open_table(Ids::new(&ids))?;
            for (id, place) in sorted_ids(blocks)? {
                table.insert(id, place)?;
            }
        }
        for block in group {
            self.epochs.add(block);
        }
        // What is over the budget goes with the same commit.
        while let Some(epoch) = self.epochs.due() {
            write.delete_table(Payloads::new(&payloads(epoch)))?;
            write.delete_table(Ids::new(&ids(epoch)))?;
        }
        Ok(write.commit()?)
    }

    fn prune(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Peer for Redb {
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>> {
        let read = self.database.begin_read()?;
        for epoch in self.epochs.newest_first() {
            let table = read.open_table(Ids::new(&ids(epoch)))?;
            if let Some(place) = table.get(id)? {
                return Place::decode(&place.value()).map(Some);
            }
        }
        Ok(None)
    }

    fn payload_len(&mut self, height: Height) -> Result<Option<u64>> {
        let read = self.database.begin_read()?;
        let name = payloads(self.epochs.of(height));
        let table = match read.open_table(Payloads::new(&name)) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        let mut sum = None;
        for segment in 0..Segment::ALL.len() {
            if let Some(bytes) = table.get(payload_key(height, segment))? {
                sum = Some(sum.unwrap_or(0) + bytes.value().len() as u64);
            }
        }
        Ok(sum)
    }
}
