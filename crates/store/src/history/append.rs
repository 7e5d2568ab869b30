//! Append: allocate → write → sync → one batch → acknowledged. It never prunes.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use secateur_core::{
    Block, BlockHash, Height, LookupError, MAX_AHEAD_SECONDS, Segment, TxId, tx_index,
};

use super::lane::{HashChange, Staging, Ticket, Write};
use super::place::{Place, Stream, pieces};
use super::record::{BlockRecord, Group, MAX_GROUP};
use super::runs::BlockIds;
use super::state::{Layout, State, Tip};
use super::store::{Control, Store};
use super::txn::Txn;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::regions::buffer::Buffer;
use crate::{Sabotage, StoreError};

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The newest block now.
    pub head: Height,
    /// How many of the blocks were new.
    pub written: u64,
}

/// A block with what can be said of it without the writer's lock.
struct Measured<'a> {
    block: &'a Block,
    tx_count: u32,
    lens: [u32; 3],
    checksums: [u32; 3],
    ids: BlockIds,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Appends one block; durable when it returns.
    pub fn append(&self, block: &Block) -> Result<Appended, StoreError> {
        self.append_group(std::slice::from_ref(block))
    }

    /// Appends consecutive blocks as one durable group: all of them or none. Blocks that are
    /// stored already are passed over.
    pub fn append_group(&self, blocks: &[Block]) -> Result<Appended, StoreError> {
        let ticket = self.submit(blocks)?;
        self.wait(ticket)
    }

    /// Hands a group in and returns while it is still on its way: the next group can be made
    /// ready meanwhile. It is durable once [`Store::wait`] has said so. A bounded number of
    /// groups is on its way at a time.
    pub fn submit(&self, blocks: &[Block]) -> Result<Ticket, StoreError> {
        self.build_hashes()?;
        self.wait_for_room()?;
        let (measured, buffer) = self.measure(blocks)?;
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        let known = known_prefix(&txn, &txn.state, &measured)?;
        let mut written = 0;
        // What is known may still be on its way.
        let mut number = self.lane.staged();
        if known < measured.len() {
            let (fresh, buffer) = match blocks.get(known..) {
                Some(rest) if known > 0 => self.measure(rest)?,
                _ => (measured, buffer),
            };
            written = fresh.len() as u64;
            if !self.index.ensure_reserve()? {
                drop(txn);
                self.settle_batch(&mut control)?;
                txn = self.begin(&mut control)?;
            }
            number = self.stage_group(&mut control, txn, fresh, buffer)?;
        }
        let head = control.state.head.map(|tip| tip.height).ok_or_else(|| {
            StoreError::refused("append", "no block was given and the store is empty")
        })?;
        let (trigger, draining) = (control.policy.trigger, control.state.pressure.draining);
        // A prune that waits for its turn gets it now, however fast blocks come.
        MutexGuard::unlock_fair(control);
        let since = self.blocks_since_tick.fetch_add(written, Ordering::AcqRel) + written;
        if draining || trigger.blocks().is_some_and(|n| since >= u64::from(n)) {
            self.ring();
        }
        Ok(Ticket { number, appended: Appended { head, written } })
    }

    /// Waits until a submitted group is durable.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is waited for once")]
    pub fn wait(&self, ticket: Ticket) -> Result<Appended, StoreError> {
        let Ticket { number, appended } = ticket;
        self.wait_for(number)?;
        if self.appends_seal() && self.seal_due() {
            // The group is durable whatever comes of this. Ids that find no room for their run
            // stay in memory, and the status tells.
            self.seal().unwrap_or_default();
        }
        Ok(appended)
    }

    /// Checks blocks, works out what needs no lock, and lays the payloads end to end: block by
    /// block, while its bytes are in the processor's cache.
    fn measure<'a>(&self, blocks: &'a [Block]) -> Result<(Vec<Measured<'a>>, Buffer), StoreError> {
        let seed = self.header.hash_seed();
        let len: u64 = blocks.iter().map(|block| block.payloads.total_len()).sum();
        let mut buffer = self.buffers.take(usize::try_from(len).unwrap_or(0));
        let mut measured = Vec::with_capacity(blocks.len());
        for block in blocks {
            for segment in Segment::ALL {
                buffer.extend(block.payloads.segment(segment));
            }
            let (lens, checksums) = BlockRecord::measure(&block.payloads);
            let (ids, tx_count) = BlockIds::of(seed, block)?;
            measured.push(Measured { block, tx_count, lens, checksums, ids });
        }
        if self.header.layout == Layout::Packed {
            buffer.pad();
        }
        Ok((measured, buffer))
    }

    fn stage_group(
        &self,
        control: &mut Control,
        mut txn: Txn<'_, I::Snapshot>,
        blocks: Vec<Measured<'_>>,
        buffer: Buffer,
    ) -> Result<u64, StoreError> {
        let freed = if self.sabotage.is(Sabotage::ReuseQuarantined) {
            0
        } else {
            self.settle_into(&mut txn)?
        };
        let records = self.stage_records(&mut txn, &blocks)?;
        self.punch_over_target(control, &mut txn)?;
        self.check_append_headroom(txn.fresh_bytes)?;
        self.arena.grow(txn.state.arena_end)?;
        let pieces = self.pieces_of(&txn, &records, buffer.len() as u64)?;
        if !control.queue.is_empty() {
            control.include(&mut txn, tx_ids(&blocks)?.into_iter());
        }
        let ids = blocks.into_iter().map(|measured| measured.ids).collect();
        let hashes = HashChange::Insert(ids, self.seal_limits(control));
        let writes = if pieces.is_empty() { vec![] } else { vec![Write { buffer, pieces }] };
        self.stage(control, txn, Staging { writes, freed, hashes, ..Staging::default() })
    }

    /// Places a group's blocks and writes their records into the batch.
    fn stage_records(
        &self,
        txn: &mut Txn<'_, I::Snapshot>,
        blocks: &[Measured<'_>],
    ) -> Result<Vec<BlockRecord>, StoreError> {
        let wall = self.clock.now_seconds();
        let total = blocks.iter().map(|m| m.block.payloads.total_len()).sum();
        let mut shared = match self.header.layout {
            Layout::Packed => Some(txn.reserve(Stream::History, total)?),
            Layout::PerBlock => None,
        };
        let mut records = Vec::with_capacity(blocks.len());
        for measured in blocks {
            let len = measured.block.payloads.total_len();
            let place = match &mut shared {
                Some(Place::Stream(position)) => {
                    *position += len;
                    Place::Stream(*position - len)
                }
                _ => txn.reserve(Stream::History, len)?,
            };
            records.push(record_of(&mut txn.state, measured, place, wall)?);
        }
        for group in records.chunks(MAX_GROUP) {
            let group = Group { records: group.to_vec() };
            let first = group.first().unwrap_or_default();
            txn.put(Table::Blocks, &first.to_be_bytes(), group.encode()?);
        }
        Ok(records)
    }

    /// Where the group's buffer goes: neighbours in the arena are written in one call.
    fn pieces_of(
        &self,
        txn: &Txn<'_, I::Snapshot>,
        records: &[BlockRecord],
        len: u64,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let history = Stream::History;
        let mut found = Vec::new();
        for record in records {
            if let Place::Stream(_) = record.place {
                // The blocks lie end to end, and the padding behind them.
                found = pieces(txn, &self.header, history, &record.place, 0, len)?;
                break;
            }
            let len = record.payload_bytes();
            found.extend(pieces(txn, &self.header, history, &record.place, 0, len)?);
        }
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(found.len());
        for piece in found {
            match joined.last_mut() {
                Some((offset, len)) if *offset + *len == piece.offset => *len += piece.len,
                _ => joined.push((piece.offset, piece.len)),
            }
        }
        Ok(joined)
    }
}

/// How many leading blocks are stored already; a different block in their place is a conflict.
fn known_prefix(
    rows: &impl Snapshot,
    state: &State,
    blocks: &[Measured<'_>],
) -> Result<usize, StoreError> {
    let (Some(head), Some(oldest)) = (state.head, state.oldest_kept()) else {
        return Ok(0);
    };
    let mut known = 0;
    for measured in blocks {
        let meta = &measured.block.meta;
        let height = meta.height;
        if height > head.height {
            break;
        }
        if let Some(pruned_before_block) = state.boundary.filter(|b| height <= *b) {
            return Err(LookupError::Pruned { pruned_before_block }.into());
        }
        if height < oldest {
            return Err(StoreError::Gap { expected: head.height + 1, got: height });
        }
        let record = BlockRecord::load(rows, height)?;
        let same = (&record.meta, record.lens, record.checksums);
        if same != (meta, measured.lens, measured.checksums) {
            return Err(StoreError::Conflict { height });
        }
        known += 1;
    }
    Ok(known)
}

/// A block's record, and the state with it as its head.
fn record_of(
    state: &mut State,
    measured: &Measured<'_>,
    place: Place,
    wall: u64,
) -> Result<BlockRecord, StoreError> {
    let meta = &measured.block.meta;
    check_link(state.head, meta.height, meta.parent_hash)?;
    let max_timestamp = believe(state, meta.timestamp, wall);
    let (height, hash, timestamp) = (meta.height, meta.hash, meta.timestamp);
    state.first.get_or_insert(height);
    state.head = Some(Tip { height, hash, timestamp, max_timestamp });
    Ok(BlockRecord {
        meta: meta.clone(),
        max_timestamp,
        tx_count: measured.tx_count,
        lens: measured.lens,
        checksums: measured.checksums,
        place,
    })
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

fn tx_ids(blocks: &[Measured<'_>]) -> Result<Vec<(TxId, Height)>, StoreError> {
    let mut ids = Vec::new();
    for measured in blocks {
        for entry in tx_index(&measured.block.payloads.tx_index) {
            ids.push((entry?.tx_id, measured.block.meta.height));
        }
    }
    Ok(ids)
}
