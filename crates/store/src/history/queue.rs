//! Queued transactions: ids that answer `Pending` until a block includes them, and again if that
//! block is rolled back. A row stays until its block is final.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use secateur_core::{Height, Reader, TxId, Writer};

use super::state::Finality;
use super::store::{Control, Store};
use super::txn::Txn;
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::rows::Rows;

/// Queued transactions that a store holds at most.
pub const MAX_QUEUED: usize = 65_536;

/// What queueing a transaction found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// It is queued now.
    Added,
    /// It was queued already.
    Already,
    /// It is in a block already.
    Included(Height),
}

/// Queued transactions, each with the height that includes it, if one does.
pub(crate) type Queue = BTreeMap<TxId, Option<Height>>;

fn encode(included: Option<Height>) -> Vec<u8> {
    let mut out = Writer::new();
    out.optional_u64(included);
    out.finish()
}

/// Whether a transaction is queued and in no block, as a snapshot shows it.
pub(crate) fn is_pending(rows: &impl Snapshot, id: &TxId) -> Result<bool, StoreError> {
    let Some(body) = rows.row(Table::Queue, &id.0)? else { return Ok(false) };
    Ok(decode(&body)?.is_none())
}

fn decode(body: &[u8]) -> Result<Option<Height>, StoreError> {
    let mut from = Reader::new("queue row", body);
    let included = from.optional_u64().map_err(row_error("queue"))?;
    from.finish().map_err(row_error("queue"))?;
    Ok(included)
}

/// Reads the whole queue; it is bounded.
pub(crate) fn load_queue(rows: &impl Snapshot) -> Result<Queue, StoreError> {
    let mut queue = Queue::new();
    rows.rows(Table::Queue, &[], |key, body| {
        let mut from = Reader::new("queue key", key);
        let id = from.array().map_err(row_error("queue"))?;
        from.finish().map_err(row_error("queue"))?;
        queue.insert(TxId(id), decode(body)?);
        let full = queue.len() > MAX_QUEUED;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(queue)
}

/// A queued transaction's row as a batch leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRow {
    Pending,
    Included(Height),
    Gone,
}

/// A change of the queue.
pub(crate) type QueueChange = (TxId, QueueRow);

impl<S: Snapshot> Txn<'_, S> {
    /// Changes one row of the queue, and the mirror with it once the batch is committed.
    fn set_queued(&mut self, id: TxId, row: QueueRow) {
        match row {
            QueueRow::Pending => self.put(Table::Queue, &id.0, encode(None)),
            QueueRow::Included(height) => self.put(Table::Queue, &id.0, encode(Some(height))),
            QueueRow::Gone => self.delete(Table::Queue, &id.0),
        }
        self.mirrors.queue.push((id, row));
    }
}

impl Control {
    /// Notes which queued transactions are included now; those in a final block are done.
    pub(crate) fn include<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        included: impl Iterator<Item = (TxId, Height)>,
    ) {
        let final_at_once = self.settings.finality == Finality::Instant;
        for (id, height) in included.filter(|(id, _)| self.queue.contains_key(id)) {
            let row = if final_at_once { QueueRow::Gone } else { QueueRow::Included(height) };
            txn.set_queued(id, row);
        }
    }

    /// Forgets queued transactions whose block is final now.
    pub(crate) fn finalize_queue<S: Snapshot>(&self, txn: &mut Txn<'_, S>, finalized: Height) {
        for (id, included) in &self.queue {
            if included.is_some_and(|height| height <= finalized) {
                txn.set_queued(*id, QueueRow::Gone);
            }
        }
    }

    /// Makes queued transactions pending again whose block is above `to`.
    pub(crate) fn roll_back_queue<S: Snapshot>(&self, txn: &mut Txn<'_, S>, to: Option<Height>) {
        for (id, included) in &self.queue {
            if included.is_some_and(|height| to.is_none_or(|to| height > to)) {
                txn.set_queued(*id, QueueRow::Pending);
            }
        }
    }

    /// Brings the mirror in step with a batch that is committed.
    pub(crate) fn adopt_queue(&mut self, changes: Vec<QueueChange>) {
        for (id, row) in changes {
            let before = match row {
                QueueRow::Pending => self.queue.insert(id, None),
                QueueRow::Included(height) => self.queue.insert(id, Some(height)),
                QueueRow::Gone => self.queue.remove(&id),
            };
            self.pending += u64::from(row == QueueRow::Pending);
            self.pending = self.pending.saturating_sub(u64::from(before == Some(None)));
        }
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Queues a transaction: lookups answer `Pending` until a block includes it.
    pub fn queue_tx(&self, id: TxId) -> Result<Queued, StoreError> {
        let found = self.queue_txs(&[id])?;
        Ok(found.first().copied().unwrap_or(Queued::Already))
    }

    /// Queues transactions as one durable group: all of them, or none where the queue has no
    /// room. What was found for each is the answer, in order.
    pub fn queue_txs(&self, ids: &[TxId]) -> Result<Vec<Queued>, StoreError> {
        self.build_hashes()?;
        let mut included = Vec::with_capacity(ids.len());
        for id in ids {
            included.push(self.locate(id)?.map(|at| at.height));
        }
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        let mut added = BTreeSet::new();
        let found = ids.iter().zip(included).map(|(id, included)| match included {
            Some(height) => Queued::Included(height),
            None if control.queue.contains_key(id) || !added.insert(*id) => Queued::Already,
            None => Queued::Added,
        });
        let found: Vec<Queued> = found.collect();
        if control.queue.len() + added.len() > MAX_QUEUED {
            let reason = format!(
                "{} are queued, {} are new, and the limit is {MAX_QUEUED}",
                control.queue.len(),
                added.len()
            );
            return Err(StoreError::refused("queue_tx", reason));
        }
        if !added.is_empty() {
            for id in added {
                txn.set_queued(id, QueueRow::Pending);
            }
            self.commit(&mut control, txn)?;
        }
        Ok(found)
    }

    /// Takes a transaction out of the queue; whether it was there is the answer.
    pub fn drop_tx(&self, id: &TxId) -> Result<bool, StoreError> {
        let mut control = self.writer()?;
        if !control.queue.contains_key(id) {
            return Ok(false);
        }
        let mut txn = self.begin(&mut control)?;
        txn.set_queued(*id, QueueRow::Gone);
        self.commit(&mut control, txn)?;
        Ok(true)
    }
}
