//! The bytes of the engine's rows (`docs/format/sidecar.md`): keys, and bodies with every length
//! checked before anything is taken.

use std::ops::ControlFlow;

use bytes::Bytes;
use secateur_core::{CoreError, Height, Locator, MAX_LOCATOR_LEN, Reader, Writer};
use secateur_store::{Rows, Slot, StoreError, Table};

use super::facts::{
    ArchiveRecord, BlobKey, BlobMeta, HeightRecord, Job, KeptRecord, MAX_DOUBTED_RECORDS,
    MAX_LOCATORS, Pruned, RecordForm, Unpermitted,
};
use crate::kzg;
use crate::types::{
    BlobKeccak, Commitment, Inclusion, MAX_BLOBS, MAX_INCLUSION_LEN, MAX_ROUND_HEADER_LEN, Proof,
    Round, ValidatorId, VersionedHash,
};

/// The key of a height.
pub(super) fn height_key(height: Height) -> [u8; 8] {
    height.to_be_bytes()
}

/// The key of a blob.
pub(super) fn blob_key(key: BlobKey) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(key.height).u32(key.index);
    out.finish()
}

/// The key of a round: its sign is turned over, so that keys are in the order of rounds.
pub(super) fn round_key(height: Height, round: Round) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(height).u32(round.cast_unsigned() ^ (1 << 31));
    out.finish()
}

/// The key of a job by its due time.
pub(super) fn due_key(due: u64, key: BlobKey) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(due).u64(key.height).u32(key.index);
    out.finish()
}

/// The key of a blob by what transactions name it by.
pub(super) fn hash_key(hash: &VersionedHash, key: BlobKey) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(&hash.0).u64(key.height).u32(key.index);
    out.finish()
}

/// Reads a whole body or key; what cannot be read is corruption.
pub(super) fn read<T>(
    table: Table,
    bytes: &[u8],
    take: impl FnOnce(&mut Reader<'_>) -> Result<T, CoreError>,
) -> Result<T, StoreError> {
    let mut from = Reader::new("row", bytes);
    let value = take(&mut from).and_then(|value| {
        from.finish()?;
        Ok(value)
    });
    value.map_err(|error| corrupt(table, error.to_string()))
}

/// A row that cannot be right.
pub(super) fn corrupt(table: Table, detail: impl Into<String>) -> StoreError {
    StoreError::Corrupt { what: table.name(), detail: detail.into() }
}

/// Reads one row.
pub(super) fn load<T>(
    rows: &impl Rows,
    table: Table,
    key: &[u8],
    take: impl FnOnce(&mut Reader<'_>) -> Result<T, CoreError>,
) -> Result<Option<T>, StoreError> {
    rows.row(table, key)?.map(|body| read(table, &body, take)).transpose()
}

/// Visits a table's rows from `from` on. One that cannot be read is passed over with a warning: it
/// keeps what it is about here, and nothing else waits for it.
pub(super) fn each_row(
    rows: &impl Rows,
    table: Table,
    from: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    rows.scan(table, from, &mut |key, _| {
        // The seal is looked at through the row's own key.
        let visited = match rows.row(table, key) {
            Ok(Some(body)) => visit(key, &body),
            Ok(None) => return Ok(ControlFlow::Continue(())),
            Err(error) => Err(error),
        };
        match visited {
            Err(error) if error.is_corruption() => {
                tracing::warn!(%error, "a damaged row is passed over; `secateur verify` tells more");
                Ok(ControlFlow::Continue(()))
            }
            visited => visited,
        }
    })
}

pub(super) fn take_height(from: &mut Reader<'_>) -> Result<Height, CoreError> {
    from.u64()
}

pub(super) fn take_blob_key(from: &mut Reader<'_>) -> Result<BlobKey, CoreError> {
    Ok(BlobKey { height: from.u64()?, index: from.u32()? })
}

pub(super) fn take_round_key(from: &mut Reader<'_>) -> Result<(Height, Round), CoreError> {
    Ok((from.u64()?, (from.u32()? ^ (1 << 31)).cast_signed()))
}

pub(super) fn take_due_key(from: &mut Reader<'_>) -> Result<(u64, BlobKey), CoreError> {
    Ok((from.u64()?, take_blob_key(from)?))
}

pub(super) fn take_hash_key(from: &mut Reader<'_>) -> Result<(VersionedHash, BlobKey), CoreError> {
    Ok((VersionedHash(from.array()?), take_blob_key(from)?))
}

fn put_text(out: &mut Writer, text: &str) {
    // Checked before it came here; a longer one would be cut and not read back.
    out.u16(u16::try_from(text.len()).unwrap_or(u16::MAX)).bytes(text.as_bytes());
}

fn take_text(from: &mut Reader<'_>) -> Result<String, CoreError> {
    let len = usize::from(from.u16()?);
    if len > MAX_LOCATOR_LEN {
        return Err(from.error(format!("a text of {len} bytes")));
    }
    let bytes = from.take(len)?;
    let text = std::str::from_utf8(bytes).map_err(|error| from.error(error.to_string()))?;
    Ok(text.to_owned())
}

fn put_validator(out: &mut Writer, id: &ValidatorId) {
    let bytes = id.as_bytes();
    out.u8(u8::try_from(bytes.len()).unwrap_or(u8::MAX)).bytes(bytes);
}

fn take_validator(from: &mut Reader<'_>) -> Result<ValidatorId, CoreError> {
    let len = usize::from(from.u8()?);
    ValidatorId::new(from.take(len)?)
}

fn put_bytes(out: &mut Writer, bytes: &[u8]) {
    out.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).bytes(bytes);
}

fn take_bytes(from: &mut Reader<'_>) -> Result<Bytes, CoreError> {
    let len = from.u32()? as usize;
    if len > MAX_ROUND_HEADER_LEN {
        return Err(from.error(format!("a header of {len} bytes")));
    }
    Ok(Bytes::copy_from_slice(from.take(len)?))
}

fn put_optional_bytes(out: &mut Writer, bytes: Option<&Bytes>) {
    out.flag(bytes.is_some());
    if let Some(bytes) = bytes {
        put_bytes(out, bytes);
    }
}

fn take_optional_bytes(from: &mut Reader<'_>) -> Result<Option<Bytes>, CoreError> {
    if from.flag()? { take_bytes(from).map(Some) } else { Ok(None) }
}

/// The count of a height's blobs.
pub(super) fn take_count(from: &mut Reader<'_>) -> Result<u32, CoreError> {
    let count = from.u32()?;
    if count > MAX_BLOBS {
        return Err(from.error(format!("{count} blobs")));
    }
    Ok(count)
}

pub(super) fn height_body(record: &HeightRecord) -> Vec<u8> {
    let mut out = Writer::new();
    out.u32(record.round.cast_unsigned()).u32(record.blob_count);
    out.u64(record.stored_at).u64(record.decided_at);
    put_validator(&mut out, &record.proposer);
    put_bytes(&mut out, &record.payload_header);
    put_optional_bytes(&mut out, record.signed_header.as_ref());
    out.finish()
}

pub(super) fn take_height_body(
    height: Height,
    from: &mut Reader<'_>,
) -> Result<HeightRecord, CoreError> {
    Ok(HeightRecord {
        height,
        round: from.u32()?.cast_signed(),
        blob_count: take_count(from)?,
        stored_at: from.u64()?,
        decided_at: from.u64()?,
        proposer: take_validator(from)?,
        payload_header: take_bytes(from)?,
        signed_header: take_optional_bytes(from)?,
    })
}

/// What is kept of a blob, without its name.
pub(super) fn put_blob(out: &mut Writer, meta: &BlobMeta) {
    out.bytes(&meta.commitment.0).bytes(&meta.keccak.0);
    out.flag(meta.proof.is_some());
    if let Some(proof) = &meta.proof {
        out.bytes(&proof.0);
    }
    out.flag(meta.inclusion.is_some());
    if let Some(inclusion) = &meta.inclusion {
        out.u8(u8::try_from(inclusion.proof.len()).unwrap_or(u8::MAX));
        inclusion.proof.iter().for_each(|hash| {
            out.bytes(hash);
        });
    }
}

pub(super) fn take_blob(key: BlobKey, from: &mut Reader<'_>) -> Result<BlobMeta, CoreError> {
    let commitment = Commitment(from.array()?);
    let keccak = BlobKeccak(from.array()?);
    let proof = if from.flag()? { Some(Proof(from.array()?)) } else { None };
    let inclusion = if from.flag()? {
        let count = usize::from(from.u8()?);
        if count > MAX_INCLUSION_LEN {
            return Err(from.error(format!("a branch of {count} hashes")));
        }
        let proof = (0..count).map(|_| from.array()).collect::<Result<_, _>>()?;
        Some(Inclusion { proof })
    } else {
        None
    };
    let versioned_hash = kzg::versioned_hash(&commitment);
    let BlobKey { height, index } = key;
    Ok(BlobMeta { height, index, commitment, versioned_hash, proof, keccak, inclusion })
}

/// A proposal that is not decided, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoundRow {
    pub height: Height,
    pub round: Round,
    pub stored_at: u64,
    pub proposer: ValidatorId,
    pub payload_header: Bytes,
    pub signed_header: Option<Bytes>,
    pub blobs: Vec<(BlobMeta, Slot)>,
}

impl RoundRow {
    pub(super) fn body(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.stored_at);
        put_validator(&mut out, &self.proposer);
        put_bytes(&mut out, &self.payload_header);
        put_optional_bytes(&mut out, self.signed_header.as_ref());
        out.u32(u32::try_from(self.blobs.len()).unwrap_or(u32::MAX));
        for (meta, slot) in &self.blobs {
            put_blob(&mut out, meta);
            slot.write(&mut out);
        }
        out.finish()
    }

    pub(super) fn take(
        (height, round): (Height, Round),
        from: &mut Reader<'_>,
    ) -> Result<Self, CoreError> {
        let (stored_at, proposer) = (from.u64()?, take_validator(from)?);
        let (payload_header, signed_header) = (take_bytes(from)?, take_optional_bytes(from)?);
        let count = take_count(from)?;
        let blob = |index| Ok((take_blob(BlobKey { height, index }, from)?, Slot::read(from)?));
        let blobs = (0..count).map(blob).collect::<Result<_, CoreError>>()?;
        Ok(Self { height, round, stored_at, proposer, payload_header, signed_header, blobs })
    }
}

/// What is known of a blob's copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ArchiveRow {
    pub fetched_at: Option<u64>,
    pub records: Vec<KeptRecord>,
}

impl ArchiveRow {
    /// Whether somebody has signed for it in a form that binds the chain.
    pub(super) fn is_bound(&self) -> bool {
        self.records.iter().any(|kept| kept.record.form.is_signed_v1())
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.optional_u64(self.fetched_at);
        out.u8(u8::try_from(self.records.len()).unwrap_or(u8::MAX));
        for KeptRecord { record, verified_at } in &self.records {
            out.u64(*verified_at).u8(record.form as u8);
            put_validator(&mut out, &record.signer);
            out.u64(record.archived_at_height).u64(record.archived_at);
            out.flag(record.signature.is_some());
            if let Some(signature) = &record.signature {
                out.bytes(signature);
            }
            out.u8(u8::try_from(record.locators.len()).unwrap_or(u8::MAX));
            for Locator { provider, key } in &record.locators {
                put_text(&mut out, provider);
                put_text(&mut out, key);
            }
        }
        out.finish()
    }

    pub(super) fn take(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let fetched_at = from.optional_u64()?;
        let count = usize::from(from.u8()?);
        // Both forms have places of their own, and our own is always taken.
        if count == 0 || count > 2 * MAX_DOUBTED_RECORDS + 1 {
            return Err(from.error(format!("{count} records")));
        }
        let records = (0..count).map(|_| take_record(from)).collect::<Result<_, _>>()?;
        Ok(Self { fetched_at, records })
    }
}

fn take_record(from: &mut Reader<'_>) -> Result<KeptRecord, CoreError> {
    let verified_at = from.u64()?;
    let form = match from.u8()? {
        0 => RecordForm::Own,
        1 => RecordForm::V1,
        2 => RecordForm::V0,
        other => return Err(from.error(format!("{other} is not a form of record"))),
    };
    let signer = take_validator(from)?;
    let (archived_at_height, archived_at) = (from.u64()?, from.u64()?);
    let signature = if from.flag()? { Some(from.array()?) } else { None };
    let count = usize::from(from.u8()?);
    if count == 0 || count > MAX_LOCATORS {
        return Err(from.error(format!("{count} locators")));
    }
    let locator = |_| Ok(Locator { provider: take_text(from)?, key: take_text(from)? });
    let locators = (0..count).map(locator).collect::<Result<_, CoreError>>()?;
    let record =
        ArchiveRecord { signer, form, locators, archived_at_height, archived_at, signature };
    Ok(KeptRecord { record, verified_at })
}

pub(super) fn pruned_body(pruned: &Pruned) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(pruned.finalized).u64(pruned.at).u32(pruned.failures);
    out.finish()
}

pub(super) fn take_pruned(from: &mut Reader<'_>) -> Result<Pruned, CoreError> {
    Ok(Pruned { finalized: from.u64()?, at: from.u64()?, failures: from.u32()? })
}

pub(super) fn job_body(job: &Job) -> Vec<u8> {
    let mut out = Writer::new();
    out.u32(job.attempts).u64(job.due).u8(job.held.map_or(0, |why| why as u8));
    out.finish()
}

pub(super) fn take_job(key: BlobKey, from: &mut Reader<'_>) -> Result<Job, CoreError> {
    let (attempts, due) = (from.u32()?, from.u64()?);
    let held = match from.u8()? {
        0 => None,
        1 => Some(Unpermitted::NoKey),
        2 => Some(Unpermitted::NotValidator),
        3 => Some(Unpermitted::OtherKey),
        4 => Some(Unpermitted::NotProposer),
        5 => Some(Unpermitted::NotYet),
        other => return Err(from.error(format!("{other} is no reason to wait"))),
    };
    Ok(Job { key, attempts, due, held })
}

/// A height with blobs that nobody has signed for: how many it has, and how many those are.
pub(super) fn waiting_body(count: u32, unarchived: u32) -> Vec<u8> {
    let mut out = Writer::new();
    out.u32(count).u32(unarchived);
    out.finish()
}

pub(super) fn take_waiting(from: &mut Reader<'_>) -> Result<(u32, u32), CoreError> {
    let (count, unarchived) = (take_count(from)?, take_count(from)?);
    if unarchived == 0 || unarchived > count {
        return Err(from.error(format!("{unarchived} of {count} blobs wait")));
    }
    Ok((count, unarchived))
}

pub(super) fn slot_body(slot: &Slot) -> Vec<u8> {
    let mut out = Writer::new();
    slot.write(&mut out);
    out.finish()
}
