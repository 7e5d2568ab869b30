//! The saboteur that signs too early: own records wait in memory until they were told to peers. Only
//! compiled for the simulation.

use parking_lot::Mutex;
use secateur_store::{Arena, Index};

use super::SidecarStore;
use super::facts::{Announcement, ArchiveRecord, BlobKey, Marked};
use crate::error::SidecarError;
use crate::sabotage::Sabotage;

/// Records that are not durable.
#[derive(Debug, Default)]
pub(super) struct Early(Mutex<Vec<(BlobKey, ArchiveRecord)>>);

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Keeps records in memory, if that bug is planted.
    pub(super) fn put_off(&self, records: &[(BlobKey, ArchiveRecord)]) -> bool {
        if !self.config.sabotage.is(Sabotage::SignBeforeDurable) {
            return false;
        }
        let mut early = self.early.0.lock();
        for (key, record) in records {
            if early.iter().all(|(there, _)| there != key) {
                early.push((*key, record.clone()));
            }
        }
        true
    }

    /// What is announced though it is not durable.
    pub(super) fn announce_early(&self, found: &mut Vec<Announcement>) {
        let early = self.early.0.lock();
        found.extend(early.iter().map(|(key, record)| Announcement {
            key: *key,
            record: record.clone(),
            broadcast_at: None,
            told: 0,
        }));
    }

    /// Writes down what was put off.
    pub(super) fn make_up(&self) -> Result<(), SidecarError> {
        let records = std::mem::take(&mut *self.early.0.lock());
        if records.is_empty() {
            return Ok(());
        }
        let marked: Vec<Result<Marked, SidecarError>> = self.record_durably(&records)?;
        drop(marked);
        Ok(())
    }
}
