//! Rows on top of other rows: what is staged shows before it is committed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::StoreError;
use crate::ground::{Change, KeyValue, Snapshot, Table, Visit};

/// A row that is on its way: the job that carries it, and its value; none deletes the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    pub job: u64,
    pub value: Option<Vec<u8>>,
}

/// Rows that are on their way.
pub(crate) type Overlay = BTreeMap<(Table, Vec<u8>), Staged>;

/// The changes that commit them, table by table in key order.
pub(crate) fn into_changes(rows: Overlay) -> Vec<Change> {
    let change = |((table, key), row): ((Table, Vec<u8>), Staged)| {
        let value = row.value;
        Change { table, key, value }
    };
    rows.into_iter().map(change).collect()
}

/// A snapshot of what is committed with what is staged on top. The snapshot may already hold
/// some of what is staged: showing it twice changes nothing, because rows are set and not added
/// to.
pub(crate) struct Ahead<S> {
    pub snapshot: S,
    pub staged: Arc<Overlay>,
}

/// The value of one row.
pub(crate) fn get_over(
    over: &Overlay,
    under: &impl Snapshot,
    table: Table,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    match over.get(&(table, key.to_vec())) {
        Some(row) => Ok(row.value.clone()),
        None => under.get(table, key),
    }
}

/// Visits the rows from `from` on, in key order.
pub(crate) fn scan_over(
    over: &Overlay,
    under: &impl Snapshot,
    table: Table,
    from: &[u8],
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    let mut own = over
        .range((table, from.to_vec())..)
        .take_while(|((at, _), _)| *at == table)
        .map(|((_, key), row)| (key, &row.value))
        .peekable();
    let mut ended = false;
    under.scan(table, from, &mut |key, value| {
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

/// The last row below `bound`.
pub(crate) fn before_over(
    over: &Overlay,
    under: &impl Snapshot,
    table: Table,
    bound: &[u8],
) -> Result<Option<KeyValue>, StoreError> {
    let mut bound = bound.to_vec();
    loop {
        let below = under.before(table, &bound)?;
        let own = over.range((table, Vec::new())..(table, bound.clone())).next_back();
        let Some(((_, key), row)) = own else { return Ok(below) };
        if below.as_ref().is_some_and(|(other, _)| other > key) {
            return Ok(below);
        }
        match &row.value {
            Some(value) => return Ok(Some((key.clone(), value.clone()))),
            None => bound.clone_from(key),
        }
    }
}

impl<S: Snapshot> Snapshot for Ahead<S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get_over(&self.staged, &self.snapshot, table, key)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        scan_over(&self.staged, &self.snapshot, table, from, visit)
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        before_over(&self.staged, &self.snapshot, table, bound)
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
        fn reading_over_staged_rows_equals_reading_after_their_commit(
            before in prop::collection::btree_set(0u8..30, 0..20),
            puts in prop::collection::btree_set(0u8..30, 0..10),
            deletes in prop::collection::btree_set(0u8..30, 0..10),
            from in 0u8..30,
            most in 1usize..40,
        ) {
            let index = MemoryIndex::default();
            let change = |key: &u8, value: Option<u8>| Change {
                table: Table::Free,
                key: vec![*key],
                value: value.map(|v| vec![v]),
            };
            index.commit(before.iter().map(|k| change(k, Some(1))).collect()).unwrap();
            let changes: Vec<Change> = puts
                .iter()
                .map(|k| change(k, Some(2)))
                .chain(deletes.iter().map(|k| change(k, None)))
                .collect();
            let staged: Overlay = changes
                .iter()
                .cloned()
                .map(|c| ((c.table, c.key), Staged { job: 1, value: c.value }))
                .collect();
            let rows = Ahead { snapshot: index.snapshot().unwrap(), staged: Arc::new(staged) };
            let scanned = keys(&rows, &[from], most);
            let below = rows.before(Table::Free, &[from]).unwrap();
            let got = rows.get(Table::Free, &[from]).unwrap();
            index.commit(changes).unwrap();
            let after = index.snapshot().unwrap();
            prop_assert_eq!(scanned, keys(&after, &[from], most));
            prop_assert_eq!(below, after.before(Table::Free, &[from]).unwrap());
            prop_assert_eq!(got, after.get(Table::Free, &[from]).unwrap());
        }
    }
}
