//! The room of hashes: the open epoch, the filters of live runs, the tombstones. All of it is
//! derived from what is stored, and nothing of it is there before somebody needs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use secateur_core::Height;

use super::epoch::{BlockIds, SealLimits, Segment};
use super::filter::Filter;
use super::format::{Summary, What};
use super::record::{RunRecord, searched_from};
use crate::history::lane::HashChange;
use crate::history::state::State;

/// A run that answers where an id is.
#[derive(Debug)]
pub(crate) struct LiveRun {
    pub record: RunRecord,
    pub summary: Summary,
}

/// A filter whose blocks are gone.
#[derive(Debug)]
pub(crate) struct Tomb {
    pub number: u64,
    pub filter: Filter,
}

/// What is in the room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub segments: VecDeque<Arc<Segment>>,
    /// Oldest first.
    pub runs: Vec<Arc<LiveRun>>,
    pub tombs: VecDeque<Tomb>,
    /// The rows of all of them.
    pub records: Arc<Vec<RunRecord>>,
    /// Runs and tombstones whose filter could not be read: their number and last block.
    pub damaged: Vec<(u64, Height)>,
}

/// What the room knows of a key before the arena is asked.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Places in the open epoch, newest first.
    pub open: Vec<(Height, What)>,
    /// Runs that may hold it, newest first, with the pages to look at.
    pub runs: Vec<(Arc<LiveRun>, u32, u32)>,
    /// Something that could hold it cannot be read: the block, or the last one of a run.
    pub damaged: Option<Height>,
}

/// The room. Nothing is in it before it is needed.
#[derive(Debug, Default)]
pub(crate) struct HashRoom {
    room: RwLock<Option<Room>>,
    changes: AtomicU64,
}

impl Room {
    fn insert_block(&mut self, block: &BlockIds, limits: SealLimits) {
        if self.segments.back().is_none_or(|segment| segment.closed) {
            let like = self.segments.back().map_or(0, |segment| segment.len());
            self.segments.push_back(Arc::new(Segment::new(block.height, like)));
        }
        if let Some(segment) = self.segments.back_mut() {
            Arc::make_mut(segment).insert(block, limits);
        }
    }

    /// Takes in a stored block when the room is built; one whose ids cannot be read is noted.
    pub(crate) fn restore(&mut self, height: Height, ids: Option<BlockIds>, limits: SealLimits) {
        let readable = ids.is_some();
        let ids = ids.unwrap_or(BlockIds { height, bytes: 0, ids: Vec::new() });
        self.insert_block(&ids, limits);
        if let Some(segment) = self.segments.back_mut().filter(|_| !readable) {
            Arc::make_mut(segment).damaged.push(height);
        }
    }

    fn roll_back(&mut self, to: Option<Height>) {
        let gone = |height: Height| to.is_none_or(|to| height > to);
        while self.segments.back().is_some_and(|segment| gone(segment.first)) {
            self.segments.pop_back();
        }
        if let (Some(segment), Some(to)) = (self.segments.back_mut(), to)
            && segment.last > to
        {
            Arc::make_mut(segment).truncate(to);
        }
    }

    /// Drops what a run holds from now on; the blocks above it stay.
    fn forget_sealed(&mut self, last: Height) {
        while self.segments.front().is_some_and(|segment| segment.first <= last) {
            let Some(mut segment) = self.segments.pop_front() else { return };
            if segment.last <= last {
                continue;
            }
            if let Some(mut above) = Arc::make_mut(&mut segment).split_off(last) {
                above.closed = !self.segments.is_empty();
                self.segments.push_front(Arc::new(above));
            }
        }
    }

    /// Keeps just the runs and tombstones of the list.
    fn keep(&mut self, records: Arc<Vec<RunRecord>>) {
        let find = |number: u64| records.iter().find(|record| record.number == number);
        for run in std::mem::take(&mut self.runs) {
            match find(run.record.number) {
                Some(record) if record.is_live() => self.runs.push(run),
                Some(record) => {
                    let filter = Arc::try_unwrap(run)
                        .map_or_else(|run| run.summary.filter.clone(), |run| run.summary.filter);
                    self.tombs.push_back(Tomb { number: record.number, filter });
                }
                None => {}
            }
        }
        self.tombs.retain(|tomb| find(tomb.number).is_some());
        self.damaged.retain(|(number, _)| find(*number).is_some());
        self.records = records;
    }

    fn known(&self, key: u64, boundary: Option<Height>) -> Known {
        let kept = |height: &Height| boundary.is_none_or(|boundary| *height > boundary);
        let runs = self.runs.iter().rev().filter_map(|run| {
            let (first, last) = run.summary.pages_of(key)?;
            Some((Arc::clone(run), first, last))
        });
        let unread = self.segments.iter().flat_map(|segment| &segment.damaged);
        let missing = self.runs.iter().filter(|run| run.record.missing > 0);
        let missing = missing.map(|run| &run.record.last);
        Known {
            open: self.segments.iter().rev().flat_map(|segment| segment.find(key)).collect(),
            runs: runs.collect(),
            damaged: unread
                .chain(missing)
                .copied()
                .find(kept)
                .or_else(|| self.damaged.iter().map(|(_, last)| *last).max()),
        }
    }
}

impl HashRoom {
    /// Whether it is built.
    pub(crate) fn is_built(&self) -> bool {
        self.room.read().is_some()
    }

    /// How often what is in it moved: a lookup that missed compares it before and after.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Moves a finished room in. The caller keeps writers away while it builds it.
    pub(crate) fn fill(&self, room: Room) {
        *self.room.write() = Some(room);
    }

    /// Takes in appended blocks, if the room is built.
    pub(crate) fn insert_blocks(&self, blocks: &[BlockIds], limits: SealLimits) {
        if let Some(room) = self.room.write().as_mut() {
            for block in blocks {
                room.insert_block(block, limits);
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Follows a job that was committed.
    pub(crate) fn adopt(&self, change: HashChange) {
        if matches!(change, HashChange::None | HashChange::Insert(..)) {
            return;
        }
        let mut place = self.room.write();
        let Some(room) = place.as_mut() else { return };
        match change {
            HashChange::None | HashChange::Insert(..) => {}
            HashChange::Cut(boundary, records, sealed) => {
                for run in sealed {
                    room.forget_sealed(run.record.last);
                    room.runs.push(run);
                }
                while room.segments.front().is_some_and(|segment| segment.last <= boundary) {
                    room.segments.pop_front();
                }
                room.keep(records);
                room.runs.sort_by_key(|run| run.record.first);
            }
            HashChange::RollBack(to) => room.roll_back(to),
            HashChange::Sealed(run, records) => {
                room.forget_sealed(run.record.last);
                room.keep(records);
                room.runs.push(run);
                room.runs.sort_by_key(|run| run.record.first);
            }
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// What is known of a key; blocks at or below the boundary are not missed.
    pub(crate) fn known(&self, key: u64, boundary: Option<Height>) -> Known {
        self.room.read().as_ref().map(|room| room.known(key, boundary)).unwrap_or_default()
    }

    /// The lowest height whose ids are still known.
    pub(crate) fn searched_from(&self, state: &State) -> Option<Height> {
        let room = self.room.read();
        searched_from(state, room.as_ref().map_or(&[], |room| room.records.as_slice()))
    }

    /// Whether a tombstone claims a key.
    pub(crate) fn is_buried(&self, key: u64) -> bool {
        let room = self.room.read();
        room.as_ref().is_some_and(|room| room.tombs.iter().any(|tomb| tomb.filter.contains(key)))
    }

    /// The blocks of the tombstones that claim a key, newest first.
    pub(crate) fn burials(&self, key: u64) -> Vec<(Height, Height)> {
        let room = self.room.read();
        let Some(room) = room.as_ref() else { return Vec::new() };
        let claims = room.tombs.iter().filter(|tomb| tomb.filter.contains(key));
        let record = |number| room.records.iter().find(|record| record.number == number);
        let mut ranges: Vec<_> = claims
            .filter_map(|tomb| record(tomb.number).map(|record| (record.first, record.last)))
            .collect();
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        ranges
    }

    /// The oldest segment, if it is full and final.
    pub(crate) fn segment_to_seal(&self, final_height: Height) -> Option<Arc<Segment>> {
        let room = self.room.read();
        let front = room.as_ref()?.segments.front()?;
        (front.closed && front.last <= final_height).then(|| Arc::clone(front))
    }

    /// The segment of a block that is not sealed, full or not: what of it is above the newest sealed
    /// block and final.
    pub(crate) fn segment_of(
        &self,
        height: Height,
        sealed_to: Option<Height>,
        final_height: Height,
    ) -> Option<Segment> {
        segment_of(&self.room.read().as_ref()?.segments, height, sealed_to, final_height)
    }

    /// All segments that are not sealed, oldest first, as they are now.
    pub(crate) fn open_segments(&self) -> Vec<Arc<Segment>> {
        let room = self.room.read();
        room.as_ref().map(|room| room.segments.iter().cloned().collect()).unwrap_or_default()
    }

    /// What the room takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let room = self.room.read();
        let Some(room) = room.as_ref() else { return 0 };
        let segments = room.segments.iter().map(|segment| segment.memory_bytes());
        let runs = room.runs.iter().map(|run| run.summary.memory_bytes());
        let tombs = room.tombs.iter().map(|tomb| tomb.filter.memory_bytes());
        segments.chain(runs).chain(tombs).sum::<usize>() as u64
    }

    /// Whether a segment is full and final.
    pub(crate) fn seal_due(&self, final_height: Option<Height>) -> bool {
        let room = self.room.read();
        let front = room.as_ref().and_then(|room| room.segments.front());
        front.is_some_and(|segment| segment.closed && Some(segment.last) <= final_height)
    }
}

/// What [`HashRoom::segment_of`] finds, among these segments.
pub(super) fn segment_of<'a>(
    segments: impl IntoIterator<Item = &'a Arc<Segment>>,
    height: Height,
    sealed_to: Option<Height>,
    final_height: Height,
) -> Option<Segment> {
    let mut segments = segments.into_iter();
    let found = segments.find(|segment| (segment.first..=segment.last).contains(&height))?;
    if final_height < height {
        return None;
    }
    let mut segment = Segment::clone(found);
    if let Some(sealed) = sealed_to.filter(|sealed| *sealed >= segment.first) {
        segment = segment.split_off(sealed)?;
    }
    segment.split_off(final_height);
    Some(segment)
}
