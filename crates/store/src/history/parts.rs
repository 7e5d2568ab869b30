//! Archive parts: which blocks are in which object, kept for ever. The archive hold stands at the
//! end of the parts that follow one another without a gap.

use std::ops::ControlFlow;

use secateur_core::{BlockHash, Height, Part};

use super::control::export_head;
use super::record::BlockRecord;
use super::situation::settings_of;
use super::state::{State, load_document, parse_document};
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::rows::Rows;

/// Parts that one listing returns at most.
pub const MAX_PARTS: usize = 1_000;

fn refused(reason: String) -> StoreError {
    StoreError::refused("ack_archived", reason)
}

/// The part that covers a height, if one does.
pub(super) fn covering(rows: &impl Snapshot, height: Height) -> Result<Option<Part>, StoreError> {
    // The first key above: the row before it begins at or below the height.
    let Some(above) = height.checked_add(1) else { return Ok(None) };
    let Some(body) = rows.row_before(Table::Parts, &above.to_be_bytes())? else {
        return Ok(None);
    };
    let part: Part = parse_document(Table::Parts, &body)?;
    Ok(part.covers(height).then_some(part))
}

/// The parts that have a block of a range, lowest first; at most [`MAX_PARTS`].
pub(super) fn overlapping(
    rows: &impl Snapshot,
    first: Height,
    last: Height,
) -> Result<Vec<Part>, StoreError> {
    let mut found: Vec<Part> = covering(rows, first)?.into_iter().collect();
    let Some(above) = first.checked_add(1) else { return Ok(found) };
    rows.rows(Table::Parts, &above.to_be_bytes(), |_, body| {
        let part: Part = parse_document(Table::Parts, body)?;
        if part.first > last || found.len() >= MAX_PARTS {
            return Ok(ControlFlow::Break(()));
        }
        found.push(part);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Refuses a part that overlaps another one. Whether it is known already is the answer.
fn is_known(rows: &impl Snapshot, part: &Part) -> Result<bool, StoreError> {
    let key = part.first.to_be_bytes();
    if let Some(known) = load_document::<Part>(rows, Table::Parts, &key)? {
        if known == *part {
            return Ok(true);
        }
        return Err(refused(format!(
            "blocks {} to {} are in the part {}/{} already",
            known.first, known.last, known.locator.provider, known.locator.key
        )));
    }
    let mut over = covering(rows, part.first)?;
    rows.rows(Table::Parts, &key, |_, body| {
        let next: Part = parse_document(Table::Parts, body)?;
        if next.first <= part.last {
            over.get_or_insert(next);
        }
        Ok(ControlFlow::Break(()))
    })?;
    match over {
        Some(other) => Err(refused(format!(
            "it overlaps blocks {} to {}, which are in the part {}/{}",
            other.first, other.last, other.locator.provider, other.locator.key
        ))),
        None => Ok(false),
    }
}

/// Compares a part's ends with the blocks that are here, up to the newest final one.
fn may_count(
    rows: &impl Snapshot,
    state: &State,
    head: Option<Height>,
    part: &Part,
) -> Result<(), StoreError> {
    if head.is_none_or(|head| part.last > head) {
        return Err(refused(format!("block {} is not final here", part.last)));
    }
    let oldest = state.oldest_kept().ok_or_else(|| refused("there is no block".into()))?;
    if part.first < oldest {
        return Err(refused(format!(
            "block {} is not here to compare it with; the oldest is block {oldest}",
            part.first
        )));
    }
    let agree = |what: &str, height: Height, stated: BlockHash, found: BlockHash| {
        if stated == found {
            return Ok(());
        }
        Err(refused(format!("the {what} of block {height} is {found} here, and {stated} there")))
    };
    let first = BlockRecord::load(rows, part.first)?.meta;
    agree("parent hash", part.first, part.parent_hash, first.parent_hash)?;
    let last = BlockRecord::load(rows, part.last)?.meta;
    agree("hash", part.last, part.last_hash, last.hash)
}

/// The end of the parts that follow one another from `from` on; each stands on the one before.
fn reach(rows: &impl Snapshot, from: Height) -> Result<Option<Height>, StoreError> {
    let (mut next, mut parent, mut end) = (from, None::<BlockHash>, None);
    rows.rows(Table::Parts, &from.to_be_bytes(), |_, body| {
        let part: Part = parse_document(Table::Parts, body)?;
        if part.first != next || parent.is_some_and(|parent| parent != part.parent_hash) {
            return Ok(ControlFlow::Break(()));
        }
        (end, parent) = (Some(part.last), Some(part.last_hash));
        let Some(after) = part.last.checked_add(1) else { return Ok(ControlFlow::Break(())) };
        next = after;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end)
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Notes an archive part for ever and moves the archive hold, as far as parts follow one
    /// another without a gap from the first block here that was not archived. Its ends are compared
    /// with the blocks that are here; one that is known already changes nothing. How far
    /// everything is archived is the answer.
    pub fn ack_archived(&self, part: &Part) -> Result<Option<Height>, StoreError> {
        part.check()?;
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        if is_known(&txn, part)? {
            return Ok(txn.state.archived);
        }
        may_count(&txn, &txn.state, export_head(&txn.state, &control.settings), part)?;
        txn.put_document(Table::Parts, &part.first.to_be_bytes(), part)?;
        // Blocks that were cut before anybody archived them are in no part, and no part will ever
        // close that gap: what counts is what is still here.
        let oldest = txn.state.oldest_kept();
        let next = txn.state.archived.and_then(|archived| archived.checked_add(1));
        if let Some(begin) = next.max(oldest)
            && let Some(end) = reach(&txn, begin)?
        {
            txn.state.archived = Some(end);
        }
        let archived = txn.state.archived;
        self.commit(&mut control, txn)?;
        drop(control);
        self.released();
        Ok(archived)
    }

    /// What [`Store::ack_archived`] would compare, without noting anything: a part that it would
    /// refuse is refused. Whether the part is known already is the answer.
    pub fn check_archived(&self, part: &Part) -> Result<bool, StoreError> {
        part.check()?;
        let view = self.view()?;
        if is_known(&view.snapshot, part)? {
            return Ok(true);
        }
        let head = export_head(&view.state, &settings_of(&view.snapshot)?);
        may_count(&view.snapshot, &view.state, head, part)?;
        Ok(false)
    }

    /// The archive part that holds a block.
    pub fn find_part(&self, height: Height) -> Result<Option<Part>, StoreError> {
        covering(&self.index.snapshot()?, height)
    }

    /// Archive parts from a height on, oldest first; at most [`MAX_PARTS`].
    pub fn list_parts(&self, from: Height, limit: usize) -> Result<Vec<Part>, StoreError> {
        let limit = limit.min(MAX_PARTS);
        let mut parts = Vec::new();
        if limit == 0 {
            return Ok(parts);
        }
        self.index.snapshot()?.rows(Table::Parts, &from.to_be_bytes(), |_, body| {
            parts.push(parse_document(Table::Parts, body)?);
            let full = parts.len() >= limit;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(parts)
    }
}
