//! fjall: a keyspace of ids and one of receipts.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Keyspace};

use super::{CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::fjall_parts::{VERSION, id_options, open as open_database};

struct Fjall {
    ids: Keyspace,
    receipts: Keyspace,
    _database: Database,
}

fn opened(directory: &Path) -> Result<Fjall> {
    let database = open_database(directory, CACHE)?;
    let ids = database.keyspace("ids", id_options)?;
    let receipts = database.keyspace("receipts", id_options)?;
    Ok(Fjall { ids, receipts, _database: database })
}

/// Bulk-loads both in key order.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let to = opened(directory)?;
    let mut rows = to.ids.start_ingestion()?;
    for (id, place) in ids.by_id() {
        rows.write(id, place)?;
    }
    rows.finish()?;
    let mut rows = to.receipts.start_ingestion()?;
    for (place, receipt) in ids.by_place() {
        rows.write(place, receipt)?;
    }
    Ok(rows.finish()?)
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
                "ids and receipts bulk-loaded in key order, {} MiB cache, no compression, default \
                 filters",
                CACHE >> 20
            ),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        let Some(place) = self.ids.get(id)? else { return Ok(false) };
        Ok(self.receipts.get(place)?.is_some_and(|receipt| receipt.len() == RECEIPT_LEN))
    }
}
