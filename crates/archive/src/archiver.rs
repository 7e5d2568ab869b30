//! The archiver: makes parts of a chain's blocks, and lists each only after it was read back.
//!
//! ```text
//! push ─► stage (synced) ─► publish: upload ─► read back ─► manifest ─► read back ─► Part
//!                                                     caller: row, acknowledgement ─► settled
//! ```
//!
//! Every step can be done again, and every step looks before it writes. A process that ends at any
//! point is followed by one that opens the same stage and the same archive and goes on.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt;
use secateur_core::{Block, BlockHash, Height, Part};

use crate::archive::listed;
use crate::grain::Filling;
use crate::part::{PartHeader, PartWriter};
use crate::place::Place;
use crate::remote::{Content, Ensured};
use crate::stage::{Stage, Staged};
use crate::{Archive, ArchiveError, Check, Codec, Digest, Grain, Manifest, Metrics, PartKey};

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
    /// with parts goes on in its first gap above this height, or behind its last part. After a
    /// rebase over pruned blocks this is the height that the source still has.
    pub first: Height,
    /// The oldest block that can be had. A gap that begins below it is left as it is.
    pub oldest: Height,
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
            oldest: 0,
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
    archive: Archive,
    options: ArchiverOptions,
    stage: Stage,
    place: Place,
    current: Option<Current>,
    waiting: VecDeque<Waiting>,
    /// A part in the making was lost by an error, or by a call that was dropped half-way.
    broken: bool,
}

/// The part in the making.
#[derive(Debug)]
struct Current {
    path: PathBuf,
    writer: PartWriter,
    filling: Filling,
}

/// A finished part, and what is known of it in the archive once it is listed.
#[derive(Debug)]
struct Waiting {
    staged: Staged,
    listed: Option<Part>,
}

impl Archiver {
    /// Opens the stage and finds the place to go on: in the first gap that can be filled or behind
    /// what is listed, and behind finished parts that wait in the stage. An unfinished one is
    /// discarded.
    pub async fn open(archive: Archive, options: ArchiverOptions) -> Result<Self, ArchiveError> {
        options.grain.check()?;
        let stage = Stage::open(&options.stage)?;
        let staged = stage.finished().await?;
        archive.sweep(options.chain_id).await?;
        let place = Place::find(&archive, &options).await?;
        if let (Some(_), Some(last)) = (place.previous, place.next.checked_sub(1)) {
            archive.remote.metrics.verified(last);
        }
        let (place, useful, useless) = place.with_stage(staged, options.chain_id)?;
        for part in useless {
            tracing::warn!(path = %part.path.display(), "a staged part does not follow; discarded");
            stage.remove(&part.path).await?;
        }
        let waiting = useful.into_iter().map(|staged| Waiting { staged, listed: None }).collect();
        let archiver =
            Self { archive, options, stage, place, current: None, waiting, broken: false };
        archiver.count_staged();
        Ok(archiver)
    }

    /// The height of the block that [`Archiver::push`] wants next.
    pub fn next_height(&self) -> Height {
        self.place.next
    }

    /// The hash of the block below [`Archiver::next_height`], if there is one.
    pub fn previous_hash(&self) -> Option<BlockHash> {
        self.place.previous
    }

    /// Whether it was opened in a gap that is full now. It takes no more blocks then; what waits can
    /// be published, and one that is opened again goes on in the next gap or at the end.
    pub fn is_filled(&self) -> bool {
        self.place.is_filled()
    }

    /// Takes the next block. If it begins a new part, or fills the current one, that one is
    /// finished and waits for [`Archiver::publish`].
    ///
    /// A block that is refused changes nothing. After [`ArchiveError::Stage`] the archiver must be
    /// opened again, and its next height is lower then.
    pub async fn push(&mut self, block: &Block) -> Result<(), ArchiveError> {
        self.check_whole()?;
        if self.is_filled() {
            let reason = "its gap is filled; open it again, it goes on behind that";
            return Err(ArchiveError::invalid("archiver", reason));
        }
        if block.meta.height != self.place.next {
            let (expected, got) = (self.place.next, block.meta.height);
            return Err(ArchiveError::OutOfOrder { expected, got });
        }
        if let Some(expected) = self.place.previous.filter(|hash| *hash != block.meta.parent_hash) {
            let (height, got) = (block.meta.height, block.meta.parent_hash);
            return Err(ArchiveError::WrongParent { height, expected, got });
        }
        let closes = self.place.gap.filter(|gap| gap.last == block.meta.height);
        if let Some(gap) = closes.filter(|gap| gap.hash != block.meta.hash) {
            let (height, expected) = (block.meta.height.saturating_add(1), block.meta.hash);
            return Err(ArchiveError::WrongParent { height, expected, got: gap.hash });
        }
        self.options.check.block(self.options.codec, self.options.chain_id, block)?;
        let grain = self.grain();
        let ends = |current: &Current| current.filling.ends_before(block, &grain);
        if self.current.as_ref().is_some_and(ends) {
            self.finish_part().await?;
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin_part(block)?,
        };
        // Until the block is in, the part is nobody's: a call that is dropped here loses it.
        self.broken = true;
        current.writer.push(block).await?;
        current.filling.add(block);
        self.place.next += 1;
        self.place.previous = Some(block.meta.hash);
        self.place.day = Some(current.filling.day);
        let full = closes.is_some() || current.filling.is_full(&grain);
        self.current = Some(current);
        self.broken = false;
        if full { self.finish_part().await } else { Ok(()) }
    }

    /// Where parts end: a gap is filled as the parts around it were cut.
    fn grain(&self) -> Grain {
        self.place.gap.map_or(self.options.grain, |gap| gap.grain)
    }

    fn begin_part(&self, block: &Block) -> Result<Current, ArchiveError> {
        if self.waiting.len() >= self.options.max_waiting.max(1) {
            return Err(ArchiveError::StageFull { parts: self.waiting.len() });
        }
        let filling = Filling::begin(block, self.place.day);
        let header = PartHeader {
            chain_id: self.options.chain_id,
            codec: self.options.codec,
            day: filling.day,
            first: block.meta.height,
            last: block.meta.height,
            parent_hash: block.meta.parent_hash,
            last_hash: block.meta.hash,
            origin: self.place.origin,
            grain: self.grain(),
        };
        let path = self.stage.unfinished(block.meta.height);
        Ok(Current { writer: PartWriter::create(&path, header)?, path, filling })
    }

    async fn finish_part(&mut self) -> Result<(), ArchiveError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        self.broken = true;
        let manifest = current.writer.finish().await?;
        let staged = self.stage.finish(&current.path, &manifest)?;
        self.waiting.push_back(Waiting { staged, listed: None });
        self.broken = false;
        self.count_staged();
        Ok(())
    }

    /// Uploads the oldest finished part, reads it back and lists it. Gives the same part again
    /// until it is settled, and `None` when none waits. After an error that `is_retryable` it can
    /// be called again: what is there is compared, never assumed.
    pub async fn publish(&mut self) -> Result<Option<Part>, ArchiveError> {
        let Some(oldest) = self.waiting.front() else { return Ok(None) };
        if let Some(part) = &oldest.listed {
            return Ok(Some(part.clone()));
        }
        let part = self.upload(&oldest.staged).await?;
        self.archive.remote.metrics.verified(part.last);
        if let Some(oldest) = self.waiting.front_mut() {
            oldest.listed = Some(part.clone());
        }
        Ok(Some(part))
    }

    async fn upload(&self, staged: &Staged) -> Result<Part, ArchiveError> {
        let manifest = &staged.manifest;
        if let Some(twin) = self.twin(manifest).await? {
            return Ok(twin);
        }
        let (remote, key) = (&self.archive.remote, manifest.key());
        let content = Content::File(staged.path.clone());
        let ensured =
            remote.ensure(&key.object(), &content, manifest.size, manifest.sha256).await?;
        if ensured == Ensured::Written {
            remote.metrics.uploaded(manifest.size);
        }
        let bytes = manifest.to_bytes()?;
        let (size, sha256) = (bytes.len() as u64, Digest::of(&bytes));
        remote.ensure(&key.manifest(), &Content::Bytes(bytes.into()), size, sha256).await?;
        Ok(manifest.part(self.archive.provider()))
    }

    /// A listed part of the same blocks under another name: made by another version of the
    /// compressor. The same raw bytes are as good; other ones are a conflict.
    async fn twin(&self, ours: &Manifest) -> Result<Option<Part>, ArchiveError> {
        let key = ours.key();
        // Sorts before every part of this day that begins at the same height.
        let before = PartKey { last: ours.first, digest8: [0; 4], ..key };
        let keys = self.archive.keys(key.chain_id, Some(&before));
        let mut keys = std::pin::pin!(listed(keys));
        while let Some(found) = keys.try_next().await? {
            if found.first > key.last {
                break;
            }
            if found == key {
                continue;
            }
            let theirs = self.archive.manifest(&found).await?;
            let same =
                |m: &Manifest| (m.first, m.last, m.codec, m.parent_hash, m.last_hash, m.raw_sha256);
            if same(&theirs) != same(ours) {
                let reason = format!("it has blocks that {key} has as well");
                return Err(ArchiveError::Conflict { key: found.object(), reason });
            }
            let part = theirs.part(self.archive.provider());
            self.archive.read_back(&part, Check::Framing).await?;
            return Ok(Some(part));
        }
        Ok(None)
    }

    /// The part's row is written and acknowledged: its stage is removed. A part that is not the
    /// oldest listed one is refused; one that is settled already is fine.
    pub async fn settled(&mut self, part: &Part) -> Result<(), ArchiveError> {
        let Some(oldest) = self.waiting.front() else { return Ok(()) };
        if part.last < oldest.staged.manifest.first {
            return Ok(());
        }
        if oldest.listed.as_ref() != Some(part) {
            let reason = format!("{} was not given out by this archiver", part.locator.key);
            return Err(ArchiveError::invalid("settled part", reason));
        }
        self.stage.remove(&oldest.staged.path).await?;
        self.waiting.pop_front();
        self.count_staged();
        Ok(())
    }

    /// How many finished parts are not settled yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.archive.metrics()
    }

    fn count_staged(&self) {
        let bytes = self.waiting.iter().map(|waiting| waiting.staged.manifest.size).sum();
        self.archive.remote.metrics.staged(bytes);
    }

    fn check_whole(&self) -> Result<(), ArchiveError> {
        if self.broken {
            let reason = "a part in the making was lost; open the archiver again, it goes on \
                          behind the last finished part";
            return Err(ArchiveError::invalid("archiver", reason));
        }
        Ok(())
    }
}
