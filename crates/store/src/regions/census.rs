//! The census: every region with its owner. `verify` reports what it finds, `repair` puts back
//! what it can derive. Which rows own regions is the family's to say.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use super::alloc::{ClassCount, is_punched};
use super::finding::{FindingKind, Findings};
use super::header::ARENA_HEADER_LEN;
use super::region::{AllocEntry, BlobPtr, JournalEntry, RegionState, read_region_key};
use crate::StoreError;
use crate::class::ClassTable;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};
use crate::rows::{u64_key, unseal};

/// Who a region belongs to: a thing of the family, or a cut that waits to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner<T> {
    Thing(T),
    Journal(u64),
}

impl<T: fmt::Display> fmt::Display for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thing(thing) => thing.fmt(f),
            Self::Journal(seq) => write!(f, "journal entry {seq}"),
        }
    }
}

/// What is known of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionFact<T> {
    pub class: u32,
    pub entry: AllocEntry,
    pub readable: bool,
    pub owner: Option<(Owner<T>, u32)>,
    /// More than one claims it, or not as what it is: a repair leaves it alone.
    pub disputed: bool,
}

/// The regions of a store, from the allocation table, the rows that own them, and the journal.
#[derive(Debug)]
pub(crate) struct Census<T> {
    /// By offset.
    pub regions: BTreeMap<u64, RegionFact<T>>,
    /// The free list: offset → class and whether its space was given back.
    pub free: BTreeMap<u64, (u32, bool)>,
    /// Rows of the journal and the free list that cannot be read and need not be: what they say
    /// can be derived.
    pub unreadable: Vec<(Table, Vec<u8>)>,
    /// Rows that may own regions are missing or cannot be read, so a region without an owner may
    /// have one.
    pub incomplete: bool,
    pub findings: Findings,
}

impl<T> Default for Census<T> {
    fn default() -> Self {
        Self {
            regions: BTreeMap::new(),
            free: BTreeMap::new(),
            unreadable: Vec::new(),
            incomplete: false,
            findings: Findings::default(),
        }
    }
}

impl<T: fmt::Display + Copy> Census<T> {
    pub(crate) fn find(
        &mut self,
        kind: FindingKind,
        invariant: u8,
        repairable: bool,
        detail: String,
    ) {
        self.findings.find(kind, invariant, repairable, detail);
    }

    /// The allocation table: readable rows, known classes, no overlap, no gap, all inside. Comes
    /// first.
    pub(crate) fn count_regions(
        &mut self,
        rows: &impl Snapshot,
        table: &ClassTable,
        arena_end: u64,
    ) -> Result<(), StoreError> {
        use FindingKind::{Region, Row};
        rows.scan(Table::Alloc, &[], &mut |key, value| {
            let Ok((class, offset)) = read_region_key(Table::Alloc, key) else {
                self.find(Row, 9, false, "an allocation key does not decode".into());
                return Ok(ControlFlow::Continue(()));
            };
            let (entry, readable) = AllocEntry::from_value(key, value);
            if !readable {
                let detail = format!("the allocation row of the region at {offset} is unreadable");
                self.find(Row, 9, true, detail);
            }
            if table.position(class).is_none() {
                let detail = format!("the region at {offset} has the unknown class {class}");
                self.find(Region, 4, false, detail);
                return Ok(ControlFlow::Continue(()));
            }
            let fact = RegionFact { class, entry, readable, owner: None, disputed: false };
            if self.regions.insert(offset, fact).is_some() {
                let detail = format!("two regions begin at {offset}");
                self.find(Region, 4, false, detail);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut end = ARENA_HEADER_LEN;
        for (offset, fact) in &self.regions {
            if *offset < end {
                self.findings.find(Region, 4, false, format!("the region at {offset} overlaps"));
            } else if *offset > end {
                let detail = format!("the bytes from {end} to {offset} belong to no region");
                self.findings.find(Region, 4, false, detail);
            }
            end = offset.saturating_add(u64::from(fact.class));
        }
        if end != arena_end {
            let detail = format!("regions end at {end}, the arena at {arena_end}");
            self.find(Region, 4, false, detail);
        }
        Ok(())
    }

    /// Notes that a thing of the family refers to a region.
    pub(crate) fn own(&mut self, thing: T, ptr: &BlobPtr) {
        self.claim(Owner::Thing(thing), ptr, RegionState::Used);
    }

    /// What follows once every thing has claimed its regions: journal, free list, counters.
    pub(crate) fn close(
        &mut self,
        rows: &impl Snapshot,
        table: &ClassTable,
        counts: &[ClassCount],
    ) -> Result<(), StoreError> {
        self.journal(rows)?;
        self.free_list(rows)?;
        self.states(table, counts);
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
                        self.claim(Owner::Journal(seq), ptr, RegionState::Quarantine);
                    }
                }
                Err(error) => {
                    let detail = format!("a journal entry: {error}");
                    self.find(FindingKind::Row, 4, true, detail);
                    self.unreadable.push((Table::Journal, key.to_vec()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Notes that `owner` refers to a region, and that the region is as it must be for that.
    fn claim(&mut self, owner: Owner<T>, ptr: &BlobPtr, state: RegionState) {
        let wrong = match self.regions.get_mut(&ptr.offset) {
            None => format!("{owner} refers to {}, where no region is", ptr.offset),
            Some(fact) if fact.class != ptr.class => {
                format!("{owner} takes the region at {} for another class", ptr.offset)
            }
            Some(fact) => {
                if let Some((other, _)) = fact.owner {
                    fact.disputed = true;
                    format!("the region at {} belongs to {other} and {owner}", ptr.offset)
                } else {
                    fact.owner = Some((owner, ptr.generation));
                    let (found, generation) = (fact.entry.state, fact.entry.generation);
                    if !fact.readable || (found, generation) == (state, ptr.generation) {
                        return;
                    }
                    let derivable = generation == ptr.generation;
                    fact.disputed = !derivable;
                    let detail = format!(
                        "the region at {} is {found} of generation {generation}, but {owner} \
                         needs it {state} of generation {}",
                        ptr.offset, ptr.generation
                    );
                    self.find(FindingKind::Region, 4, derivable, detail);
                    return;
                }
            }
        };
        self.find(FindingKind::Region, 4, false, wrong);
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
                    self.find(FindingKind::Row, 4, true, detail);
                    self.unreadable.push((Table::Free, key.to_vec()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// States against owners and the free list, and the counters against both.
    fn states(&mut self, table: &ClassTable, counts: &[ClassCount]) {
        use FindingKind::{Counter, FreeList, Region};
        let mut found = Vec::new();
        for (offset, fact) in &self.regions {
            if fact.readable && fact.owner.is_none() && fact.entry.state != RegionState::Free {
                let detail = format!(
                    "the region at {offset} is {} but nothing refers to it",
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
                    format!("the region at {offset} is {is} and{detail} in the free list"),
                ));
            }
        }
        for (offset, (class, _)) in &self.free {
            if self.regions.get(offset).is_none_or(|fact| fact.class != *class) {
                found.push((FreeList, true, format!("{offset} is in the free list but no region")));
            }
        }
        for (kind, repairable, detail) in found {
            self.find(kind, 4, repairable, detail);
        }
        let counted = self.count(table);
        for ((class, counted), stored) in table.classes().iter().zip(counted).zip(counts) {
            if counted != *stored {
                let detail = format!("class {class}: counted {counted}, stored {stored}");
                self.find(Counter, 5, true, detail);
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
}
