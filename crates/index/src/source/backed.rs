//! A source with an archive behind it: blocks that the source has cut come from parts, and the source is gone
//! on with above them.
//!
//! Everything but blocks is the source's own to say: a worker's head, its consumer and its acknowledgements.

use secateur_core::{Height, Part, Strength};

use super::{ArchiveBlocks, ArchiveSource, Blocks, Right, Source, SourceBlock, SourceStatus};
use crate::IndexError;

/// A source, and the archive that has what it has cut.
#[derive(Debug, Clone)]
pub struct BackedSource<S> {
    source: S,
    archive: Option<ArchiveSource>,
}

impl<S> BackedSource<S> {
    /// A source; without an archive it is as it was.
    pub fn new(source: S, archive: Option<ArchiveSource>) -> Self {
        Self { source, archive }
    }
}

impl<S: Source> Source for BackedSource<S> {
    type Blocks = BackedBlocks<S>;

    async fn head(&self) -> Result<Option<Height>, IndexError> {
        self.source.head().await
    }

    fn blocks(&self, from: Option<Height>, want_meta: bool) -> BackedBlocks<S> {
        let from_source = self.source.blocks(from, want_meta);
        BackedBlocks { backed: self.clone(), want_meta, from_source, parts: None }
    }

    async fn status(&self) -> Result<SourceStatus, IndexError> {
        self.source.status().await
    }

    async fn check_rights(&self, wanted: &[Right]) -> Result<(), IndexError> {
        self.source.check_rights(wanted).await
    }

    async fn register(&self, consumer: &str, strength: Strength) -> Result<(), IndexError> {
        self.source.register(consumer, strength).await
    }

    async fn ack_exported(&self, consumer: &str, height: Height) -> Result<(), IndexError> {
        self.source.ack_exported(consumer, height).await
    }

    async fn ack_archived(&self, part: &Part) -> Result<Option<Height>, IndexError> {
        self.source.ack_archived(part).await
    }
}

/// The blocks of both, in order.
pub struct BackedBlocks<S: Source> {
    backed: BackedSource<S>,
    want_meta: bool,
    from_source: S::Blocks,
    /// What is read while the source has cut what comes next.
    parts: Option<Parts>,
}

/// Parts that are read in place of a source.
struct Parts {
    blocks: ArchiveBlocks,
    /// The next block.
    next: Height,
    /// The last block that the source has cut.
    cut: Height,
}

impl Parts {
    /// The next block of the archive. None if the source goes on from here, and `Pruned` if neither of them has
    /// the next block.
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        let (wanted, cut) = (self.next, self.cut);
        if wanted > cut {
            return Ok(None);
        }
        match self.blocks.next().await {
            Ok(Some(block)) => {
                self.next = block.height.saturating_add(1);
                Ok(Some(block))
            }
            Ok(None) => Err(IndexError::Pruned { wanted, pruned_before_block: cut }),
            // The archive may go on before the source does.
            Err(IndexError::Pruned { pruned_before_block, .. }) => {
                let pruned_before_block = pruned_before_block.min(cut);
                Err(IndexError::Pruned { wanted, pruned_before_block })
            }
            Err(error) => Err(error),
        }
    }
}

impl<S: Source> Blocks for BackedBlocks<S> {
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        loop {
            if let Some(parts) = &mut self.parts {
                if let Some(block) = parts.next().await? {
                    return Ok(Some(block));
                }
                let from = Some(parts.next);
                self.parts = None;
                self.from_source = self.backed.source.blocks(from, self.want_meta);
            }
            let (wanted, cut) = match self.from_source.next().await {
                Err(IndexError::Pruned { wanted, pruned_before_block }) => {
                    (wanted, pruned_before_block)
                }
                answer => return answer,
            };
            let Some(archive) = &self.backed.archive else {
                return Err(IndexError::Pruned { wanted, pruned_before_block: cut });
            };
            tracing::info!(
                wanted,
                pruned_before_block = cut,
                "the source has cut the next block; asking the archive for it"
            );
            let blocks = archive.blocks(Some(wanted), self.want_meta);
            self.parts = Some(Parts { blocks, next: wanted, cut });
        }
    }
}
