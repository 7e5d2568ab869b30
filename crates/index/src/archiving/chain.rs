//! Whether an archive is of the chain that is here. Chains can share a number, and an archive that
//! reaches further than the source meets none of its blocks.
//!
//! The hashes in a manifest are compared with the blocks of the index, or else of the source. Blocks
//! name their parents: what is the same at one height is the same below it, so one part is enough.

use secateur_archive::{ArchiveError, PartKey};
use secateur_core::{BlockHash, Height};

use super::{Archiving, explain};
use crate::source::{Blocks as _, Source, SourceStatus};
use crate::{IndexError, Sink};

impl<S: Source, K: Sink> Archiving<S, K> {
    /// Refuses an archive of another chain, before anything of it is noted: by the highest part that
    /// can be compared. One that the index noted was compared before.
    pub(super) async fn same_chain(&self, status: &SourceStatus) -> Result<(), IndexError> {
        let tip = self.sink.tip().await?.map(|tip| tip.number);
        let Some(newest) = tip.max(status.head) else { return Ok(()) };
        let highest = self.archive.highest(self.options.chain_id, newest.saturating_add(1));
        let Some(key) = highest.await.map_err(explain)? else { return Ok(()) };
        let row = self.sink.parts(key.first, 1).await?.pop();
        if row.is_some_and(|row| self.is_of(&row, &key)) {
            return Ok(());
        }
        let manifest = self.archive.manifest(&key).await.map_err(explain)?;
        self.compare(status, &key, key.last, manifest.last_hash).await?;
        match key.first.checked_sub(1) {
            Some(below) => self.compare(status, &key, below, manifest.parent_hash).await,
            None => Ok(()),
        }
    }

    async fn compare(
        &self,
        status: &SourceStatus,
        key: &PartKey,
        height: Height,
        theirs: BlockHash,
    ) -> Result<(), IndexError> {
        let Some((ours, whose)) = self.hash_at(status, height).await? else { return Ok(()) };
        if ours == theirs {
            return Ok(());
        }
        let archive = self.archive.provider();
        let reason = format!(
            "{archive} is the archive of another chain with the same number: block {height} is \
             {theirs} by its part {key}, and {ours} {whose}. Nothing was changed there, nor in the \
             index; name another archive, or the source and the index of that chain"
        );
        Err(IndexError::ArchiveIo { reason, retryable: false })
    }

    /// The hash of a block, and who says so; none if nobody here has it.
    async fn hash_at(
        &self,
        status: &SourceStatus,
        height: Height,
    ) -> Result<Option<(BlockHash, &'static str)>, IndexError> {
        if let Some(hash) = self.sink.row_at(height).await?.and_then(|row| row.hash) {
            return Ok(Some((hash, "in the index")));
        }
        if status.oldest.is_none_or(|oldest| height < oldest)
            || status.head.is_none_or(|head| height > head)
        {
            return Ok(None);
        }
        let block = match self.source.blocks(Some(height), true).next().await {
            // It was cut meanwhile.
            Err(IndexError::Pruned { .. }) => return Ok(None),
            block => block?.filter(|block| block.height == height),
        };
        let Some(block) = block else { return Ok(None) };
        Ok(Some((self.codec.meta(&block)?.hash, "at the source")))
    }

    /// What a block that does not follow what is archived means.
    pub(super) fn explain_push(&self, error: ArchiveError) -> IndexError {
        if !matches!(error, ArchiveError::WrongParent { .. }) {
            return explain(error);
        }
        let archive = self.archive.provider();
        let reason = format!(
            "{error}. {archive} is probably the archive of another chain with the same number; \
             nothing was changed there. Name another archive, or the source of that chain"
        );
        IndexError::ArchiveIo { reason, retryable: false }
    }
}
