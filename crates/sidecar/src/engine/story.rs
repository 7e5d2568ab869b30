//! What an operator asks: the status of a height, the whole story of a blob, the figures of all.

use secateur_core::Height;
use secateur_store::{Arena, Index, Rows, StoreError, Table};

use super::SidecarStore;
use super::facts::{BlobKey, BlobMeta, BlobStatus, ExplainBlob, HeightStatus, Hold, Summary};
use super::ingest::rounds_of;
use super::jobs::job_of;
use super::lists::{ready, waiting};
use super::marks::Marks;
use super::prune::{Rule, hold_of, limit_of};
use super::read::{archive_of, height_of, known_blob, metas_of, pruned_of, slot_of};
use super::rows::{each_row, read, take_blob_key};
use crate::error::SidecarError;
use crate::types::BlobState;

fn status_of(rows: &impl Rows, meta: &BlobMeta, gone: bool) -> Result<BlobStatus, StoreError> {
    let key = meta.key();
    let row = archive_of(rows, key)?.unwrap_or_default();
    let state = match (gone, row.records.is_empty()) {
        (true, _) => BlobState::Pruned,
        (false, true) => BlobState::Pending,
        (false, false) => BlobState::Archived,
    };
    Ok(BlobStatus {
        index: meta.index,
        state,
        commitment: meta.commitment,
        versioned_hash: meta.versioned_hash,
        keccak: meta.keccak,
        records: row.records,
        fetched_at: row.fetched_at,
        job: job_of(rows, key)?,
    })
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// A height: what was decided, and where each of its blobs is in its life.
    pub fn status(&self, height: Height) -> Result<HeightStatus, SidecarError> {
        let view = self.shelf.view()?;
        let undecided = rounds_of(&view, height, self.config.max_rounds as usize)?;
        let Some(record) = height_of(&view, height)? else {
            if undecided.is_empty() {
                return Err(SidecarError::Unknown(height));
            }
            let (round, proposer, hold, pruned) = (None, None, None, None);
            let blobs = Vec::new();
            return Ok(HeightStatus { height, round, proposer, undecided, blobs, hold, pruned });
        };
        let pruned = pruned_of(&view, height)?;
        let blobs = metas_of(&view, &record)?
            .iter()
            .map(|meta| status_of(&view, meta, pruned.is_some()))
            .collect::<Result<_, _>>()?;
        let hold = self.hold(&view, height, record.blob_count, pruned.is_some())?;
        let (round, proposer) = (Some(record.round), Some(record.proposer));
        Ok(HeightStatus { height, round, proposer, undecided, blobs, hold, pruned })
    }

    fn hold(
        &self,
        rows: &impl Rows,
        height: Height,
        blob_count: u32,
        gone: bool,
    ) -> Result<Option<Hold>, StoreError> {
        if gone || blob_count == 0 {
            return Ok(None);
        }
        hold_of(&Rule::load(&self.config, rows)?, rows, height, blob_count)
    }

    /// The whole story of a blob: stored, decided, archived by whom and where, fetched, pruned.
    pub fn explain(&self, height: Height, index: u32) -> Result<ExplainBlob, SidecarError> {
        let (view, key) = (self.shelf.view()?, BlobKey { height, index });
        let meta = known_blob(&view, key)?;
        let record = height_of(&view, height)?.ok_or(SidecarError::Unknown(height))?;
        let pruned = pruned_of(&view, height)?;
        Ok(ExplainBlob {
            height,
            round: record.round,
            proposer: record.proposer,
            blob_count: record.blob_count,
            stored_at: record.stored_at,
            decided_at: record.decided_at,
            blob: status_of(&view, &meta, pruned.is_some())?,
            here: slot_of(&view, key)?.is_some(),
            hold: self.hold(&view, height, record.blob_count, pruned.is_some())?,
            pruned,
        })
    }

    /// The figures of the whole store.
    pub fn summary(&self) -> Result<Summary, SidecarError> {
        let view = self.shelf.view()?;
        let marks = Marks::load(&view)?;
        let mut oldest_job = None;
        each_row(&view, Table::Jobs, &[], |key, _| {
            oldest_job = Some(read(Table::Jobs, key, take_blob_key)?.height);
            Ok(std::ops::ControlFlow::Break(()))
        })?;
        let lacking = waiting(&view, 0, 1)?.into_iter().map(|at| at.height);
        let oldest_unarchived = lacking.chain(self.unbound_heights(&view, 0, 1)?).min();
        let usage = self.shelf.usage()?;
        let limit = limit_of(&Rule::load(&self.config, &view)?);
        Ok(Summary {
            heights: marks.heights,
            pending: marks.blobs.saturating_sub(marks.archived),
            archived: marks.archived.saturating_sub(marks.pruned),
            pruned: marks.pruned,
            prune_failures: marks.failures,
            rounds: marks.rounds,
            undecided: marks.undecided,
            latest_decided: marks.latest_decided,
            latest_archived: marks.latest_archived,
            finalized: marks.finalized,
            oldest_unarchived,
            jobs: marks.jobs,
            oldest_job,
            announcements: marks.announcements,
            pruner_backlog: ready(&view, 0, 1)?
                .first()
                .map(|at| at.height)
                .filter(|height| limit.is_some_and(|limit| *height <= limit)),
            used_bytes: usage.kept_bytes(),
            budget_bytes: self.config.budget_bytes,
            disk_bytes: usage.arena_bytes.saturating_add(usage.index_bytes),
        })
    }
}
