//! Two archivers of one archive. With the same grain they make the same parts; with another one only
//! one of them may list.
//!
//! An uploaded object is a claim on its blocks, and names are listed after they were written: of two
//! that claim the same blocks at least one sees the other. Whoever sees a claim does not list at once.
//! The one whose name is lower waits for what the other may have been about to do, and lists; the other
//! waits twice as long, and finds that listed, or the claim of somebody who is no more. Nothing is
//! taken on trust from a storage but that it lists what was written: no locks, no conditions, no right
//! to delete. What deliberately is not here: any way to take a listed part back.

use std::time::Instant;

use futures_util::TryStreamExt;
use secateur_core::{Part, format_duration};

use crate::{ArchiveError, Archiver, Check, Kind, Manifest, PartKey};

/// What other archivers did with the blocks of a part.
#[derive(Debug)]
pub(crate) enum Others {
    /// Nothing.
    None,
    /// They listed a part of the same blocks that is as good.
    Twin(Part),
    /// They uploaded one of some of them, and did not list it; the lowest such name.
    Claim(PartKey),
}

impl Archiver {
    /// Looks for parts of the same blocks under other names. A listed one of exactly these blocks was
    /// made by another version of the compressor: the same raw bytes are as good, and other ones are a
    /// conflict. A listed one with other ends is another archiver's.
    pub(crate) async fn others(&self, ours: &Manifest) -> Result<Others, ArchiveError> {
        let key = ours.key();
        // Sorts before every part of this day that begins at the same height.
        let before = PartKey { last: ours.first, digest8: [0; 4], ..key };
        let mut names = std::pin::pin!(self.archive.keys(key.chain_id, Some(&before)));
        let (mut manifest, mut claim) = (None::<PartKey>, None::<PartKey>);
        while let Some(name) = names.try_next().await? {
            let (found, listed) = (name.key, manifest.take() == Some(name.key));
            if found.first > key.last {
                break;
            }
            match name.kind {
                Kind::Manifest => manifest = Some(found),
                Kind::Object if found == key => {}
                Kind::Object if listed => return self.compare(ours, &found).await,
                Kind::Object => claim = claim.or(Some(found)),
            }
        }
        Ok(claim.map_or(Others::None, Others::Claim))
    }

    async fn compare(&self, ours: &Manifest, found: &PartKey) -> Result<Others, ArchiveError> {
        let key = ours.key();
        if (found.first, found.last) != (key.first, key.last) {
            let (key, ours) = (found.object(), key.object());
            return Err(ArchiveError::Overlap { key, ours });
        }
        let theirs = self.archive.manifest(found).await?;
        let same =
            |m: &Manifest| (m.first, m.last, m.codec, m.parent_hash, m.last_hash, m.raw_sha256);
        if same(&theirs) != same(ours) {
            let reason = format!("it has blocks that {key} has as well");
            return Err(ArchiveError::Conflict { key: found.object(), reason });
        }
        let part = theirs.part(self.archive.provider());
        self.archive.read_back(&part, Check::Framing).await?;
        Ok(Others::Twin(part))
    }

    /// Decides whether an uploaded part may be listed. Gives the one that another archiver listed
    /// instead, if it is as good; other ones are an error.
    pub(crate) async fn contest(&self, ours: &Manifest) -> Result<Option<Part>, ArchiveError> {
        let (key, grace, begun) = (ours.key(), self.options.grace, Instant::now());
        let mut told = false;
        loop {
            let claim = match self.others(ours).await? {
                Others::None => return Ok(None),
                Others::Twin(part) => return Ok(Some(part)),
                Others::Claim(claim) => claim,
            };
            let lower =
                (claim.first, claim.last, claim.digest8) < (key.first, key.last, key.digest8);
            let wait = if lower { grace.saturating_mul(2) } else { grace };
            let Some(left) = wait.checked_sub(begun.elapsed()) else {
                tracing::info!(%claim, %key, "an uploaded part is listed by nobody; ours is");
                return Ok(None);
            };
            if !told {
                told = true;
                let what = "another archiver has, or had, uploaded some of the same blocks";
                let wait = format_duration(wait);
                tracing::warn!(%claim, %key, wait, "{what}; it is waited for");
            }
            tokio::time::sleep(left.min(grace / 8).max(std::time::Duration::from_millis(1))).await;
        }
    }
}
