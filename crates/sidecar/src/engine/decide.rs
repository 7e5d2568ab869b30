//! Decisions: an undecided round becomes a height's metadata, which is written once and never
//! again (I16), its other rounds go, and the proposer's jobs are queued, all in one batch.

use secateur_core::Height;
use secateur_store::{Arena, Index, ShelfBatch, Snapshot, Table};

use super::SidecarStore;
use super::archive::keep_apart;
use super::facts::{Decided, HeightRecord, Job, Role};
use super::ingest::{Checked, drop_round, forget_round, round_of, rounds_of};
use super::jobs::put_job;
use super::marks::Marks;
use super::read::height_of;
use super::rows::{
    RoundRow, blob_key, hash_key, height_body, height_key, put_blob, slot_body, waiting_body,
};
use crate::error::SidecarError;
use crate::types::{Proposal, Round};

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Records what a height was decided to be, and drops its other rounds. Insert-if-absent: a
    /// replay changes nothing of what is recorded.
    pub fn mark_decided(
        &self,
        height: Height,
        round: Round,
        role: Role,
    ) -> Result<Decided, SidecarError> {
        self.write(|batch| {
            if let Some(record) = height_of(batch, height)? {
                if record.round != round {
                    let decided = record.round;
                    return Err(SidecarError::DecidedOtherwise { height, decided, round });
                }
                drop_rounds(batch, height)?;
                return Ok(Decided::Known);
            }
            let row = round_of(batch, height, round)?
                .ok_or(SidecarError::UnknownRound { height, round })?;
            forget_round(batch, &row)?;
            self.decide(batch, &row, role)?;
            Ok(Decided::New)
        })
    }

    /// Verifies, stores and decides in one batch: for blobs that come with their decision, from a
    /// peer or a beacon node. An undecided proposal of the round that is another one goes.
    pub fn store_decided(&self, proposal: &Proposal, role: Role) -> Result<Decided, SidecarError> {
        let checked = self.check_all(proposal)?;
        self.write(|batch| self.decide_checked(batch, &checked, role))
    }

    /// The same for many, in one commit. Each has an answer of its own, in their order.
    pub fn store_decided_all(
        &self,
        proposals: &[Proposal],
        role: impl Fn(&Proposal) -> Role,
    ) -> Result<Vec<Result<Decided, SidecarError>>, SidecarError> {
        let checked: Vec<_> = proposals.iter().map(|one| self.check_all(one)).collect();
        self.write(|batch| {
            let mut answers = Vec::with_capacity(checked.len());
            for one in checked {
                // Whatever refuses one does so before it has changed anything.
                let done = one.and_then(|one| self.decide_checked(batch, &one, role(one.proposal)));
                answers.push(keep_apart(done)?);
            }
            Ok(answers)
        })
    }

    fn decide_checked<'p, S: Snapshot>(
        &self,
        batch: &mut ShelfBatch<'_, 'p, S>,
        checked: &Checked<'p>,
        role: Role,
    ) -> Result<Decided, SidecarError> {
        if checked.is_decided(batch)? {
            drop_rounds(batch, checked.proposal.height)?;
            return Ok(Decided::Known);
        }
        let row = match Self::same_round(batch, checked)? {
            Some(row) => {
                forget_round(batch, &row)?;
                row
            }
            None => checked.place(batch, self.clock.now_seconds())?,
        };
        self.decide(batch, &row, role)?;
        Ok(Decided::New)
    }

    /// Writes a height's rows from a round whose own row is gone, and drops all other rounds.
    fn decide<S: Snapshot>(
        &self,
        batch: &mut ShelfBatch<'_, '_, S>,
        row: &RoundRow,
        role: Role,
    ) -> Result<(), SidecarError> {
        let blob_count = u32::try_from(row.blobs.len()).unwrap_or(u32::MAX);
        let record = HeightRecord {
            height: row.height,
            round: row.round,
            proposer: row.proposer.clone(),
            blob_count,
            payload_header: row.payload_header.clone(),
            signed_header: row.signed_header.clone(),
            stored_at: row.stored_at,
            decided_at: self.clock.now_seconds(),
        };
        batch.put(Table::Heights, &height_key(row.height), height_body(&record))?;
        for (meta, slot) in &row.blobs {
            let key = meta.key();
            let mut body = secateur_core::Writer::new();
            put_blob(&mut body, meta);
            batch.put(Table::Blobs, &blob_key(key), body.finish())?;
            batch.put(Table::Bytes, &blob_key(key), slot_body(slot))?;
            batch.put(Table::Hashes, &hash_key(&meta.versioned_hash, key), Vec::new())?;
            if role == Role::Proposer {
                put_job(batch, Job { key, attempts: 0, due: 0, held: None })?;
            }
        }
        if blob_count > 0 {
            let body = waiting_body(blob_count, blob_count);
            batch.put(Table::Waiting, &height_key(row.height), body)?;
        }
        Marks::change(batch, |marks| {
            marks.heights += 1;
            marks.blobs += u64::from(blob_count);
            marks.latest_decided = marks.latest_decided.max(Some(row.height));
        })?;
        drop_rounds(batch, row.height)
    }

    /// Says that everything up to a height is final. It never moves back; what holds now is the
    /// answer.
    pub fn set_finalized(&self, height: Height) -> Result<Option<Height>, SidecarError> {
        self.write(|batch| {
            Marks::change(batch, |marks| marks.finalized = marks.finalized.max(Some(height)))?;
            Ok(Marks::load(batch)?.finalized)
        })
    }
}

/// Drops every undecided round of a height.
fn drop_rounds<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    height: Height,
) -> Result<(), SidecarError> {
    for round in rounds_of(batch, height, usize::MAX)? {
        drop_round(batch, height, round)?;
    }
    Ok(())
}
