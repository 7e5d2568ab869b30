//! A part of an index as one of several workers sees it: a sink whose cursor is the place in a
//! leased range, or the head that only one may follow. Everything else is the index's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use secateur_core::{Cursor, Height};

use super::lease::{Lease, LeaseQueue};
use super::write::{self, Fence, bigint};
use super::{PostgresSink, notes, read};
use crate::sink::{Identity, Note, Retained, Sink};
use crate::{Batch, BlockRow, GapRow, IndexError, PartRow};

/// What a worker holds.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Range(Lease),
    Head(i64),
}

/// A sink for what one worker holds. Its commits are refused once another worker holds it.
#[derive(Debug, Clone)]
pub struct LeasedSink {
    queue: LeaseQueue,
    hold: Arc<Mutex<Hold>>,
    lost: Arc<AtomicBool>,
}

impl LeasedSink {
    /// A sink for a range.
    pub fn range(queue: &LeaseQueue, lease: Lease) -> Self {
        Self::new(queue, Hold::Range(lease))
    }

    /// A sink for the head, by the epoch of [`LeaseQueue::take_head`].
    pub fn head(queue: &LeaseQueue, epoch: i64) -> Self {
        Self::new(queue, Hold::Head(epoch))
    }

    fn new(queue: &LeaseQueue, hold: Hold) -> Self {
        let hold = Arc::new(Mutex::new(hold));
        Self { queue: queue.clone(), hold, lost: Arc::default() }
    }

    /// The range and the place in it; none if this follows the head.
    pub fn lease(&self) -> Option<Lease> {
        match *self.hold.lock() {
            Hold::Range(lease) => Some(lease),
            Hold::Head(_) => None,
        }
    }

    /// The first block that is not this worker's; none if this follows the head.
    pub fn until(&self) -> Option<Height> {
        self.lease().map(|lease| lease.past)
    }

    /// Whether a commit was refused because another worker holds it by now.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn sink(&self) -> &PostgresSink {
        &self.queue.sink
    }

    fn fence(&self) -> Result<Fence, IndexError> {
        let seconds = self.queue.seconds();
        Ok(match *self.hold.lock() {
            Hold::Range(Lease { first, epoch, .. }) => {
                Fence::Lease { first: bigint(first)?, epoch, seconds }
            }
            Hold::Head(epoch) => Fence::Head { epoch, seconds },
        })
    }

    /// Takes note of how a write ended.
    fn after(&self, result: Result<(), IndexError>, next: Height) -> Result<(), IndexError> {
        match &result {
            Ok(()) => {
                if let Hold::Range(lease) = &mut *self.hold.lock() {
                    lease.next = lease.next.max(next);
                }
            }
            Err(IndexError::Refused(_)) => self.lost.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
        result
    }
}

impl Sink for LeasedSink {
    async fn bind(&self, identity: &Identity) -> Result<(), IndexError> {
        self.sink().bind(identity).await
    }

    async fn check(&self, identity: &Identity) -> Result<(), IndexError> {
        self.sink().check(identity).await
    }

    async fn cursor(&self) -> Result<Option<Cursor>, IndexError> {
        match self.lease() {
            Some(lease) => Ok(Some(Cursor::at_block(lease.next))),
            None => self.sink().cursor().await,
        }
    }

    async fn tip(&self) -> Result<Option<BlockRow>, IndexError> {
        match self.lease() {
            // Unknown as long as the worker below has not come so far.
            Some(lease) => read::block_below(&self.sink().client().await?, lease.next).await,
            None => self.sink().tip().await,
        }
    }

    async fn row_at(&self, number: Height) -> Result<Option<BlockRow>, IndexError> {
        self.sink().row_at(number).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), IndexError> {
        let next = batch.next.block_number;
        let result = write::commit(self.sink(), &batch, &self.fence()?).await;
        self.after(result, next)
    }

    async fn refill(&self, first: Height, batch: Batch) -> Result<u64, IndexError> {
        self.sink().refill(first, batch).await
    }

    async fn logs_filled(&self, logs: &str, first: Height, past: Height) -> Result<(), IndexError> {
        self.sink().logs_filled(logs, first, past).await
    }

    async fn record_gap(&self, mut gap: GapRow, mut next: Cursor) -> Result<(), IndexError> {
        if let Some(lease) = self.lease() {
            // Of a gap beyond the range only what is in it is this worker's to note.
            next = Cursor::at_block(next.block_number.min(lease.past));
            gap.block_to = gap.block_to.min(lease.past.saturating_sub(1));
        }
        let result = notes::record_gap(self.sink(), &gap, next, &self.fence()?).await;
        self.after(result, next.block_number)
    }

    async fn note(&self, note: Note) -> Result<(), IndexError> {
        self.sink().note(note).await
    }

    async fn add_part(&self, part: PartRow, at: u64) -> Result<(), IndexError> {
        self.sink().add_part(part, at).await
    }

    async fn forget_part(&self, block_from: Height) -> Result<(), IndexError> {
        self.sink().forget_part(block_from).await
    }

    async fn parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        self.sink().parts(from, limit).await
    }

    async fn last_part(&self) -> Result<Option<PartRow>, IndexError> {
        self.sink().last_part().await
    }

    async fn retain(&self, cutoff: u64, max_blocks: u32) -> Result<Retained, IndexError> {
        self.sink().retain(cutoff, max_blocks).await
    }

    async fn maintain(&self, at: u64) -> Result<(), IndexError> {
        self.sink().maintain(at).await
    }

    async fn size_bytes(&self) -> Result<u64, IndexError> {
        self.sink().size_bytes().await
    }
}
