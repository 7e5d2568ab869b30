//! One open batch: the index as it will be after the commit. Dropping it changes nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use secateur_core::PrunePolicy;
use serde::Serialize;

use super::queue::QueueChange;
use super::state::{STATE_KEY, Settings, State};
use crate::class::ClassTable;
use crate::ground::{Change, Snapshot, Table, Visit};
use crate::rows::seal;
use crate::{Sabotage, StoreError};

/// What the writer knows besides the state and is to know after the commit, where it changes.
#[derive(Default)]
pub(crate) struct Mirrors {
    pub policy: Option<PrunePolicy>,
    pub settings: Option<Settings>,
    pub queue: Vec<QueueChange>,
}

/// A batch in the making over a snapshot of what is committed. Reads see the batch's own changes.
pub(crate) struct Txn<'a, S> {
    snapshot: S,
    changes: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>,
    pub state: State,
    pub mirrors: Mirrors,
    pub classes: &'a ClassTable,
    pub sabotage: Sabotage,
    /// Bytes of regions allocated here that the medium has yet to give.
    pub fresh_bytes: u64,
}

impl<'a, S: Snapshot> Txn<'a, S> {
    pub(crate) fn new(
        snapshot: S,
        state: State,
        classes: &'a ClassTable,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            snapshot,
            changes: BTreeMap::new(),
            state,
            mirrors: Mirrors::default(),
            classes,
            sabotage,
            fresh_bytes: 0,
        }
    }

    /// Sets a row; its value is sealed here and nowhere else.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], body: Vec<u8>) {
        self.changes.insert((table, key.to_vec()), Some(seal(table, key, body)));
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
        self.changes.insert((table, key.to_vec()), None);
    }

    /// The changes, the state row among them, and what to adopt once they are committed.
    pub(crate) fn finish(mut self) -> (Vec<Change>, State, Mirrors) {
        let body = self.state.encode();
        self.put(Table::Meta, STATE_KEY, body);
        let changes = self
            .changes
            .into_iter()
            .map(|((table, key), value)| Change { table, key, value })
            .collect();
        (changes, self.state, self.mirrors)
    }
}

impl<S: Snapshot> Snapshot for Txn<'_, S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(&(table, key.to_vec())) {
            Some(value) => Ok(value.clone()),
            None => self.snapshot.get(table, key),
        }
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut own = self
            .changes
            .range((table, from.to_vec())..)
            .take_while(|((at, _), _)| *at == table)
            .map(|((_, key), value)| (key, value))
            .peekable();
        let mut ended = false;
        self.snapshot.scan(table, from, &mut |key, value| {
            while let Some((mine, change)) = own.next_if(|(mine, _)| mine.as_slice() < key) {
                if let Some(change) = change
                    && visit(mine, change)?.is_break()
                {
                    ended = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            let flow = match own.next_if(|(mine, _)| mine.as_slice() == key) {
                Some((_, None)) => ControlFlow::Continue(()),
                Some((mine, Some(change))) => visit(mine, change)?,
                None => visit(key, value)?,
            };
            ended |= flow.is_break();
            Ok(flow)
        })?;
        for (key, change) in own {
            if ended {
                break;
            }
            if let Some(change) = change {
                ended = visit(key, change)?.is_break();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Index, MemoryIndex};
    use proptest::prelude::*;

    fn keys(rows: &impl Snapshot, from: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        rows.scan(Table::Free, from, &mut |key, _| {
            seen.push(key.to_vec());
            let full = seen.len() == most;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        seen
    }

    proptest! {
        #[test]
        fn a_scan_of_a_batch_equals_a_scan_after_its_commit(
            before in prop::collection::btree_set(0u8..30, 0..20),
            puts in prop::collection::btree_set(0u8..30, 0..10),
            deletes in prop::collection::btree_set(0u8..30, 0..10),
            from in 0u8..30,
            most in 1usize..40,
        ) {
            let classes = ClassTable::standard();
            let index = MemoryIndex::default();
            let begin = |index: &MemoryIndex| {
                Txn::new(index.snapshot().unwrap(), State::empty(&classes), &classes, Sabotage::None)
            };
            let mut first = begin(&index);
            for k in &before {
                first.put(Table::Free, &[*k], vec![1]);
            }
            index.commit(first.finish().0).unwrap();
            let mut batch = begin(&index);
            for k in &puts {
                batch.put(Table::Free, &[*k], vec![2]);
            }
            for k in &deletes {
                batch.delete(Table::Free, &[*k]);
            }
            let inside = keys(&batch, &[from], most);
            index.commit(batch.finish().0).unwrap();
            prop_assert_eq!(inside, keys(&index.snapshot().unwrap(), &[from], most));
        }
    }
}
