//! Lists: heights and blobs that wait for something, in order, a bounded number at a time. None of
//! them looks at a height that waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use secateur_core::Height;
use secateur_store::{Arena, Index, Rows, StoreError, Table};

use super::SidecarStore;
use super::facts::{BlobKey, BlobMeta, FetchDue, Hold, KeptRecord, WaitingHeight};
use super::prune::{Rule, hold_of_blob, limit_of};
use super::read::{archive_of, known_blob, locators_of};
use super::rows::{
    blob_key, each_row, height_key, read, take_blob_key, take_count, take_height, take_waiting,
};
use crate::error::SidecarError;
use crate::types::Trust;

/// Heights that are read at a time where many may have to be looked at.
const PAGE: usize = 256;

/// The heights that wait for a record, from `from` on.
pub(super) fn waiting(
    rows: &impl Rows,
    from: Height,
    max: usize,
) -> Result<Vec<WaitingHeight>, StoreError> {
    let mut found = Vec::new();
    each_row(rows, Table::Waiting, &height_key(from), |key, body| {
        if found.len() >= max {
            return Ok(ControlFlow::Break(()));
        }
        let height = read(Table::Waiting, key, take_height)?;
        let (blob_count, unarchived) = read(Table::Waiting, body, take_waiting)?;
        found.push(WaitingHeight { height, blob_count, unarchived });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The heights that are archived and here, from `from` on.
pub(super) fn ready(
    rows: &impl Rows,
    from: Height,
    max: usize,
) -> Result<Vec<WaitingHeight>, StoreError> {
    let mut found = Vec::new();
    each_row(rows, Table::Ready, &height_key(from), |key, body| {
        if found.len() >= max {
            return Ok(ControlFlow::Break(()));
        }
        let height = read(Table::Ready, key, take_height)?;
        let blob_count = read(Table::Ready, body, take_count)?;
        found.push(WaitingHeight { height, blob_count, unarchived: 0 });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Heights whose bytes are here, lowest first.
    pub fn waiting_heights(
        &self,
        from: Height,
        max: usize,
    ) -> Result<Vec<WaitingHeight>, SidecarError> {
        let view = self.shelf.view()?;
        let both = waiting(&view, from, max)?.into_iter().chain(ready(&view, from, max)?);
        let sorted: BTreeMap<Height, WaitingHeight> = both.map(|at| (at.height, at)).collect();
        Ok(sorted.into_values().take(max).collect())
    }

    /// Heights with a blob that nobody has signed for, or only for copies that are not there or in a
    /// form that lets nothing go, lowest first: what to ask peers about.
    pub fn heights_without_notice(
        &self,
        from: Height,
        max: usize,
    ) -> Result<Vec<Height>, SidecarError> {
        let found = waiting(&self.shelf.view()?, from, max)?;
        let found = found.into_iter().map(|at| at.height);
        let unbound = self.unbound_heights(&self.shelf.view()?, from, max)?;
        let doubted = self.doubts.heights(from, max);
        let all: BTreeSet<Height> = found.chain(unbound).chain(doubted).collect();
        Ok(all.into_iter().take(max).collect())
    }

    /// Heights with a blob that has only notices which bind no chain, where those let nothing go
    /// (`trust = signature`), lowest first.
    pub(super) fn unbound_heights(
        &self,
        rows: &impl Rows,
        from: Height,
        max: usize,
    ) -> Result<Vec<Height>, StoreError> {
        let mut found: Vec<Height> = Vec::new();
        if self.config.trust != Trust::Signature {
            return Ok(found);
        }
        each_row(rows, Table::Unbound, &height_key(from), |key, _| {
            let height = read(Table::Unbound, key, take_blob_key)?.height;
            if found.last() != Some(&height) {
                if found.len() >= max {
                    return Ok(ControlFlow::Break(()));
                }
                found.push(height);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Blobs up to a final height that nobody has signed for, lowest first, from `from` on.
    pub fn list_archivable(
        &self,
        finalized: Height,
        from: BlobKey,
        max: usize,
    ) -> Result<Vec<BlobKey>, SidecarError> {
        let view = self.shelf.view()?;
        let mut found = Vec::new();
        // Every height that waits has at least one such blob, so no more of them are needed.
        for at in waiting(&view, from.height, max.saturating_add(1))? {
            if at.height > finalized {
                break;
            }
            let first = if at.height == from.height { from.index } else { 0 };
            for index in first..at.blob_count {
                let key = BlobKey { height: at.height, index };
                if found.len() < max && archive_of(&view, key)?.is_none() {
                    found.push(key);
                }
            }
        }
        Ok(found)
    }

    /// Blobs that somebody has signed for, lowest first, from `from` on, each with its records: for
    /// an export, page by page.
    pub fn list_records(
        &self,
        from: BlobKey,
        max: usize,
    ) -> Result<Vec<(BlobMeta, Vec<KeptRecord>)>, SidecarError> {
        let view = self.shelf.view()?;
        let mut keys = Vec::new();
        view.rows(Table::Archive, &blob_key(from), |key, _| {
            if keys.len() >= max {
                return Ok(ControlFlow::Break(()));
            }
            keys.push(read(Table::Archive, key, take_blob_key)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let with_records = |key| {
            let records = archive_of(&view, key)?.unwrap_or_default().records;
            Ok((known_blob(&view, key)?, records))
        };
        keys.into_iter().map(with_records).collect()
    }

    /// Blobs that keep their heights from being pruned because no copy was fetched and compared,
    /// lowest first, from `from` on. Empty unless `trust = fetch`.
    pub fn fetch_due(&self, from: BlobKey, max: usize) -> Result<Vec<FetchDue>, SidecarError> {
        let view = self.shelf.view()?;
        let rule = Rule::load(&self.config, &view)?;
        let mut found = Vec::new();
        let Some(limit) = limit_of(&rule).filter(|_| rule.trust == Trust::Fetch) else {
            return Ok(found);
        };
        let mut next = Some(from);
        while let Some(from) = next {
            let page = ready(&view, from.height, PAGE)?;
            let last = page.last().filter(|at| page.len() == PAGE && at.height < limit);
            next = last.map(|at| BlobKey { height: at.height + 1, index: 0 });
            for at in page.into_iter().take_while(|at| at.height <= limit) {
                let first = if at.height == from.height { from.index } else { 0 };
                for index in first..at.blob_count {
                    if found.len() >= max {
                        return Ok(found);
                    }
                    let key = BlobKey { height: at.height, index };
                    match due_of(&rule, &view, key) {
                        // It holds its height; heights above it are not to blame.
                        Err(SidecarError::Store(error)) if error.is_corruption() => {
                            tracing::warn!(%error, %key, "what is known of a blob cannot be read");
                        }
                        due => found.extend(due?),
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A blob, if only that no copy of it was fetched holds its height.
fn due_of(rule: &Rule, rows: &impl Rows, key: BlobKey) -> Result<Option<FetchDue>, SidecarError> {
    if hold_of_blob(rule, rows, key)? != Some(Hold::NotFetched) {
        return Ok(None);
    }
    let (meta, locators) = (known_blob(rows, key)?, locators_of(rows, key, usize::MAX)?);
    Ok(Some(FetchDue { meta, locators }))
}
