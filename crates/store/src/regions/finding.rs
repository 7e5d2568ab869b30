//! Findings: differences between what is and what must be, as `verify` tells them.

use serde::{Deserialize, Serialize};

/// Findings that are listed; further ones are only counted.
const MAX_FINDINGS: usize = 1000;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The index's own structure.
    Index,
    /// A row that cannot be read.
    Row,
    /// The chain of block records, or what is known of heights.
    Chain,
    /// A block's bytes, or a blob's.
    Payload,
    /// A region: its state, its owner, its place.
    Region,
    /// The free list.
    FreeList,
    /// The counters.
    Counter,
    /// A run of ids, or its filter.
    Run,
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

/// Findings in the order in which they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// Those that are listed.
    pub list: Vec<Finding>,
    /// How many there are besides.
    pub unlisted: u64,
}

impl Findings {
    /// Adds one.
    pub fn find(&mut self, kind: FindingKind, invariant: u8, repairable: bool, detail: String) {
        let finding = Finding { kind, invariant, detail, repairable };
        add(&mut self.list, &mut self.unlisted, finding);
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Lists a finding, or counts it where the list is full.
pub(crate) fn add(list: &mut Vec<Finding>, unlisted: &mut u64, finding: Finding) {
    if list.len() < MAX_FINDINGS {
        list.push(finding);
    } else {
        *unlisted += 1;
    }
}
