//! Reading: what is known of heights and blobs, and the bytes while they are here.

use bytes::Bytes;
use secateur_core::{Height, Locator};
use secateur_store::{Arena, Index, Rows, ShelfView, Slot, Snapshot, StoreError, Table};

use super::SidecarStore;
use super::facts::{BlobKey, BlobMeta, HeightRecord, KeptRecord, MAX_LOCATORS, Pruned, StoredBlob};
use super::ingest::round_of;
use super::marks::Marks;
use super::rows::{
    ArchiveRow, blob_key, corrupt, hash_key, height_key, load, read, take_blob, take_hash_key,
    take_height_body, take_pruned,
};
use crate::error::SidecarError;
use crate::types::{Proposal, Round, Sidecar, ValidatorId, VersionedHash};

/// Heights with the same blob that are looked at, newest first, for one that has its bytes.
const MAX_SAME_BLOBS: usize = 8;

/// What was decided at a height.
pub(super) fn height_of(
    rows: &impl Rows,
    height: Height,
) -> Result<Option<HeightRecord>, StoreError> {
    load(rows, Table::Heights, &height_key(height), |from| take_height_body(height, from))
}

/// What is known of a blob.
pub(super) fn meta_of(rows: &impl Rows, key: BlobKey) -> Result<Option<BlobMeta>, StoreError> {
    load(rows, Table::Blobs, &blob_key(key), |from| take_blob(key, from))
}

/// The blobs of a height.
pub(super) fn metas_of(
    rows: &impl Rows,
    record: &HeightRecord,
) -> Result<Vec<BlobMeta>, StoreError> {
    let height = record.height;
    let meta = |index| {
        let missing = || corrupt(Table::Blobs, format!("blob {index} of height {height}"));
        meta_of(rows, BlobKey { height, index })?.ok_or_else(missing)
    };
    (0..record.blob_count).map(meta).collect()
}

/// A blob that must be known: the honest answer if it is not.
pub(super) fn known_blob(rows: &impl Rows, key: BlobKey) -> Result<BlobMeta, SidecarError> {
    let BlobKey { height, index } = key;
    let record = height_of(rows, height)?.ok_or(SidecarError::Unknown(height))?;
    let blob_count = record.blob_count;
    if index >= blob_count {
        return Err(SidecarError::NoSuchBlob { height, index, blob_count });
    }
    let missing = || corrupt(Table::Blobs, format!("blob {index} of height {height}"));
    Ok(meta_of(rows, key)?.ok_or_else(missing)?)
}

/// What is known of a blob's copies.
pub(super) fn archive_of(rows: &impl Rows, key: BlobKey) -> Result<Option<ArchiveRow>, StoreError> {
    load(rows, Table::Archive, &blob_key(key), ArchiveRow::take)
}

/// Where a blob's bytes are, while they are here.
pub(super) fn slot_of(rows: &impl Rows, key: BlobKey) -> Result<Option<Slot>, StoreError> {
    load(rows, Table::Bytes, &blob_key(key), Slot::read)
}

/// When a height's bytes went.
pub(super) fn pruned_of(rows: &impl Rows, height: Height) -> Result<Option<Pruned>, StoreError> {
    load(rows, Table::Pruned, &height_key(height), take_pruned)
}

/// Where a blob's copies are, each once, at most `max`: the first of each record, then the second of
/// each, so that nobody who names many hides what others name.
pub(super) fn locators_of(
    rows: &impl Rows,
    key: BlobKey,
    max: usize,
) -> Result<Vec<Locator>, StoreError> {
    let records = archive_of(rows, key)?.unwrap_or_default().records;
    let mut found: Vec<Locator> = Vec::new();
    for place in 0..MAX_LOCATORS {
        for locator in records.iter().filter_map(|kept| kept.record.locators.get(place)) {
            if found.len() < max && !found.contains(locator) {
                found.push(locator.clone());
            }
        }
    }
    Ok(found)
}

/// Why bytes are not here: pruned, with where they are, or missing.
fn absence(rows: &impl Rows, record: &HeightRecord, index: u32) -> SidecarError {
    let height = record.height;
    let answer = || -> Result<SidecarError, StoreError> {
        if pruned_of(rows, height)?.is_none() {
            return Ok(SidecarError::Missing { height, index });
        }
        let locators = (0..record.blob_count)
            .map(|index| locators_of(rows, BlobKey { height, index }, MAX_LOCATORS))
            .collect::<Result<_, _>>()?;
        let (blob_count, is_here) = (record.blob_count, false);
        Ok(SidecarError::BlobsPruned { height, blob_count, is_here, locators })
    };
    answer().unwrap_or_else(SidecarError::from)
}

fn stored_blob<A: Arena, S: Snapshot>(
    view: &ShelfView<'_, A, S>,
    record: &HeightRecord,
    index: u32,
) -> Result<StoredBlob, SidecarError> {
    let key = BlobKey { height: record.height, index };
    let meta = known_blob(view, key)?;
    let slot = slot_of(view, key)?.ok_or_else(|| absence(view, record, index))?;
    Ok(StoredBlob { meta, blob: Bytes::from(view.read(&slot)?) })
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Who proposed a round, stored or decided; none if it is neither.
    pub fn proposer(
        &self,
        height: Height,
        round: Round,
    ) -> Result<Option<ValidatorId>, SidecarError> {
        let view = self.shelf.view()?;
        if let Some(record) = height_of(&view, height)?.filter(|record| record.round == round) {
            return Ok(Some(record.proposer));
        }
        Ok(round_of(&view, height, round)?.map(|row| row.proposer))
    }

    /// The newest decided height.
    pub fn head(&self) -> Result<Option<Height>, SidecarError> {
        Ok(Marks::load(&self.shelf.view()?)?.latest_decided)
    }

    /// A blob with what was decided at its height, and the newest decided height, in one look.
    pub(crate) fn to_archive(
        &self,
        key: BlobKey,
    ) -> Result<(HeightRecord, StoredBlob, Height), SidecarError> {
        let view = self.shelf.view()?;
        let record = height_of(&view, key.height)?.ok_or(SidecarError::Unknown(key.height))?;
        let blob = stored_blob(&view, &record, key.index)?;
        let head = Marks::load(&view)?.latest_decided.unwrap_or(key.height);
        Ok((record, blob, head))
    }

    /// What was decided at a height; none if nothing was.
    pub fn height(&self, height: Height) -> Result<Option<HeightRecord>, SidecarError> {
        Ok(height_of(&self.shelf.view()?, height)?)
    }

    /// Whether a height's bytes were pruned.
    pub fn is_pruned(&self, height: Height) -> Result<bool, SidecarError> {
        Ok(pruned_of(&self.shelf.view()?, height)?.is_some())
    }

    /// What is known of a blob; none if the height or the index is unknown.
    pub fn blob_meta(&self, height: Height, index: u32) -> Result<Option<BlobMeta>, SidecarError> {
        Ok(meta_of(&self.shelf.view()?, BlobKey { height, index })?)
    }

    /// What is known of a height's blobs.
    pub fn blob_metas(&self, height: Height) -> Result<Vec<BlobMeta>, SidecarError> {
        let view = self.shelf.view()?;
        let record = height_of(&view, height)?.ok_or(SidecarError::Unknown(height))?;
        Ok(metas_of(&view, &record)?)
    }

    /// The blobs of a height. An empty list means that it truly has none.
    pub fn get(&self, height: Height) -> Result<Vec<StoredBlob>, SidecarError> {
        let view = self.shelf.view()?;
        let record = height_of(&view, height)?.ok_or(SidecarError::Unknown(height))?;
        (0..record.blob_count).map(|index| stored_blob(&view, &record, index)).collect()
    }

    /// One blob.
    pub fn get_blob(&self, height: Height, index: u32) -> Result<StoredBlob, SidecarError> {
        let view = self.shelf.view()?;
        let record = height_of(&view, height)?.ok_or(SidecarError::Unknown(height))?;
        stored_blob(&view, &record, index)
    }

    /// The blob that transactions name so; none if no decided height has it. Where several have
    /// it, one whose bytes are here.
    pub fn get_by_versioned_hash(
        &self,
        hash: &VersionedHash,
    ) -> Result<Option<StoredBlob>, SidecarError> {
        let view = self.shelf.view()?;
        let mut bound = hash_key(hash, BlobKey { height: Height::MAX, index: u32::MAX });
        let mut newest = None;
        for _ in 0..MAX_SAME_BLOBS {
            let Some((key, _)) = view.before(Table::Hashes, &bound)? else { break };
            let (found, at) = read(Table::Hashes, &key, take_hash_key)?;
            if found != *hash {
                break;
            }
            match self.get_blob(at.height, at.index) {
                Ok(blob) => return Ok(Some(blob)),
                Err(error) => newest.get_or_insert(error),
            };
            bound = key;
        }
        newest.map_or(Ok(None), Err)
    }

    /// A proposal that is stored and not decided, for sending it on.
    pub fn get_undecided(&self, height: Height, round: Round) -> Result<Proposal, SidecarError> {
        let view = self.shelf.view()?;
        let row =
            round_of(&view, height, round)?.ok_or(SidecarError::UnknownRound { height, round })?;
        let sidecar = |(meta, slot): &(BlobMeta, Slot)| -> Result<Sidecar, StoreError> {
            Ok(Sidecar {
                index: meta.index,
                blob: Bytes::from(view.read(slot)?),
                commitment: meta.commitment,
                proof: meta.proof,
                inclusion: meta.inclusion.clone(),
            })
        };
        Ok(Proposal {
            height,
            round,
            sidecars: row.blobs.iter().map(sidecar).collect::<Result<_, _>>()?,
            proposer: row.proposer,
            payload_header: row.payload_header,
            signed_header: row.signed_header,
        })
    }

    /// Who signed for which copies of a blob, oldest first.
    pub fn records(&self, height: Height, index: u32) -> Result<Vec<KeptRecord>, SidecarError> {
        let (view, key) = (self.shelf.view()?, BlobKey { height, index });
        known_blob(&view, key)?;
        Ok(archive_of(&view, key)?.unwrap_or_default().records)
    }
}
