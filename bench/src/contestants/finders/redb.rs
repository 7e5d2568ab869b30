//! redb: a table of ids and one of receipts.

use std::path::Path;

use anyhow::Result;
use redb::{Database, ReadableDatabase, TableDefinition};

use super::{CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::REDB_VERSION;

const IDS: TableDefinition<'_, [u8; 32], [u8; 12]> = TableDefinition::new("ids");
const RECEIPTS: TableDefinition<'_, [u8; 12], [u8; RECEIPT_LEN]> = TableDefinition::new("receipts");

struct Redb {
    database: Database,
}

/// Loads both in key order.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let database = Database::builder().create(directory.join("redb"))?;
    let write = database.begin_write()?;
    let mut table = write.open_table(IDS)?;
    for (id, place) in ids.by_id() {
        table.insert(id, place)?;
    }
    drop(table);
    let mut table = write.open_table(RECEIPTS)?;
    for (place, receipt) in ids.by_place() {
        table.insert(place, receipt)?;
    }
    drop(table);
    Ok(write.commit()?)
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
            settings: format!("ids and receipts loaded in key order, {} MiB cache", CACHE >> 20),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        let read = self.database.begin_read()?;
        let Some(place) = read.open_table(IDS)?.get(id)? else { return Ok(false) };
        let receipt = read.open_table(RECEIPTS)?.get(place.value())?;
        Ok(receipt.is_some_and(|receipt| receipt.value().len() == RECEIPT_LEN))
    }
}
