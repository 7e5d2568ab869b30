//! Sealing: a full and final segment of the open epoch becomes a run in the arena. Write, sync,
//! one batch: a crash before leaves nothing. Also here: how the room is built from what is stored.

use std::ops::ControlFlow;
use std::sync::Arc;

use secateur_core::{Block, Height, Payloads, Segment as PayloadSegment};

use super::epoch::{BlockIds, SealLimits, Segment};
use super::format::{Summary, encode_run};
use super::record::{Blob, RunRecord, tombstone_cap};
use super::room::{LiveRun, Room, Tomb, segment_of};
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::history::lane::{HashChange, Staging, Write};
use crate::history::place::{Place, Stream, pieces};
use crate::history::prune::Terms;
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

/// A run that is ready to be placed.
pub(super) struct Sealing {
    pub number: u64,
    pub covers: Covers,
    pub summary: Summary,
    pub run: Vec<u8>,
}

impl Sealing {
    /// The run of a segment.
    fn of(segment: &Segment, number: u64) -> Result<Self, StoreError> {
        let made = |error| StoreError::refused("seal", format!("{error}"));
        let entries = segment.entries();
        let summary = Summary::of(&entries).map_err(made)?;
        let run = encode_run(number, &entries).map_err(made)?;
        let covers = Covers {
            first: segment.first,
            last: segment.last,
            missing: u32::try_from(segment.damaged.len()).unwrap_or(u32::MAX),
        };
        Ok(Self { number, covers, summary, run })
    }
}

/// What a prune seals in its own batch.
#[derive(Default)]
pub(crate) struct SealedAlong {
    pub runs: Vec<Arc<LiveRun>>,
    pub writes: Vec<Write>,
}

/// Where a cut finds ids that are in no run.
pub(crate) enum OpenIds {
    /// In the room as it is: the caller is the writer, and nothing else moves it.
    Live,
    /// As they were with a snapshot, for a plan beside which others write.
    Copied(Vec<Arc<Segment>>),
}

/// The newest block whose ids are in a run or were.
pub(crate) fn sealed_to(runs: &[RunRecord]) -> Option<Height> {
    runs.iter().map(|run| run.last).max()
}

impl Control {
    /// What tombstones may take.
    pub(crate) fn tombstone_cap(&self) -> u64 {
        tombstone_cap(self.settings.tombstone_bytes, self.policy.target_bytes)
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
        let sealed = self.seal_next();
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

    /// Seals, in a batch that is about to cut block `height`, the ids of that block and of all final
    /// ones of its segment, full or not: nothing is cut whose ids would be forgotten with it. The
    /// blocks below are cut in this batch or before, so their runs are tombstones and there is
    /// nothing to merge. A plan does the same and drops the batch.
    pub(crate) fn seal_along<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        height: Height,
        terms: &Terms,
        along: &mut SealedAlong,
    ) -> Result<(), StoreError> {
        let sealed = sealed_to(&txn.runs);
        let Some(newest_final) = terms.newest_final else { return Ok(()) };
        let segment = match &terms.open_ids {
            OpenIds::Live => self.hashes.segment_of(height, sealed, newest_final),
            OpenIds::Copied(segments) => segment_of(segments, height, sealed, newest_final),
        };
        let Some(segment) = segment else { return Ok(()) };
        let sealing = Sealing::of(&segment, txn.state.run_next)?;
        drop(segment);
        let (live, writes) = self.put_sealed(txn, sealing)?;
        // A plan writes nothing, so it keeps no run in memory.
        if matches!(terms.open_ids, OpenIds::Live) {
            along.runs.push(live);
            along.writes.extend(writes);
        }
        Ok(())
    }

    fn seal_next(&self) -> Result<bool, StoreError> {
        let _one_at_a_time = self.sealing.lock();
        let Some(newest_final) = self.ends().export_head else { return Ok(false) };
        let Some(segment) = self.hashes.segment_to_seal(newest_final) else {
            return Ok(false);
        };
        match self.merge_if_full() {
            // A damaged run stays as it is; one more than there should be does no harm.
            Err(error) if error.is_corruption() => {}
            merged => merged?,
        }
        let number = self.control.lock().state.run_next;
        let ticket = self.stage_run(Sealing::of(&segment, number)?, &[])?;
        self.wait_for(ticket)?;
        Ok(true)
    }

    /// Hands a new run to the lane, in place of the ones that it takes in. A prune may have sealed
    /// or ended some of it meanwhile: then there is nothing to do.
    pub(super) fn stage_run(
        &self,
        sealing: Sealing,
        replaced: &[&RunRecord],
    ) -> Result<u64, StoreError> {
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        let known = replaced.is_empty() && sealed_to(&txn.runs) >= Some(sealing.covers.first);
        let gone = replaced.iter().any(|record| !txn.runs.contains(record));
        if known || gone || sealing.number != txn.state.run_next {
            return Ok(self.lane.staged());
        }
        let last = sealing.covers.last;
        let freed = self.settle_into(&mut txn)?;
        let mut cut = Cut::default();
        let (live, writes) = self.put_sealed(&mut txn, sealing)?;
        self.check_headroom("sealing ids", txn.fresh_bytes)?;
        self.arena.grow(txn.state.arena_end)?;
        for old in replaced {
            txn.drop_run(old, &mut cut)?;
        }
        if !replaced.is_empty() {
            txn.release_streams(&mut cut)?;
        }
        let journal = txn.journal(last, &cut)?;
        let hashes = HashChange::Sealed(live, Arc::clone(&txn.runs));
        self.stage(&mut control, txn, Staging { writes, freed, journal, hashes })
    }

    /// Places a run and its filter, and sets its row, in the batch; the bytes for the arena are the
    /// answer.
    fn put_sealed<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        sealing: Sealing,
    ) -> Result<(Arc<LiveRun>, Vec<Write>), StoreError> {
        let Sealing { number, covers, summary, run } = sealing;
        let filter = summary.encode();
        let run_blob = reserve(txn, Stream::Runs, &run)?;
        let filter_blob = reserve(txn, Stream::Filters, &filter)?;
        let writes = vec![
            self.write_blob(txn, Stream::Runs, &run_blob, &run)?,
            self.write_blob(txn, Stream::Filters, &filter_blob, &filter)?,
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
        txn.put_run(record.clone())?;
        Ok((Arc::new(LiveRun { record, summary }), writes))
    }

    /// Bytes for the arena at their place.
    fn write_blob<S: Snapshot>(
        &self,
        txn: &Txn<'_, S>,
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
        self.build_hashes_for(&self.control.lock())
    }

    /// The same, for whoever is the writer already.
    pub(crate) fn build_hashes_for(&self, control: &Control) -> Result<(), StoreError> {
        if self.hashes.is_built() {
            return Ok(());
        }
        if self.poisoned().is_none() {
            self.flush()?;
        } else {
            self.lane.wait_until_still();
        }
        let room = self.build_room(control)?;
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
