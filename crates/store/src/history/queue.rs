//! Queued transactions: ids that answer `Pending` until a block includes them, and again if that
//! block is rolled back. A row stays until its block is final.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use secateur_core::{Height, Reader, TxId, Writer};

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

type Queue = BTreeMap<TxId, Option<Height>>;

fn encode(included: Option<Height>) -> Vec<u8> {
    let mut out = Writer::new();
    out.optional_u64(included);
    out.finish()
}

/// Reads the whole queue; it is bounded.
pub(crate) fn load_queue(rows: &impl Snapshot) -> Result<Queue, StoreError> {
    let mut queue = Queue::new();
    rows.rows(Table::Queue, &[], |key, body| {
        let id = Reader::new("queue key", key).array().map_err(row_error("queue"))?;
        let mut from = Reader::new("queue row", body);
        let included = from.optional_u64().map_err(row_error("queue"))?;
        queue.insert(TxId(id), included);
        let full = queue.len() > MAX_QUEUED;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(queue)
}

impl Control {
    /// The queue once the given ids are included; the rows change in the same batch.
    pub(crate) fn queue_after_append<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        included: &[(TxId, Height)],
        final_at_once: bool,
    ) -> Queue {
        let mut queue = self.queue.clone();
        for (id, height) in included {
            if !queue.contains_key(id) {
                continue;
            }
            if final_at_once {
                queue.remove(id);
                txn.delete(Table::Queue, &id.0);
            } else {
                queue.insert(*id, Some(*height));
                txn.put(Table::Queue, &id.0, encode(Some(*height)));
            }
        }
        queue
    }

    /// The queue once everything up to `finalized` is final.
    pub(crate) fn queue_after_finality<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        finalized: Height,
    ) -> Queue {
        let (done, queue): (Queue, Queue) = self
            .queue
            .iter()
            .partition(|(_, included)| included.is_some_and(|height| height <= finalized));
        for id in done.keys() {
            txn.delete(Table::Queue, &id.0);
        }
        queue
    }

    /// The queue once everything above `to` is gone again.
    pub(crate) fn queue_after_rollback<S: Snapshot>(
        &self,
        txn: &mut Txn<'_, S>,
        to: Option<Height>,
    ) -> Queue {
        let mut queue = self.queue.clone();
        for (id, included) in &mut queue {
            if included.is_some_and(|height| to.is_none_or(|to| height > to)) {
                *included = None;
                txn.put(Table::Queue, &id.0, encode(None));
            }
        }
        queue
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Queues a transaction: lookups answer `Pending` until a block includes it.
    pub fn queue_tx(&self, id: TxId) -> Result<Queued, StoreError> {
        self.build_hashes()?;
        let mut control = self.writer()?;
        if let Some(at) = self.hashes.transaction(&id)
            && control.state.boundary.is_none_or(|boundary| at.height > boundary)
        {
            return Ok(Queued::Included(at.height));
        }
        if control.queue.contains_key(&id) {
            return Ok(Queued::Already);
        }
        if control.queue.len() >= MAX_QUEUED {
            let reason = format!("{MAX_QUEUED} transactions are queued already");
            return Err(StoreError::refused("queue_tx", reason));
        }
        let mut txn = self.begin(&control)?;
        txn.put(Table::Queue, &id.0, encode(None));
        self.commit(&mut control, txn)?;
        control.queue.insert(id, None);
        Ok(Queued::Added)
    }

    /// Takes a transaction out of the queue; whether it was there is the answer.
    pub fn drop_tx(&self, id: &TxId) -> Result<bool, StoreError> {
        let mut control = self.writer()?;
        if !control.queue.contains_key(id) {
            return Ok(false);
        }
        let mut txn = self.begin(&control)?;
        txn.delete(Table::Queue, &id.0);
        self.commit(&mut control, txn)?;
        control.queue.remove(id);
        Ok(true)
    }
}
