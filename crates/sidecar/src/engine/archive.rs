//! Archive records: who signed for which copies of a blob. Our own are durable, with their signature,
//! before anybody is told (I17); another's come from a notice that was verified before.

use secateur_core::notice::NoticeBody;
use secateur_core::{Height, Locator, MAX_LOCATOR_LEN};
use secateur_store::{Arena, Index, ShelfBatch, Snapshot, StoreError, Table};

use super::SidecarStore;
use super::announce::begin_announcement;
use super::facts::{
    ArchiveRecord, BlobKey, BlobMeta, KeptRecord, MAX_DOUBTED_OF_ONE, MAX_DOUBTED_RECORDS,
    MAX_LOCATORS, MAX_RECORDS, Marked, RecordForm,
};
use super::jobs::remove_job;
use super::marks::Marks;
use super::read::{archive_of, known_blob};
use super::rows::{ArchiveRow, blob_key, height_key, load, put_blob, take_waiting, waiting_body};
use crate::error::SidecarError;
use crate::sabotage::Sabotage;
use crate::types::BlobKeccak;

fn check_locators(locators: &[Locator]) -> Result<(), SidecarError> {
    let plain = |text: &str| {
        !text.is_empty() && text.len() <= MAX_LOCATOR_LEN && !text.contains(char::is_control)
    };
    if locators.is_empty() || locators.len() > MAX_LOCATORS {
        let reason = format!("1 to {MAX_LOCATORS} locators are wanted, not {}", locators.len());
        return Err(SidecarError::refused("archive record", reason));
    }
    if !locators.iter().all(|locator| plain(&locator.provider) && plain(&locator.key)) {
        let reason =
            format!("provider and key are 1 to {MAX_LOCATOR_LEN} bytes without control characters");
        return Err(SidecarError::refused("archive record", reason));
    }
    Ok(())
}

/// Refuses our own record of what no notice could say: it would be durable and never signed.
fn check_signable(blob: &BlobMeta, record: &ArchiveRecord) -> Result<(), SidecarError> {
    let body = NoticeBody {
        // Numbers are as long as any others.
        chain_id: 0,
        height: blob.height,
        round: 0,
        blob_index: blob.index,
        kzg_commitment: blob.commitment.0,
        blob_keccak: blob.keccak.0,
        locators: record.locators.clone(),
        archived_by: record.signer.as_bytes().to_vec(),
        archived_at_height: record.archived_at_height,
    };
    body.check().map_err(|error| SidecarError::refused("archive record", error.to_string()))
}

/// Adds a record to a blob's, unless it says what is said already. Where all of those are `doubted`
/// there is room for some more, also of the same signers; none goes, they are evidence.
fn add<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
    record: &ArchiveRecord,
    now: u64,
    doubted: bool,
) -> Result<Marked, SidecarError> {
    let mut row = archive_of(batch, key)?.unwrap_or_default();
    let bound = record.form.is_signed_v1();
    let of_signer = |kept: &KeptRecord| {
        kept.record.signer == record.signer && kept.record.form.is_signed_v1() == bound
    };
    if row.records.iter().any(|kept| of_signer(kept) && kept.record.says_the_same(record)) {
        return Ok(Marked::Known);
    }
    let theirs = row.records.iter().filter(|kept| of_signer(kept)).count();
    let ours = record.form == RecordForm::Own;
    let (most, most_of_one) =
        if doubted && !ours { (MAX_DOUBTED_RECORDS, MAX_DOUBTED_OF_ONE) } else { (MAX_RECORDS, 1) };
    if theirs >= most_of_one {
        let (BlobKey { height, index }, signer) = (key, record.signer.clone());
        return Err(SidecarError::RecordConflict { height, index, signer });
    }
    // What binds no chain takes no place from what does.
    let same_form = |kept: &&KeptRecord| kept.record.form.is_signed_v1() == bound;
    if row.records.iter().filter(same_form).count() >= most && !ours {
        return Ok(Marked::Enough);
    }
    let first = row.records.is_empty();
    if bound && !first && !row.is_bound() {
        batch.delete(Table::Unbound, &blob_key(key))?;
    } else if first && !bound {
        batch.put(Table::Unbound, &blob_key(key), Vec::new())?;
    }
    row.records.push(KeptRecord { record: record.clone(), verified_at: now });
    batch.put(Table::Archive, &blob_key(key), row.body())?;
    if first {
        note_archived(batch, key.height)?;
    }
    Ok(if first { Marked::New } else { Marked::Added })
}

/// One more blob of a height is archived; with the last one the height is ready.
fn note_archived<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    height: Height,
) -> Result<(), StoreError> {
    let key = height_key(height);
    let waiting = load(batch, Table::Waiting, &key, take_waiting)?;
    let Some((count, unarchived)) = waiting else {
        return Err(super::rows::corrupt(
            Table::Waiting,
            format!("height {height} has a blob without a record and no row"),
        ));
    };
    let left = unarchived - 1;
    if left > 0 {
        batch.put(Table::Waiting, &key, waiting_body(count, left))?;
    } else {
        batch.delete(Table::Waiting, &key)?;
        batch.put(Table::Ready, &key, count.to_be_bytes().to_vec())?;
    }
    Marks::change(batch, |marks| {
        marks.archived += 1;
        if left == 0 {
            marks.latest_archived = marks.latest_archived.max(Some(height));
        }
    })
}

fn check_keccak<S: Snapshot>(
    batch: &ShelfBatch<'_, '_, S>,
    key: BlobKey,
    got: BlobKeccak,
) -> Result<(), SidecarError> {
    let stored = known_blob(batch, key)?.keccak;
    if stored == got {
        return Ok(());
    }
    let BlobKey { height, index } = key;
    Err(SidecarError::KeccakMismatch { height, index, stored, got })
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Records what this node has signed and is about to tell: durable when it returns. Another content for
    /// the same blob is refused for ever. Ends the blob's job and begins its announcement.
    pub fn record_archived(
        &self,
        key: BlobKey,
        record: &ArchiveRecord,
    ) -> Result<Marked, SidecarError> {
        let now = self.clock.now_seconds();
        let marked = self.write(|batch| record_own(batch, key, record, now))?;
        self.doubts.end(key);
        Ok(marked)
    }

    /// The same for many, in one commit. Each has an answer of its own, in their order.
    pub fn record_archived_all(
        &self,
        records: &[(BlobKey, ArchiveRecord)],
    ) -> Result<Vec<Result<Marked, SidecarError>>, SidecarError> {
        #[cfg(feature = "sim")]
        if self.put_off(records) {
            return Ok(records.iter().map(|_| Ok(Marked::New)).collect());
        }
        self.record_durably(records)
    }

    pub(super) fn record_durably(
        &self,
        records: &[(BlobKey, ArchiveRecord)],
    ) -> Result<Vec<Result<Marked, SidecarError>>, SidecarError> {
        let now = self.clock.now_seconds();
        let marked: Vec<Result<Marked, SidecarError>> = self.write(|batch| {
            let one = |(key, record): &(BlobKey, ArchiveRecord)| {
                keep_apart(record_own(batch, *key, record, now))
            };
            records.iter().map(one).collect::<Result<_, SidecarError>>()
        })?;
        for ((key, _), _) in records.iter().zip(&marked).filter(|(_, marked)| marked.is_ok()) {
            self.doubts.end(*key);
        }
        Ok(marked)
    }

    /// Records what somebody else signed for. The notice was verified by the caller; that the blob
    /// is known and hashes to `keccak` here is checked again.
    pub fn mark_archived(
        &self,
        key: BlobKey,
        record: &ArchiveRecord,
        keccak: BlobKeccak,
    ) -> Result<Marked, SidecarError> {
        let now = self.clock.now_seconds();
        let marked = self.write(|batch| {
            if self.config.sabotage.is(Sabotage::LearnHash) {
                learn(batch, key, keccak)?;
            }
            mark_other(batch, key, record, keccak, now, self.is_doubted(key))
        })?;
        if marked == Marked::Added {
            self.doubts.end(key);
        }
        Ok(marked)
    }

    /// The same for many, in one commit. Each has an answer of its own, in their order.
    pub fn mark_archived_all(
        &self,
        records: &[(BlobKey, ArchiveRecord, BlobKeccak)],
    ) -> Result<Vec<Result<Marked, SidecarError>>, SidecarError> {
        let now = self.clock.now_seconds();
        self.write(|batch| {
            let one = |(key, record, keccak): &(BlobKey, ArchiveRecord, BlobKeccak)| {
                keep_apart(mark_other(batch, *key, record, *keccak, now, false))
            };
            records.iter().map(one).collect()
        })
    }

    /// Says that a copy was fetched and hashes to `keccak`; false if that was known.
    pub fn set_fetched(&self, key: BlobKey, keccak: BlobKeccak) -> Result<bool, SidecarError> {
        let now = self.clock.now_seconds();
        let fetched = self.write(|batch| {
            check_keccak(batch, key, keccak)?;
            let Some(row) = archive_of(batch, key)? else {
                return Err(SidecarError::refused("fetched blob", "nobody has signed for it"));
            };
            if row.fetched_at.is_some() {
                return Ok(false);
            }
            let row = ArchiveRow { fetched_at: Some(now), ..row };
            batch.put(Table::Archive, &blob_key(key), row.body())?;
            Ok(true)
        })?;
        self.doubts.end(key);
        Ok(fetched)
    }
}

/// The saboteur's way to know a hash.
fn learn<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
    keccak: BlobKeccak,
) -> Result<(), SidecarError> {
    let mut body = secateur_core::Writer::new();
    put_blob(&mut body, &BlobMeta { keccak, ..known_blob(batch, key)? });
    Ok(batch.put(Table::Blobs, &blob_key(key), body.finish())?)
}

/// One item's trouble is its own; the ground's is everybody's.
pub(super) fn keep_apart<T>(
    answer: Result<T, SidecarError>,
) -> Result<Result<T, SidecarError>, SidecarError> {
    match answer {
        Err(SidecarError::Store(error)) => Err(error.into()),
        other => Ok(other),
    }
}

fn record_own<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
    record: &ArchiveRecord,
    now: u64,
) -> Result<Marked, SidecarError> {
    if record.form != RecordForm::Own {
        return Err(SidecarError::refused("archive record", "it is not this node's own"));
    }
    if record.signature.is_none() {
        return Err(SidecarError::refused("archive record", "it is not signed"));
    }
    check_signable(&known_blob(batch, key)?, record)?;
    let marked = add(batch, key, record, now, false)?;
    remove_job(batch, key)?;
    if marked != Marked::Known {
        begin_announcement(batch, key)?;
    }
    Ok(marked)
}

fn mark_other<S: Snapshot>(
    batch: &mut ShelfBatch<'_, '_, S>,
    key: BlobKey,
    record: &ArchiveRecord,
    keccak: BlobKeccak,
    now: u64,
    doubted: bool,
) -> Result<Marked, SidecarError> {
    if record.form == RecordForm::Own {
        return Err(SidecarError::refused("archive record", "it is not from a notice"));
    }
    check_locators(&record.locators)?;
    check_keccak(batch, key, keccak)?;
    add(batch, key, record, now, doubted)
}
