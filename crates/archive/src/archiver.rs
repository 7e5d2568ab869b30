//! The archiver: makes parts of a chain's blocks, and lists each only after it was read back.
//!
//! ```text
//! push ─► stage (synced) ─► publish: upload ─► read back ─► manifest ─► read back ─► Part
//!                                                     caller: row, acknowledgement ─► settled
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use secateur_core::{Block, Height, Part};

use crate::{Archive, ArchiveError, Check, Codec, Grain, Metrics};

/// What an archiver works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiverOptions {
    /// A directory for parts in the making. One archiver at a time has it.
    pub stage: PathBuf,
    /// The chain.
    pub chain_id: u64,
    /// How its blocks are read.
    pub codec: Codec,
    /// Where parts end.
    pub grain: Grain,
    /// The lowest height of interest. An archive without parts at or above it begins here; one
    /// with parts goes on behind the first unbroken run of them. After a rebase over pruned blocks
    /// this is the height that the source still has.
    pub first: Height,
    /// The last part that the caller knows to be settled: only what is behind it is listed when
    /// the archiver opens. `None` lists everything.
    pub settled: Option<Part>,
    /// How far each block is checked before it is written.
    pub check: Check,
    /// How many finished parts may wait for their upload before [`Archiver::push`] refuses.
    pub max_waiting: usize,
}

impl ArchiverOptions {
    /// The defaults: daily parts, block hashes recomputed, four parts may wait.
    pub fn new(stage: impl Into<PathBuf>, chain_id: u64, codec: Codec, first: Height) -> Self {
        Self {
            stage: stage.into(),
            chain_id,
            codec,
            grain: Grain::default(),
            first,
            settled: None,
            check: Check::Hash,
            max_waiting: 4,
        }
    }
}

/// Makes parts of a chain's blocks.
///
/// ```text
/// let mut archiver = Archiver::open(archive, options).await?;
/// loop {
///     while let Some(part) = archiver.publish().await? {
///         // write the row, acknowledge to the node …
///         archiver.settled(&part).await?;
///     }
///     archiver.push(&block_at(archiver.next_height())).await?;
/// }
/// ```
#[derive(Debug)]
pub struct Archiver {
    metrics: Arc<Metrics>,
    next: Height,
}

impl Archiver {
    /// Opens the stage and finds the place to go on: behind what is listed, and behind finished
    /// parts that wait in the stage. An unfinished one is discarded.
    pub async fn open(_archive: Archive, _options: ArchiverOptions) -> Result<Self, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// The height of the block that [`Archiver::push`] wants next. After an error it is unchanged
    /// unless the error was [`ArchiveError::Stage`], which ends this archiver.
    pub fn next_height(&self) -> Height {
        self.next
    }

    /// Takes the next block. If it begins a new part, or fills the current one, that one is
    /// finished and waits for [`Archiver::publish`].
    pub async fn push(&mut self, _block: &Block) -> Result<(), ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Uploads the oldest finished part, reads it back and lists it. Gives the same part again
    /// until it is settled, and `None` when none waits. After an error that `is_retryable` it can
    /// be called again: what is there is compared, never assumed.
    pub async fn publish(&mut self) -> Result<Option<Part>, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// The part's row is written and acknowledged: its stage is removed.
    pub async fn settled(&mut self, _part: &Part) -> Result<(), ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// How many finished parts are not settled yet.
    pub fn waiting(&self) -> usize {
        0
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }
}
