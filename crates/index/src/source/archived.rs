//! An archive as a source: an index is built again from its parts, without a node.

use std::sync::Arc;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use secateur_archive::{Archive, Check};
use secateur_core::{Block, Height, Part, Strength};
use tokio::sync::mpsc;

use super::{Blocks, Source, SourceBlock, SourceStatus};
use crate::IndexError;
use crate::archiving::explain;

/// Frames of a part (about 1 MiB each) that wait for a worker.
const QUEUE: usize = 2;

/// A chain's parts in an archive.
#[derive(Debug, Clone)]
pub struct ArchiveSource {
    archive: Archive,
    chain_id: u64,
    check: Check,
    ends: Arc<Mutex<Option<(Height, Height)>>>,
}

impl ArchiveSource {
    /// The parts of a chain. `check` says how far blocks are checked here; a codec checks them too.
    pub fn new(archive: Archive, chain_id: u64, check: Check) -> Self {
        Self { archive, chain_id, check, ends: Arc::default() }
    }

    /// The first and last archived block, as they are remembered until all of them were read.
    async fn ends(&self) -> Result<Option<(Height, Height)>, IndexError> {
        if let Some(ends) = *self.ends.lock() {
            return Ok(Some(ends));
        }
        let ends = self.archive.ends(self.chain_id).await.map_err(explain)?;
        *self.ends.lock() = ends;
        Ok(ends)
    }
}

impl Source for ArchiveSource {
    type Blocks = ArchiveBlocks;

    async fn head(&self) -> Result<Option<Height>, IndexError> {
        Ok(self.ends().await?.map(|(_, last)| last))
    }

    fn blocks(&self, from: Option<Height>, _want_meta: bool) -> ArchiveBlocks {
        ArchiveBlocks {
            source: self.clone(),
            next: from,
            queue: None,
            ready: Vec::new().into_iter(),
        }
    }

    async fn status(&self) -> Result<SourceStatus, IndexError> {
        let ends = self.ends().await?;
        let head = ends.map(|(_, last)| last);
        Ok(SourceStatus {
            chain_id: Some(self.chain_id),
            head,
            oldest: ends.map(|(first, _)| first),
            pruned_before: ends.and_then(|(first, _)| first.checked_sub(1)),
            archived: head,
            ..SourceStatus::default()
        })
    }

    async fn register(&self, _consumer: &str, _strength: Strength) -> Result<(), IndexError> {
        Ok(())
    }

    async fn ack_exported(&self, _consumer: &str, _height: Height) -> Result<(), IndexError> {
        Ok(())
    }

    async fn ack_archived(&self, _part: &Part) -> Result<Option<Height>, IndexError> {
        self.head().await
    }
}

/// The blocks of an archive, in order.
#[derive(Debug)]
pub struct ArchiveBlocks {
    source: ArchiveSource,
    next: Option<Height>,
    queue: Option<mpsc::Receiver<Result<Vec<Block>, IndexError>>>,
    ready: std::vec::IntoIter<Block>,
}

impl Blocks for ArchiveBlocks {
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        loop {
            for block in self.ready.by_ref() {
                let Block { meta, payloads } = block;
                let height = meta.height;
                if self.next.is_some_and(|next| height < next) {
                    continue;
                }
                self.next = height.checked_add(1);
                return Ok(Some(SourceBlock { height, meta: Some(meta), payloads }));
            }
            let source = &self.source;
            let queue = self.queue.get_or_insert_with(|| read(source.clone(), self.next));
            let Some(frame) = queue.recv().await else {
                // The next look finds parts that came meanwhile.
                self.queue = None;
                *self.source.ends.lock() = None;
                return Ok(None);
            };
            self.ready = frame?.into_iter();
        }
    }
}

/// Reads parts on a task of its own; it ends when nobody listens.
fn read(
    source: ArchiveSource,
    from: Option<Height>,
) -> mpsc::Receiver<Result<Vec<Block>, IndexError>> {
    let (into, queue) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        if let Err(error) = read_parts(&source, from, &into).await {
            // Whoever listened has gone: nobody is left to tell.
            drop(into.send(Err(error)).await);
        }
    });
    queue
}

async fn read_parts(
    source: &ArchiveSource,
    from: Option<Height>,
    into: &mpsc::Sender<Result<Vec<Block>, IndexError>>,
) -> Result<(), IndexError> {
    let mut next = from;
    let mut listed = Box::pin(source.archive.parts(source.chain_id, from.unwrap_or(0)));
    while let Some(manifest) = listed.next().await {
        let manifest = manifest.map_err(explain)?;
        if let Some(wanted) = next
            && manifest.first > wanted
        {
            let pruned_before_block = manifest.first - 1;
            return Err(IndexError::Pruned { wanted, pruned_before_block });
        }
        next = manifest.last.checked_add(1);
        let part = manifest.part(source.archive.provider());
        let reader = source.archive.reader(&part).await.map_err(explain)?;
        let mut scan = reader.scan(source.check);
        while let Some(blocks) = scan.next_blocks().await.map_err(explain)? {
            if into.send(Ok(blocks)).await.is_err() {
                return Ok(());
            }
        }
        scan.finish().await.map_err(explain)?;
    }
    Ok(())
}
