//! Repair: puts back what can be derived, and nothing else: the allocation states, the free list
//! and the counters, from the block records and the journal.

use super::state::State;
use super::store::Store;
use super::survey::{Survey, Thing};
use crate::StoreError;
use crate::ground::{Arena, Index, Table};
use crate::regions::alloc::free_row;
use crate::regions::census::{Census, Owner, RegionFact};
use crate::regions::region::{AllocEntry, RegionState, region_key};
use serde::Serialize;

/// A region whose generation cannot be read gets this one: larger than any that was handed out.
const GENERATION_AFTER_LOSS: u32 = 1 << 31;

/// One thing that a repair does, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// What, in words.
    pub detail: String,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// What a repair would do now.
    pub fn repair_plan(&self) -> Result<Vec<Repair>, StoreError> {
        let view = self.view()?;
        let census = Survey::take(&view.snapshot, &self.header)?.census;
        Ok(self.steps(&census, &view.state).into_iter().map(|(repair, _)| repair).collect())
    }

    /// Does it, in one batch, and says what it did.
    pub fn repair(&self) -> Result<Vec<Repair>, StoreError> {
        let mut control = self.writer()?;
        if !self.pins.is_idle() {
            return Err(StoreError::refused("repair", "readers are at work"));
        }
        let mut txn = self.begin(&mut control)?;
        let mut census = Survey::take(&txn, &self.header)?.census;
        let steps = self.steps(&census, &txn.state);
        let mut done = Vec::with_capacity(steps.len());
        for (repair, step) in steps {
            done.push(repair);
            match step {
                Step::Set(offset, class, entry) => {
                    txn.put(Table::Alloc, &region_key(class, offset), entry.encode());
                    if let Some(fact) = census.regions.get_mut(&offset) {
                        fact.entry = entry;
                    }
                }
                Step::List(offset, class) => {
                    txn.put(Table::Free, &region_key(class, offset), free_row(false));
                    census.free.insert(offset, (class, false));
                }
                Step::Unlist(offset, class) => {
                    txn.delete(Table::Free, &region_key(class, offset));
                    census.free.remove(&offset);
                }
                Step::Delete(table, key) => txn.delete(table, &key),
                Step::Count => {}
            }
        }
        if done.is_empty() {
            return Ok(done);
        }
        txn.state.classes = census.count(&self.header.classes);
        self.commit(&mut control, txn)?;
        Ok(done)
    }

    fn steps(&self, census: &Census<Thing>, state: &State) -> Vec<(Repair, Step)> {
        let mut steps = Vec::new();
        let mut step = |detail: String, step: Step| steps.push((Repair { detail }, step));
        for (table, key) in &census.unreadable {
            let detail = format!("delete an unreadable row of {}", table.name());
            step(detail, Step::Delete(*table, key.clone()));
        }
        for (offset, fact) in &census.regions {
            let (offset, class) = (*offset, fact.class);
            let Some(entry) = derived(fact, census.incomplete) else { continue };
            if entry != fact.entry || !fact.readable {
                let detail = format!("mark the region at {offset} as {}", entry.state);
                step(detail, Step::Set(offset, class, entry));
            }
            let listed = census.free.get(&offset).is_some_and(|(listed, _)| *listed == class);
            match (entry.state == RegionState::Free, listed) {
                (true, false) => {
                    let detail = format!("put the region at {offset} into the free list");
                    step(detail, Step::List(offset, class));
                }
                (false, true) => {
                    let detail = format!("take the region at {offset} out of the free list");
                    step(detail, Step::Unlist(offset, class));
                }
                _ => {}
            }
        }
        for (offset, (class, _)) in &census.free {
            if census.regions.get(offset).is_none_or(|fact| fact.class != *class) {
                let detail = format!("take {offset}, which is no region, out of the free list");
                step(detail, Step::Unlist(*offset, *class));
            }
        }
        if steps.is_empty() && census.count(&self.header.classes) != state.classes {
            steps.push((Repair { detail: "recount the regions".into() }, Step::Count));
        }
        steps
    }
}

/// One change of a repair.
enum Step {
    Set(u64, u32, AllocEntry),
    List(u64, u32),
    Unlist(u64, u32),
    Delete(Table, Vec<u8>),
    Count,
}

/// What a region must be: used by its block, stretch or run, quarantined by its journal entry, else free. None
/// where that cannot be told: more than one claims it, or records are missing, so that whoever
/// it belongs to may only be out of sight.
fn derived(fact: &RegionFact<Thing>, incomplete: bool) -> Option<AllocEntry> {
    match fact.owner {
        _ if fact.disputed => None,
        Some((Owner::Thing(_), generation)) => {
            Some(AllocEntry { generation, state: RegionState::Used })
        }
        Some((Owner::Journal(_), generation)) => {
            Some(AllocEntry { generation, state: RegionState::Quarantine })
        }
        None if fact.readable && fact.entry.state == RegionState::Free => Some(fact.entry),
        None if incomplete => None,
        None => {
            let generation =
                if fact.readable { fact.entry.generation } else { GENERATION_AFTER_LOSS };
            Some(AllocEntry { generation, state: RegionState::Free })
        }
    }
}
