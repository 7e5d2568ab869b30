//! The archiver: makes parts of a chain's blocks, and lists each only after it was read back.
//!
//! ```text
//! push ─► stage (synced) ─► publish: upload ─► read back ─► nobody else's? ─► manifest ─► read back ─► Part
//!                                                     caller: row, acknowledgement ─► settled
//! ```
//!
//! Every step can be done again, and every step looks before it writes. A process that ends at any
//! point is followed by one that opens the same stage and the same archive and goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secateur_core::{Block, BlockHash, Height, Part};

use crate::grain::Filling;
use crate::part::{PartHeader, PartWriter};
use crate::place::{Found, Place};
use crate::remote::{Content, Ensured};
use crate::rivals::Others;
use crate::stage::{Stage, Staged};
use crate::{Archive, ArchiveError, Check, Codec, Digest, Grain, ListedKey, Metrics};

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
    /// Heights at which a part ends whatever the grain says: parts that others remember ended there,
    /// and are missing. What fills their place is then the same, byte for byte.
    pub ends: BTreeSet<Height>,
    /// How far each block is checked before it is written.
    pub check: Check,
    /// How many finished parts may wait for their upload before [`Archiver::push`] refuses.
    pub max_waiting: usize,
    /// How long an archiver that sees another one's upload of some of the same blocks waits before
    /// it lists: longer than another one needs from its last look to its manifest.
    pub grace: Duration,
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
            ends: BTreeSet::new(),
            check: Check::Hash,
            max_waiting: 4,
            grace: Duration::from_secs(10),
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
    pub(crate) archive: Archive,
    pub(crate) options: ArchiverOptions,
    stage: Stage,
    place: Place,
    /// The gap that it was opened in.
    gap: Option<RangeInclusive<Height>>,
    /// Gaps that stay.
    left: Vec<RangeInclusive<Height>>,
    /// Halves of parts where blocks are missing.
    halves: BTreeMap<Height, ListedKey>,
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
    /// Where it ends.
    grain: Grain,
    /// The height at which it ends in any case.
    end: Option<Height>,
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
        let mut found = Found::find(&archive, &options, &staged).await?;
        if let (Some(_), Some(last)) = (found.place.previous, found.place.next.checked_sub(1)) {
            archive.remote.metrics.verified(last);
        }
        let gap = found.place.missing();
        let (useful, useless) = found.with_stage(staged, &options)?;
        for part in useless {
            let (first, last) = (part.manifest.first, part.manifest.last);
            let path = part.path.display();
            tracing::warn!(%path, first, last, "a staged part neither follows nor is listed; discarded");
            stage.remove(&part.path).await?;
        }
        let Found { place, left, halves, .. } = found;
        let waiting = useful.into_iter().map(|staged| Waiting { staged, listed: None }).collect();
        let (current, broken) = (None, false);
        let archiver =
            Self { archive, options, stage, place, gap, left, halves, current, waiting, broken };
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

    /// The gap that it was opened in, if it was: the first one that can be filled.
    pub fn gap(&self) -> Option<RangeInclusive<Height>> {
        self.gap.clone()
    }

    /// Gaps below its place that cannot be filled, because the blocks are not to be had.
    pub fn gaps_left(&self) -> &[RangeInclusive<Height>] {
        &self.left
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
        let ends = |current: &Current| current.filling.ends_before(block, &current.grain);
        if self.current.as_ref().is_some_and(ends) {
            self.finish_part().await?;
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin_part(block).await?,
        };
        // Until the block is in, the part is nobody's: a call that is dropped here loses it.
        self.broken = true;
        current.writer.push(block).await?;
        current.filling.add(block);
        self.place.next += 1;
        self.place.previous = Some(block.meta.hash);
        self.place.day = Some(current.filling.day);
        let full = closes.is_some()
            || current.end == Some(block.meta.height)
            || current.filling.is_full(&current.grain);
        self.current = Some(current);
        self.broken = false;
        if full { self.finish_part().await } else { Ok(()) }
    }

    /// Where the part that begins at a block ends, and the height at which it does in any case. One
    /// that was there before is cut as it was: as its other half says, or as the parts around it were.
    async fn cut(&self, first: Height) -> Result<(Grain, Option<Height>), ArchiveError> {
        let most = self.place.gap.map_or(Height::MAX, |gap| gap.last);
        if let Some(half) = self.halves.get(&first).filter(|half| half.key.last <= most) {
            match self.archive.grain_of(half).await {
                Ok(grain) => return Ok((grain, Some(half.key.last))),
                Err(error) if error.is_retryable() => return Err(error),
                // It says nothing that could be followed; `verify` tells of it.
                Err(error) => tracing::debug!(key = %half.key, %error, "half a part is damaged"),
            }
        }
        let (upper, usual) = (self.place.gap.map(|gap| gap.grain), self.options.grain);
        let end = self.options.ends.range(first..=most).next().copied();
        let around = [self.place.grain, upper, Some(usual)];
        let grain = end.and_then(|end| {
            let blocks = (end - first).saturating_add(1);
            crate::grain::that_cuts(around.into_iter().flatten(), blocks)
        });
        Ok((grain.or(upper).unwrap_or(usual), end))
    }

    async fn begin_part(&self, block: &Block) -> Result<Current, ArchiveError> {
        if self.waiting.len() >= self.options.max_waiting.max(1) {
            return Err(ArchiveError::StageFull { parts: self.waiting.len() });
        }
        let (grain, end) = self.cut(block.meta.height).await?;
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
            grain,
        };
        let path = self.stage.unfinished(block.meta.height);
        Ok(Current { writer: PartWriter::create(&path, header)?, path, filling, grain, end })
    }

    /// Finishes the part in the making where it is, whatever the grain says: somebody waits for what
    /// is in it. Whether there was one is the answer.
    pub async fn close(&mut self) -> Result<bool, ArchiveError> {
        self.check_whole()?;
        let begun = self.current.is_some();
        self.finish_part().await?;
        Ok(begun)
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
        if let Others::Twin(twin) = self.others(manifest).await? {
            return Ok(twin);
        }
        let (remote, key) = (&self.archive.remote, manifest.key());
        let content = Content::File(staged.path.clone());
        let ensured = remote.ensure(&key.object(), &content, manifest.size, manifest.sha256).await;
        // The name is made of our bytes: whatever else lies there is not what it says it is.
        let ensured = ensured.map_err(|error| match error {
            ArchiveError::Conflict { key, reason } => ArchiveError::NotWhole { key, reason },
            other => other,
        })?;
        if ensured == Ensured::Written {
            remote.metrics.uploaded(manifest.size);
        }
        if let Some(twin) = self.contest(manifest).await? {
            return Ok(twin);
        }
        let bytes = manifest.to_bytes()?;
        let (size, sha256) = (bytes.len() as u64, Digest::of(&bytes));
        remote.ensure(&key.manifest(), &Content::Bytes(bytes.into()), size, sha256).await?;
        Ok(manifest.part(self.archive.provider()))
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
