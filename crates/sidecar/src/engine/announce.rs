//! Announcements: own notices that not every peer has answered, in the order in which they are to be
//! told next. So a turn of the announcer looks at what is due and at nothing else, however many wait.

use std::ops::ControlFlow;

use secateur_core::{CoreError, Height, Reader, Writer};
use secateur_store::{Arena, Index, Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::SidecarStore;
use super::facts::{Announcement, BlobKey, RecordForm};
use super::marks::{Marks, less};
use super::read::{archive_of, height_of};
use super::rows::{blob_key, corrupt, due_key, each_row, load, read, take_blob_key, take_due_key};
use crate::error::SidecarError;

/// What is kept of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Telling {
    broadcast_at: Option<Height>,
    /// The height at which it is told again; 0: at once.
    pub next: Height,
    told: u32,
}

impl Telling {
    fn body(self) -> Vec<u8> {
        let mut out = Writer::new();
        out.optional_u64(self.broadcast_at).u64(self.next).u32(self.told);
        out.finish()
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let (broadcast_at, next, told) = (from.optional_u64()?, from.u64()?, from.u32()?);
        Ok(Self { broadcast_at, next, told })
    }
}

pub(super) fn telling_of(rows: &impl Rows, key: BlobKey) -> Result<Option<Telling>, StoreError> {
    load(rows, Table::Announcements, &blob_key(key), Telling::take)
}

/// The same where one that cannot be read is none.
fn readable(rows: &impl Rows, key: BlobKey) -> Result<Option<Telling>, StoreError> {
    match telling_of(rows, key) {
        Err(error) if error.is_corruption() => {
            tracing::warn!(%error, %key, "an announcement cannot be read");
            Ok(None)
        }
        telling => telling,
    }
}

fn put<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
    telling: Telling,
) -> Result<(), StoreError> {
    match telling_of(batch, key)? {
        Some(old) => batch.delete(Table::Telling, &due_key(old.next, key))?,
        None => Marks::change(batch, |marks| marks.announcements += 1)?,
    }
    batch.put(Table::Announcements, &blob_key(key), telling.body())?;
    batch.put(Table::Telling, &due_key(telling.next, key), Vec::new())
}

/// Notes that a blob's own notice is to be broadcast at once.
pub(super) fn begin_announcement<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
) -> Result<(), StoreError> {
    put(batch, key, Telling::default())
}

/// What to tell. Its record is durable, and the signature with it.
fn announcement(
    rows: &impl Rows,
    key: BlobKey,
    telling: Telling,
) -> Result<Announcement, StoreError> {
    let records = archive_of(rows, key)?.unwrap_or_default().records;
    let own = records.into_iter().find(|kept| kept.record.form == RecordForm::Own);
    let lost = || corrupt(Table::Announcements, format!("{key} has no own record"));
    let record = own.ok_or_else(lost)?.record;
    let Telling { broadcast_at, told, .. } = telling;
    Ok(Announcement { key, record, broadcast_at, told })
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Own notices that are not acknowledged, from `from` on, at most `max`.
    pub fn announcements(
        &self,
        from: BlobKey,
        max: usize,
    ) -> Result<Vec<Announcement>, SidecarError> {
        let view = self.shelf.view()?;
        let mut found = Vec::new();
        each_row(&view, Table::Announcements, &blob_key(from), |key, body| {
            if found.len() >= max {
                return Ok(ControlFlow::Break(()));
            }
            let key = read(Table::Announcements, key, take_blob_key)?;
            let telling = read(Table::Announcements, body, Telling::take)?;
            found.push(announcement(&view, key, telling)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Own notices that are to be told now that the chain is so high, those that were never told
    /// first, at most `max`. Nothing else is looked at.
    pub fn announcements_due(
        &self,
        head: Height,
        max: usize,
    ) -> Result<Vec<Announcement>, SidecarError> {
        let view = self.shelf.view()?;
        let mut found = Vec::new();
        each_row(&view, Table::Telling, &[], |key, _| {
            let (next, key) = read(Table::Telling, key, take_due_key)?;
            if next > head || found.len() >= max {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(telling) = telling_of(&view, key)? {
                found.push(announcement(&view, key, telling)?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        #[cfg(feature = "sim")]
        self.announce_early(&mut found);
        Ok(found)
    }

    /// Notes at which height own notices were broadcast, and that they are due again so many blocks
    /// later.
    pub fn announced(&self, keys: &[BlobKey], at: Height, every: u64) -> Result<(), SidecarError> {
        #[cfg(feature = "sim")]
        self.make_up()?;
        self.write(|batch| {
            for key in keys {
                let Some(old) = readable(batch, *key)? else { continue };
                let (next, told) = (at.saturating_add(every.max(1)), old.told.saturating_add(1));
                put(batch, *key, Telling { broadcast_at: Some(at), next, told })?;
            }
            Ok(())
        })
    }

    /// Notes that own notices are acknowledged: they are announced no more.
    pub fn acknowledged(&self, keys: &[BlobKey]) -> Result<(), SidecarError> {
        self.write(|batch| {
            for key in keys {
                let Some(old) = readable(batch, *key)? else { continue };
                batch.delete(Table::Announcements, &blob_key(*key))?;
                batch.delete(Table::Telling, &due_key(old.next, *key))?;
                Marks::change(batch, |marks| less(&mut marks.announcements, 1))?;
            }
            Ok(())
        })
    }

    /// Announces own notices of a height again, acknowledged or not. Returns how many.
    pub fn reannounce(&self, height: Height) -> Result<usize, SidecarError> {
        self.write(|batch| {
            let record = height_of(batch, height)?.ok_or(SidecarError::Unknown(height))?;
            let mut count = 0;
            for index in 0..record.blob_count {
                let key = BlobKey { height, index };
                let records = archive_of(batch, key)?.unwrap_or_default().records;
                if records.iter().any(|kept| kept.record.form == RecordForm::Own) {
                    begin_announcement(batch, key)?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }
}
