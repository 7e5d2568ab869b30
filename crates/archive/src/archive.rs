//! An archive: a place with parts in it. Listing them, and reading them with everything checked.

use std::fs;
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use secateur_core::{Block, Height, Part};

use crate::key::{chain_prefix, day_prefix};
use crate::leftover::wanted_name;
use crate::listing::top_of;
use crate::part::{ObjectRange, PartReader};
use crate::remote::{Remote, path_of};
use crate::settings::s3_client;
use crate::{
    ArchiveError, ArchiveUrl, Check, Day, Grain, Kind, MAX_MANIFEST_LEN, Manifest, Metrics,
    PartHeader, PartKey, Retry, Settings,
};

/// Manifests that are asked for at the same time.
const MANIFESTS_AHEAD: usize = 8;
/// More gaps than this are not told.
const MAX_GAPS: usize = 10_000;

/// A place with parts in it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Archive {
    pub(crate) remote: Remote,
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
    pub fn open(url: &ArchiveUrl, settings: &Settings) -> Result<Self, ArchiveError> {
        let retry = settings.retry;
        match url {
            ArchiveUrl::Directory(path) => {
                let root = fs::canonicalize(path).map_err(ArchiveError::stage("opening", path))?;
                let store = LocalFileSystem::new_with_prefix(&root)
                    .map_err(ArchiveError::storage("opening", path.display().to_string()))?
                    .with_fsync(true);
                let provider = ArchiveUrl::Directory(root.clone()).to_string();
                let mut archive = Self::with_store(Arc::new(store), &provider, retry);
                archive.remote.directory = Some(Arc::from(root.as_path()));
                Ok(archive)
            }
            ArchiveUrl::S3 { bucket, prefix } => {
                let client = s3_client(bucket, settings)?;
                let store: Arc<dyn ObjectStore> = if prefix.is_empty() {
                    client
                } else {
                    Arc::new(PrefixStore::new(client, prefix.as_str()))
                };
                Ok(Self::with_store(store, &url.to_string(), retry))
            }
        }
    }

    /// The same, and makes the directory if it is missing.
    pub fn create(url: &ArchiveUrl, settings: &Settings) -> Result<Self, ArchiveError> {
        if let ArchiveUrl::Directory(path) = url {
            fs::create_dir_all(path).map_err(ArchiveError::stage("creating", path))?;
        }
        Self::open(url, settings)
    }

    /// An archive in any object store that lists its names in their order.
    pub fn with_store(store: Arc<dyn ObjectStore>, provider: &str, retry: Retry) -> Self {
        let metrics = Arc::new(Metrics::default());
        Self { remote: Remote::new(store, provider.into(), retry, metrics) }
    }

    /// What a locator says of this archive: its address.
    pub fn provider(&self) -> &str {
        &self.remote.provider
    }

    /// What is counted of requests to it, and by an archiver that writes to it.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.remote.metrics)
    }

    /// Refuses an archive that parts cannot be written to and read back from, without leaving anything there:
    /// a name that is not there is asked for, an upload is begun and given up, and a directory is asked
    /// whether it takes files.
    pub async fn check_writable(&self, chain_id: u64) -> Result<(), ArchiveError> {
        self.remote.check_writable(&format!("{}probe", chain_prefix(chain_id))).await
    }

    /// The chains that have parts here, and names at the top that are no chain's.
    pub(crate) async fn top(&self) -> Result<(Vec<u64>, Vec<String>), ArchiveError> {
        let (folders, mut foreign) = if let Some(root) = self.remote.directory.clone() {
            // Not as `object_store` lists it: that passes over some names.
            let listed = tokio::task::spawn_blocking(move || (top_of(&root), root)).await;
            let (listed, root) =
                listed.map_err(|e| ArchiveError::invalid("listing", e.to_string()))?;
            listed.map_err(ArchiveError::stage("listing", &root))?
        } else {
            let list = || {
                let store = Arc::clone(&self.remote.store);
                async move { store.list_with_delimiter(None).await }
            };
            let listed = self.remote.patiently("listing", "the archive", list).await?;
            let others = listed.objects.into_iter().map(|meta| meta.location.to_string());
            let folders = listed.common_prefixes.into_iter().map(|folder| folder.to_string());
            (folders.collect::<Vec<String>>(), others.collect::<Vec<String>>())
        };
        let mut chains = Vec::new();
        for name in folders {
            let id = name.strip_prefix("chain=").and_then(|id| id.parse::<u64>().ok());
            match id.filter(|id| chain_prefix(*id).trim_end_matches('/') == name) {
                Some(id) => chains.push(id),
                None => foreign.push(name),
            }
        }
        chains.sort_unstable();
        Ok((chains, foreign))
    }

    /// The chains that have parts here.
    pub async fn chains(&self) -> Result<Vec<u64>, ArchiveError> {
        self.top().await.map(|(chains, _)| chains)
    }

    /// The names of a chain's parts and manifests in their order, which is that of their heights,
    /// page by page. Names that are no part's are passed over; [`Archive::verify`] tells them.
    pub fn keys(
        &self,
        chain_id: u64,
        after: Option<&PartKey>,
    ) -> impl Stream<Item = Result<ListedKey, ArchiveError>> + Send + 'static {
        self.keys_below(&chain_prefix(chain_id), after.map(PartKey::object))
    }

    /// The names of a chain's listed parts in their order: those that have both a manifest and an
    /// object.
    pub fn listed(
        &self,
        chain_id: u64,
    ) -> impl Stream<Item = Result<PartKey, ArchiveError>> + Send + 'static {
        listed(self.keys(chain_id, None))
    }

    fn keys_below(
        &self,
        folder: &str,
        after: Option<String>,
    ) -> impl Stream<Item = Result<ListedKey, ArchiveError>> + Send + use<> {
        self.remote.names(folder, after).try_filter_map(move |name| {
            let parsed = PartKey::parse(&name.key).ok();
            if parsed.is_none() && wanted_name(&name.key).is_none() {
                tracing::warn!(key = name.key, "a name in the archive is no part's");
            }
            let listed = parsed.map(|(key, kind)| ListedKey { key, kind, size: name.size });
            futures_util::future::ready(Ok(listed))
        })
    }

    /// The first and the last height that listed parts of a chain have. By names alone, and by few of
    /// them: the first ones, those of days, and those of the last day that has a listed part.
    pub async fn ends(&self, chain_id: u64) -> Result<Option<(Height, Height)>, ArchiveError> {
        let first = std::pin::pin!(self.listed(chain_id)).try_next().await?;
        let Some(PartKey { first, mut last, .. }) = first else { return Ok(None) };
        for day in self.days(chain_id).await?.into_iter().rev() {
            let keys = listed(self.keys_below(&day_prefix(chain_id, day), None));
            let mut heights = std::pin::pin!(keys.map_ok(|key| key.last));
            let mut found = false;
            while let Some(height) = heights.try_next().await? {
                (last, found) = (last.max(height), true);
            }
            if found {
                break;
            }
        }
        Ok(Some((first, last)))
    }

    /// The highest listed part that begins at or below a block. By names alone, from the last day
    /// back.
    pub async fn highest(
        &self,
        chain_id: u64,
        at: Height,
    ) -> Result<Option<PartKey>, ArchiveError> {
        for day in self.days(chain_id).await?.into_iter().rev() {
            let keys = listed(self.keys_below(&day_prefix(chain_id, day), None));
            let below = keys.try_filter(|key| futures_util::future::ready(key.first <= at));
            let keep = |_, key| futures_util::future::ready(Ok(Some(key)));
            let last = below.try_fold(None::<PartKey>, keep).await?;
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// The days under which a chain has anything, in their order.
    async fn days(&self, chain_id: u64) -> Result<Vec<Day>, ArchiveError> {
        let prefix = chain_prefix(chain_id);
        let folder = path_of(prefix.trim_end_matches('/'))?;
        let list = || {
            let (store, folder) = (Arc::clone(&self.remote.store), folder.clone());
            async move { store.list_with_delimiter(Some(&folder)).await }
        };
        let listed = self.remote.patiently("listing", &prefix, list).await?;
        let day = |folder: &Path| folder.filename()?.strip_prefix("day=")?.parse().ok();
        let mut days: Vec<Day> = listed.common_prefixes.iter().filter_map(day).collect();
        days.sort_unstable();
        Ok(days)
    }

    /// The listed parts of a chain that end at `from` or above, in the order of their heights, page
    /// by page: memory does not grow with the archive.
    pub fn parts(
        &self,
        chain_id: u64,
        from: Height,
    ) -> impl Stream<Item = Result<Manifest, ArchiveError>> + Send + 'static {
        let archive = self.clone();
        self.listed(chain_id)
            .try_filter(move |key| futures_util::future::ready(key.last >= from))
            .map_ok(move |key| {
                let archive = archive.clone();
                async move { archive.manifest(&key).await }
            })
            .try_buffered(MANIFESTS_AHEAD)
    }

    /// The listed part that has a block.
    pub async fn find(
        &self,
        chain_id: u64,
        height: Height,
    ) -> Result<Option<Manifest>, ArchiveError> {
        let mut keys = std::pin::pin!(self.listed(chain_id));
        while let Some(key) = keys.try_next().await? {
            if key.first > height {
                break;
            }
            if height <= key.last {
                return self.manifest(&key).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The listed parts that have blocks of a range, in their order; an empty answer if they are more
    /// than `most`.
    pub async fn over(
        &self,
        chain_id: u64,
        range: RangeInclusive<Height>,
        most: usize,
    ) -> Result<Vec<Manifest>, ArchiveError> {
        let mut found = Vec::new();
        let mut keys = std::pin::pin!(self.listed(chain_id));
        while let Some(key) = keys.try_next().await? {
            if key.first > *range.end() {
                break;
            }
            if key.last >= *range.start() {
                found.push(key);
            }
            if found.len() > most {
                return Ok(Vec::new());
            }
        }
        let manifests = found.iter().map(|key| self.manifest(key));
        futures_util::stream::iter(manifests).buffered(MANIFESTS_AHEAD).try_collect().await
    }

    /// A part's manifest.
    pub async fn manifest(&self, key: &PartKey) -> Result<Manifest, ArchiveError> {
        let name = key.manifest();
        match self.remote.small(&name, MAX_MANIFEST_LEN).await? {
            Some(bytes) => Manifest::from_bytes(key, &bytes),
            None => Err(ArchiveError::Missing { key: name, provider: self.provider().to_owned() }),
        }
    }

    /// How a part was cut of which only one of its two objects is there.
    pub(crate) async fn grain_of(&self, half: &ListedKey) -> Result<Grain, ArchiveError> {
        match half.kind {
            Kind::Manifest => self.manifest(&half.key).await.map(|manifest| manifest.grain),
            Kind::Object => {
                let reader = self.open_part(&half.key, half.size).await?;
                Ok(reader.header().grain)
            }
        }
    }

    /// Opens a part for reading; its header is compared with what is known of it.
    pub async fn reader(&self, part: &Part) -> Result<PartReader<ObjectRange>, ArchiveError> {
        part.check()?;
        let key = PartKey::parse_object(&part.locator.key)?;
        let name = key.object();
        match self.remote.size(&name).await? {
            Some(size) if size == part.size => {}
            Some(size) => {
                return Err(ArchiveError::damaged(
                    name,
                    size_differs(size, part.size, "was noted"),
                ));
            }
            None => {
                let provider = self.provider().to_owned();
                return Err(ArchiveError::Missing { key: name, provider });
            }
        }
        let reader = self.open_part(&key, part.size).await?;
        let header = reader.header();
        if (header.first, header.last) != (part.first, part.last)
            || (header.parent_hash, header.last_hash) != (part.parent_hash, part.last_hash)
        {
            return Err(ArchiveError::damaged(name, "it has other blocks than it should"));
        }
        Ok(reader)
    }

    /// Opens a part whose size is known; its header is compared with its name.
    pub(crate) async fn open_part(
        &self,
        key: &PartKey,
        size: u64,
    ) -> Result<PartReader<ObjectRange>, ArchiveError> {
        let source = ObjectRange::new(self.remote.clone(), key.object(), size);
        let reader = PartReader::open(source).await?;
        let PartHeader { chain_id, day, first, last, .. } = *reader.header();
        if (chain_id, day, first, last) != (key.chain_id, key.day, key.first, key.last) {
            return Err(ArchiveError::damaged(key.object(), "it is another part than its name"));
        }
        Ok(reader)
    }

    /// One block of a part, checked. Reads the part's end, its beginning and one frame.
    pub async fn fetch_block(
        &self,
        part: &Part,
        height: Height,
        check: Check,
    ) -> Result<Block, ArchiveError> {
        self.reader(part).await?.block(height, check).await
    }

    /// Reads a whole part and proves that it is what `part` says: its hash, its range, its blocks
    /// and their links. This is a node's own check of an acknowledged part.
    pub async fn read_back(&self, part: &Part, check: Check) -> Result<Manifest, ArchiveError> {
        let reader = self.reader(part).await?;
        let manifest = reader.scan(check).finish().await?;
        if !manifest.sha256.to_string().eq_ignore_ascii_case(&part.sha256) {
            let (key, got) = (part.locator.key.clone(), manifest.sha256);
            let reason = format!("its SHA-256 is {got}, not {}", part.sha256);
            return Err(ArchiveError::damaged(key, reason));
        }
        if manifest.key().object() != part.locator.key {
            let reason = "its name has another SHA-256";
            return Err(ArchiveError::damaged(&*part.locator.key, reason));
        }
        Ok(manifest)
    }

    /// The ranges that are in no listed part, from the archive's first height on; with `upto` also
    /// what is missing up to there. Names alone are looked at.
    pub async fn gaps(
        &self,
        chain_id: u64,
        upto: Option<Height>,
    ) -> Result<Vec<RangeInclusive<Height>>, ArchiveError> {
        let mut gaps = Vec::new();
        let mut next = None;
        let mut keys = std::pin::pin!(self.listed(chain_id));
        while let Some(key) = keys.try_next().await? {
            let expected = match next {
                Some(expected) => expected,
                None => self.manifest(&key).await?.origin,
            };
            if key.first > expected && gaps.len() < MAX_GAPS {
                gaps.push(expected..=key.first - 1);
            }
            next = Some(expected.max(key.last.saturating_add(1)));
        }
        let next = next.unwrap_or(0);
        if let Some(upto) = upto.filter(|upto| *upto >= next) {
            gaps.push(next..=upto);
        }
        Ok(gaps)
    }
}

/// What to say of an object whose size is another one than it should be.
pub(crate) fn size_differs(size: u64, wanted: u64, says: &str) -> String {
    let (by, than) = (size.abs_diff(wanted), if size < wanted { "shorter" } else { "longer" });
    let s = if by == 1 { "" } else { "s" };
    format!("it is {by} byte{s} {than} than {says}: {size}, not {wanted}")
}

/// The parts of a listing: a manifest, and right behind it the object that it lists. One without the
/// other is no part.
pub(crate) fn listed(
    keys: impl Stream<Item = Result<ListedKey, ArchiveError>> + Send + 'static,
) -> impl Stream<Item = Result<PartKey, ArchiveError>> + Send + 'static {
    let mut manifest = None::<PartKey>;
    keys.try_filter_map(move |listed| {
        let before = manifest.take();
        let key = match listed.kind {
            Kind::Object => before.filter(|before| *before == listed.key),
            Kind::Manifest => {
                manifest = Some(listed.key);
                None
            }
        };
        futures_util::future::ready(Ok(key))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The archive's own folder took files, and the chain's did not: the first part found that out.
    #[tokio::test]
    async fn a_chains_folder_that_takes_no_files_is_not_writable() {
        let dir = tempfile::tempdir().unwrap();
        let url: ArchiveUrl = dir.path().to_str().unwrap().parse().unwrap();
        let archive = Archive::create(&url, &Settings::default()).unwrap();
        archive.check_writable(1).await.unwrap();
        fs::create_dir(dir.path().join("chain=1")).unwrap();
        archive.check_writable(1).await.unwrap();
        fs::write(dir.path().join("chain=2"), "no directory").unwrap();
        let error = archive.check_writable(2).await.unwrap_err();
        assert!(error.to_string().contains("chain=2"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left there");
    }
}
