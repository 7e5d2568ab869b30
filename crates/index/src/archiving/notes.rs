//! The index's rows of parts and the archive's names are brought together. The archive is right: the
//! rows are a cache of it.

use std::collections::{BTreeSet, VecDeque};

use futures_util::TryStreamExt as _;
use secateur_archive::PartKey;
use secateur_core::Height;

use super::{Archiving, explain, row_of};
use crate::sink::MAX_PAGE;
use crate::source::Source;
use crate::worker::unix_now;
use crate::{IndexError, PartRow, Sink};

/// The rows of an index, a page at a time.
struct Rows<'a, K> {
    sink: &'a K,
    page: VecDeque<PartRow>,
    from: Option<Height>,
}

impl<K: Sink> Rows<'_, K> {
    /// Takes the next row that begins at or below a block.
    async fn up_to(&mut self, height: Height) -> Result<Option<PartRow>, IndexError> {
        if self.page.is_empty()
            && let Some(from) = self.from
        {
            self.page = self.sink.parts(from, MAX_PAGE).await?.into();
            self.from = self.page.back().and_then(|row| row.block_from.checked_add(1));
        }
        Ok(self.page.pop_front_if(|row| row.block_from <= height))
    }
}

/// What rows were taken away.
#[derive(Debug, Default)]
struct Forgotten {
    /// Of parts that this archive does not have any more.
    gone: u64,
    /// Of another archive's, and which one.
    elsewhere: Option<(u64, String)>,
}

impl<S: Source, K: Sink> Archiving<S, K> {
    /// Notes parts that are in the archive and not in the index, and forgets those that are in the
    /// index and not in the archive: one that was removed, or another archive's. Where the removed
    /// ones ended is added to `ends`: what comes in their place is to be the same.
    pub(super) async fn agree_with_archive(
        &self,
        ends: &mut BTreeSet<Height>,
    ) -> Result<(), IndexError> {
        if self.sink.last_part().await?.is_none() {
            return self.note_all().await;
        }
        let mut rows = Rows { sink: self.sink.as_ref(), page: VecDeque::new(), from: Some(0) };
        let mut listed = Box::pin(self.archive.listed(self.options.chain_id));
        let (mut below, mut forgotten) = (None::<PartKey>, Forgotten::default());
        while let Some(key) = listed.try_next().await.map_err(explain)? {
            if let Some(below) = below.filter(|below| key.first <= below.last) {
                return Err(overlap(&key, &below));
            }
            let mut known = false;
            while let Some(row) = rows.up_to(key.last).await? {
                if self.is_of(&row, &key) {
                    known = true;
                } else {
                    self.forget(&row, &mut forgotten, ends).await?;
                }
            }
            if !known {
                let manifest = self.archive.manifest(&key).await.map_err(explain)?;
                let row = row_of(&manifest.part(self.archive.provider()))?;
                self.sink.add_part(row, unix_now()).await?;
            }
            below = Some(key);
        }
        while let Some(row) = rows.up_to(Height::MAX).await? {
            self.forget(&row, &mut forgotten, ends).await?;
        }
        let Forgotten { gone, elsewhere } = forgotten;
        let archive = self.archive.provider();
        if gone > 0 {
            tracing::warn!(gone, archive, "the index noted parts that the archive has not");
        }
        if let Some((parts, before)) = elsewhere {
            let told = "the index noted parts of another archive; it follows this one now";
            tracing::warn!(parts, before, archive, "{told}");
        }
        Ok(())
    }

    async fn forget(
        &self,
        row: &PartRow,
        forgotten: &mut Forgotten,
        ends: &mut BTreeSet<Height>,
    ) -> Result<(), IndexError> {
        self.sink.forget_part(row.block_from).await?;
        if row.provider == self.archive.provider() {
            forgotten.gone += 1;
            ends.insert(row.block_to);
        } else {
            let elsewhere = forgotten.elsewhere.take();
            let (parts, before) = elsewhere.unwrap_or_else(|| (0, row.provider.clone()));
            forgotten.elsewhere = Some((parts + 1, before));
        }
        Ok(())
    }

    fn is_of(&self, row: &PartRow, key: &PartKey) -> bool {
        row.provider == self.archive.provider() && row.object_key == key.object()
    }

    /// Notes everything: the index knows no part.
    async fn note_all(&self) -> Result<(), IndexError> {
        let mut listed = Box::pin(self.archive.parts(self.options.chain_id, 0));
        let mut below = None::<PartKey>;
        while let Some(manifest) = listed.try_next().await.map_err(explain)? {
            let key = manifest.key();
            if let Some(below) = below.filter(|below| key.first <= below.last) {
                return Err(overlap(&key, &below));
            }
            let row = row_of(&manifest.part(self.archive.provider()))?;
            self.sink.add_part(row, unix_now()).await?;
            below = Some(key);
        }
        Ok(())
    }
}

fn overlap(key: &PartKey, below: &PartKey) -> IndexError {
    let reason =
        format!("{key} has blocks that {below} has as well; run `secateur archive verify`");
    IndexError::ArchiveIo { reason, retryable: false }
}
