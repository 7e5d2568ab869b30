//! The archiver's durable queue, ordered by due time. Announcements are in `announce`.

use std::ops::ControlFlow;

use secateur_core::Height;
use secateur_store::{Arena, Index, Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::SidecarStore;
use super::facts::{BlobKey, Job, RecordForm, Unpermitted};
use super::marks::{Marks, less};
use super::read::{archive_of, height_of, slot_of};
use super::rows::{blob_key, due_key, each_row, job_body, load, read, take_due_key, take_job};
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

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Puts the blobs of a height that are here and not archived by this node into the queue, due
    /// at `due` as if no more than one attempt had failed, whatever their jobs waited for. Returns
    /// how many.
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
                    // That there were attempts is kept: what they put is to be looked for.
                    let attempts = job_of(batch, key)?.map_or(0, |job| job.attempts.min(1));
                    put_job(batch, Job { key, attempts, due, held: None })?;
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
        each_row(&view, Table::Due, &[], |key, _| {
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
                found.push(job.unwrap_or(Job { key, attempts: 0, due, held: None }));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// When the next job is due, in milliseconds since 1970.
    pub fn next_due(&self) -> Result<Option<u64>, SidecarError> {
        let mut next = None;
        each_row(&self.shelf.view()?, Table::Due, &[], |key, _| {
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
        self.defer(Job { key, attempts, due: next_due, held: None })
    }

    /// The same because this node may not sign for it, which `status` tells from then on.
    pub fn job_held(
        &self,
        key: BlobKey,
        next_due: u64,
        attempts: u32,
        why: Unpermitted,
    ) -> Result<(), SidecarError> {
        self.defer(Job { key, attempts, due: next_due, held: Some(why) })
    }

    fn defer(&self, job: Job) -> Result<(), SidecarError> {
        self.write(|batch| {
            if job_of(batch, job.key)?.is_some() {
                put_job(batch, job)?;
            }
            Ok(())
        })
    }

    /// Takes a job out of the queue without a record; false if it is not there.
    pub fn job_done(&self, key: BlobKey) -> Result<bool, SidecarError> {
        self.write(|batch| Ok(remove_job(batch, key)?))
    }
}
