//! Append: allocate → write → sync → one batch → acknowledged. It never prunes.

use std::sync::atomic::Ordering;

use secateur_core::{
    Block, BlockHash, Height, LookupError, MAX_AHEAD_SECONDS, MAX_SEGMENT_LEN, Segment, tx_index,
};

use super::hashes::BlockIds;
use super::record::{BlobPtr, BlockRecord};
use super::state::{State, Tip};
use super::store::{Control, Store};
use super::txn::Txn;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::{Sabotage, StoreError};

/// Space that must be left on the medium after an append, so that the index can go on.
const INDEX_HEADROOM: u64 = 2 * 1024 * 1024;

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The newest block now.
    pub head: Height,
    /// How many of the blocks were new.
    pub written: u64,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Appends one block; durable when it returns.
    pub fn append(&self, block: &Block) -> Result<Appended, StoreError> {
        self.append_group(std::slice::from_ref(block))
    }

    /// Appends consecutive blocks as one durable group: all of them or none. Blocks that are
    /// stored already are passed over.
    pub fn append_group(&self, blocks: &[Block]) -> Result<Appended, StoreError> {
        let mut tx_counts = Vec::with_capacity(blocks.len());
        for block in blocks {
            tx_counts.push(block.check(MAX_SEGMENT_LEN)?);
        }
        let mut control = self.writer()?;
        let known = self.known_prefix(&control.state, blocks)?;
        let fresh: Vec<(&Block, u32)> = blocks.iter().zip(tx_counts).skip(known).collect();
        if !fresh.is_empty() {
            self.write_group(&mut control, &fresh)?;
        }
        let head = control.state.head.map(|tip| tip.height).ok_or_else(|| {
            StoreError::refused("append", "no block was given and the store is empty")
        })?;
        let (trigger, draining) = (control.policy.trigger, control.state.pressure.draining);
        // A prune that waits for its turn gets it now, however fast blocks come.
        parking_lot::MutexGuard::unlock_fair(control);
        let written = fresh.len() as u64;
        let since = self.blocks_since_tick.fetch_add(written, Ordering::AcqRel) + written;
        if draining || trigger.blocks().is_some_and(|n| since >= u64::from(n)) {
            self.ring();
        }
        Ok(Appended { head, written })
    }

    /// How many leading blocks are stored already; a different block in their place is a
    /// conflict.
    fn known_prefix(&self, state: &State, blocks: &[Block]) -> Result<usize, StoreError> {
        let (Some(head), Some(oldest)) = (state.head, state.oldest_kept()) else {
            return Ok(0);
        };
        let snapshot = self.index.snapshot()?;
        let mut known = 0;
        for block in blocks {
            let height = block.meta.height;
            if height > head.height {
                break;
            }
            if let Some(pruned_before_block) = state.boundary.filter(|b| height <= *b) {
                return Err(LookupError::Pruned { pruned_before_block }.into());
            }
            if height < oldest {
                return Err(StoreError::Gap { expected: head.height + 1, got: height });
            }
            let record = BlockRecord::load(&snapshot, height)?;
            let (lens, checksums) = BlockRecord::measure(&block.payloads);
            if (&record.meta, record.lens, record.checksums) != (&block.meta, lens, checksums) {
                return Err(StoreError::Conflict { height });
            }
            known += 1;
        }
        Ok(known)
    }

    fn write_group(
        &self,
        control: &mut Control,
        blocks: &[(&Block, u32)],
    ) -> Result<(), StoreError> {
        if !self.index.ensure_reserve()? {
            self.settle_batch(control)?;
        }
        let mut txn = self.begin(control)?;
        let freed = if self.sabotage.is(Sabotage::ReuseQuarantined) {
            0
        } else {
            self.settle_into(control, &mut txn)?
        };
        let wall = self.clock.now_seconds();
        let mut extents = Vec::with_capacity(blocks.len());
        for (block, tx_count) in blocks {
            extents.push(stage(&mut txn, block, *tx_count, wall)?);
        }
        self.punch_over_target(control, &mut txn)?;
        self.check_headroom(txn.fresh_bytes)?;
        self.arena.grow(txn.state.arena_end)?;
        for ((block, _), extents) in blocks.iter().zip(&extents) {
            self.write_extents(block, extents)?;
        }
        if !control.queue.is_empty() {
            control.include(&mut txn, tx_ids(blocks)?.into_iter());
        }
        self.sync_arena()?;
        if self.hashes.is_built() {
            // Before the commit, so that no reader meets a block whose ids are nowhere: an id
            // that points at a block which is not there yet is as good as unknown.
            let ids =
                blocks.iter().map(|(block, _)| ids_of(block)).collect::<Result<Vec<_>, _>>()?;
            self.hashes.insert_blocks(ids.into_iter());
        }
        self.commit(control, txn)?;
        control.quarantined.drain(..freed);
        Ok(())
    }

    /// Refuses before anything is written when the medium could not take it.
    fn check_headroom(&self, fresh_bytes: u64) -> Result<(), StoreError> {
        let full = |needed, available| StoreError::DiskFull { what: "append", needed, available };
        let needed = fresh_bytes + INDEX_HEADROOM;
        let available = self.arena.space()?.available;
        if let Some(available) = available.filter(|available| *available < needed) {
            return Err(full(needed, available));
        }
        if !self.index.ensure_reserve()? {
            return Err(StoreError::DiskFull {
                what: "the space reserve",
                needed: 0,
                available: 0,
            });
        }
        Ok(())
    }

    fn write_extents(&self, block: &Block, extents: &[BlobPtr]) -> Result<(), StoreError> {
        let bundle: Vec<u8> = Segment::ALL.map(|segment| block.payloads.segment(segment)).concat();
        let mut rest = bundle.as_slice();
        for ptr in extents {
            let (part, tail) = rest
                .split_at_checked(ptr.len as usize)
                .ok_or_else(|| StoreError::corrupt("alloc", "regions exceed the payloads"))?;
            self.arena.write_at(ptr.offset, part)?;
            rest = tail;
        }
        Ok(())
    }
}

/// Allocates a block's regions and writes its record into the batch.
fn stage<S: Snapshot>(
    txn: &mut Txn<'_, S>,
    block: &Block,
    tx_count: u32,
    wall: u64,
) -> Result<Vec<BlobPtr>, StoreError> {
    let meta = &block.meta;
    check_link(txn.state.head, meta.height, meta.parent_hash)?;
    let max_timestamp = believe(&mut txn.state, meta.timestamp, wall);
    let extents = txn.allocate(block.payloads.total_len())?;
    let (lens, checksums) = BlockRecord::measure(&block.payloads);
    let record = BlockRecord {
        meta: meta.clone(),
        max_timestamp,
        tx_count,
        lens,
        checksums,
        extents: extents.clone(),
    };
    txn.put(Table::Blocks, &meta.height.to_be_bytes(), record.encode()?);
    txn.state.first.get_or_insert(meta.height);
    let (height, hash, timestamp) = (meta.height, meta.hash, meta.timestamp);
    txn.state.head = Some(Tip { height, hash, timestamp, max_timestamp });
    Ok(extents)
}

fn check_link(head: Option<Tip>, height: Height, parent: BlockHash) -> Result<(), StoreError> {
    if height == Height::MAX {
        return Err(StoreError::refused("append", "the last height has no successor"));
    }
    let Some(head) = head else { return Ok(()) };
    if height != head.height + 1 {
        return Err(StoreError::Gap { expected: head.height + 1, got: height });
    }
    if parent != head.hash {
        return Err(StoreError::WrongParent { height, expected: head.hash, got: parent });
    }
    Ok(())
}

/// The running maximum of timestamps after a block. One that is too far ahead of the wall clock
/// does not count, or one bogus block would stop retention for years; but a wall clock that is
/// behind the chain itself is the one not to be believed.
fn believe(state: &mut State, timestamp: u64, wall: u64) -> u64 {
    let horizon = wall.saturating_add(MAX_AHEAD_SECONDS);
    let Some(head) = state.head else {
        // There is nothing to compare the first block with, so it is counted and believed.
        state.counters.implausible_timestamps += u64::from(timestamp > horizon);
        return timestamp;
    };
    if timestamp < head.timestamp {
        state.counters.decreasing_timestamps += 1;
    }
    if timestamp > horizon && head.max_timestamp <= horizon {
        state.counters.implausible_timestamps += 1;
        return head.max_timestamp;
    }
    head.max_timestamp.max(timestamp)
}

fn tx_ids(blocks: &[(&Block, u32)]) -> Result<Vec<(secateur_core::TxId, Height)>, StoreError> {
    let mut ids = Vec::new();
    for (block, _) in blocks {
        for entry in tx_index(&block.payloads.tx_index) {
            ids.push((entry?.tx_id, block.meta.height));
        }
    }
    Ok(ids)
}

/// The ids of a block whose payloads were checked.
pub(crate) fn ids_of(block: &Block) -> Result<BlockIds, StoreError> {
    let mut transactions = Vec::new();
    for entry in tx_index(&block.payloads.tx_index) {
        let entry = entry?;
        transactions.push((entry.tx_id, entry.index));
    }
    Ok(BlockIds { height: block.meta.height, hash: block.meta.hash, transactions })
}
