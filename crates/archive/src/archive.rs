//! An archive: a place with parts in it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::Stream;
use object_store::ObjectStore;
use secateur_core::{Block, Height, Part};

use crate::part::{ObjectRange, PartReader};
use crate::{ArchiveError, ArchiveUrl, Check, Kind, Manifest, PartKey, Retry, Settings};

/// A place with parts in it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Archive {
    #[expect(dead_code, reason = "soon")]
    store: Arc<dyn ObjectStore>,
    provider: Arc<str>,
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    /// The part it belongs to.
    pub key: PartKey,
    /// Which of its two objects it is.
    pub kind: Kind,
    /// Its bytes.
    pub size: u64,
}

impl Archive {
    /// Opens an archive that is there. For a directory this fails if it does not exist; a bucket
    /// is not asked anything yet.
    pub fn open(_url: &ArchiveUrl, _settings: &Settings) -> Result<Self, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// The same, and makes the directory if it is missing.
    pub fn create(_url: &ArchiveUrl, _settings: &Settings) -> Result<Self, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// An archive in any object store that lists its names in their order.
    pub fn with_store(store: Arc<dyn ObjectStore>, provider: &str, _retry: Retry) -> Self {
        Self { store, provider: provider.into() }
    }

    /// What a locator says of this archive: its address.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The chains that have parts here.
    pub async fn chains(&self) -> Result<Vec<u64>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// The listed parts of a chain that end at `from` or above, in the order of their heights, page
    /// by page: memory does not grow with the archive.
    pub fn parts(
        &self,
        _chain_id: u64,
        _from: Height,
    ) -> impl Stream<Item = Result<Manifest, ArchiveError>> + Send + 'static {
        futures_util::stream::empty()
    }

    /// The listed part that has a block.
    pub async fn find(
        &self,
        _chain_id: u64,
        _height: Height,
    ) -> Result<Option<Manifest>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// A part's manifest.
    pub async fn manifest(&self, _key: &PartKey) -> Result<Manifest, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Opens a part for reading; its header is compared with what is known of it.
    pub async fn reader(&self, _part: &Part) -> Result<PartReader<ObjectRange>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// One block of a part, checked. Reads the part's end, its beginning and one frame.
    pub async fn fetch_block(
        &self,
        _part: &Part,
        _height: Height,
        _check: Check,
    ) -> Result<Block, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Reads a whole part and proves that it is what `part` says: its hash, its range, its blocks
    /// and their links. This is a node's own check of an acknowledged part.
    pub async fn read_back(&self, _part: &Part, _check: Check) -> Result<Manifest, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// The ranges between listed parts that are in none, from the archive's first height on; with
    /// `upto` also what is missing up to there.
    pub async fn gaps(
        &self,
        _chain_id: u64,
        _upto: Option<Height>,
    ) -> Result<Vec<RangeInclusive<Height>>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}
