//! Where an archiver goes on: told by the names in the archive, and by its stage.

use futures_util::TryStreamExt;
use secateur_core::{BlockHash, Height};

use crate::archive::listed;
use crate::stage::Staged;
use crate::{Archive, ArchiveError, ArchiverOptions, Day, Grain, Manifest, PartKey};

/// The end of what is archived or waits to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The next height.
    pub(crate) next: Height,
    /// The hash of the block below it, if that is known.
    pub(crate) previous: Option<BlockHash>,
    /// The day of the part below it.
    pub(crate) day: Option<Day>,
    /// Where the unbroken run began.
    pub(crate) origin: Height,
    /// The gap that is to be filled from here on, if listed parts are above.
    pub(crate) gap: Option<Gap>,
}

/// Blocks that no listed part has, below one that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The last of them.
    pub(crate) last: Height,
    /// Its hash, as the part above names it.
    pub(crate) hash: BlockHash,
    /// How the parts around it were cut: what fills it is then the same, byte for byte.
    pub(crate) grain: Grain,
}

impl Place {
    fn behind(manifest: &Manifest) -> Self {
        Self {
            next: manifest.last.saturating_add(1),
            previous: Some(manifest.last_hash),
            day: Some(manifest.day),
            origin: manifest.origin,
            gap: None,
        }
    }

    /// Whether the gap that was to be filled is.
    pub(crate) fn is_filled(&self) -> bool {
        self.gap.is_some_and(|gap| self.next > gap.last)
    }

    /// Finds the place from the archive's names: the first gap that can be filled, or the end of
    /// what is listed.
    pub(crate) async fn find(
        archive: &Archive,
        options: &ArchiverOptions,
    ) -> Result<Self, ArchiveError> {
        let mut keys = std::pin::pin!(listed(archive.keys(options.chain_id, None)));
        let mut end: Option<PartKey> = None;
        while let Some(key) = keys.try_next().await? {
            let next = end.map_or(0, |end| end.last.saturating_add(1));
            if let Some(end) = end.filter(|_| key.first < next) {
                let reason = format!("it has blocks that {end} has as well");
                return Err(ArchiveError::damaged(key.manifest(), reason));
            }
            if key.first > next
                && let Some(place) = Self::below(archive, options, end, &key).await?
            {
                return Ok(place);
            }
            end = Some(key);
        }
        let Some(end) = end else { return Ok(Self::beginning(options, None)) };
        if end.last.saturating_add(1) < options.first {
            return Ok(Self::beginning(options, Some(end.day)));
        }
        Ok(Self::behind(&archive.manifest(&end).await?))
    }

    /// The gap below a listed part, if there is one and it can be filled: from the part below it
    /// on, or from where the upper run began.
    async fn below(
        archive: &Archive,
        options: &ArchiverOptions,
        below: Option<PartKey>,
        above: &PartKey,
    ) -> Result<Option<Self>, ArchiveError> {
        let Some(last) = above.first.checked_sub(1) else { return Ok(None) };
        let least = options.first.max(options.oldest);
        let next = below.map(|below| below.last.saturating_add(1));
        let upper = archive.manifest(above).await?;
        let gap = Some(Gap { last, hash: upper.parent_hash, grain: upper.grain });
        let (next, place) = match below.filter(|below| below.last.saturating_add(1) >= least) {
            Some(below) => (next, Self::behind(&archive.manifest(&below).await?)),
            None if (least..above.first).contains(&upper.origin) => {
                let (origin, day) = (upper.origin, below.map(|below| below.day));
                (Some(origin), Self { next: origin, previous: None, day, origin, gap })
            }
            None => {
                if let Some(next) = next {
                    tracing::warn!(next, last, "the archive has a gap that the source cannot fill");
                }
                return Ok(None);
            }
        };
        tracing::warn!(next, last, "the archive has a gap; it is filled");
        Ok(Some(Self { gap, ..place }))
    }

    fn beginning(options: &ArchiverOptions, day: Option<Day>) -> Self {
        Self { next: options.first, previous: None, day, origin: options.first, gap: None }
    }

    /// Goes on behind finished parts in the stage. Gives those that are of use; one that neither
    /// follows nor is archived already is of another time.
    pub(crate) fn with_stage(
        mut self,
        staged: Vec<Staged>,
        chain_id: u64,
    ) -> Result<(Self, Vec<Staged>, Vec<Staged>), ArchiveError> {
        let (mut useful, mut useless) = (Vec::new(), Vec::new());
        for part in staged {
            let manifest = &part.manifest;
            if manifest.chain_id != chain_id {
                let reason = format!("it has parts of chain {}", manifest.chain_id);
                return Err(ArchiveError::invalid("stage directory", reason));
            }
            let fits = |gap: Gap| {
                manifest.last < gap.last
                    || (manifest.last == gap.last && manifest.last_hash == gap.hash)
            };
            let follows = manifest.first == self.next
                && self.previous.is_none_or(|hash| hash == manifest.parent_hash)
                && self.gap.is_none_or(fits);
            if follows {
                self = Self { gap: self.gap, ..Self::behind(manifest) };
            }
            if follows || manifest.last < self.next {
                useful.push(part);
            } else {
                useless.push(part);
            }
        }
        Ok((self, useful, useless))
    }
}
