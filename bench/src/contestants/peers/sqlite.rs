//! SQLite: a table of payloads and one of ids for each epoch, in one file with a write-ahead log.

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, OptionalExtension, params};
use secateur_core::{Block, Height};

use super::{Budget, Epochs, Peer, Place, sorted_ids};
use crate::contestants::{Contestant, Identity};

const PAGE_SIZE: u64 = 16_384;
const CACHE_KIB: u64 = 256 << 10;
/// The log is put back into the file after so many bytes.
const CHECKPOINT: u64 = 64 << 20;

/// The peer.
pub struct Sqlite {
    connection: Connection,
    epochs: Epochs,
}

impl Sqlite {
    /// A new file.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let connection = Connection::open(directory.join("sqlite"))?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = {PAGE_SIZE}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = MEMORY; \
             PRAGMA wal_autocheckpoint = {};",
            CHECKPOINT / PAGE_SIZE
        ))?;
        Ok(Self { connection, epochs: Epochs::new(budget) })
    }

    fn has(&self, epoch: u64) -> bool {
        self.epochs.newest_first().any(|kept| kept == epoch)
    }
}

impl Contestant for Sqlite {
    fn identity(&self) -> Identity {
        Identity {
            key: "sqlite",
            name: "SQLite".into(),
            version: rusqlite::version().into(),
            settings: format!(
                "WAL, synchronous=FULL, pages of {} KiB, {} MiB cache, checkpoint every {} MiB, \
                 payload and id tables (without rowid) by epoch, dropped whole, one \
                 transaction a group; {}",
                PAGE_SIZE >> 10,
                CACHE_KIB >> 10,
                CHECKPOINT >> 20,
                self.epochs.budget.words()
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let newest = self.epochs.newest_first().next();
        let write = self.connection.transaction()?;
        for (epoch, blocks) in self.epochs.parts(group) {
            if newest.is_none_or(|newest| epoch > newest) {
                write.execute_batch(&format!(
                    "CREATE TABLE payloads_{epoch} (height INTEGER PRIMARY KEY, block BLOB, \
                     receipts BLOB, tx_index BLOB); \
                     CREATE TABLE ids_{epoch} (id BLOB PRIMARY KEY, place BLOB) WITHOUT ROWID;"
                ))?;
            }
            let mut put = write
                .prepare_cached(&format!("INSERT INTO payloads_{epoch} VALUES (?, ?, ?, ?)"))?;
            for block in blocks {
                let height = i64::try_from(block.meta.height)?;
                let p = &block.payloads;
                put.execute(params![height, &p.block, &p.receipts, &p.tx_index])?;
            }
            let mut put =
                write.prepare_cached(&format!("INSERT INTO ids_{epoch} VALUES (?, ?)"))?;
            for (id, place) in sorted_ids(blocks)? {
                put.execute(params![id.as_slice(), place.as_slice()])?;
            }
        }
        for block in group {
            self.epochs.add(block);
        }
        // What is over the budget goes with the same commit.
        while let Some(epoch) = self.epochs.due() {
            write
                .execute_batch(&format!("DROP TABLE payloads_{epoch}; DROP TABLE ids_{epoch};"))?;
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

impl Peer for Sqlite {
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>> {
        for epoch in self.epochs.newest_first() {
            let mut get = self
                .connection
                .prepare_cached(&format!("SELECT place FROM ids_{epoch} WHERE id = ?"))?;
            let place: Option<Vec<u8>> =
                get.query_row([id.as_slice()], |row| row.get(0)).optional()?;
            if let Some(place) = place {
                return Place::decode(&place).map(Some);
            }
        }
        Ok(None)
    }

    fn payload_len(&mut self, height: Height) -> Result<Option<u64>> {
        let epoch = self.epochs.of(height);
        if !self.has(epoch) {
            return Ok(None);
        }
        let mut get = self.connection.prepare_cached(&format!(
            "SELECT length(block) + length(receipts) + length(tx_index) FROM payloads_{epoch} \
             WHERE height = ?"
        ))?;
        let len: Option<i64> =
            get.query_row([i64::try_from(height)?], |row| row.get(0)).optional()?;
        Ok(len.map(u64::try_from).transpose()?)
    }
}
