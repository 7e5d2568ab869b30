//! Sealing: a full and final segment of the open epoch becomes a run in the arena. Write, sync,
//! one batch: a crash before leaves nothing. Also here: how the room is built from what is stored.

use std::ops::ControlFlow;
use std::sync::Arc;

use secateur_core::{Block, Height, Payloads, Segment as PayloadSegment};

use super::epoch::{BlockIds, SealLimits};
use super::format::{Summary, encode_run};
use super::record::{Blob, RunRecord, tombstone_cap};
use super::room::{LiveRun, Room, Tomb};
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::history::lane::{HashChange, Staging, Write};
use crate::history::place::{Place, Stream, pieces};
use crate::history::record::{Group, Walk};
use crate::history::store::{Control, Store};
use crate::history::txn::Txn;
use crate::history::view::View;
use crate::regions::cut::{Cut, CutAndFree};
use crate::rows::u64_key;

/// The blocks whose ids a run holds.
pub(super) struct Covers {
    pub first: Height,
    pub last: Height,
    /// Blocks among them whose ids could not be read.
    pub missing: u32,
}

impl Control {
    /// What tombstones may take.
    pub(crate) fn tombstone_cap(&self) -> u64 {
        tombstone_cap(self.settings.tombstone_bytes, self.policy.target_bytes)
    }

    /// The newest block whose ids are in a run or were.
    pub(crate) fn sealed_to(&self) -> Option<Height> {
        self.runs.iter().map(|run| run.last).max()
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Seals every epoch that is full and final; how many is the answer. Workers do this in the
    /// background; without them every append does.
    pub fn seal(&self) -> Result<u64, StoreError> {
        let mut sealed = 0;
        while self.seal_one()? {
            sealed += 1;
        }
        Ok(sealed)
    }

    /// Seals one such epoch; whether there was one is the answer.
    pub fn seal_one(&self) -> Result<bool, StoreError> {
        self.build_hashes()?;
        let sealed = self.seal_next(false);
        match &sealed {
            Ok(true) => {}
            Ok(false) => *self.seal_trouble.lock() = None,
            Err(error) => *self.seal_trouble.lock() = Some(error.to_string()),
        }
        sealed
    }

    /// Whether [`Store::seal`] has something to do.
    pub fn seal_due(&self) -> bool {
        self.hashes.seal_due(self.ends().export_head)
    }

    /// Seals all final blocks up to `height` and beyond, full or not: nothing is cut whose ids
    /// would be forgotten with it.
    pub(crate) fn seal_through(&self, height: Height) -> Result<(), StoreError> {
        self.build_hashes()?;
        self.flush()?;
        loop {
            let sealed = self.control.lock().sealed_to();
            if sealed >= Some(height) || !self.seal_next(true)? {
                return Ok(());
            }
        }
    }

    fn seal_next(&self, closing: bool) -> Result<bool, StoreError> {
        let _one_at_a_time = self.sealing.lock();
        let Some(newest_final) = self.ends().export_head else { return Ok(false) };
        let Some(segment) = self.hashes.segment_to_seal(newest_final, closing) else {
            return Ok(false);
        };
        match self.merge_if_full() {
            // A damaged run stays as it is; one more than there should be does no harm.
            Err(error) if error.is_corruption() => {}
            merged => merged?,
        }
        let number = self.control.lock().state.run_next;
        let entries = segment.entries();
        let made = |error| StoreError::refused("seal", format!("{error}"));
        let summary = Summary::of(&entries).map_err(made)?;
        let run = encode_run(number, &entries).map_err(made)?;
        drop(entries);
        let covers = Covers {
            first: segment.first,
            last: segment.last,
            missing: u32::try_from(segment.damaged.len()).unwrap_or(u32::MAX),
        };
        let ticket = self.stage_run(number, &covers, summary, &run, &[])?;
        self.wait_for(ticket)?;
        Ok(true)
    }

    /// Hands a new run to the lane, in place of the ones that it takes in. One of those may have
    /// ended meanwhile: then there is nothing to do.
    pub(super) fn stage_run(
        &self,
        number: u64,
        covers: &Covers,
        summary: Summary,
        run: &[u8],
        replaced: &[&RunRecord],
    ) -> Result<u64, StoreError> {
        let filter = summary.encode();
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        if replaced.iter().any(|record| !txn.runs.contains(record)) {
            return Ok(self.lane.staged());
        }
        let freed = self.settle_into(&mut txn)?;
        let mut cut = Cut::default();
        let run_blob = reserve(&mut txn, Stream::Runs, run)?;
        let filter_blob = reserve(&mut txn, Stream::Filters, &filter)?;
        self.check_headroom(txn.fresh_bytes)?;
        self.arena.grow(txn.state.arena_end)?;
        let writes = vec![
            self.write_blob(&txn, Stream::Runs, &run_blob, run)?,
            self.write_blob(&txn, Stream::Filters, &filter_blob, &filter)?,
        ];
        let record = RunRecord {
            number,
            first: covers.first,
            last: covers.last,
            entries: summary.entries,
            missing: covers.missing,
            run: Some(run_blob),
            filter: filter_blob,
        };
        txn.state.run_next = number + 1;
        for old in replaced {
            txn.drop_run(old, &mut cut)?;
        }
        txn.put_run(record.clone())?;
        if !replaced.is_empty() {
            txn.release_streams(&mut cut)?;
        }
        let journal = txn.journal(covers.last, &cut)?;
        let live = Arc::new(LiveRun { record, summary });
        let hashes = HashChange::Sealed(live, Arc::clone(&txn.runs));
        self.stage(&mut control, txn, Staging { writes, freed, journal, hashes })
    }

    /// Bytes for the arena at their place.
    fn write_blob(
        &self,
        txn: &Txn<'_, I::Snapshot>,
        stream: Stream,
        blob: &Blob,
        bytes: &[u8],
    ) -> Result<Write, StoreError> {
        let mut buffer = self.buffers.take(bytes.len());
        buffer.extend(bytes);
        if matches!(blob.place, Place::Stream(_)) {
            buffer.pad();
        }
        let len = buffer.len() as u64;
        let pieces = pieces(txn, &self.header, stream, &blob.place, 0, len)?;
        let pieces = pieces.into_iter().map(|piece| (piece.offset, piece.len)).collect();
        Ok(Write { buffer, pieces })
    }

    /// Builds the room from stored payloads and filters when it is first needed. Writers wait
    /// meanwhile, so nothing is missed and nothing is counted twice.
    pub(crate) fn build_hashes(&self) -> Result<(), StoreError> {
        if self.hashes.is_built() {
            return Ok(());
        }
        let control = self.control.lock();
        if self.hashes.is_built() {
            return Ok(());
        }
        if self.poisoned().is_none() {
            self.flush()?;
        } else {
            self.lane.wait_until_still();
        }
        let room = self.build_room(&control)?;
        self.hashes.fill(room);
        Ok(())
    }

    fn build_room(&self, control: &Control) -> Result<Room, StoreError> {
        let mut room = Room::default();
        let view = self.view()?;
        room.records = Arc::new(super::load_runs(&view.snapshot)?);
        for record in room.records.iter().cloned() {
            match self.load_summary(&view, &record) {
                Ok(summary) if record.is_live() => {
                    room.runs.push(Arc::new(LiveRun { record, summary }));
                }
                Ok(summary) => {
                    room.tombs.push_back(Tomb { number: record.number, filter: summary.filter });
                }
                // One damaged filter must not keep all other ids from being found.
                Err(error) if error.is_corruption() => {
                    room.damaged.push((record.number, record.last));
                }
                Err(error) => return Err(error),
            }
        }
        let sealed = room.runs.iter().map(|run| run.record.last);
        let sealed = sealed.chain(room.damaged.iter().map(|(_, last)| *last)).max();
        drop(view);
        self.restore_open_epoch(&mut room, sealed, self.seal_limits(control))?;
        Ok(room)
    }

    /// A run's filter and fences, from the arena.
    pub(crate) fn load_summary<S: Snapshot>(
        &self,
        view: &View<'_, A, S>,
        record: &RunRecord,
    ) -> Result<Summary, StoreError> {
        let len = usize::try_from(record.filter.len).unwrap_or(usize::MAX);
        // A filter never takes more than this for each of its ids, nor its arena.
        let bound = record.entries.saturating_mul(64).saturating_add(1 << 20);
        if record.filter.len > bound || record.filter.len > self.arena.len()? {
            return Err(StoreError::corrupt("runs", "a filter is longer than its ids ask for"));
        }
        let mut bytes = vec![0u8; len];
        view.read(Stream::Filters, &record.filter.place, 0, &mut bytes)?;
        let summary = Summary::decode(&bytes).map_err(row_error("filter"))?;
        if summary.entries != record.entries {
            return Err(StoreError::corrupt("filter", "it belongs to another run"));
        }
        Ok(summary)
    }

    fn restore_open_epoch(
        &self,
        room: &mut Room,
        sealed: Option<Height>,
        limits: SealLimits,
    ) -> Result<(), StoreError> {
        // One for all of them: whoever could cut waits.
        let view = self.view()?;
        let (Some(oldest), Some(head)) = (view.state.oldest_kept(), view.state.head) else {
            return Ok(());
        };
        let first = sealed.map_or(oldest, |sealed| oldest.max(sealed + 1));
        let mut walk = Walk::new(first, head.height);
        let mut next = Some(first);
        while let Some(height) = next.filter(|height| *height <= head.height) {
            let restored = self.stored_ids(&view, &mut walk, height);
            match restored {
                Ok(ids) => {
                    room.restore(height, Some(ids), limits);
                    next = Some(height + 1);
                }
                // One damaged block must not keep all other hashes from being found.
                Err(error) if error.is_corruption() => {
                    room.restore(height, None, limits);
                    next = self.recorded_above(height)?;
                    walk = Walk::new(next.unwrap_or(head.height), head.height);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next height that a row may hold: however far away the head is said to be, rows are few.
    fn recorded_above(&self, height: Height) -> Result<Option<Height>, StoreError> {
        let snapshot = self.view()?.snapshot;
        let above = height + 1;
        if matches!(Group::around(&snapshot, above), Ok(Some(group)) if group.last() >= Some(above))
        {
            return Ok(Some(above));
        }
        let mut next = None;
        snapshot.scan(Table::Blocks, &above.to_be_bytes(), &mut |key, _| {
            next = Some(u64_key(Table::Blocks, key)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(next)
    }

    /// The ids of a stored block, from its payloads.
    fn stored_ids(
        &self,
        view: &View<'_, A, I::Snapshot>,
        walk: &mut Walk,
        height: Height,
    ) -> Result<BlockIds, StoreError> {
        let record = walk.next(&view.snapshot)?.ok_or_else(|| {
            StoreError::corrupt("blocks", format!("the record of block {height} is missing"))
        })?;
        let payloads = Payloads {
            receipts: view.payload(&record, PayloadSegment::Receipts)?,
            tx_index: view.payload(&record, PayloadSegment::TxIndex)?,
            ..Payloads::default()
        };
        let (bytes, block) = (record.payload_bytes(), Block { meta: record.meta, payloads });
        let (ids, _) =
            BlockIds::of(self.header.hash_seed(), &block).map_err(row_error("payloads"))?;
        Ok(BlockIds { bytes, ..ids })
    }
}

fn reserve<S: Snapshot>(
    txn: &mut Txn<'_, S>,
    stream: Stream,
    bytes: &[u8],
) -> Result<Blob, StoreError> {
    let len = bytes.len() as u64;
    Ok(Blob { place: txn.reserve(stream, len)?, len })
}
