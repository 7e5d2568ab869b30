//! Cut and free, as rows: the two steps by which regions become reusable.
//!
//! *Cut* (step A): references removed, regions quarantined, a journal entry, one batch. *Free*
//! (step B), in a later batch: quarantined regions go to the free list. Only A must be durable
//! before a region is overwritten, so whoever writes may free and reuse in one batch.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use secateur_core::{ClassBytes, Height};

use super::alloc::Allocate;
use super::pins::Pins;
use super::region::{BlobPtr, JournalEntry};
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Snapshot, Table};
use crate::rows::{u64_key, unseal};

/// Journal entries that one batch frees at most.
const MAX_FREES: usize = 4096;

/// What a batch has quarantined so far.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub regions: Vec<BlobPtr>,
}

impl Cut {
    pub(crate) fn add(&mut self, region: BlobPtr) {
        self.regions.push(region);
    }

    /// The regions by class, for reports and plans.
    pub(crate) fn by_class(&self) -> Vec<ClassBytes> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for region in &self.regions {
            *counts.entry(region.class).or_insert(0) += 1;
        }
        let line = |(class, regions)| {
            let bytes = u64::from(class) * regions;
            ClassBytes { class, regions, bytes }
        };
        counts.into_iter().map(line).collect()
    }
}

/// The two steps in an open batch.
pub(crate) trait CutAndFree: Allocate {
    /// Quarantines the regions of a thing that had its own.
    fn give_back(&mut self, ptrs: &[BlobPtr], cut: &mut Cut) -> Result<(), StoreError> {
        for ptr in ptrs {
            if self.quarantine(ptr)? {
                cut.add(*ptr);
            }
        }
        Ok(())
    }

    /// Writes what was quarantined into the journal, where step B finds it. Returns the entries'
    /// numbers.
    fn journal(&mut self, height: Height, cut: &Cut) -> Result<Vec<u64>, StoreError> {
        let mut numbers = Vec::new();
        for regions in cut.regions.chunks(usize::from(u16::MAX)) {
            let next = self.books().journal_next;
            let seq = *next;
            *next += 1;
            let entry = JournalEntry { height, regions: regions.to_vec() };
            self.set(Table::Journal, &seq.to_be_bytes(), entry.encode()?);
            numbers.push(seq);
        }
        Ok(numbers)
    }

    /// Step B for one journal entry. An entry that cannot be read stays where it is with its
    /// regions in quarantine: the store still opens, and `verify` reports it.
    fn free_entry(&mut self, seq: u64) -> Result<(), StoreError> {
        let key = seq.to_be_bytes();
        let Some(value) = self.get(Table::Journal, &key)? else {
            return Ok(());
        };
        let read = unseal(Table::Journal, &key, &value)
            .and_then(|body| JournalEntry::decode(body).map_err(row_error("journal")));
        let Ok(entry) = read else { return Ok(()) };
        for ptr in &entry.regions {
            self.free(ptr)?;
        }
        self.unset(Table::Journal, &key);
        Ok(())
    }

    /// Step B for the cuts that are durable and seen by no reader; each is a journal entry and the
    /// epoch of its cut. Returns how many, from the front, that were.
    fn free_durable(
        &mut self,
        cuts: &VecDeque<(u64, u64)>,
        pins: &Pins,
    ) -> Result<usize, StoreError> {
        let mut freed = 0;
        for (seq, epoch) in cuts.iter().take(MAX_FREES) {
            if !pins.clear_of(*epoch) {
                break;
            }
            self.free_entry(*seq)?;
            freed += 1;
        }
        Ok(freed)
    }
}

impl<B: Allocate> CutAndFree for B {}

/// The journal as it is found; epoch 0 waits for no reader, because no reader survived.
pub(crate) fn journal_entries(rows: &impl Snapshot) -> Result<VecDeque<(u64, u64)>, StoreError> {
    let mut entries = VecDeque::new();
    rows.scan(Table::Journal, &[], &mut |key, _| {
        entries.push_back((u64_key(Table::Journal, key)?, 0));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(entries)
}
