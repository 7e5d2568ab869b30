//! The survey: every row of the index looked at once, every region with its owner. `verify`
//! reports what it finds, `repair` puts back what it can derive.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{ControlFlow, Range};

use secateur_core::{Height, Part, Report};
use serde::Deserialize;

use super::control::Consumer;
use super::place::{Place, Stream, read_stretch, read_stretch_key, stream_name};
use super::queue::load_queue;
use super::record::{BlockRecord, visit_groups};
use super::runs::load_runs;
use super::state::{Header, State, parse_document};
use super::verify::VerifyReport;
use crate::StoreError;
use crate::ground::{Snapshot, Table};
use crate::regions::census::Census;
use crate::regions::finding::FindingKind;
use crate::rows::{u64_key, unseal};

/// What of the history owns regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Block(Height),
    Stretch(u8, u64),
    Run(u64),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(height) => write!(f, "block {height}"),
            Self::Stretch(stream, number) => {
                write!(f, "stretch {number} of the stream {}", stream_name(*stream))
            }
            Self::Run(number) => write!(f, "run {number}"),
        }
    }
}

/// Every row of a store, looked at once.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The regions with their owners, and everything that was found.
    pub census: Census<Thing>,
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

fn named(height: Option<Height>) -> String {
    height.map_or_else(|| "no block".into(), |height| format!("block {height}"))
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
        survey.census.count_regions(rows, table, state.arena_end)?;
        survey.blocks(rows, &state)?;
        survey.runs(rows, &state);
        survey.stretches(rows, header, &state)?;
        survey.census.close(rows, table, &state.classes)?;
        survey.documents(rows)?;
        Ok(survey)
    }

    /// What it found, for `verify` to go on with.
    pub(crate) fn report(self) -> VerifyReport {
        VerifyReport {
            regions: self.census.regions.len() as u64,
            findings: self.census.findings.list,
            unlisted: self.census.findings.unlisted,
            ..VerifyReport::default()
        }
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
                    self.census.incomplete = true;
                    let detail = format!("the records from block {at} on: {error}");
                    self.census.find(Row, 1, false, detail);
                    (chain.before, chain.unknown) = (None, true);
                    return;
                }
            };
            if group.last() <= state.boundary {
                let detail = format!("the row of {} lies below the boundary", named(group.first()));
                self.census.find(Chain, 2, false, detail);
            }
            for record in group.records {
                if Some(record.meta.height) > state.boundary {
                    self.block(&mut chain, record);
                }
            }
        })?;
        let head = state.head.map(|tip| tip.height);
        if head.map(|head| head + 1) != chain.expected && !chain.unknown {
            self.census.incomplete = true;
            let detail = format!(
                "the records end before {}, the head is {}",
                named(chain.expected),
                named(head)
            );
            self.census.find(Chain, 1, false, detail);
        }
        if let (Some(tip), Some(last)) = (state.head, chain.before)
            && (tip.hash, tip.max_timestamp) != (last.meta.hash, last.max_timestamp)
        {
            self.census.find(Chain, 1, false, "the head is not the last record".into());
        }
        Ok(())
    }

    fn block(&mut self, chain: &mut Chained, record: BlockRecord) {
        use FindingKind::Chain;
        let height = record.meta.height;
        if chain.expected != Some(height) && !chain.unknown {
            self.census.incomplete = true;
            let detail =
                format!("block {height} is stored where {} should be", named(chain.expected));
            let invariant = if chain.expected.is_none() { 2 } else { 1 };
            self.census.find(Chain, invariant, false, detail);
        }
        if let Some(before) = chain.before.as_ref().filter(|b| b.meta.height + 1 == height)
            && (record.meta.parent_hash != before.meta.hash
                || record.max_timestamp < before.max_timestamp)
        {
            self.census.find(Chain, 1, false, format!("block {height} does not link"));
        }
        match &record.place {
            Place::Regions(ptrs) => {
                for ptr in ptrs {
                    self.census.own(Thing::Block(height), ptr);
                }
            }
            Place::Stream(position) => {
                let end = chain.before.as_ref().and_then(stream_end);
                if end.is_some_and(|end| end > *position) {
                    let detail = format!("block {height} overlaps the one below it");
                    self.census.find(Chain, 1, false, detail);
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
                self.census.incomplete = true;
                self.census.find(FindingKind::Row, 3, false, format!("the runs: {error}"));
                return;
            }
        };
        for run in runs {
            if ends.is_some_and(|end: Height| run.first <= end) || run.number >= state.run_next {
                let detail = format!("run {} stands in another's place", run.number);
                self.census.find(FindingKind::Run, 3, false, detail);
            }
            // Below the boundary a full disk may have left a gap; above it none may be.
            if run.is_live() && newest.is_some_and(|newest| run.first > newest + 1) {
                let detail = format!("no run holds the ids of the blocks below {}", run.first);
                self.census.find(FindingKind::Run, 3, false, detail);
            }
            if run.is_live() == (Some(run.last) <= state.boundary) {
                let detail = format!("run {} is kept or gone against the boundary", run.number);
                self.census.find(FindingKind::Run, 3, false, detail);
            }
            ends = Some(run.last);
            newest = newest.max(ends);
            let owned = [(Stream::Runs, run.run.as_ref()), (Stream::Filters, Some(&run.filter))];
            for (stream, blob) in owned {
                match blob.map(|blob| (&blob.place, blob.len)) {
                    Some((Place::Regions(ptrs), _)) => {
                        for ptr in ptrs {
                            self.census.own(Thing::Run(run.number), ptr);
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
                            self.census.find(FindingKind::Run, 3, false, detail);
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
                    self.census.own(Thing::Stretch(at.0, at.1), &region);
                }
                Err(error) => {
                    self.census.incomplete = true;
                    self.census.find(Row, 4, false, format!("a row of the streams: {error}"));
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
            self.census.incomplete = true;
            let detail = format!("stretch {number} of stream {stream} has no region");
            self.census.find(Region, 4, false, detail);
        }
        for (stream, end) in (0u8..).zip(state.streams) {
            // The open stretch is there for what comes next, whether or not it is in use.
            if end % size > 0 {
                needed.insert((stream, end / size));
            }
        }
        for (stream, number) in there.difference(&needed) {
            let detail = format!("stretch {number} of stream {stream} is kept for nothing");
            self.census.find(Region, 4, false, detail);
        }
        Ok(())
    }

    /// The rows that hold documents: all must decode.
    fn documents(&mut self, rows: &impl Snapshot) -> Result<(), StoreError> {
        let mut unreadable = |table: Table, error: StoreError| {
            let detail = format!("a row of {}: {error}", table.name());
            self.census.find(FindingKind::Row, 9, false, detail);
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
