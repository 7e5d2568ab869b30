//! Read-through: a block that was cut here, from the part that holds it, recomputed from its bytes
//! before anybody sees it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use secateur_archive::{ArchiveError, Check, Manifest};
use secateur_core::{Block, BlockHash, Height, Locator, Part, TxId, receipts, tx_index};
use secateur_store::ground::disk::DiskStore;
use tokio::time::Instant;

use super::Vault;
use super::frames::Origin;
use crate::service::{ApiError, Due, due};
use crate::ui::words::span;

/// Blocks that a lookup by hash looks through at most, where only a range is known.
const MOST_SEARCHED: u64 = 4_096;
/// An archive is silent if it was waited for for at least this part of what a lookup may take. Less is
/// left of a request whose time something else took.
const SILENT_PART: u32 = 4;
/// Parts in the place of one that is missing: more are not looked at.
const MOST_INSTEAD: usize = 256;

/// A block that came from the archive, and where it is there.
#[derive(Debug, Clone)]
pub(crate) struct Archived {
    pub(crate) block: Arc<Block>,
    pub(crate) locator: Locator,
}

impl Archived {
    /// The place of a transaction in it.
    pub(crate) fn place_of(&self, id: &TxId) -> Option<u32> {
        tx_index(&self.block.payloads.tx_index)
            .filter_map(Result::ok)
            .find(|entry| entry.tx_id == *id)
            .map(|entry| entry.index)
    }

    /// The receipt of a transaction, if it has one.
    pub(crate) fn receipt_of(&self, id: &TxId) -> Option<&[u8]> {
        receipts(&self.block.payloads.receipts)
            .filter_map(Result::ok)
            .find(|entry| entry.tx_id == *id)
            .map(|entry| entry.bytes)
    }
}

/// Counts a lookup for as long as it asks.
struct Asking<'a>(&'a AtomicUsize);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Vault {
    /// A cut block by its number; none if no part is known to hold it.
    pub(crate) fn block(
        &self,
        store: &DiskStore,
        height: Height,
    ) -> Result<Option<Archived>, ApiError> {
        let _asking = self.ask()?;
        self.read(store, height, self.deadline())
    }

    /// A cut block by its hash; none if nothing says where it was.
    pub(crate) fn block_by_hash(
        &self,
        store: &DiskStore,
        hash: &BlockHash,
    ) -> Result<Option<Archived>, ApiError> {
        let traces = store.trace_block(hash)?;
        self.search(store, traces, |found| found.block.meta.hash == *hash)
    }

    /// The cut block of a transaction; none if nothing says where it was.
    pub(crate) fn block_of(
        &self,
        store: &DiskStore,
        id: &TxId,
    ) -> Result<Option<Archived>, ApiError> {
        let traces = store.trace_transaction(id)?;
        self.search(store, traces, |found| found.place_of(id).is_some())
    }

    /// Takes one of the places at the archive, or refuses: whoever would wait for one would keep
    /// lookups waiting that need no archive.
    fn ask(&self) -> Result<Asking<'_>, ApiError> {
        let before = self.reading.fetch_add(1, Ordering::AcqRel);
        let asking = Asking(&self.reading);
        if before < self.most_reading {
            return Ok(asking);
        }
        let provider = self.archive.provider().to_owned();
        Err(ApiError::ArchiveBusy { provider, asking: self.most_reading })
    }

    /// How long the archive is waited for: a little less long than the caller waits, who then learns
    /// that the archive is silent, and not that the request asked for too much.
    fn deadline(&self) -> Instant {
        let own = Instant::now() + self.patience;
        let before = |due: Instant| due.checked_sub(self.patience / 10).unwrap_or(due);
        due().map_or(own, |due| before(due.at).min(own))
    }

    fn search(
        &self,
        store: &DiskStore,
        traces: Vec<RangeInclusive<Height>>,
        wanted: impl Fn(&Archived) -> bool,
    ) -> Result<Option<Archived>, ApiError> {
        let _asking = self.ask()?;
        let deadline = self.deadline();
        let heights = traces.into_iter().flat_map(Iterator::rev);
        for (height, looked) in heights.zip(0..) {
            if looked >= MOST_SEARCHED {
                return Ok(None);
            }
            match self.read(store, height, deadline)? {
                Some(found) if wanted(&found) => return Ok(Some(found)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn read(
        &self,
        store: &DiskStore,
        height: Height,
        deadline: Instant,
    ) -> Result<Option<Archived>, ApiError> {
        let Some(part) = store.find_part(height)? else { return Ok(None) };
        if part.locator.provider != self.archive.provider() {
            // It is in another archive than the one we may ask.
            return Ok(None);
        }
        let chain_id = store.header().chain_id;
        let kept = self.frames.lock().get(height);
        let (origin, block) = if let Some(kept) = kept {
            kept
        } else {
            let began = Instant::now();
            let loading = async {
                tokio::time::timeout_at(deadline, self.load(chain_id, &part, height)).await
            };
            let waited = deadline.saturating_duration_since(began);
            let loaded = Self::wait(loading)?.map_err(|_| self.silent(waited, &part))?;
            let (origin, blocks) = loaded.map_err(|error| self.failed(&error))?;
            self.frames.lock().keep(origin.clone(), &blocks);
            let block = blocks.into_iter().find(|block| block.meta.height == height);
            let Some(block) = block else { return Ok(None) };
            (origin, block)
        };
        recomputed(origin, chain_id, block).map(Some)
    }

    /// What it means that a request's time was over before the archive answered, having been waited
    /// for so long.
    fn silent(&self, waited: Duration, part: &Part) -> ApiError {
        let due = due();
        let was_silent = due.as_ref().is_some_and(Due::archive_was_silent);
        let asked = waited >= self.patience / SILENT_PART;
        if !asked && !was_silent {
            // What came before it took the time.
            return ApiError::Timeout;
        }
        let provider = self.archive.provider().to_owned();
        if !asked {
            let what = "did not answer what was asked before this".to_owned();
            return ApiError::ArchiveSilent { provider, what, asked };
        }
        if let Some(due) = due {
            due.archive_is_silent();
        }
        let seconds = waited.as_secs() + u64::from(waited.subsec_nanos() > 0);
        let what = format!("did not answer within {}", span(seconds));
        let key = &part.locator.key;
        if self.silence_told.is_due(Instant::now()) {
            tracing::warn!(key, "the archive {provider} {what}");
        } else {
            tracing::debug!(key, "the archive {provider} {what}");
        }
        ApiError::ArchiveSilent { provider, what, asked }
    }

    /// The blocks of the frame that holds a block. They link to one another; nothing else is known
    /// of them yet. Where the part that is known is missing, the one in its place is read.
    async fn load(
        &self,
        chain_id: u64,
        part: &Part,
        height: Height,
    ) -> Result<(Origin, Vec<Arc<Block>>), ArchiveError> {
        let missing = match self.frame(part, height).await {
            Err(error @ ArchiveError::Missing { .. }) => error,
            loaded => return loaded,
        };
        let range = part.first..=part.last;
        let listed = self.archive.over(chain_id, range, MOST_INSTEAD).await?;
        let found = listed.iter().find(|manifest| manifest.covers(height));
        let Some(instead) = found.filter(|_| stands_for(&listed, part)) else {
            return Err(missing);
        };
        let instead = instead.part(self.archive.provider());
        let (key, gone) = (&instead.locator.key, &part.locator.key);
        tracing::debug!(gone, key, height, "a part is missing; the one in its place is read");
        self.frame(&instead, height).await
    }

    async fn frame(
        &self,
        part: &Part,
        height: Height,
    ) -> Result<(Origin, Vec<Arc<Block>>), ArchiveError> {
        let reader = self.archive.reader(part).await?;
        let blocks = reader.frame_around(height).await?;
        let origin = Origin { codec: reader.header().codec, locator: part.locator.clone() };
        Ok((origin, blocks.into_iter().map(Arc::new).collect()))
    }
}

/// Whether listed parts are of the same blocks as the part that was verified here: they have all of
/// them, each stands on the one below it, and one of the ends is the part's own.
fn stands_for(listed: &[Manifest], part: &Part) -> bool {
    let (Some(first), Some(last)) = (listed.first(), listed.last()) else { return false };
    let follows = |pair: &[Manifest]| match pair {
        [below, above] => {
            below.last.checked_add(1) == Some(above.first) && below.last_hash == above.parent_hash
        }
        _ => true,
    };
    let begins = first.first == part.first;
    let ends = last.last == part.last;
    listed.windows(2).all(follows)
        && first.first <= part.first
        && last.last >= part.last
        && (begins || ends)
        && (!begins || first.parent_hash == part.parent_hash)
        && (!ends || last.last_hash == part.last_hash)
}

/// Recomputes a block from its bytes; one that is not what it says is never served.
fn recomputed(origin: Origin, chain_id: u64, block: Arc<Block>) -> Result<Archived, ApiError> {
    let Origin { codec, locator } = origin;
    match Check::Full.block(codec, chain_id, &block) {
        Ok(()) => Ok(Archived { block, locator }),
        Err(error) => {
            tracing::error!(%error, key = locator.key, "a part is not what it must be");
            Err(ApiError::Archive(format!("{}: {error}; it was not served", locator.key)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use secateur_archive::{Archive, ArchiveUrl, Settings};

    use super::*;
    use crate::service::until;
    use crate::vault::Seldom;
    use crate::vault::frames::Frames;

    fn vault(patience: Duration) -> (Vault, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        let url = ArchiveUrl::Directory(place.path().to_path_buf());
        let vault = Vault {
            archive: Archive::create(&url, &Settings::default()).unwrap(),
            verify_acks: true,
            read_through: true,
            reading: AtomicUsize::new(0),
            most_reading: 1,
            patience,
            frames: Frames::default().into(),
            silence_told: Seldom::default(),
            failure_told: Seldom::default(),
        };
        (vault, place)
    }

    /// A batch of healthy lookups that used up its time accused the archive, once for each call that
    /// was left.
    #[tokio::test]
    async fn an_archive_is_accused_only_by_a_request_in_which_it_was_silent() {
        let (vault, _place) = vault(Duration::from_secs(20));
        let hash = BlockHash::default();
        let part = Part {
            first: 0,
            last: 9,
            parent_hash: hash,
            last_hash: hash,
            locator: Locator { provider: "file".into(), key: "0-9.part".into() },
            sha256: String::new(),
            size: 1,
        };
        let asked = |waited| match vault.silent(Duration::from_secs(waited), &part) {
            ApiError::ArchiveSilent { asked, .. } => Some(asked),
            ApiError::Timeout => None,
            other => panic!("{other}"),
        };
        let request = || Due::at(Instant::now());
        until(request(), async {
            assert_eq!([0, 4].map(&asked), [None, None], "other lookups took the time");
            assert_eq!(asked(5), Some(true));
            assert_eq!(asked(0), Some(false), "it was silent before");
        })
        .await;
        until(request(), async { assert_eq!(asked(0), None, "a request of its own") }).await;
    }
}
