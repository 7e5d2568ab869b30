//! Proposals come in: checked, verified, stored as undecided rounds. KZG is done before the
//! writer's turn is taken.

use std::ops::ControlFlow;

use alloy_primitives::keccak256;
use secateur_core::Height;
use secateur_store::{Arena, Index, Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::facts::{BlobMeta, HeightRecord, Stored};
use super::marks::{Marks, less};
use super::read::{height_of, metas_of};
use super::rows::{RoundRow, each_row, height_key, load, read, round_key, take_round_key};
use super::{EngineConfig, SidecarStore};
use crate::error::SidecarError;
use crate::kzg;
use crate::types::{
    BLOB_LEN, BlobKeccak, MAX_INCLUSION_LEN, MAX_ROUND_HEADER_LEN, Proposal, Round, ValidatorId,
};

/// Undecided rounds stay until so many heights above theirs are final: a decision may reach this
/// node after it was told what is final.
pub(super) const UNDECIDED_SLACK: Height = 32;
/// Rounds that are dropped in one batch.
const DROPS: usize = 64;

/// A proposal with what was computed from it.
pub(super) struct Checked<'p> {
    pub proposal: &'p Proposal,
    pub metas: Vec<BlobMeta>,
}

impl<'p> Checked<'p> {
    /// Checks everything but the KZG: counts, lengths, indexes. Computes the hashes.
    pub(super) fn new(config: &EngineConfig, proposal: &'p Proposal) -> Result<Self, SidecarError> {
        check_shape(config, proposal)?;
        let meta = |sidecar: &crate::types::Sidecar| BlobMeta {
            height: proposal.height,
            index: sidecar.index,
            commitment: sidecar.commitment,
            versioned_hash: kzg::versioned_hash(&sidecar.commitment),
            proof: sidecar.proof.filter(|proof| !kzg::is_absent(Some(proof))),
            keccak: BlobKeccak(keccak256(&sidecar.blob).0),
            inclusion: sidecar.inclusion.clone(),
        };
        Ok(Self { proposal, metas: proposal.sidecars.iter().map(meta).collect() })
    }

    fn verify_kzg(&self) -> Result<(), SidecarError> {
        let keccaks = self.metas.iter().map(|meta| meta.keccak);
        kzg::verify_unless_known(&self.proposal.sidecars, keccaks)
    }

    /// Whether what is stored is this proposal: who proposed what. A proof may be there or not.
    fn is(&self, proposer: &ValidatorId, header: &[u8], blobs: &[BlobMeta]) -> bool {
        let same =
            |(a, b): (&BlobMeta, &BlobMeta)| a.commitment == b.commitment && a.keccak == b.keccak;
        *proposer == self.proposal.proposer
            && *header == self.proposal.payload_header
            && blobs.len() == self.metas.len()
            && self.metas.iter().zip(blobs).all(same)
    }

    fn is_round(&self, row: &RoundRow) -> bool {
        let blobs: Vec<BlobMeta> = row.blobs.iter().map(|(meta, _)| meta.clone()).collect();
        self.is(&row.proposer, &row.payload_header, &blobs)
    }

    /// Whether the height is decided with this very proposal; an error if with another one.
    pub(super) fn is_decided(&self, rows: &impl Rows) -> Result<bool, SidecarError> {
        let (height, round) = (self.proposal.height, self.proposal.round);
        let Some(record) = height_of(rows, height)? else { return Ok(false) };
        let HeightRecord { round: decided, proposer, payload_header, .. } = &record;
        let same =
            *decided == round && self.is(proposer, payload_header, &metas_of(rows, &record)?);
        if same {
            return Ok(true);
        }
        Err(SidecarError::DecidedOtherwise { height, decided: *decided, round })
    }

    /// What is stored of it already.
    fn known(&self, rows: &impl Rows) -> Result<Option<Stored>, SidecarError> {
        if self.is_decided(rows)? {
            return Ok(Some(Stored::Decided));
        }
        let (height, round) = (self.proposal.height, self.proposal.round);
        match round_of(rows, height, round)? {
            Some(row) if self.is_round(&row) => Ok(Some(Stored::Known)),
            Some(_) => Err(SidecarError::RoundConflict { height, round }),
            None => Ok(None),
        }
    }

    /// Gives every blob a region.
    pub(super) fn place<S: Snapshot>(
        &self,
        batch: &mut ShelfBatch<'_, 'p, S>,
        stored_at: u64,
    ) -> Result<RoundRow, StoreError> {
        let mut blobs = Vec::with_capacity(self.metas.len());
        for (meta, sidecar) in self.metas.iter().zip(&self.proposal.sidecars) {
            blobs.push((meta.clone(), batch.place(&sidecar.blob)?));
        }
        Ok(RoundRow {
            height: self.proposal.height,
            round: self.proposal.round,
            stored_at,
            proposer: self.proposal.proposer.clone(),
            payload_header: self.proposal.payload_header.clone(),
            signed_header: self.proposal.signed_header.clone(),
            blobs,
        })
    }
}

fn check_shape(config: &EngineConfig, proposal: &Proposal) -> Result<(), SidecarError> {
    let count = proposal.sidecars.len() as u64;
    if count > u64::from(config.max_blobs) {
        return Err(SidecarError::TooManyBlobs { count, max: config.max_blobs });
    }
    // Every round that consensus has, and none at all.
    if proposal.round < -1 {
        return Err(SidecarError::BadRound { round: proposal.round });
    }
    let signed = proposal.signed_header.as_ref().map_or(0, bytes::Bytes::len);
    if proposal.payload_header.len() > MAX_ROUND_HEADER_LEN || signed > MAX_ROUND_HEADER_LEN {
        let reason = format!("a header has more than {MAX_ROUND_HEADER_LEN} bytes");
        return Err(SidecarError::refused("proposal", reason));
    }
    for (expected, sidecar) in (0u32..).zip(&proposal.sidecars) {
        if sidecar.index != expected {
            return Err(SidecarError::WrongIndex { expected, got: sidecar.index });
        }
        if sidecar.blob.len() != BLOB_LEN {
            let len = sidecar.blob.len() as u64;
            return Err(SidecarError::WrongLength { index: expected, len });
        }
        let branch = sidecar.inclusion.as_ref().map_or(0, |inclusion| inclusion.proof.len());
        if branch > MAX_INCLUSION_LEN {
            let reason = format!("an inclusion proof has more than {MAX_INCLUSION_LEN} hashes");
            return Err(SidecarError::refused("proposal", reason));
        }
    }
    Ok(())
}

/// A round that is stored and not decided.
pub(super) fn round_of(
    rows: &impl Rows,
    height: Height,
    round: Round,
) -> Result<Option<RoundRow>, StoreError> {
    let key = round_key(height, round);
    load(rows, Table::Rounds, &key, |from| RoundRow::take((height, round), from))
}

/// The undecided rounds of a height, at most `most`.
pub(super) fn rounds_of(
    rows: &impl Rows,
    height: Height,
    most: usize,
) -> Result<Vec<Round>, StoreError> {
    let mut found = Vec::new();
    rows.rows(Table::Rounds, &height_key(height), |key, _| {
        let (at, round) = read(Table::Rounds, key, take_round_key)?;
        if at != height || found.len() >= most {
            return Ok(ControlFlow::Break(()));
        }
        found.push(round);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Takes a round out of the store and quarantines its regions.
pub(super) fn drop_round<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    height: Height,
    round: Round,
) -> Result<bool, SidecarError> {
    let Some(row) = round_of(batch, height, round)? else { return Ok(false) };
    cut_round(batch, &row)?;
    Ok(true)
}

fn cut_round<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    row: &RoundRow,
) -> Result<(), StoreError> {
    for (_, slot) in &row.blobs {
        batch.cut(slot)?;
    }
    forget_round(batch, row)
}

/// Takes a round's row out of the store; its regions are somebody else's by now.
pub(super) fn forget_round<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    row: &RoundRow,
) -> Result<(), StoreError> {
    batch.delete(Table::Rounds, &round_key(row.height, row.round))?;
    Marks::change(batch, |marks| {
        less(&mut marks.rounds, 1);
        less(&mut marks.undecided, row.blobs.len() as u64);
    })
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Verifies a proposal's blobs and stores them as an undecided round. A proposal without blobs
    /// is one too.
    pub fn verify_and_store(&self, proposal: &Proposal) -> Result<Stored, SidecarError> {
        let checked = self.check(proposal)?;
        if let Some(known) = checked.known(&self.shelf.view()?)? {
            return Ok(known);
        }
        self.check_room(&self.shelf.view()?, proposal)?;
        checked.verify_kzg()?;
        let (height, round) = (proposal.height, proposal.round);
        let most = self.config.max_rounds as usize;
        let stored_at = self.clock.now_seconds();
        self.write(|batch| {
            if let Some(known) = checked.known(batch)? {
                return Ok(known);
            }
            if rounds_of(batch, height, most)?.len() >= most {
                let reason = format!("height {height} has {most} undecided rounds already");
                return Err(SidecarError::refused("proposal", reason));
            }
            self.check_room(batch, proposal)?;
            let row = checked.place(batch, stored_at)?;
            batch.put(Table::Rounds, &round_key(height, round), row.body())?;
            Marks::change(batch, |marks| {
                marks.rounds += 1;
                marks.undecided += row.blobs.len() as u64;
            })?;
            Ok(Stored::New)
        })
    }

    /// Whether one more undecided round may be stored, whatever its height.
    fn check_room(&self, rows: &impl Rows, proposal: &Proposal) -> Result<(), SidecarError> {
        let Marks { rounds, undecided, .. } = Marks::load(rows)?;
        let max = self.config.max_undecided;
        let blobs = undecided.saturating_add(proposal.sidecars.len() as u64);
        if blobs > u64::from(max) || rounds >= u64::from(max) {
            return Err(SidecarError::TooManyUndecided { rounds, blobs: undecided, max });
        }
        Ok(())
    }

    pub(super) fn check<'p>(&self, proposal: &'p Proposal) -> Result<Checked<'p>, SidecarError> {
        Checked::new(&self.config, proposal)
    }

    /// The same with KZG verified, for a decision that comes with its blobs.
    pub(super) fn check_all<'p>(
        &self,
        proposal: &'p Proposal,
    ) -> Result<Checked<'p>, SidecarError> {
        let checked = self.check(proposal)?;
        let view = self.shelf.view()?;
        let (height, round) = (proposal.height, proposal.round);
        let stored = round_of(&view, height, round)?.is_some_and(|row| checked.is_round(&row));
        if !stored && !checked.is_decided(&view)? {
            drop(view);
            checked.verify_kzg()?;
        }
        Ok(checked)
    }

    /// The stored round of a checked proposal; one that is another's is none.
    pub(super) fn same_round(
        rows: &impl Rows,
        checked: &Checked<'_>,
    ) -> Result<Option<RoundRow>, StoreError> {
        let Proposal { height, round, .. } = checked.proposal;
        Ok(round_of(rows, *height, *round)?.filter(|row| checked.is_round(row)))
    }

    /// Drops an undecided round; false if there is none.
    pub fn drop_round(&self, height: Height, round: Round) -> Result<bool, SidecarError> {
        self.write(|batch| drop_round(batch, height, round))
    }

    /// Drops undecided rounds that are so far below what is final that nobody will decide them here
    /// any more, batch by batch, and frees what they took. Returns how many went.
    pub fn drop_left_rounds(&self) -> Result<usize, SidecarError> {
        let finalized = Marks::load(&self.shelf.view()?)?.finalized.unwrap_or(0);
        let Some(below) = finalized.checked_sub(UNDECIDED_SLACK) else { return Ok(0) };
        let mut gone = 0;
        loop {
            let dropped = self.drop_rounds_below(below, DROPS)?;
            gone += dropped;
            if dropped < DROPS {
                break;
            }
        }
        if gone > 0 {
            self.shelf.settle(self.config.budget_bytes)?;
        }
        Ok(gone)
    }

    /// Drops undecided rounds below a height, lowest first and at most `max`: proposals that nobody
    /// decided. One that cannot be read stays. Returns how many went.
    pub fn drop_rounds_below(&self, height: Height, max: usize) -> Result<usize, SidecarError> {
        self.write(|batch| {
            let mut found: Vec<RoundRow> = Vec::new();
            each_row(batch, Table::Rounds, &[], |key, body| {
                let at = read(Table::Rounds, key, take_round_key)?;
                if at.0 >= height || found.len() >= max {
                    return Ok(ControlFlow::Break(()));
                }
                found.push(read(Table::Rounds, body, |from| RoundRow::take(at, from))?);
                Ok(ControlFlow::Continue(()))
            })?;
            for row in &found {
                cut_round(batch, row)?;
            }
            Ok(found.len())
        })
    }
}
