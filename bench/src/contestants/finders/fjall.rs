//! fjall: a keyspace each of ids, receipts, hashes and blocks.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Keyspace};

use super::{BLOCK_LEN, CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::fjall_parts::{VERSION, id_options, open as open_database};

struct Fjall {
    ids: Keyspace,
    receipts: Keyspace,
    hashes: Keyspace,
    blocks: Keyspace,
    _database: Database,
}

fn opened(directory: &Path) -> Result<Fjall> {
    let database = open_database(directory, CACHE)?;
    let ids = database.keyspace("ids", id_options)?;
    let receipts = database.keyspace("receipts", id_options)?;
    let hashes = database.keyspace("hashes", id_options)?;
    let blocks = database.keyspace("blocks", id_options)?;
    Ok(Fjall { ids, receipts, hashes, blocks, _database: database })
}

/// Bulk-loads all in key order.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let to = opened(directory)?;
    fill(&to.ids, ids.by_id())?;
    fill(&to.receipts, ids.by_place())?;
    fill(&to.hashes, ids.by_hash())?;
    fill(&to.blocks, ids.by_height())
}

fn fill<const K: usize, const V: usize>(
    to: &Keyspace,
    rows: impl Iterator<Item = ([u8; K], [u8; V])>,
) -> Result<()> {
    let mut to = to.start_ingestion()?;
    for (key, value) in rows {
        to.write(key, value)?;
    }
    Ok(to.finish()?)
}

/// Opens it.
pub fn open(directory: &Path) -> Result<Box<dyn Finder>> {
    Ok(Box::new(opened(directory)?))
}

impl Finder for Fjall {
    fn identity(&self) -> Identity {
        Identity {
            key: "fjall",
            name: "fjall".into(),
            version: VERSION.into(),
            settings: format!(
                "bulk-loaded in key order, {} MiB cache, no compression, default filters",
                CACHE >> 20
            ),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        let Some(place) = self.ids.get(id)? else { return Ok(false) };
        Ok(self.receipts.get(place)?.is_some_and(|receipt| receipt.len() == RECEIPT_LEN))
    }
    fn find_block(&self, hash: &[u8; 32]) -> Result<bool> {
        let Some(height) = self.hashes.get(hash)? else { return Ok(false) };
        Ok(self.blocks.get(height)?.is_some_and(|block| block.len() == BLOCK_LEN))
    }
}
