//! Where an archiver goes on: told by the names in the archive, and by its stage.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use futures_util::TryStreamExt;
use secateur_core::{BlockHash, Height};

use crate::stage::Staged;
use crate::{
    Archive, ArchiveError, ArchiverOptions, Day, Grain, Kind, ListedKey, Manifest, PartKey,
};

/// More gaps that stay are not remembered.
const MAX_LEFT: usize = 10_000;
/// More halves of parts are not remembered.
const MAX_HALVES: usize = 100_000;

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
    /// How the listed part below was cut.
    pub(crate) grain: Option<Grain>,
    /// The gap that is to be filled from here on, if listed parts are above.
    pub(crate) gap: Option<Gap>,
}

/// A place, and what else the archive's names tell.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// Gaps below it that cannot be filled.
    pub(crate) left: Vec<RangeInclusive<Height>>,
    /// Objects without a manifest and manifests without an object, where blocks are missing, by
    /// their first block: what fills the place is cut as they were.
    pub(crate) halves: BTreeMap<Height, ListedKey>,
    /// Those of the staged parts that are listed.
    listed: HashSet<PartKey>,
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
            grain: Some(manifest.grain),
            gap: None,
        }
    }

    /// Whether the gap that was to be filled is.
    pub(crate) fn is_filled(&self) -> bool {
        self.gap.is_some_and(|gap| self.next > gap.last)
    }

    fn beginning(options: &ArchiverOptions, day: Option<Day>) -> Self {
        let first = options.first;
        Self { next: first, previous: None, day, origin: first, grain: None, gap: None }
    }

    /// The end of what is listed.
    async fn end(
        archive: &Archive,
        options: &ArchiverOptions,
        end: Option<PartKey>,
    ) -> Result<Self, ArchiveError> {
        let Some(end) = end else { return Ok(Self::beginning(options, None)) };
        if end.last.saturating_add(1) < options.first {
            return Ok(Self::beginning(options, Some(end.day)));
        }
        Ok(Self::behind(&archive.manifest(&end).await?))
    }

    /// What of the gap is still missing.
    pub(crate) fn missing(&self) -> Option<RangeInclusive<Height>> {
        self.gap.filter(|gap| gap.last >= self.next).map(|gap| self.next..=gap.last)
    }
}

impl Found {
    /// Finds the place from the archive's names: the first gap that can be filled, or the end of
    /// what is listed.
    pub(crate) async fn find(
        archive: &Archive,
        options: &ArchiverOptions,
        staged: &[Staged],
    ) -> Result<Self, ArchiveError> {
        let staged: HashSet<PartKey> = staged.iter().map(|part| part.manifest.key()).collect();
        let (mut left, mut listed, mut halves) = (Vec::new(), HashSet::new(), BTreeMap::new());
        let (mut end, mut manifest) = (None::<PartKey>, None::<ListedKey>);
        let keep = |halves: &mut BTreeMap<Height, ListedKey>, half: ListedKey| {
            if halves.len() < MAX_HALVES {
                halves.entry(half.key.first).or_insert(half);
            }
        };
        let mut names = std::pin::pin!(archive.keys(options.chain_id, None));
        while let Some(name) = names.try_next().await? {
            let (key, before) = (name.key, manifest.take());
            let whole = name.kind == Kind::Object && before.as_ref().is_some_and(|m| m.key == key);
            if !whole {
                if let Some(before) = before {
                    keep(&mut halves, before);
                }
                match name.kind {
                    Kind::Manifest => manifest = Some(name),
                    Kind::Object => keep(&mut halves, name),
                }
                continue;
            }
            let next = end.map_or(0, |end| end.last.saturating_add(1));
            if let Some(end) = end.filter(|_| key.first < next) {
                let reason = format!("it has blocks that {end} has as well");
                return Err(ArchiveError::damaged(key.manifest(), reason));
            }
            if key.first > next
                && let Some(place) = below(archive, options, end, &key, &mut left).await?
            {
                return Ok(Self { place, left, halves, listed });
            }
            halves.clear();
            if staged.contains(&key) {
                listed.insert(key);
            }
            end = Some(key);
        }
        if let Some(half) = manifest {
            keep(&mut halves, half);
        }
        let place = Place::end(archive, options, end).await?;
        Ok(Self { place, left, halves, listed })
    }

    /// Goes on behind finished parts in the stage. Gives those that are of use, and those that are
    /// not: one that follows is, and one that is listed as it is. Whatever else is there is of another
    /// time or another archive, and its blocks come again.
    pub(crate) fn with_stage(
        &mut self,
        staged: Vec<Staged>,
        options: &ArchiverOptions,
    ) -> Result<(Vec<Staged>, Vec<Staged>), ArchiveError> {
        let (mut useful, mut useless) = (Vec::new(), Vec::new());
        for part in staged {
            let manifest = &part.manifest;
            if manifest.chain_id != options.chain_id {
                let reason = format!("it has parts of chain {}", manifest.chain_id);
                return Err(ArchiveError::invalid("stage directory", reason));
            }
            let place = &mut self.place;
            let fits = |gap: Gap| {
                manifest.last < gap.last
                    || (manifest.last == gap.last && manifest.last_hash == gap.hash)
            };
            let half = self.halves.get(&manifest.first);
            let follows = manifest.first == place.next
                && place.previous.is_none_or(|hash| hash == manifest.parent_hash)
                && place.gap.is_none_or(fits)
                && options.ends.range(manifest.first..manifest.last).next().is_none()
                && half.is_none_or(|half| half.key == manifest.key());
            if follows {
                *place = Place { gap: place.gap, ..Place::behind(manifest) };
            }
            if follows || self.listed.contains(&manifest.key()) {
                useful.push(part);
            } else {
                useless.push(part);
            }
        }
        Ok((useful, useless))
    }
}

/// The gap below a listed part, if there is one and it can be filled: from the part below it on, or
/// from where the upper run began. One that cannot is among what is `left`.
async fn below(
    archive: &Archive,
    options: &ArchiverOptions,
    below: Option<PartKey>,
    above: &PartKey,
    left: &mut Vec<RangeInclusive<Height>>,
) -> Result<Option<Place>, ArchiveError> {
    let Some(last) = above.first.checked_sub(1) else { return Ok(None) };
    let least = options.first.max(options.oldest);
    let upper = archive.manifest(above).await?;
    let gap = Some(Gap { last, hash: upper.parent_hash, grain: upper.grain });
    if let Some(below) = below.filter(|below| below.last.saturating_add(1) >= least) {
        let place = Place::behind(&archive.manifest(&below).await?);
        return Ok(Some(Place { gap, ..place }));
    }
    let origin = upper.origin;
    if (least..above.first).contains(&origin) {
        let (day, grain) = (below.map(|below| below.day), None);
        return Ok(Some(Place { next: origin, previous: None, day, origin, grain, gap }));
    }
    let next = below.map_or(origin, |below| below.last.saturating_add(1));
    if next <= last && left.len() < MAX_LEFT {
        left.push(next..=last);
    }
    Ok(None)
}
