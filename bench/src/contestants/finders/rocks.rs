//! `RocksDB`: a database each of ids, receipts, hashes and blocks.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{BLOCK_LEN, CACHE, Finder, Ids, RECEIPT_LEN};
use crate::contestants::Identity;
use crate::contestants::peers::rocks_parts::{Db, IDS, Options, TableWriter, version};

/// Rows of one table file.
const FILE_ROWS: u64 = 1 << 20;

struct Rocks {
    ids: Db,
    receipts: Db,
    hashes: Db,
    blocks: Db,
    directory: PathBuf,
}

/// Writes sorted table files and hands them over.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    load_one(&directory.join("ids"), ids.by_id())?;
    load_one(&directory.join("receipts"), ids.by_place())?;
    load_one(&directory.join("hashes"), ids.by_hash())?;
    load_one(&directory.join("blocks"), ids.by_height())
}

fn load_one<const K: usize, const V: usize>(
    directory: &Path,
    rows: impl Iterator<Item = ([u8; K], [u8; V])>,
) -> Result<()> {
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
    let open = |name: &str| Db::open(&directory.join(name), &options);
    let (ids, receipts) = (open("ids")?, open("receipts")?);
    let (hashes, blocks) = (open("hashes")?, open("blocks")?);
    Ok(Box::new(Rocks { ids, receipts, hashes, blocks, directory: directory.to_owned() }))
}

/// Looks up in one what another says; whether that is as long as it should be is the answer.
fn follow(from: &Db, to: &Db, key: &[u8], len: usize) -> Result<bool> {
    let found = from.get(None, key, |next| to.get(None, next, |value| value.len() == len))?;
    found.map_or(Ok(false), |value| Ok(value?.unwrap_or(false)))
}

impl Finder for Rocks {
    fn identity(&self) -> Identity {
        Identity {
            key: "rocksdb",
            name: "RocksDB".into(),
            version: version(&self.directory.join("ids")),
            settings: format!(
                "bulk-loaded from sorted table files, {} MiB block cache for all, bloom filters of 10 bits, no compression",
                CACHE >> 20
            ),
        }
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        follow(&self.ids, &self.receipts, id, RECEIPT_LEN)
    }

    fn find_block(&self, hash: &[u8; 32]) -> Result<bool> {
        follow(&self.hashes, &self.blocks, hash, BLOCK_LEN)
    }
}
