//! The archiver's durable queue, ordered by due time, and the announcements of own notices.

use std::ops::ControlFlow;

use secateur_core::{CoreError, Height, Reader, Writer};
use secateur_store::{Arena, Index, Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::SidecarStore;
use super::facts::{Announcement, BlobKey, Job, RecordForm};
use super::marks::{Marks, less};
use super::read::{archive_of, height_of, slot_of};
use super::rows::{
    blob_key, corrupt, due_key, job_body, load, read, take_blob_key, take_due_key, take_job,
};
use crate::error::SidecarError;

/// The job of a blob.
pub(super) fn job_of(rows: &impl Rows, key: BlobKey) -> Result<Option<Job>, StoreError> {
    load(rows, Table::Jobs, &blob_key(key), |from| take_job(key, from))
}

/// Adds a job, or changes the one that is there.
pub(super) fn put_job<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    job: Job,
) -> Result<(), StoreError> {
    match job_of(batch, job.key)? {
        Some(old) => batch.delete(Table::Due, &due_key(old.due, job.key))?,
        None => Marks::change(batch, |marks| marks.jobs += 1)?,
    }
    batch.put(Table::Jobs, &blob_key(job.key), job_body(&job))?;
    batch.put(Table::Due, &due_key(job.due, job.key), Vec::new())
}

/// Takes a job out of the queue, if there is one.
pub(super) fn remove_job<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
) -> Result<bool, StoreError> {
    let Some(job) = job_of(batch, key)? else { return Ok(false) };
    batch.delete(Table::Jobs, &blob_key(key))?;
    batch.delete(Table::Due, &due_key(job.due, key))?;
    Marks::change(batch, |marks| less(&mut marks.jobs, 1))?;
    Ok(true)
}

/// Notes that a blob's own notice is to be broadcast.
pub(super) fn begin_announcement<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
) -> Result<(), StoreError> {
    batch.put(Table::Announcements, &blob_key(key), announcement_body(None))?;
    Marks::change(batch, |marks| marks.announcements += 1)
}

fn take_broadcast_at(from: &mut Reader<'_>) -> Result<Option<Height>, CoreError> {
    from.optional_u64()
}

fn announcement_body(broadcast_at: Option<Height>) -> Vec<u8> {
    let mut out = Writer::new();
    out.optional_u64(broadcast_at);
    out.finish()
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Puts the blobs of a height that are here and not archived by this node into the queue, due
    /// at `due` with no attempts counted, whatever their jobs waited for. Returns how many.
    pub fn enqueue(&self, height: Height, due: u64) -> Result<usize, SidecarError> {
        self.queue_up(height, due, true)
    }

    /// The same, without those that are in the queue already.
    pub fn enqueue_absent(&self, height: Height, due: u64) -> Result<usize, SidecarError> {
        self.queue_up(height, due, false)
    }

    fn queue_up(&self, height: Height, due: u64, again: bool) -> Result<usize, SidecarError> {
        self.write(|batch| {
            let record = height_of(batch, height)?.ok_or(SidecarError::Unknown(height))?;
            let mut queued = 0;
            for index in 0..record.blob_count {
                let key = BlobKey { height, index };
                let own = |row: super::rows::ArchiveRow| {
                    row.records.iter().any(|kept| kept.record.form == RecordForm::Own)
                };
                let done = archive_of(batch, key)?.is_some_and(own);
                let queued_up = !again && job_of(batch, key)?.is_some();
                if !done && !queued_up && slot_of(batch, key)?.is_some() {
                    put_job(batch, Job { key, attempts: 0, due })?;
                    queued += 1;
                }
            }
            Ok(queued)
        })
    }

    /// Jobs that are due, the longest first, at most `max`, without those that `skip` names: a job
    /// stays due while it is being worked on.
    pub fn jobs_due(
        &self,
        now: u64,
        max: usize,
        skip: impl Fn(&BlobKey) -> bool,
    ) -> Result<Vec<Job>, SidecarError> {
        let view = self.shelf.view()?;
        let mut found = Vec::new();
        view.rows(Table::Due, &[], |key, _| {
            let (due, key) = read(Table::Due, key, take_due_key)?;
            if due > now || found.len() >= max {
                return Ok(ControlFlow::Break(()));
            }
            if !skip(&key) {
                // That it is due is enough to work on it, whatever became of its own row.
                let job = match job_of(&view, key) {
                    Err(error) if !error.is_corruption() => return Err(error),
                    job => job.unwrap_or_default(),
                };
                found.push(job.unwrap_or(Job { key, attempts: 0, due }));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// When the next job is due, in milliseconds since 1970.
    pub fn next_due(&self) -> Result<Option<u64>, SidecarError> {
        let mut next = None;
        self.shelf.view()?.rows(Table::Due, &[], |key, _| {
            next = Some(read(Table::Due, key, take_due_key)?.0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(next)
    }

    /// Puts a job off. One that is not in the queue any more stays out of it.
    pub fn job_failed(
        &self,
        key: BlobKey,
        next_due: u64,
        attempts: u32,
    ) -> Result<(), SidecarError> {
        self.write(|batch| {
            if job_of(batch, key)?.is_some() {
                put_job(batch, Job { key, attempts, due: next_due })?;
            }
            Ok(())
        })
    }

    /// Takes a job out of the queue without a record; false if it is not there.
    pub fn job_done(&self, key: BlobKey) -> Result<bool, SidecarError> {
        self.write(|batch| Ok(remove_job(batch, key)?))
    }

    /// Own notices that are not acknowledged, from `from` on, at most `max`. What to sign is in the
    /// record, which is durable.
    pub fn announcements(
        &self,
        from: BlobKey,
        max: usize,
    ) -> Result<Vec<Announcement>, SidecarError> {
        let view = self.shelf.view()?;
        let mut found = Vec::new();
        view.rows(Table::Announcements, &blob_key(from), |key, body| {
            if found.len() >= max {
                return Ok(ControlFlow::Break(()));
            }
            let key = read(Table::Announcements, key, take_blob_key)?;
            let broadcast_at = read(Table::Announcements, body, take_broadcast_at)?;
            let records = archive_of(&view, key)?.unwrap_or_default().records;
            let own = records.into_iter().find(|kept| kept.record.form == RecordForm::Own);
            let lost = || corrupt(Table::Announcements, format!("{key:?} has no own record"));
            let record = own.ok_or_else(lost)?.record;
            found.push(Announcement { key, record, broadcast_at });
            Ok(ControlFlow::Continue(()))
        })?;
        #[cfg(feature = "sim")]
        self.announce_early(from, &mut found);
        Ok(found)
    }

    /// Notes at which height own notices were broadcast.
    pub fn announced(&self, keys: &[BlobKey], at: Height) -> Result<(), SidecarError> {
        #[cfg(feature = "sim")]
        self.make_up()?;
        self.write(|batch| {
            for key in keys {
                let key = blob_key(*key);
                if batch.row(Table::Announcements, &key)?.is_some() {
                    batch.put(Table::Announcements, &key, announcement_body(Some(at)))?;
                }
            }
            Ok(())
        })
    }

    /// Notes that own notices are acknowledged: they are announced no more.
    pub fn acknowledged(&self, keys: &[BlobKey]) -> Result<(), SidecarError> {
        self.write(|batch| {
            for key in keys {
                let key = blob_key(*key);
                if batch.row(Table::Announcements, &key)?.is_some() {
                    batch.delete(Table::Announcements, &key)?;
                    Marks::change(batch, |marks| less(&mut marks.announcements, 1))?;
                }
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
                if records.iter().all(|kept| kept.record.form != RecordForm::Own) {
                    continue;
                }
                count += 1;
                if batch.row(Table::Announcements, &blob_key(key))?.is_some() {
                    batch.put(Table::Announcements, &blob_key(key), announcement_body(None))?;
                } else {
                    begin_announcement(batch, key)?;
                }
            }
            Ok(count)
        })
    }
}
