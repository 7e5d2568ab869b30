//! Serving: blobs as long as they are here, and after that what is known of them, or, where
//! read-through is on, the blob itself from an archived copy that hashes right.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use secateur_core::{Height, Locator};
use secateur_store::{Arena, Index};

use crate::blocking::blocking;
use crate::copies::Copies;
use crate::engine::{BlobMeta, HeightRecord, SidecarStore, StoredBlob};
use crate::{SidecarError, VersionedHash};

/// Copies that are fetched at once for one question.
const AT_ONCE: usize = 8;

/// What becomes of a question for a blob that is archived and not pruned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServeArchived {
    /// It is answered as long as the bytes are here.
    #[default]
    UntilPruned,
    /// It is answered as if the bytes were gone: with where they are.
    Refuse,
}

/// Answers questions for blobs.
pub struct Reader<A, I> {
    store: Arc<SidecarStore<A, I>>,
    copies: Copies,
    serve_archived: ServeArchived,
    read_through: bool,
}

impl<A, I> std::fmt::Debug for Reader<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("serve_archived", &self.serve_archived)
            .field("read_through", &self.read_through)
            .finish_non_exhaustive()
    }
}

/// A height that is asked for: its blobs, or where those are that are wanted, and what is said if
/// nobody may fetch them.
enum Found {
    Here(Vec<StoredBlob>),
    Elsewhere(Vec<(BlobMeta, Vec<Locator>)>, SidecarError),
}

impl<A: Arena, I: Index> Reader<A, I> {
    /// Reads from a store and, with `read_through`, from its copies.
    pub fn new(
        store: Arc<SidecarStore<A, I>>,
        copies: Copies,
        serve_archived: ServeArchived,
        read_through: bool,
    ) -> Self {
        Self { store, copies, serve_archived, read_through }
    }

    /// What was decided at a height; an unknown one is an error.
    pub async fn height(&self, height: Height) -> Result<HeightRecord, SidecarError> {
        let found = blocking(&self.store, move |store| store.height(height)).await?;
        found.ok_or(SidecarError::Unknown(height))
    }

    /// The blobs of a height. An empty list means that it truly has none.
    pub async fn blobs(&self, height: Height) -> Result<Vec<StoredBlob>, SidecarError> {
        self.blobs_where(height, |_| true).await
    }

    /// Those blobs of a height that are wanted; no other is read or fetched.
    pub async fn blobs_where(
        &self,
        height: Height,
        wanted: impl Fn(&BlobMeta) -> bool + Send + 'static,
    ) -> Result<Vec<StoredBlob>, SidecarError> {
        let refuse = self.serve_archived == ServeArchived::Refuse;
        let found = blocking(&self.store, move |store| {
            let found = if refuse && is_archived(store, height)? {
                Err(not_served(store, height)?)
            } else {
                here(store, height, &wanted)
            };
            match found {
                Ok(blobs) => Ok(Found::Here(blobs)),
                Err(gone)
                    if gone.is_damage() || matches!(gone, SidecarError::BlobsPruned { .. }) =>
                {
                    let mut copies = elsewhere(store, height)?;
                    copies.retain(|(meta, _)| wanted(meta));
                    Ok(Found::Elsewhere(copies, gone))
                }
                Err(error) => Err(error),
            }
        });
        match found.await? {
            Found::Here(blobs) => Ok(blobs),
            Found::Elsewhere(copies, _) if self.read_through => {
                self.fetch_all(height, copies).await
            }
            Found::Elsewhere(_, gone) => Err(gone),
        }
    }

    /// One blob, read from an archived copy whatever is here.
    pub async fn fetch(&self, height: Height, index: u32) -> Result<StoredBlob, SidecarError> {
        let copies = blocking(&self.store, move |store| elsewhere(store, height)).await?;
        let blob_count = u32::try_from(copies.len()).unwrap_or(u32::MAX);
        let wanted = copies.into_iter().nth(index as usize);
        let (meta, locators) =
            wanted.ok_or(SidecarError::NoSuchBlob { height, index, blob_count })?;
        match self.copies.fetch(&meta, &locators).await {
            Some(blob) => Ok(StoredBlob { meta, blob }),
            None => Err(SidecarError::NoCopy { height, index, locators }),
        }
    }

    /// The blobs that transactions name so, in their order; none where it is not known or its bytes
    /// are not here: nobody is asked for copies.
    pub async fn by_hashes(
        &self,
        hashes: Vec<VersionedHash>,
    ) -> Result<Vec<Option<StoredBlob>>, SidecarError> {
        let refuse = self.serve_archived == ServeArchived::Refuse;
        blocking(&self.store, move |store| {
            let one = |hash: &VersionedHash| match store.get_by_versioned_hash(hash) {
                Err(error) if error.is_gone() => Ok(None),
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a blob that was asked for is damaged here");
                    Ok(None)
                }
                Ok(Some(found)) if refuse && is_archived(store, found.meta.height)? => Ok(None),
                other => other,
            };
            hashes.iter().map(one).collect()
        })
        .await
    }

    async fn fetch_all(
        &self,
        height: Height,
        copies: Vec<(BlobMeta, Vec<Locator>)>,
    ) -> Result<Vec<StoredBlob>, SidecarError> {
        let one = |(meta, locators): (BlobMeta, Vec<Locator>)| {
            let fetch = async move {
                let index = meta.index;
                let blob = self.copies.fetch(&meta, &locators).await;
                let blob = blob.ok_or(SidecarError::NoCopy { height, index, locators })?;
                Ok(StoredBlob { meta, blob })
            };
            fetch.boxed()
        };
        // Each asks for its own place among those that fetch; in their order all the same.
        stream::iter(copies.into_iter().map(one)).buffered(AT_ONCE).try_collect().await
    }
}

/// The wanted blobs of a height whose bytes are here.
fn here<A: Arena, I: Index>(
    store: &SidecarStore<A, I>,
    height: Height,
    wanted: impl Fn(&BlobMeta) -> bool,
) -> Result<Vec<StoredBlob>, SidecarError> {
    let metas = store.blob_metas(height)?;
    let wanted = metas.iter().filter(|meta| wanted(meta));
    wanted.map(|meta| store.get_blob(height, meta.index)).collect()
}

/// Whether a height has blobs, and every one of them has a record.
fn is_archived<A: Arena, I: Index>(
    store: &SidecarStore<A, I>,
    height: Height,
) -> Result<bool, SidecarError> {
    let copies = elsewhere(store, height)?;
    Ok(!copies.is_empty() && copies.iter().all(|(_, locators)| !locators.is_empty()))
}

/// What is known of a height's blobs, and where they are said to be.
fn elsewhere<A: Arena, I: Index>(
    store: &SidecarStore<A, I>,
    height: Height,
) -> Result<Vec<(BlobMeta, Vec<Locator>)>, SidecarError> {
    let with_locators = |meta: BlobMeta| {
        let records = store.records(height, meta.index)?;
        Ok((meta, records.into_iter().flat_map(|kept| kept.record.locators).collect()))
    };
    store.blob_metas(height)?.into_iter().map(with_locators).collect()
}

/// What is said of an archived height that is not served; whether its bytes are still here too.
fn not_served<A: Arena, I: Index>(
    store: &SidecarStore<A, I>,
    height: Height,
) -> Result<SidecarError, SidecarError> {
    let copies = elsewhere(store, height)?;
    Ok(SidecarError::BlobsPruned {
        height,
        blob_count: u32::try_from(copies.len()).unwrap_or(u32::MAX),
        is_here: !store.is_pruned(height)?,
        locators: copies.into_iter().map(|(_, locators)| locators).collect(),
    })
}
