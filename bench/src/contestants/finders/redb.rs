//! redb: a table each of ids, receipts, hashes and blocks.

use std::path::Path;

use anyhow::Result;
use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};

use super::{BLOCK_LEN, CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::REDB_VERSION;

const IDS: TableDefinition<'_, [u8; 32], [u8; 12]> = TableDefinition::new("ids");
const RECEIPTS: TableDefinition<'_, [u8; 12], [u8; RECEIPT_LEN]> = TableDefinition::new("receipts");
const HASHES: TableDefinition<'_, [u8; 32], [u8; 8]> = TableDefinition::new("hashes");
const BLOCKS: TableDefinition<'_, [u8; 8], [u8; BLOCK_LEN]> = TableDefinition::new("blocks");

struct Redb {
    database: Database,
}

/// Loads all in key order.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let database = Database::builder().create(directory.join("redb"))?;
    let write = database.begin_write()?;
    fill(&write, IDS, ids.by_id())?;
    fill(&write, RECEIPTS, ids.by_place())?;
    fill(&write, HASHES, ids.by_hash())?;
    fill(&write, BLOCKS, ids.by_height())?;
    Ok(write.commit()?)
}

fn fill<const K: usize, const V: usize>(
    write: &WriteTransaction,
    table: TableDefinition<'_, [u8; K], [u8; V]>,
    rows: impl Iterator<Item = ([u8; K], [u8; V])>,
) -> Result<()> {
    let mut table = write.open_table(table)?;
    for (key, value) in rows {
        table.insert(key, value)?;
    }
    Ok(())
}

/// Opens it.
pub fn open(directory: &Path) -> Result<Box<dyn Finder>> {
    let database =
        Database::builder().set_cache_size(usize::try_from(CACHE)?).open(directory.join("redb"))?;
    Ok(Box::new(Redb { database }))
}

impl Finder for Redb {
    fn identity(&self) -> Identity {
        Identity {
            key: "redb",
            name: "redb".into(),
            version: REDB_VERSION.into(),
            settings: format!("loaded in key order, {} MiB cache", CACHE >> 20),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        let read = self.database.begin_read()?;
        let Some(place) = read.open_table(IDS)?.get(id)? else { return Ok(false) };
        let receipt = read.open_table(RECEIPTS)?.get(place.value())?;
        Ok(receipt.is_some_and(|receipt| receipt.value().len() == RECEIPT_LEN))
    }
    fn find_block(&self, hash: &[u8; 32]) -> Result<bool> {
        let read = self.database.begin_read()?;
        let Some(height) = read.open_table(HASHES)?.get(hash)? else { return Ok(false) };
        let block = read.open_table(BLOCKS)?.get(height.value())?;
        Ok(block.is_some_and(|block| block.value().len() == BLOCK_LEN))
    }
}
