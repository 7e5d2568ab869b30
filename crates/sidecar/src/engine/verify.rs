//! Verify: every row of the engine looked at once, every blob's bytes read (I14 to I18).

use std::ops::ControlFlow;

use secateur_core::Height;
use secateur_store::{
    Arena, Claims, FindingKind, Index, Rows, ShelfReport, Slot, Snapshot, StoreError, Table,
};

use super::SidecarStore;
use super::announce::telling_of;
use super::facts::{BlobKey, HeightRecord, RecordForm};
use super::jobs::job_of;
use super::marks::Marks;
use super::read::{archive_of, height_of, meta_of, pruned_of, slot_of};
use super::rows::{
    RoundRow, blob_key, due_key, hash_key, height_key, load, read, take_blob_key, take_count,
    take_due_key, take_hash_key, take_height, take_height_body, take_round_key, take_waiting,
};
use crate::error::SidecarError;

/// Where a height's bytes are in their life, as its rows say.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting(u32, u32),
    Ready(u32),
    Pruned,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting(count, unarchived) => {
                write!(f, "waiting, with {unarchived} of {count} unarchived")
            }
            Self::Ready(count) => write!(f, "ready, with {count}"),
            Self::Pruned => f.write_str("pruned"),
        }
    }
}

fn stages_of(rows: &impl Rows, height: Height) -> Result<Vec<Stage>, StoreError> {
    let key = height_key(height);
    let waiting = load(rows, Table::Waiting, &key, take_waiting)?;
    let ready = load(rows, Table::Ready, &key, take_count)?;
    let pruned = pruned_of(rows, height)?;
    let waiting = waiting.map(|(count, unarchived)| Stage::Waiting(count, unarchived));
    Ok(waiting
        .into_iter()
        .chain(ready.map(Stage::Ready))
        .chain(pruned.map(|_| Stage::Pruned))
        .collect())
}

/// Goes through the rows and counts what the markers should say.
struct Walk<'a, 'c, S> {
    rows: &'a S,
    claims: &'a mut Claims<'c>,
    counted: Marks,
}

impl<S: Snapshot> Walk<'_, '_, S> {
    fn find(&mut self, invariant: u8, detail: String) {
        self.claims.find(FindingKind::Chain, invariant, detail);
    }

    /// Visits a table's rows; one that cannot be read is a finding and not the end.
    fn each(
        &mut self,
        table: Table,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let rows = self.rows;
        rows.scan(table, &[], &mut |key, value| {
            // The seal is looked at through the row's own key.
            let body = match rows.row(table, key) {
                Ok(Some(body)) => body,
                Ok(None) => value.to_vec(),
                Err(error) => {
                    self.claims.lose(format!("a row of {}: {error}", table.name()));
                    return Ok(ControlFlow::Continue(()));
                }
            };
            match visit(self, key, &body) {
                Err(error) if error.is_corruption() => {
                    self.claims.lose(format!("a row of {}: {error}", table.name()));
                }
                other => other?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn heights(&mut self) -> Result<(), StoreError> {
        self.each(Table::Heights, |walk, key, body| {
            let height = read(Table::Heights, key, take_height)?;
            let record = read(Table::Heights, body, |from| take_height_body(height, from))?;
            walk.counted.heights += 1;
            walk.counted.blobs += u64::from(record.blob_count);
            walk.counted.latest_decided = walk.counted.latest_decided.max(Some(height));
            walk.height(&record)
        })
    }

    fn height(&mut self, record: &HeightRecord) -> Result<(), StoreError> {
        let (height, count) = (record.height, record.blob_count);
        let mut unarchived = 0;
        let mut here = 0;
        for index in 0..count {
            let key = BlobKey { height, index };
            match meta_of(self.rows, key)? {
                None => self.find(16, format!("blob {height}/{index} has no metadata")),
                Some(meta) => {
                    let hash = hash_key(&meta.versioned_hash, key);
                    if self.rows.get(Table::Hashes, &hash)?.is_none() {
                        self.find(16, format!("blob {height}/{index} is not found by its hash"));
                    }
                }
            }
            let is_here = slot_of(self.rows, key)?.is_some();
            here += u32::from(is_here);
            let mut unbound = false;
            match archive_of(self.rows, key)? {
                None => unarchived += 1,
                Some(row) => {
                    self.counted.archived += 1;
                    unbound = is_here && !row.is_bound();
                }
            }
            if unbound != self.rows.get(Table::Unbound, &blob_key(key))?.is_some() {
                self.find(18, format!("blob {height}/{index}: that it is unbound is {unbound}"));
            }
        }
        let stages = stages_of(self.rows, height)?;
        let (right, bytes) = match stages.as_slice() {
            [] => (count == 0, 0),
            [Stage::Waiting(n, left)] => ((*n, *left) == (count, unarchived), count),
            [Stage::Ready(n)] => (*n == count && unarchived == 0 && count > 0, count),
            [Stage::Pruned] => {
                self.counted.pruned += u64::from(count);
                (unarchived == 0, 0)
            }
            _ => (false, here),
        };
        if !right {
            let said: Vec<String> = stages.iter().map(ToString::to_string).collect();
            let said = if said.is_empty() { "in no list".to_owned() } else { said.join(" and ") };
            let detail = format!(
                "height {height} has {unarchived} of {count} blobs unarchived, but it is {said}"
            );
            self.find(15, detail);
        }
        if here != bytes {
            let detail = format!("height {height} should have {bytes} blobs' bytes and has {here}");
            self.find(14, detail);
        }
        if unarchived == 0 && count > 0 {
            self.counted.latest_archived = self.counted.latest_archived.max(Some(height));
        }
        Ok(())
    }

    /// Rows of blobs whose height does not know them.
    fn strays(&mut self) -> Result<(), StoreError> {
        for table in [Table::Blobs, Table::Archive, Table::Bytes, Table::Unbound] {
            self.each(table, |walk, key, body| {
                let key = read(table, key, take_blob_key)?;
                let known = height_of(walk.rows, key.height)?
                    .is_some_and(|record| key.index < record.blob_count);
                if !known {
                    walk.find(16, format!("{key} of {} is no height's", table.name()));
                }
                if table == Table::Bytes {
                    let slot = read(table, body, Slot::read)?;
                    walk.claims.own("blob", (key.height, u64::from(key.index)), slot);
                }
                Ok(())
            })?;
        }
        for table in [Table::Waiting, Table::Ready, Table::Pruned] {
            self.each(table, |walk, key, _| {
                let height = read(table, key, take_height)?;
                if height_of(walk.rows, height)?.is_none() {
                    walk.find(15, format!("{height} is in {} and not decided", table.name()));
                }
                Ok(())
            })?;
        }
        self.each(Table::Hashes, |walk, key, _| {
            let (hash, key) = read(Table::Hashes, key, take_hash_key)?;
            let right = meta_of(walk.rows, key)?.is_some_and(|meta| meta.versioned_hash == hash);
            if !right {
                walk.find(16, format!("{hash} leads to {key}, which is another blob"));
            }
            Ok(())
        })
    }

    fn rounds(&mut self) -> Result<(), StoreError> {
        self.each(Table::Rounds, |walk, key, body| {
            let at = read(Table::Rounds, key, take_round_key)?;
            let row = read(Table::Rounds, body, |from| RoundRow::take(at, from))?;
            walk.counted.rounds += 1;
            walk.counted.undecided += row.blobs.len() as u64;
            for (meta, slot) in &row.blobs {
                walk.claims.own("undecided blob", (at.0, u64::from(meta.index)), *slot);
            }
            Ok(())
        })
    }

    fn queue(&mut self) -> Result<(), StoreError> {
        self.each(Table::Jobs, |walk, key, _| {
            let key = read(Table::Jobs, key, take_blob_key)?;
            walk.counted.jobs += 1;
            let job = job_of(walk.rows, key)?;
            let due = job.map(|job| walk.rows.get(Table::Due, &due_key(job.due, key)));
            if due.transpose()?.flatten().is_none() {
                walk.find(18, format!("the job of {key} is never due"));
            }
            if slot_of(walk.rows, key)?.is_none() {
                walk.find(18, format!("the job of {key} has no bytes"));
            }
            Ok(())
        })?;
        self.each(Table::Due, |walk, key, _| {
            let (due, key) = read(Table::Due, key, take_due_key)?;
            if job_of(walk.rows, key)?.is_none_or(|job| job.due != due) {
                walk.find(18, format!("{key} is due at {due} and has no such job"));
            }
            Ok(())
        })?;
        self.each(Table::Announcements, |walk, key, _| {
            let key = read(Table::Announcements, key, take_blob_key)?;
            walk.counted.announcements += 1;
            let own = |row: super::rows::ArchiveRow| {
                row.records.iter().any(|kept| kept.record.form == RecordForm::Own)
            };
            if !archive_of(walk.rows, key)?.is_some_and(own) {
                walk.find(17, format!("{key} is announced without a record"));
            }
            let told = telling_of(walk.rows, key)?.map(|one| due_key(one.next, key));
            let told = told.map(|telling| walk.rows.get(Table::Telling, &telling)).transpose()?;
            if told.flatten().is_none() {
                walk.find(18, format!("the announcement of {key} is never told"));
            }
            Ok(())
        })?;
        self.each(Table::Telling, |walk, key, _| {
            let (next, key) = read(Table::Telling, key, take_due_key)?;
            if telling_of(walk.rows, key)?.is_none_or(|telling| telling.next != next) {
                walk.find(18, format!("{key} is to be told at {next} and is not announced"));
            }
            Ok(())
        })
    }
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Recomputes everything and says what is wrong. `progress` hears (blobs read, blobs in all).
    pub fn verify(&self, progress: impl FnMut(u64, u64)) -> Result<ShelfReport, SidecarError> {
        let report = self.shelf.verify(
            |rows, claims| {
                let mut walk = Walk { rows, claims, counted: Marks::default() };
                walk.heights()?;
                walk.strays()?;
                walk.rounds()?;
                walk.queue()?;
                let (counted, stored) = (walk.counted, Marks::load(rows)?);
                // What is final and what failed is told by nothing else.
                let expected =
                    Marks { finalized: stored.finalized, failures: stored.failures, ..counted };
                if expected != stored {
                    let detail = stored.differs(&expected);
                    claims.find(FindingKind::Counter, 18, detail);
                }
                Ok(())
            },
            progress,
        )?;
        Ok(report)
    }
}
