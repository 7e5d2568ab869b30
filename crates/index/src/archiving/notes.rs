//! The index's rows of parts and the archive's names are brought together. The archive is right: the
//! rows are a cache of it. But a part that was removed is remembered by nobody else, so its row stays
//! until something is listed in its place: what fills the place is to be the same.

use std::collections::VecDeque;

use futures_util::TryStreamExt as _;
use secateur_archive::PartKey;
use secateur_core::Height;

use super::{Archiving, Memory, explain, row_of};
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

impl<S: Source, K: Sink> Archiving<S, K> {
    /// Notes parts that are in the archive and not in the index, and forgets rows of another archive,
    /// and those in whose place another part is listed. Rows of parts that were removed stay; where
    /// they ended is remembered.
    pub(super) async fn agree_with_archive(&self, memory: &mut Memory) -> Result<(), IndexError> {
        memory.gone.clear();
        if self.sink.last_part().await?.is_none() {
            memory.begun = self.note_all().await?;
            return Ok(());
        }
        let mut rows = Rows { sink: self.sink.as_ref(), page: VecDeque::new(), from: Some(0) };
        let mut listed = Box::pin(self.archive.listed(self.options.chain_id));
        let (mut below, mut elsewhere) = (None::<PartKey>, None::<(u64, String)>);
        while let Some(key) = listed.try_next().await.map_err(explain)? {
            if let Some(below) = below.filter(|below| key.first <= below.last) {
                return Err(overlap(&key, &below));
            }
            let mut known = false;
            while let Some(row) = rows.up_to(key.last).await? {
                if self.is_of(&row, &key) {
                    known = true;
                } else {
                    self.unlisted(&row, Some(&key), memory, &mut elsewhere).await?;
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
            self.unlisted(&row, None, memory, &mut elsewhere).await?;
        }
        memory.begun = below.is_some();
        let archive = self.archive.provider();
        if memory.gone.len() > memory.told_gone {
            let (gone, told) =
                (memory.gone.len(), "the index noted parts that the archive has not");
            tracing::warn!(gone, archive, "{told}");
        }
        memory.told_gone = memory.gone.len();
        if let Some((parts, before)) = elsewhere {
            let told = "the index noted parts of another archive; it follows this one now";
            tracing::warn!(parts, before, archive, "{told}");
        }
        Ok(())
    }

    /// A row whose part is not listed; `above` is the listed part at or above it. Rows of another
    /// archive, and how many, are told in `elsewhere`.
    async fn unlisted(
        &self,
        row: &PartRow,
        above: Option<&PartKey>,
        memory: &mut Memory,
        elsewhere: &mut Option<(u64, String)>,
    ) -> Result<(), IndexError> {
        if row.provider != self.archive.provider() {
            let (parts, before) = elsewhere.take().unwrap_or_else(|| (0, row.provider.clone()));
            *elsewhere = Some((parts + 1, before));
            return self.sink.forget_part(row.block_from).await;
        }
        memory.ends.insert(row.block_to);
        if above.is_some_and(|above| row.block_to >= above.first) {
            // It cannot come back as it was.
            return self.sink.forget_part(row.block_from).await;
        }
        memory.gone.insert(row.block_from, row.block_to);
        Ok(())
    }

    /// A part is listed: rows of parts that were in its place go, unless it is that very part.
    pub(super) async fn replace_gone(
        &self,
        part: &PartRow,
        memory: &mut Memory,
    ) -> Result<(), IndexError> {
        let before = memory.gone.range(..=part.block_to).rev();
        let over = before.take_while(|(_, last)| **last >= part.block_from);
        let over: Vec<Height> = over.map(|(first, _)| *first).collect();
        for first in over {
            memory.gone.remove(&first);
            let row = self.sink.parts(first, 1).await?.pop();
            if row.is_some_and(|row| row.block_from == first && row != *part) {
                self.sink.forget_part(first).await?;
            }
        }
        Ok(())
    }

    pub(super) fn is_of(&self, row: &PartRow, key: &PartKey) -> bool {
        row.provider == self.archive.provider() && row.object_key == key.object()
    }

    /// Notes everything: the index knows no part. Whether there is any is the answer.
    async fn note_all(&self) -> Result<bool, IndexError> {
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
        Ok(below.is_some())
    }
}

fn overlap(key: &PartKey, below: &PartKey) -> IndexError {
    let reason =
        format!("{key} has blocks that {below} has as well; run `secateur archive verify`");
    IndexError::ArchiveIo { reason, retryable: false }
}
