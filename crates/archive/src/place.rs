//! Where an archiver goes on: told by the names in the archive, and by its stage.

use futures_util::TryStreamExt;
use secateur_core::{BlockHash, Height};

use crate::archive::listed;
use crate::stage::Staged;
use crate::{Archive, ArchiveError, ArchiverOptions, Day, Manifest, PartKey};

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
}

impl Place {
    fn behind(manifest: &Manifest) -> Self {
        Self {
            next: manifest.last.saturating_add(1),
            previous: Some(manifest.last_hash),
            day: Some(manifest.day),
            origin: manifest.origin,
        }
    }

    /// Finds the place from the archive's names. The run of parts that reaches `first`, or begins
    /// behind it, is followed to its end or to the first gap.
    pub(crate) async fn find(
        archive: &Archive,
        options: &ArchiverOptions,
    ) -> Result<Self, ArchiveError> {
        let settled = match &options.settled {
            Some(part) => Some(PartKey::parse_object(&part.locator.key)?),
            None => None,
        };
        let keys = archive.keys(options.chain_id, settled.as_ref());
        let mut keys = std::pin::pin!(listed(keys));
        let mut end: Option<PartKey> = settled;
        while let Some(key) = keys.try_next().await? {
            if let Some(end) = end {
                let next = end.last.saturating_add(1);
                if key.first < next {
                    let reason = format!("it has blocks that {end} has as well");
                    return Err(ArchiveError::damaged(key.manifest(), reason));
                }
                if key.first > next && next >= options.first {
                    tracing::warn!(next, found = key.first, "the archive has a gap; it is filled");
                    break;
                }
            }
            end = Some(key);
        }
        let Some(end) = end else { return Ok(Self::beginning(options, None)) };
        if end.last.saturating_add(1) < options.first {
            return Ok(Self::beginning(options, Some(end.day)));
        }
        Ok(Self::behind(&archive.manifest(&end).await?))
    }

    fn beginning(options: &ArchiverOptions, day: Option<Day>) -> Self {
        Self { next: options.first, previous: None, day, origin: options.first }
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
            let follows = manifest.first == self.next
                && self.previous.is_none_or(|hash| hash == manifest.parent_hash);
            if follows {
                self = Self::behind(manifest);
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
