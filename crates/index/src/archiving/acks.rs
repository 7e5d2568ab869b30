//! Telling the source of parts: of each one that is listed, and of those that it does not know yet.
//!
//! What the source makes of a part is its own decision. What lives here is what a refusal means: that
//! nothing is to be done, that it is too early, or that a person has to look.

use secateur_core::{Height, Part};
use tokio::sync::watch;

use super::{Archiving, Memory, part_of};
use crate::source::{Source, SourceStatus};
use crate::worker::stopped;
use crate::{IndexError, Sink};

/// Parts that are looked at together.
const PAGE: usize = 256;

/// What a node says of blocks that it knows in another part.
const ELSEWHERE: &str = "in the part ";
/// What it says of a part that is not in its own archive.
const OTHER_ARCHIVE: &str = "this node's archive is ";

impl<S: Source, K: Sink> Archiving<S, K> {
    /// Acknowledges parts that the source does not know, as far as it has their blocks. One that is
    /// behind the archive is told of the others once it has them.
    pub(super) async fn acknowledge_again(
        &self,
        status: &SourceStatus,
        stop: &watch::Receiver<bool>,
        memory: &mut Memory,
    ) -> Result<(), IndexError> {
        if !self.options.ack {
            return Ok(());
        }
        let before = memory.awaited.take();
        let awaited = tokio::select! {
            // The source may read a part for long. Whatever it does not hear of now, it does next time.
            () = stopped(stop.clone()) => return Ok(()),
            awaited = self.acknowledge_rows(status, memory) => awaited?,
        };
        memory.awaited = awaited;
        if let (None, Some(last)) = (before, awaited) {
            let archive = self.archive.provider();
            let told = "the source is behind the archive; it is waited for";
            tracing::warn!(head = status.head, last, archive, "{told}");
        }
        Ok(())
    }

    /// The answer is the last block of the first part that the source does not have the blocks of yet.
    async fn acknowledge_rows(
        &self,
        status: &SourceStatus,
        memory: &Memory,
    ) -> Result<Option<Height>, IndexError> {
        let behind = |height: Option<Height>| height.map_or(0, |height| height.saturating_add(1));
        let mut from = behind(status.archived).max(behind(status.pruned_before));
        loop {
            let rows = self.sink.parts(from, PAGE).await?;
            let Some(last) = rows.last() else { return Ok(None) };
            from = last.block_to.saturating_add(1);
            for row in rows.iter().filter(|row| !memory.gone.contains_key(&row.block_from)) {
                if !self.acknowledge(&part_of(row)).await? {
                    return Ok(Some(row.block_to));
                }
            }
        }
    }

    /// Tells the source of a part. Whether nothing more is to be told of it is the answer: a source
    /// that does not have its blocks yet is told again.
    pub(super) async fn acknowledge(&self, part: &Part) -> Result<bool, IndexError> {
        let Err(error) = self.source.ack_archived(part).await else { return Ok(true) };
        let IndexError::Refused(reason) = error else { return Err(error) };
        let key = &part.locator.key;
        // A source that has cut the part's blocks meanwhile cannot compare them, and need not.
        let status = self.source.status().await?;
        if status.pruned_before.is_some_and(|cut| cut >= part.first) {
            tracing::warn!(reason, key, "the source does not take a part that it has cut");
            return Ok(true);
        }
        let provider = &part.locator.provider;
        let known = status.archived.is_some_and(|archived| archived >= part.last);
        // Its own parts of this very archive have all of these blocks: nothing waits for this one.
        if known && reason.contains(&format!("{provider}/chain=")) {
            let told =
                "the source knows other parts of these blocks in this archive, and keeps to them";
            tracing::warn!(reason, key, "{told}");
            return Ok(true);
        }
        let elsewhere = reason.contains(ELSEWHERE) || reason.contains(OTHER_ARCHIVE);
        // One that is behind, restored or still catching up, has nothing to compare the part with.
        if !elsewhere && status.head.is_none_or(|head| head < part.last) {
            return Ok(false);
        }
        let advice = if elsewhere {
            "if this archive is a copy beside the one that the node knows, set archive.acknowledge = \
             false"
        } else {
            "check that the archive and the source are of the same chain"
        };
        let (key, provider, advice) = (key.clone(), provider.clone(), advice);
        Err(IndexError::PartRefused { key, provider, reason, advice })
    }
}
