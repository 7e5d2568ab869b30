//! Verify: recomputes the invariants from scratch and reports every difference (I10).
//!
//! The index is surveyed in one snapshot; payloads are then read block by block, each under its
//! own pin, so that a long verification never keeps regions from being freed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use secateur_core::{Block, Height, MAX_SEGMENT_LEN, Report};
use serde::Serialize;

use super::alloc::is_punched;
use super::control::Consumer;
use super::queue::load_queue;
use super::record::{AllocEntry, BlobPtr, BlockRecord, JournalEntry, RegionState, read_region_key};
use super::state::{ARENA_HEADER_LEN, ClassCount, State, parse_document};
use super::store::Store;
use crate::StoreError;
use crate::class::ClassTable;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::rows::{u64_key, unseal};

/// Findings that are listed; further ones are only counted.
const MAX_FINDINGS: usize = 1000;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The index's own structure.
    Index,
    /// A row that cannot be read.
    Row,
    /// The chain of block records.
    Chain,
    /// A block's bytes.
    Payload,
    /// A region: its state, its owner, its place.
    Region,
    /// The free list.
    FreeList,
    /// The counters.
    Counter,
}

/// One difference between what is and what must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// The number of the invariant that it breaks (`INVARIANTS.md`).
    pub invariant: u8,
    /// The difference, in words.
    pub detail: String,
    /// Whether `repair` can derive what it must be.
    pub repairable: bool,
}

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct VerifyReport {
    /// Blocks read.
    pub blocks: u64,
    /// Payload bytes read.
    pub payload_bytes: u64,
    /// Regions seen.
    pub regions: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub unlisted: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, kind: FindingKind, invariant: u8, repairable: bool, detail: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { kind, invariant, detail, repairable });
        } else {
            self.unlisted += 1;
        }
    }
}

/// Who a region belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Block(Height),
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
}

impl Survey {
    /// Looks at every row of the index.
    pub(crate) fn take(rows: &impl Snapshot, table: &ClassTable) -> Result<Self, StoreError> {
        let mut survey = Self::default();
        let state = State::load(rows)?;
        survey.regions(rows, table, &state)?;
        survey.blocks(rows, &state)?;
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

    /// The records: contiguous, linked, and each region owned once.
    fn blocks(&mut self, rows: &impl Snapshot, state: &State) -> Result<(), StoreError> {
        use FindingKind::{Chain, Row};
        let mut expected = state.oldest_kept();
        let mut before: Option<BlockRecord> = None;
        rows.scan(Table::Blocks, &[], &mut |key, value| {
            let read = u64_key(Table::Blocks, key).and_then(|height| {
                let body = unseal(Table::Blocks, key, value)?;
                BlockRecord::decode(height, body).map_err(row_error("blocks"))
            });
            let record = match read {
                Ok(record) => record,
                Err(error) => {
                    let at = expected.map_or_else(|| "?".into(), |height| height.to_string());
                    self.incomplete = true;
                    self.report.find(Row, 1, false, format!("the record of block {at}: {error}"));
                    (expected, before) = (expected.map(|height| height + 1), None);
                    return Ok(ControlFlow::Continue(()));
                }
            };
            let height = record.meta.height;
            if expected != Some(height) {
                self.incomplete = true;
                let detail = format!("block {height} stands where {expected:?} should");
                self.report.find(Chain, if expected.is_none() { 2 } else { 1 }, false, detail);
            }
            if let Some(before) = before.as_ref().filter(|b| b.meta.height + 1 == height)
                && (record.meta.parent_hash != before.meta.hash
                    || record.max_timestamp < before.max_timestamp)
            {
                self.report.find(Chain, 1, false, format!("block {height} does not link"));
            }
            for ptr in &record.extents {
                self.own(Owner::Block(height), ptr, RegionState::Used);
            }
            expected = Some(height + 1);
            before = Some(record);
            Ok(ControlFlow::Continue(()))
        })?;
        let head = state.head.map(|tip| tip.height);
        if head.map(|head| head + 1) != expected {
            self.incomplete = true;
            let detail = format!("the records end before {expected:?}, the head is {head:?}");
            self.report.find(Chain, 1, false, detail);
        }
        if let (Some(tip), Some(last)) = (state.head, before)
            && (tip.hash, tip.max_timestamp) != (last.meta.hash, last.max_timestamp)
        {
            self.report.find(Chain, 1, false, "the head is not the last record".into());
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
        rows.scan(Table::Consumers, &[], &mut |key, value| {
            let read = unseal(Table::Consumers, key, value)
                .and_then(|body| parse_document::<Consumer>(Table::Consumers, body));
            read.map_or_else(|error| unreadable(Table::Consumers, error), drop);
            Ok(ControlFlow::Continue(()))
        })?;
        rows.scan(Table::Reports, &[], &mut |key, value| {
            let read = unseal(Table::Reports, key, value)
                .and_then(|body| parse_document::<Report>(Table::Reports, body));
            read.map_or_else(|error| unreadable(Table::Reports, error), drop);
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Recomputes everything and says what is wrong. `progress` hears (blocks read, blocks in
    /// all).
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<VerifyReport, StoreError> {
        let (mut report, first, blocks) = {
            let view = self.view()?;
            let survey = Survey::take(&view.snapshot, &self.header.classes)?;
            (survey.report, view.state.oldest_kept(), view.state.kept_blocks())
        };
        for trouble in self.index.check()? {
            report.find(FindingKind::Index, 9, false, trouble);
        }
        let first = first.unwrap_or(0);
        for height in first..first + blocks {
            self.verify_block(height, &mut report);
            progress(height + 1 - first, blocks);
        }
        Ok(report)
    }

    /// Reads one block as a reader would. One that was cut meanwhile is no finding.
    fn verify_block(&self, height: Height, report: &mut VerifyReport) {
        let read = || -> Result<Option<(BlockRecord, Block)>, StoreError> {
            let view = self.view()?;
            match view.record(height) {
                Ok(record) => {
                    let block = view.block(&record)?;
                    Ok(Some((record, block)))
                }
                Err(StoreError::Lookup(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let wrong = match read() {
            Ok(None) => return,
            Ok(Some((record, block))) => {
                report.blocks += 1;
                report.payload_bytes += record.payload_bytes();
                match block.check(MAX_SEGMENT_LEN) {
                    Ok(tx_count) if tx_count == record.tx_count => return,
                    Ok(tx_count) => {
                        format!("{tx_count} transactions, the record says {}", record.tx_count)
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        report.find(FindingKind::Payload, 1, false, format!("block {height}: {wrong}"));
    }
}
