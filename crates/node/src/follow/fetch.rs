//! Fetching some neighbouring blocks and checking them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use secateur_core::{Block, Height};
use tokio::sync::Semaphore;

use super::FollowError;
use super::blocks::{Found, blocks};
use super::chain::probe;
use super::convert::{RawBlock, Unfit, convert};
use super::error::Misfit;
use super::source::Source;

/// A block is asked for so often before it is refused: what does not fit may only be a block and
/// receipts from before and after a reorganisation.
const ATTEMPTS: u32 = 3;
/// The pause between them.
const PAUSE: Duration = Duration::from_millis(200);

/// What a block is taken to weigh before any was seen: a well-filled one of a busy chain.
const FIRST_GUESS: usize = 1 << 20;

/// Neighbouring blocks that were fetched.
#[derive(Debug)]
pub(super) struct Chunk {
    /// How many were asked for.
    pub(super) asked: u64,
    /// Those that fit, from the first one on.
    pub(super) blocks: Vec<Block>,
    /// Why there are not more of them.
    pub(super) end: Option<FollowError>,
}

/// Fetches blocks.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) source: Source,
    pub(super) chain_id: u64,
    /// Checking takes a processor for a while, so that no more run than there are.
    processors: Arc<Semaphore>,
    /// What the source sends for a block, about.
    bytes_per_block: AtomicUsize,
}

impl Fetcher {
    pub(super) fn new(source: Source, chain_id: u64) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            source,
            chain_id,
            processors: Arc::new(Semaphore::new(processors)),
            bytes_per_block: AtomicUsize::new(FIRST_GUESS),
        }
    }

    /// What the source sends for a block, about, and never nothing.
    pub(super) fn bytes_per_block(&self) -> usize {
        self.bytes_per_block.load(Ordering::Relaxed).max(1)
    }

    /// Learns what blocks weigh: heavy ones count at once, light ones by and by.
    fn weigh(&self, found: &Found) {
        let Some(weight) = sent_bytes(found).checked_div(found.len()) else { return };
        let before = self.bytes_per_block();
        self.bytes_per_block.store(weight.max((before * 3 + weight) / 4), Ordering::Relaxed);
    }

    /// Fetches `count` blocks from `first` on. What fits before the first that does not is kept.
    pub(super) async fn fetch(&self, first: Height, count: u64) -> Chunk {
        let mut chunk = Chunk { asked: count, blocks: Vec::new(), end: None };
        let end = first.saturating_add(count);
        let mut attempts = 0;
        while chunk.end.is_none() {
            let next = first + chunk.blocks.len() as u64;
            if next >= end {
                break;
            }
            let heights: Vec<Height> = (next..end).collect();
            let before = chunk.blocks.len();
            match self.attempt(&heights, &mut chunk).await {
                Ok(None) => {}
                Err(error) => chunk.end = Some(error),
                Ok(Some(misfit)) => {
                    attempts = if chunk.blocks.len() > before { 1 } else { attempts + 1 };
                    if attempts >= ATTEMPTS || matches!(misfit.reason, Unfit::TooLong { .. }) {
                        chunk.end = Some(FollowError::Block(self.named(misfit).await));
                    } else {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
        chunk
    }

    /// The same with the hash that the source states, where the block itself was too long to say it.
    async fn named(&self, mut misfit: Box<Misfit>) -> Box<Misfit> {
        if misfit.hash.is_none() && matches!(misfit.reason, Unfit::TooLong { .. }) {
            let found = probe(&self.source, &[misfit.height]).await;
            misfit.hash = found.ok().and_then(|found| found.into_iter().next().flatten());
        }
        misfit
    }

    /// Asks once; what does not fit is the answer.
    async fn attempt(
        &self,
        heights: &[Height],
        chunk: &mut Chunk,
    ) -> Result<Option<Box<Misfit>>, FollowError> {
        let found = blocks(&self.source, heights).await?;
        self.weigh(&found);
        let turn = Arc::clone(&self.processors).acquire_owned().await;
        let (chain_id, heights) = (self.chain_id, heights.to_vec());
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut fit = Vec::with_capacity(found.len());
            for (height, raw) in heights.into_iter().zip(found) {
                let (hash, bytes, reason) = match raw {
                    Ok(raw) => match convert(&raw, chain_id) {
                        Ok(block) => {
                            fit.push(block);
                            continue;
                        }
                        Err(reason) => (raw.stated_hash(), raw.bytes(), reason),
                    },
                    Err(lacking) => (lacking.stated_hash(), lacking.bytes, *lacking.reason),
                };
                let misfit = Misfit { height, hash, bytes: bytes as u64, reason };
                return (fit, Some(Box::new(misfit)));
            }
            (fit, None)
        });
        let (fit, unfit) = checked.await.map_err(|error| FollowError::Fatal(error.into()))?;
        chunk.blocks.extend(fit);
        Ok(unfit)
    }
}

fn sent_bytes(found: &Found) -> usize {
    found.iter().flatten().map(RawBlock::bytes).sum()
}
