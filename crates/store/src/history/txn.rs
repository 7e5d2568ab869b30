//! One open batch: the index as it will be after the commit. Dropping it changes nothing.

use std::sync::Arc;

use secateur_core::{PrunePolicy, WaterMarks};
use serde::Serialize;

use super::queue::QueueChange;
use super::runs::RunRecord;
use super::state::{Header, Layout, STATE_KEY, Settings, State};
use crate::class::ClassTable;
use crate::ground::{KeyValue, Snapshot, Table, Visit};
use crate::regions::alloc::{Allocate, Books};
use crate::regions::overlay::{Ahead, Overlay, Staged, before_over, get_over, scan_over};
use crate::rows::seal;
use crate::{Sabotage, StoreError};

/// A packed arena grows by this part of itself at a time.
const GROWTH_STEPS: u64 = 64;

/// What the writer knows besides the state and is to know after the batch, where it changes.
#[derive(Default)]
pub(crate) struct Mirrors {
    pub policy: Option<PrunePolicy>,
    pub settings: Option<Settings>,
    pub queue: Vec<QueueChange>,
}

/// A batch in the making over what is committed and what is staged. Reads see the batch's own
/// changes.
pub(crate) struct Txn<'a, S> {
    under: Ahead<S>,
    changes: Overlay,
    pub state: State,
    pub mirrors: Mirrors,
    /// The sealed runs and tombstones, oldest first.
    pub runs: Arc<Vec<RunRecord>>,
    pub header: &'a Header,
    pub sabotage: Sabotage,
    /// Bytes of regions allocated here that the medium has yet to give.
    pub fresh_bytes: u64,
    /// The budget's water marks, if there is one.
    pub marks: Option<WaterMarks>,
}

impl<'a, S: Snapshot> Txn<'a, S> {
    pub(crate) fn new(
        under: Ahead<S>,
        state: State,
        runs: Arc<Vec<RunRecord>>,
        header: &'a Header,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            under,
            changes: Overlay::new(),
            state,
            mirrors: Mirrors::default(),
            runs,
            header,
            sabotage,
            fresh_bytes: 0,
            marks: None,
        }
    }

    /// Sets a row; its value is sealed here and nowhere else.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], body: Vec<u8>) {
        let value = Some(seal(table, key, body));
        self.changes.insert((table, key.to_vec()), Staged { job: 0, value });
    }

    /// Sets a row that holds one JSON document.
    pub(crate) fn put_document(
        &mut self,
        table: Table,
        key: &[u8],
        document: &impl Serialize,
    ) -> Result<(), StoreError> {
        let body = serde_json::to_vec(document)
            .map_err(|e| StoreError::refused("document", e.to_string()))?;
        self.put(table, key, body);
        Ok(())
    }

    /// Deletes a row.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) {
        self.changes.insert((table, key.to_vec()), Staged { job: 0, value: None });
    }

    /// The changes, the state row among them, and what the writer is to know from now on.
    pub(crate) fn finish(mut self) -> (Overlay, State, Arc<Vec<RunRecord>>, Mirrors) {
        let body = self.state.encode();
        self.put(Table::Meta, STATE_KEY, body);
        (self.changes, self.state, self.runs, self.mirrors)
    }
}

impl<S: Snapshot> Snapshot for Txn<'_, S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get_over(&self.changes, &self.under, table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        scan_over(&self.changes, &self.under, table, from, visit)
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        before_over(&self.changes, &self.under, table, bound)
    }
}

impl<S: Snapshot> Allocate for Txn<'_, S> {
    fn set(&mut self, table: Table, key: &[u8], body: Vec<u8>) {
        self.put(table, key, body);
    }

    fn unset(&mut self, table: Table, key: &[u8]) {
        self.delete(table, key);
    }

    fn classes(&self) -> &ClassTable {
        &self.header.classes
    }

    fn books(&mut self) -> Books<'_> {
        Books {
            arena_end: &mut self.state.arena_end,
            journal_next: &mut self.state.journal_next,
            counts: &mut self.state.classes,
            fresh_bytes: &mut self.fresh_bytes,
        }
    }

    fn planted(&self) -> Sabotage {
        self.sabotage
    }

    /// A packed store takes a few more regions while it is at the arena's end, as the file grows
    /// in steps too. Once the arena passes high water it takes all up to half-way between hard
    /// water and the target: the budget is full then, and a later peak finds a free region and
    /// not the end. The rest is the index's.
    fn spares(&self, class: u32, offset: u64) -> u64 {
        if self.header.layout != Layout::Packed || class != self.header.classes.largest() {
            return 0;
        }
        let size = u64::from(class);
        let end = self.state.arena_end;
        let to_the_brim = match self.marks {
            Some(marks) if end > marks.high => {
                marks.hard.midpoint(marks.target).saturating_sub(end) / size
            }
            _ => 0,
        };
        to_the_brim.max(offset / size / GROWTH_STEPS)
    }
}
