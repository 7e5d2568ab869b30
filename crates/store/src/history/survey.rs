//! The survey: every row of the index looked at once, every region with its owner. `verify`
//! reports what it finds, `repair` puts back what it can derive.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use secateur_core::{Height, Part, Report};
use serde::Deserialize;

use super::alloc::is_punched;
use super::control::Consumer;
use super::place::{Place, Stream, read_stretch, read_stretch_key};
use super::queue::load_queue;
use super::record::{BlockRecord, visit_groups};
use super::region::{AllocEntry, BlobPtr, JournalEntry, RegionState, read_region_key};
use super::runs::load_runs;
use super::state::{ARENA_HEADER_LEN, ClassCount, Header, State, parse_document};
use super::verify::{FindingKind, VerifyReport};
use crate::StoreError;
use crate::class::ClassTable;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};
use crate::rows::{u64_key, unseal};

/// Who a region belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Block(Height),
    Stretch(u8, u64),
    Run(u64),
    Journal(u64),
}

/// What is known of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionFact {
    pub class: u32,
    pub entry: AllocEntry,
    pub readable: bool,
    pub owner: Option<(Owner, u32)>,
    /// More than one claims it, or not as what it is: a repair leaves it alone.
    pub disputed: bool,
}

/// The regions of a store, from the allocation table, the records and the journal.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// By offset.
    pub regions: BTreeMap<u64, RegionFact>,
    /// The free list: offset → class and whether its space was given back.
    pub free: BTreeMap<u64, (u32, bool)>,
    /// Rows of the journal and the free list that cannot be read and need not be: what they say
    /// can be derived.
    pub unreadable: Vec<(Table, Vec<u8>)>,
    /// Records are missing or cannot be read, so a region without an owner may have one.
    pub incomplete: bool,
    pub report: VerifyReport,
    /// The positions of streams that something needs.
    stretch_users: Vec<(Stream, Range<u64>)>,
}

/// Where a walk over the records has come to.
struct Chained {
    expected: Option<Height>,
    before: Option<BlockRecord>,
    /// A row could not be read, so the next may begin anywhere.
    unknown: bool,
}

/// Where a block ends in its stream.
fn stream_end(record: &BlockRecord) -> Option<u64> {
    match record.place {
        Place::Stream(position) => Some(position + record.payload_bytes()),
        Place::Regions(_) => None,
    }
}

impl Survey {
    /// Looks at every row of the index.
    pub(crate) fn take(rows: &impl Snapshot, header: &Header) -> Result<Self, StoreError> {
        let mut survey = Self::default();
        let (state, table) = (State::load(rows)?, &header.classes);
        survey.regions(rows, table, &state)?;
        survey.blocks(rows, &state)?;
        survey.runs(rows, &state);
        survey.stretches(rows, header, &state)?;
        survey.journal(rows)?;
        survey.free_list(rows)?;
        survey.states(table, &state);
        survey.documents(rows)?;
        Ok(survey)
    }

    /// The allocation table: readable rows, known classes, no overlap, no gap, all inside.
    fn regions(
        &mut self,
        rows: &impl Snapshot,
        table: &ClassTable,
        state: &State,
    ) -> Result<(), StoreError> {
        use FindingKind::{Region, Row};
        rows.scan(Table::Alloc, &[], &mut |key, value| {
            let Ok((class, offset)) = read_region_key(Table::Alloc, key) else {
                self.report.find(Row, 9, false, "an allocation key does not decode".into());
                return Ok(ControlFlow::Continue(()));
            };
            let (entry, readable) = AllocEntry::from_value(key, value);
            if !readable {
                let detail = format!("the allocation row of the region at {offset} is unreadable");
                self.report.find(Row, 9, true, detail);
            }
            if table.position(class).is_none() {
                let detail = format!("the region at {offset} has the unknown class {class}");
                self.report.find(Region, 4, false, detail);
                return Ok(ControlFlow::Continue(()));
            }
            let fact = RegionFact { class, entry, readable, owner: None, disputed: false };
            if self.regions.insert(offset, fact).is_some() {
                let detail = format!("two regions begin at {offset}");
                self.report.find(Region, 4, false, detail);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut end = ARENA_HEADER_LEN;
        for (offset, fact) in &self.regions {
            if *offset < end {
                self.report.find(Region, 4, false, format!("the region at {offset} overlaps"));
            } else if *offset > end {
                let detail = format!("the bytes from {end} to {offset} belong to no region");
                self.report.find(Region, 4, false, detail);
            }
            end = offset.saturating_add(u64::from(fact.class));
        }
        if end != state.arena_end {
            let detail = format!("regions end at {end}, the arena at {}", state.arena_end);
            self.report.find(Region, 4, false, detail);
        }
        self.report.regions = self.regions.len() as u64;
        Ok(())
    }

    /// The records: contiguous, linked, each region owned once; in a stream, end to end.
    fn blocks(&mut self, rows: &impl Snapshot, state: &State) -> Result<(), StoreError> {
        use FindingKind::{Chain, Row};
        let mut chain = Chained { expected: state.oldest_kept(), before: None, unknown: false };
        visit_groups(rows, |key, group| {
            let group = match group {
                Ok(group) => group,
                Err(error) => {
                    let at = u64_key(Table::Blocks, key).unwrap_or_default();
                    self.incomplete = true;
                    let detail = format!("the records from block {at} on: {error}");
                    self.report.find(Row, 1, false, detail);
                    (chain.before, chain.unknown) = (None, true);
                    return;
                }
            };
            if group.last() <= state.boundary {
                let detail =
                    format!("the row of block {:?} lies below the boundary", group.first());
                self.report.find(Chain, 2, false, detail);
            }
            for record in group.records {
                if Some(record.meta.height) > state.boundary {
                    self.block(&mut chain, record);
                }
            }
        })?;
        let head = state.head.map(|tip| tip.height);
        if head.map(|head| head + 1) != chain.expected && !chain.unknown {
            self.incomplete = true;
            let detail =
                format!("the records end before {:?}, the head is {head:?}", chain.expected);
            self.report.find(Chain, 1, false, detail);
        }
        if let (Some(tip), Some(last)) = (state.head, chain.before)
            && (tip.hash, tip.max_timestamp) != (last.meta.hash, last.max_timestamp)
        {
            self.report.find(Chain, 1, false, "the head is not the last record".into());
        }
        Ok(())
    }

    fn block(&mut self, chain: &mut Chained, record: BlockRecord) {
        use FindingKind::Chain;
        let height = record.meta.height;
        if chain.expected != Some(height) && !chain.unknown {
            self.incomplete = true;
            let detail = format!("block {height} stands where {:?} should", chain.expected);
            let invariant = if chain.expected.is_none() { 2 } else { 1 };
            self.report.find(Chain, invariant, false, detail);
        }
        if let Some(before) = chain.before.as_ref().filter(|b| b.meta.height + 1 == height)
            && (record.meta.parent_hash != before.meta.hash
                || record.max_timestamp < before.max_timestamp)
        {
            self.report.find(Chain, 1, false, format!("block {height} does not link"));
        }
        match &record.place {
            Place::Regions(ptrs) => {
                for ptr in ptrs {
                    self.own(Owner::Block(height), ptr, RegionState::Used);
                }
            }
            Place::Stream(position) => {
                let end = chain.before.as_ref().and_then(stream_end);
                if end.is_some_and(|end| end > *position) {
                    let detail = format!("block {height} overlaps the one below it");
                    self.report.find(Chain, 1, false, detail);
                }
                let positions = *position..position + record.payload_bytes();
                self.stretch_users.push((Stream::History, positions));
            }
        }
        (chain.expected, chain.unknown) = (Some(height + 1), false);
        chain.before = Some(record);
    }

    /// Runs and tombstones: in order, one after the other, each with its bytes.
    fn runs(&mut self, rows: &impl Snapshot, state: &State) {
        let mut ends: Option<Height> = None;
        let mut newest: Option<Height> = state.oldest_kept().and_then(|h| h.checked_sub(1));
        let runs = match load_runs(rows) {
            Ok(runs) => runs,
            Err(error) => {
                self.incomplete = true;
                self.report.find(FindingKind::Row, 3, false, format!("the runs: {error}"));
                return;
            }
        };
        for run in runs {
            if ends.is_some_and(|end: Height| run.first <= end) || run.number >= state.run_next {
                let detail = format!("run {} stands in another's place", run.number);
                self.report.find(FindingKind::Run, 3, false, detail);
            }
            // Below the boundary a full disk may have left a gap; above it none may be.
            if run.is_live() && newest.is_some_and(|newest| run.first > newest + 1) {
                let detail = format!("no run holds the ids of the blocks below {}", run.first);
                self.report.find(FindingKind::Run, 3, false, detail);
            }
            if run.is_live() == (Some(run.last) <= state.boundary) {
                let detail = format!("run {} is kept or gone against the boundary", run.number);
                self.report.find(FindingKind::Run, 3, false, detail);
            }
            ends = Some(run.last);
            newest = newest.max(ends);
            let owned = [(Stream::Runs, run.run.as_ref()), (Stream::Filters, Some(&run.filter))];
            for (stream, blob) in owned {
                match blob.map(|blob| (&blob.place, blob.len)) {
                    Some((Place::Regions(ptrs), _)) => {
                        for ptr in ptrs {
                            self.own(Owner::Run(run.number), ptr, RegionState::Used);
                        }
                    }
                    Some((Place::Stream(position), len)) => {
                        let [history, runs, filters] = state.streams;
                        let end = match stream {
                            Stream::History => history,
                            Stream::Runs => runs,
                            Stream::Filters => filters,
                        };
                        if position + len > end {
                            let detail = format!("run {} lies beyond its stream", run.number);
                            self.report.find(FindingKind::Run, 3, false, detail);
                            continue;
                        }
                        self.stretch_users.push((stream, *position..position + len));
                    }
                    None => {}
                }
            }
        }
    }

    /// The stretches of the streams: each owns its region, each is needed, none is missing.
    fn stretches(
        &mut self,
        rows: &impl Snapshot,
        header: &Header,
        state: &State,
    ) -> Result<(), StoreError> {
        use FindingKind::{Region, Row};
        let mut there: BTreeSet<(u8, u64)> = BTreeSet::new();
        rows.scan(Table::Streams, &[], &mut |key, value| {
            let read = read_stretch_key(key)
                .and_then(|at| Ok((at, read_stretch(unseal(Table::Streams, key, value)?)?)));
            match read {
                Ok((at, region)) => {
                    there.insert(at);
                    self.own(Owner::Stretch(at.0, at.1), &region, RegionState::Used);
                }
                Err(error) => {
                    self.incomplete = true;
                    self.report.find(Row, 4, false, format!("a row of the streams: {error}"));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let size = header.stretch_len();
        let mut needed: BTreeSet<(u8, u64)> = BTreeSet::new();
        for (stream, positions) in std::mem::take(&mut self.stretch_users) {
            let numbers = positions.start / size..positions.end.div_ceil(size);
            needed.extend(numbers.map(|number| (stream as u8, number)));
        }
        for (stream, number) in needed.difference(&there) {
            self.incomplete = true;
            let detail = format!("stretch {number} of stream {stream} has no region");
            self.report.find(Region, 4, false, detail);
        }
        for (stream, end) in (0u8..).zip(state.streams) {
            // The open stretch is there for what comes next, whether or not it is in use.
            if end % size > 0 {
                needed.insert((stream, end / size));
            }
        }
        for (stream, number) in there.difference(&needed) {
            let detail = format!("stretch {number} of stream {stream} is kept for nothing");
            self.report.find(Region, 4, false, detail);
        }
        Ok(())
    }

    fn journal(&mut self, rows: &impl Snapshot) -> Result<(), StoreError> {
        rows.scan(Table::Journal, &[], &mut |key, value| {
            let read = u64_key(Table::Journal, key).and_then(|seq| {
                let body = unseal(Table::Journal, key, value)?;
                Ok((seq, JournalEntry::decode(body).map_err(row_error("journal"))?))
            });
            match read {
                Ok((seq, entry)) => {
                    for ptr in &entry.regions {
                        self.own(Owner::Journal(seq), ptr, RegionState::Quarantine);
                    }
                }
                Err(error) => {
                    let detail = format!("a journal entry: {error}");
                    self.report.find(FindingKind::Row, 4, true, detail);
                    self.unreadable.push((Table::Journal, key.to_vec()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Notes that `owner` refers to a region, and that the region is as it must be for that.
    fn own(&mut self, owner: Owner, ptr: &BlobPtr, state: RegionState) {
        let wrong = match self.regions.get_mut(&ptr.offset) {
            None => format!("{owner:?} refers to {}, where no region is", ptr.offset),
            Some(fact) if fact.class != ptr.class => {
                format!("{owner:?} takes the region at {} for another class", ptr.offset)
            }
            Some(fact) => {
                if let Some((other, _)) = fact.owner {
                    fact.disputed = true;
                    format!("the region at {} belongs to {other:?} and {owner:?}", ptr.offset)
                } else {
                    fact.owner = Some((owner, ptr.generation));
                    let (found, generation) = (fact.entry.state, fact.entry.generation);
                    if !fact.readable || (found, generation) == (state, ptr.generation) {
                        return;
                    }
                    let derivable = generation == ptr.generation;
                    fact.disputed = !derivable;
                    let detail = format!(
                        "the region at {} is {found:?} of generation {generation}, but {owner:?} \
                         needs it {state:?} of generation {}",
                        ptr.offset, ptr.generation
                    );
                    self.report.find(FindingKind::Region, 4, derivable, detail);
                    return;
                }
            }
        };
        self.report.find(FindingKind::Region, 4, false, wrong);
    }

    fn free_list(&mut self, rows: &impl Snapshot) -> Result<(), StoreError> {
        rows.scan(Table::Free, &[], &mut |key, value| {
            let read = read_region_key(Table::Free, key)
                .and_then(|region| Ok((region, is_punched(unseal(Table::Free, key, value)?)?)));
            match read {
                Ok(((class, offset), punched)) => {
                    self.free.insert(offset, (class, punched));
                }
                Err(error) => {
                    let detail = format!("a free-list row: {error}");
                    self.report.find(FindingKind::Row, 4, true, detail);
                    self.unreadable.push((Table::Free, key.to_vec()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// States against owners and the free list, and the counters against both.
    fn states(&mut self, table: &ClassTable, state: &State) {
        use FindingKind::{Counter, FreeList, Region};
        let mut found = Vec::new();
        for (offset, fact) in &self.regions {
            if fact.readable && fact.owner.is_none() && fact.entry.state != RegionState::Free {
                let detail = format!(
                    "the region at {offset} is {:?} but nothing refers to it",
                    fact.entry.state
                );
                found.push((Region, true, detail));
            }
            let listed = self.free.get(offset).is_some_and(|(class, _)| *class == fact.class);
            if fact.readable && listed != (fact.entry.state == RegionState::Free) {
                let (is, detail) = (fact.entry.state, if listed { "" } else { " not" });
                found.push((
                    FreeList,
                    true,
                    format!("the region at {offset} is {is:?} and{detail} in the free list"),
                ));
            }
        }
        for (offset, (class, _)) in &self.free {
            if self.regions.get(offset).is_none_or(|fact| fact.class != *class) {
                found.push((FreeList, true, format!("{offset} is in the free list but no region")));
            }
        }
        for (kind, repairable, detail) in found {
            self.report.find(kind, 4, repairable, detail);
        }
        let counted = self.count(table);
        for ((class, counted), stored) in table.classes().iter().zip(counted).zip(&state.classes) {
            if counted != *stored {
                let detail = format!("class {class}: counted {counted:?}, stored {stored:?}");
                self.report.find(Counter, 5, true, detail);
            }
        }
    }

    /// The counters as the allocation table and the free list say.
    pub(crate) fn count(&self, table: &ClassTable) -> Vec<ClassCount> {
        let mut counts = vec![ClassCount::default(); table.classes().len()];
        for (offset, fact) in &self.regions {
            let Some(count) = table.position(fact.class).and_then(|at| counts.get_mut(at)) else {
                continue;
            };
            match fact.entry.state {
                RegionState::Used => count.used += 1,
                RegionState::Quarantine => count.quarantine += 1,
                RegionState::Free => {
                    count.free += 1;
                    count.punched += u64::from(self.free.get(offset).is_some_and(|(_, p)| *p));
                }
            }
        }
        counts
    }

    /// The rows that hold documents: all must decode.
    fn documents(&mut self, rows: &impl Snapshot) -> Result<(), StoreError> {
        let mut unreadable = |table: Table, error: StoreError| {
            let detail = format!("a row of {}: {error}", table.name());
            self.report.find(FindingKind::Row, 9, false, detail);
        };
        if let Err(error) = load_queue(rows) {
            unreadable(Table::Queue, error);
        }
        documents::<Consumer>(rows, Table::Consumers, &mut unreadable)?;
        documents::<Report>(rows, Table::Reports, &mut unreadable)?;
        documents::<Part>(rows, Table::Parts, &mut unreadable)
    }
}

/// Reads every row of a table as a document and tells of those that are none.
fn documents<T: for<'de> Deserialize<'de>>(
    rows: &impl Snapshot,
    table: Table,
    unreadable: &mut impl FnMut(Table, StoreError),
) -> Result<(), StoreError> {
    rows.scan(table, &[], &mut |key, value| {
        let read = unseal(table, key, value).and_then(|body| parse_document::<T>(table, body));
        read.map_or_else(|error| unreadable(table, error), drop);
        Ok(ControlFlow::Continue(()))
    })
}
