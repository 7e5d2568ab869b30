//! Verify: every region with its owner, every slot's bytes read (I10).
//!
//! Rows are looked at in one snapshot; bytes are then read one slot at a time, each under its own
//! pin, so that a long verification never keeps regions from being freed.

use std::fmt;

use serde::Serialize;

use super::open::Shelf;
use super::state::{Slot, State};
use crate::StoreError;
use crate::ground::{Arena, Index};
use crate::regions::census::Census;
use crate::regions::finding::{FindingKind, Findings};
use crate::regions::region::check_region;

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ShelfReport {
    /// Slots whose bytes were read.
    pub slots: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Regions seen.
    pub regions: u64,
    /// What is wrong.
    pub findings: Findings,
}

/// What owns a slot: a word and two numbers, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner(&'static str, u64, u64);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, first, second) = self;
        write!(f, "{what} {first}/{second}")
    }
}

/// Where a family says which slots its rows refer to, and what else is wrong with them.
#[derive(Debug)]
pub struct Claims<'a> {
    census: &'a mut Census<Owner>,
    slots: Vec<(Owner, Slot)>,
}

impl Claims<'_> {
    /// A row refers to a slot. `what` and the numbers name the thing in messages.
    pub fn own(&mut self, what: &'static str, (first, second): (u64, u64), slot: Slot) {
        let owner = Owner(what, first, second);
        self.census.own(owner, &slot.region);
        self.slots.push((owner, slot));
    }

    /// A row that may refer to slots cannot be read.
    pub fn lose(&mut self, detail: String) {
        self.census.incomplete = true;
        self.census.find(FindingKind::Row, 9, false, detail);
    }

    /// Something else is wrong.
    pub fn find(&mut self, kind: FindingKind, invariant: u8, detail: String) {
        self.census.find(kind, invariant, false, detail);
    }
}

impl<A: Arena, I: Index> Shelf<A, I> {
    /// Recomputes everything and says what is wrong. `claims` goes through the family's rows in
    /// the snapshot that it is given; `progress` hears (slots read, slots in all).
    pub fn verify(
        &self,
        claims: impl FnOnce(&I::Snapshot, &mut Claims<'_>) -> Result<(), StoreError>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<ShelfReport, StoreError> {
        let mut census = Census::default();
        let slots = {
            let _pin = self.pins.pin();
            let snapshot = self.index.snapshot()?;
            let state = State::load(&snapshot)?;
            census.count_regions(&snapshot, &self.header.classes, state.arena_end)?;
            let mut open = Claims { census: &mut census, slots: Vec::new() };
            claims(&snapshot, &mut open)?;
            let slots = open.slots;
            census.close(&snapshot, &self.header.classes, &state.count)?;
            slots
        };
        for trouble in self.index.check()? {
            census.find(FindingKind::Index, 9, false, trouble);
        }
        let all = slots.len() as u64;
        let mut report = ShelfReport { regions: census.regions.len() as u64, ..Default::default() };
        for (owner, slot) in slots {
            let view = self.view()?;
            match view.read(&slot) {
                Ok(bytes) => {
                    report.slots += 1;
                    report.bytes += bytes.len() as u64;
                }
                // What is not its region any more was cut meanwhile, or the census has told.
                Err(_) if check_region(&view, &slot.region).is_err() => {}
                Err(error) => {
                    let detail = format!("{owner}: {error}");
                    census.find(FindingKind::Payload, 14, false, detail);
                }
            }
            progress(report.slots, all);
        }
        report.findings = census.findings;
        Ok(report)
    }
}
