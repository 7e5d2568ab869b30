//! `RocksDB`: a database of ids and one of receipts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::rocks_parts::{Db, IDS, Options, TableWriter, version};

/// Rows of one table file.
const FILE_ROWS: u64 = 1 << 20;

struct Rocks {
    ids: Db,
    receipts: Db,
    directory: PathBuf,
}

/// Writes sorted table files and hands them over.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let rows = ids.by_id().map(|(id, place)| (id.to_vec(), place.to_vec()));
    load_one(&directory.join("ids"), rows)?;
    let rows = ids.by_place().map(|(place, receipt)| (place.to_vec(), receipt.to_vec()));
    load_one(&directory.join("receipts"), rows)
}

fn load_one(directory: &Path, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
    let options = Options::new(&IDS)?;
    let db = Db::open(directory, &options)?;
    let mut files: Vec<PathBuf> = Vec::new();
    let mut writer = None;
    for ((key, value), number) in rows.zip(0u64..) {
        if number % FILE_ROWS == 0 {
            if let Some(full) = writer.take() {
                TableWriter::finish(full)?;
            }
            let path = directory.with_extension(format!("{}.sst", files.len()));
            writer = Some(TableWriter::create(&path, &options)?);
            files.push(path);
        }
        writer.as_mut().context("no table file is open")?.put(&key, &value)?;
    }
    if let Some(last) = writer {
        last.finish()?;
    }
    db.ingest(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Opens it.
pub fn open(directory: &Path) -> Result<Box<dyn Finder>> {
    let options = Options::new(&IDS)?;
    let ids = Db::open(&directory.join("ids"), &options)?;
    let receipts = Db::open(&directory.join("receipts"), &options)?;
    Ok(Box::new(Rocks { ids, receipts, directory: directory.to_owned() }))
}

impl Finder for Rocks {
    fn identity(&self) -> Identity {
        Identity {
            key: "rocksdb",
            name: "RocksDB".into(),
            version: version(&self.directory.join("ids")),
            settings: format!(
                "ids and receipts bulk-loaded from sorted table files, {} MiB block cache for \
                 both, bloom filters of 10 bits, no compression",
                CACHE >> 20
            ),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        let found = self.ids.get(None, id, |place| {
            self.receipts.get(None, place, |receipt| receipt.len() == RECEIPT_LEN)
        })?;
        found.map_or(Ok(false), |receipt| Ok(receipt?.unwrap_or(false)))
    }
}
