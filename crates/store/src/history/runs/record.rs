//! The rows of runs and tombstones, and what becomes of them when blocks are cut.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use secateur_core::{CoreError, Height, Reader, Writer};

use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};
use crate::history::place::{Place, Stream};
use crate::history::state::{Layout, State};
use crate::history::streams::PAGE;
use crate::history::txn::Txn;
use crate::regions::cut::{Cut, CutAndFree};
use crate::rows::{Rows, u64_key};

/// Tombstones that are kept at most, however small they are: each is asked for an absent id.
const MAX_TOMBSTONES: usize = 4096;
/// With a budget, tombstones never take more than this part of it.
const TARGET_DIVISOR: u64 = 100;

/// Bytes in the arena: where, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Where.
    pub place: Place,
    /// How many.
    pub len: u64,
}

impl Blob {
    fn write(&self, out: &mut Writer) -> Result<(), StoreError> {
        out.u64(self.len);
        self.place.write(out)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let (len, place) = (from.u64()?, Place::read(from)?);
        if !place.holds(len) {
            return Err(from.error(format!("its place does not hold {len} bytes")));
        }
        Ok(Self { place, len })
    }

    /// The positions that it takes of a stream.
    fn positions(&self) -> Option<Range<u64>> {
        match self.place {
            Place::Stream(position) => Some(position..position.saturating_add(self.len.max(1))),
            Place::Regions(_) => None,
        }
    }
}

/// What the index knows of a run, or of the tombstone that is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Its number; later runs have larger ones.
    pub number: u64,
    /// The first block whose ids it holds.
    pub first: Height,
    /// The last one.
    pub last: Height,
    /// Ids and hashes in it.
    pub entries: u64,
    /// Blocks in its range whose ids could not be read when it was made.
    pub missing: u32,
    /// The sorted entries; none once the last block is cut.
    pub run: Option<Blob>,
    /// The filter, which stays.
    pub filter: Blob,
}

impl RunRecord {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut out = Writer::new();
        out.u64(self.first).u64(self.last).u64(self.entries).u32(self.missing);
        self.filter.write(&mut out)?;
        out.flag(self.run.is_some());
        if let Some(run) = &self.run {
            run.write(&mut out)?;
        }
        Ok(out.finish())
    }

    /// Reads the row of a number.
    pub fn decode(number: u64, body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("run row", body);
        let (first, last) = (from.u64()?, from.u64()?);
        let (entries, missing) = (from.u64()?, from.u32()?);
        let filter = Blob::read(&mut from)?;
        let run = if from.flag()? { Some(Blob::read(&mut from)?) } else { None };
        if first > last || last == Height::MAX {
            return Err(from.error(format!("blocks {first} to {last}")));
        }
        from.finish()?;
        Ok(Self { number, first, last, entries, missing, run, filter })
    }

    /// What its filter takes: its regions, or whole pages of a stream.
    pub(crate) fn filter_bytes(&self) -> u64 {
        match &self.filter.place {
            Place::Regions(ptrs) => ptrs.iter().map(|ptr| u64::from(ptr.class)).sum(),
            Place::Stream(_) => self.filter.len.next_multiple_of(PAGE),
        }
    }

    /// Whether it still answers where an id is.
    pub(crate) fn is_live(&self) -> bool {
        self.run.is_some()
    }
}

/// Reads every row of runs and tombstones, oldest first.
pub(crate) fn load_runs(rows: &impl Snapshot) -> Result<Vec<RunRecord>, StoreError> {
    let mut found = Vec::new();
    rows.rows(Table::Runs, &[], |key, body| {
        let number = u64_key(Table::Runs, key)?;
        found.push(RunRecord::decode(number, body).map_err(row_error("runs"))?);
        Ok(ControlFlow::Continue(()))
    })?;
    found.sort_by_key(|record: &RunRecord| (record.first, record.number));
    Ok(found)
}

/// The lowest height whose ids are still known, be it only as `Pruned`.
pub(crate) fn searched_from(state: &State, runs: &[RunRecord]) -> Option<Height> {
    let mut from = state.oldest_kept()?;
    for run in runs.iter().rev() {
        if run.last.saturating_add(1) < from {
            break;
        }
        from = from.min(run.first);
    }
    Some(from)
}

/// What tombstones may take, given the setting and the budget.
pub(crate) fn tombstone_cap(tombstone_bytes: u64, target_bytes: u64) -> u64 {
    if target_bytes == 0 {
        tombstone_bytes
    } else {
        tombstone_bytes.min(target_bytes / TARGET_DIVISOR)
    }
}

impl<S: Snapshot> Txn<'_, S> {
    /// Sets a run's row and knows of it.
    pub(crate) fn put_run(&mut self, record: RunRecord) -> Result<(), StoreError> {
        self.put(Table::Runs, &record.number.to_be_bytes(), record.encode()?);
        let runs = Arc::make_mut(&mut self.runs);
        runs.retain(|known| known.number != record.number);
        let at = runs.partition_point(|known| known.first < record.first);
        runs.insert(at, record);
        Ok(())
    }

    /// Forgets a run or tombstone altogether.
    pub(crate) fn drop_run(&mut self, record: &RunRecord, cut: &mut Cut) -> Result<(), StoreError> {
        self.delete(Table::Runs, &record.number.to_be_bytes());
        Arc::make_mut(&mut self.runs).retain(|known| known.number != record.number);
        for blob in record.run.iter().chain([&record.filter]) {
            if let Place::Regions(ptrs) = &blob.place {
                self.give_back(ptrs, cut)?;
            }
        }
        Ok(())
    }

    /// After blocks up to `boundary` were cut: runs without a kept block become tombstones, and
    /// the oldest tombstones go when they take more than `cap`.
    pub(crate) fn retire_runs(
        &mut self,
        boundary: Height,
        cap: u64,
        cut: &mut Cut,
    ) -> Result<(), StoreError> {
        // Tombstones come before live runs, because blocks are cut oldest first.
        let live = self.runs.partition_point(|run| !run.is_live());
        let ended = self.runs.iter().skip(live).take_while(|run| run.last <= boundary);
        let ended: Vec<RunRecord> = ended.cloned().collect();
        if ended.is_empty() {
            return Ok(());
        }
        for mut record in ended {
            if let Some(Blob { place: Place::Regions(ptrs), .. }) = record.run.take() {
                self.give_back(&ptrs, cut)?;
            }
            self.put_run(record)?;
        }
        let tombstones: Vec<RunRecord> =
            self.runs.iter().filter(|run| !run.is_live()).cloned().collect();
        let mut taken: u64 = tombstones.iter().map(RunRecord::filter_bytes).sum();
        let mut left = tombstones.len();
        for tombstone in &tombstones {
            if taken <= cap && left <= MAX_TOMBSTONES {
                break;
            }
            self.drop_run(tombstone, cut)?;
            (taken, left) = (taken - tombstone.filter_bytes(), left - 1);
        }
        self.release_streams(cut)
    }

    /// In the packed layout: gives back the stretches that no run and no filter needs any more.
    pub(crate) fn release_streams(&mut self, cut: &mut Cut) -> Result<(), StoreError> {
        if self.header.layout != Layout::Packed {
            return Ok(());
        }
        let runs = Arc::clone(&self.runs);
        let live = runs.iter().filter_map(|r| r.run.as_ref()).filter_map(Blob::positions);
        self.release_unused(Stream::Runs, &live.collect::<Vec<_>>(), cut)?;
        let filters = runs.iter().filter_map(|record| record.filter.positions());
        self.release_unused(Stream::Filters, &filters.collect::<Vec<_>>(), cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_row_reads_back_and_a_shorter_or_longer_one_does_not() {
        let blob = |at| Blob { place: Place::Stream(at), len: 77 };
        let live = RunRecord {
            number: 4,
            first: 10,
            last: 20,
            entries: 300,
            missing: 0,
            run: Some(blob(4096)),
            filter: blob(8192),
        };
        let tombstone = RunRecord { run: None, ..live.clone() };
        for record in [live, tombstone] {
            let body = record.encode().unwrap();
            assert_eq!(RunRecord::decode(4, &body).unwrap(), record);
            for cut in 0..body.len() {
                assert!(RunRecord::decode(4, &body[..cut]).is_err());
            }
            assert!(RunRecord::decode(4, &[body, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn tombstones_never_take_more_than_a_hundredth_of_the_budget() {
        assert_eq!(tombstone_cap(64, 0), 64);
        assert_eq!(tombstone_cap(64, 1000), 10);
        assert_eq!(tombstone_cap(64, 1_000_000), 64);
    }
}
