//! What a reader holds: a pin, a snapshot, and the reading of at most one block at a time.

use secateur_core::{Block, Height, LookupError, Payloads, Segment};

use super::pins::Pin;
use super::record::{AllocEntry, BlockRecord, RegionState};
use super::state::State;
use super::store::Store;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::{Sabotage, StoreError};

/// A consistent look at the store. The pin comes before the snapshot, so whatever the snapshot
/// shows cannot be overwritten while the view lives.
pub(crate) struct View<'a, A, S> {
    _pin: Pin<'a>,
    arena: &'a A,
    pub snapshot: S,
    pub state: State,
    sabotage: Sabotage,
}

impl<A: Arena, I: Index> Store<A, I> {
    pub(crate) fn view(&self) -> Result<View<'_, A, I::Snapshot>, StoreError> {
        let pin = self.pins.pin();
        let snapshot = self.index.snapshot()?;
        let state = State::load(&snapshot)?;
        Ok(View { _pin: pin, arena: &self.arena, snapshot, state, sabotage: self.sabotage })
    }
}

impl<A: Arena, S: Snapshot> View<'_, A, S> {
    /// The record of a height, or the honest answer why there is none.
    pub(crate) fn record(&self, height: Height) -> Result<BlockRecord, StoreError> {
        if let Some(pruned_before_block) = self.state.boundary.filter(|b| height <= *b) {
            return Err(LookupError::Pruned { pruned_before_block }.into());
        }
        let (head, oldest) = (self.state.head.map(|tip| tip.height), self.state.oldest_kept());
        if head.is_none_or(|head| height > head) || oldest.is_none_or(|oldest| height < oldest) {
            return Err(LookupError::NotFound { searched_from: oldest }.into());
        }
        BlockRecord::load(&self.snapshot, height)
    }

    /// One payload, checked.
    pub(crate) fn payload(
        &self,
        record: &BlockRecord,
        segment: Segment,
    ) -> Result<Vec<u8>, StoreError> {
        let (start, len, checksum) = record.span(segment);
        let mut bytes = vec![0u8; len as usize];
        self.read_range(record, start, &mut bytes)?;
        if crc32c::crc32c(&bytes) != checksum && !self.sabotage.is(Sabotage::IgnoreChecksum) {
            return Err(StoreError::corrupt(
                "arena",
                format!(
                    "the {} of block {} does not match its checksum",
                    segment.name(),
                    record.meta.height
                ),
            ));
        }
        Ok(bytes)
    }

    /// The whole block, checked.
    pub(crate) fn block(&self, record: &BlockRecord) -> Result<Block, StoreError> {
        let payloads = Payloads {
            block: self.payload(record, Segment::Block)?,
            receipts: self.payload(record, Segment::Receipts)?,
            tx_index: self.payload(record, Segment::TxIndex)?,
        };
        Ok(Block { meta: record.meta.clone(), payloads })
    }

    /// Reads from a block's payloads laid end to end, across its regions.
    fn read_range(
        &self,
        record: &BlockRecord,
        start: u64,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let (mut skip, mut rest) = (start, out);
        for ptr in &record.extents {
            let held = u64::from(ptr.len);
            if skip >= held {
                skip -= held;
                continue;
            }
            if rest.is_empty() {
                break;
            }
            self.check_region(ptr.class, ptr.offset, ptr.generation)?;
            let take = usize::try_from(held - skip).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest
                .split_at_mut_checked(take)
                .ok_or_else(|| StoreError::corrupt("blocks", "a region's length is wrong"))?;
            self.arena.read_at(ptr.offset + skip, now)?;
            (skip, rest) = (0, later);
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(StoreError::corrupt("blocks", "the regions end before the payload does"))
        }
    }

    /// I7, as defence: the region is still the one that the record means.
    fn check_region(&self, class: u32, offset: u64, generation: u32) -> Result<(), StoreError> {
        let key = super::record::region_key(class, offset);
        let entry = self.snapshot.get(Table::Alloc, &key)?;
        let Some(value) = entry else {
            return Err(StoreError::corrupt("alloc", format!("region {offset} is missing")));
        };
        match AllocEntry::from_value(&key, &value) {
            // An unreadable row is the allocator's trouble; the payload's checksum still judges.
            (_, false) => Ok(()),
            (entry, _) if entry.generation != generation => Err(StoreError::StaleGeneration {
                offset,
                found: entry.generation,
                wanted: generation,
            }),
            (entry, _) if entry.state != RegionState::Used => {
                Err(StoreError::corrupt("alloc", format!("region {offset} is not in use")))
            }
            _ => Ok(()),
        }
    }
}
