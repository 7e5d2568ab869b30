//! The proof, from the archive alone, that its parts are whole and that nothing is missing.

use std::ops::RangeInclusive;

use futures_util::TryStreamExt;
use secateur_core::{BlockHash, Height};

use crate::archive::size_differs;
use crate::key::chain_prefix;
use crate::leftover::wanted_name;
use crate::listing::Name;
use crate::{Archive, ArchiveError, Check, Day, Kind, Manifest, PartKey};

/// How deep a verification looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Depth {
    /// Names, manifests, sizes, headers and frame tables: a few small reads for each part.
    Quick,
    /// Every byte is read and hashed, every block is unpacked and linked to the one below it.
    #[default]
    Hashes,
    /// And every block is recomputed from its bytes, as far as its codec allows.
    Full,
}

/// What a verification is to prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyOptions {
    /// How deep.
    pub depth: Depth,
    /// How far the archive must reach.
    pub upto: Option<Height>,
}

/// How far a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Parts that are done.
    pub parts: u64,
    /// Blocks that are done.
    pub blocks: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The last height that was reached.
    pub height: Option<Height>,
}

/// Something that is wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A part or a manifest that is not what it must be.
    Damaged {
        /// The object.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A name that is not one of an archive's.
    Foreign {
        /// The object.
        key: String,
    },
    /// A manifest without its part.
    NoObject {
        /// The part's name.
        key: String,
    },
    /// A part without its manifest: it is not listed.
    NoManifest {
        /// The part's name.
        key: String,
    },
    /// Blocks that no listed part has.
    Gap {
        /// Which.
        range: RangeInclusive<Height>,
    },
    /// Blocks that two listed parts have.
    Overlap {
        /// The second of them.
        key: String,
        /// Which blocks.
        range: RangeInclusive<Height>,
    },
    /// A part that does not stand on the one below it.
    BrokenLink {
        /// The upper one.
        key: String,
        /// What differs.
        reason: String,
    },
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// What was looked at.
    pub progress: Progress,
    /// The archive's first height.
    pub first: Option<Height>,
    /// Its last height.
    pub last: Option<Height>,
    /// What is wrong, in the order in which it was found; at most [`VerifyReport::MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// How many findings there are in all.
    pub found: u64,
    /// An uploaded part behind the last listed one: an archiver is, or was, about to list it.
    pub unlisted: Option<String>,
    /// What cut-off writes left behind: no fault, but bytes that nobody reads.
    pub leftovers: Leftovers,
    /// Uploaded parts that nobody listed, because another archiver was faster: their blocks are in
    /// listed parts. No fault either.
    pub superseded: Leftovers,
    /// Other chains that are in the archive too. Nothing was proved of them.
    pub other_chains: Vec<u64>,
}

/// Objects that nobody reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first of them.
    pub first: Option<String>,
}

impl Leftovers {
    fn add(&mut self, key: String, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.first.get_or_insert(key);
    }
}

impl VerifyReport {
    /// More findings than this are counted only.
    pub const MAX_FINDINGS: usize = 1_000;

    fn add(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < Self::MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    /// Whether the archive is proved to be whole.
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }
}

impl Archive {
    /// Proves that a chain's parts are whole, link and leave no gap. Damage is a finding, not an
    /// error; an error says that the archive could not be read.
    pub async fn verify(
        &self,
        chain_id: u64,
        options: VerifyOptions,
        mut progress: impl FnMut(&Progress) + Send,
    ) -> Result<VerifyReport, ArchiveError> {
        let mut walk = Walk {
            archive: self,
            options,
            progress: &mut progress,
            report: VerifyReport::default(),
            below: None,
            manifest: None,
            alone: None,
        };
        let (mut chains, foreign) = self.top().await?;
        chains.retain(|chain| *chain != chain_id);
        walk.report.other_chains = chains;
        for key in foreign {
            walk.report.add(Finding::Foreign { key });
        }
        let mut names = self.remote.names(&chain_prefix(chain_id), None);
        while let Some(name) = names.try_next().await? {
            walk.name(name).await?;
        }
        walk.finish().await
    }
}

/// The walk over a chain's names. A manifest's name comes right before its part's.
struct Walk<'a> {
    archive: &'a Archive,
    options: VerifyOptions,
    progress: &'a mut (dyn FnMut(&Progress) + Send),
    report: VerifyReport,
    /// The listed part below.
    below: Option<Below>,
    /// A manifest whose part must come next.
    manifest: Option<PartKey>,
    /// A part without a manifest; whether that is wrong depends on what comes after it.
    alone: Option<(PartKey, u64)>,
}

/// What is known of the listed part below.
#[derive(Debug, Clone, Copy)]
struct Below {
    next: Height,
    day: Day,
    /// `None` if its manifest could not be read.
    hash: Option<BlockHash>,
}

impl Walk<'_> {
    async fn name(&mut self, name: Name) -> Result<(), ArchiveError> {
        let Ok((key, kind)) = PartKey::parse(&name.key) else {
            if self.archive.remote.directory.is_some() && wanted_name(&name.key).is_some() {
                self.report.leftovers.add(name.key, name.size);
                return Ok(());
            }
            self.report.add(Finding::Foreign { key: name.key });
            return Ok(());
        };
        if let Some(before) = self.manifest.take_if(|before| *before != key || kind != Kind::Object)
        {
            self.report.add(Finding::NoObject { key: before.object() });
        }
        match kind {
            Kind::Manifest => self.manifest = Some(key),
            Kind::Object if self.manifest.take().is_some() => self.pair(&key, name.size).await?,
            Kind::Object => {
                self.settle_alone(None).await?;
                self.alone = Some((key, name.size));
            }
        }
        Ok(())
    }

    /// An unlisted part that something came after is nobody's work in progress. If its first block is
    /// in a listed part, below it or the one that came, it never will be listed.
    async fn settle_alone(&mut self, came: Option<&PartKey>) -> Result<(), ArchiveError> {
        let Some((key, size)) = self.alone.take() else { return Ok(()) };
        if self.below.is_some_and(|below| key.first < below.next)
            || came.is_some_and(|came| (came.first..=came.last).contains(&key.first))
        {
            self.report.superseded.add(key.object(), size);
        } else if self.is_whole(&key, size).await? {
            self.report.add(Finding::NoManifest { key: key.object() });
        }
        Ok(())
    }

    /// Whether a part without a manifest is what its name says; if not, that is a finding.
    async fn is_whole(&mut self, key: &PartKey, size: u64) -> Result<bool, ArchiveError> {
        let before = self.report.progress;
        let read = self.content(key, None, size).await;
        // What was proved is what is listed.
        self.report.progress = Progress { bytes: self.report.progress.bytes, ..before };
        match read {
            Ok(_) => Ok(true),
            Err(error) => self.found::<()>(key, error).map(|_| false),
        }
    }

    /// A part with its manifest.
    async fn pair(&mut self, key: &PartKey, size: u64) -> Result<(), ArchiveError> {
        self.settle_alone(Some(key)).await?;
        let manifest = match self.archive.manifest(key).await {
            Ok(manifest) => Some(manifest),
            Err(e) => self.found(key, e)?,
        };
        self.place(key, manifest.as_ref());
        let below = self.below.filter(|below| below.next == key.first);
        let day = match self.content(key, manifest.as_ref(), size).await {
            Ok(day) => day,
            Err(e) => self.found(key, e)?,
        };
        // A part is filed under its first block's day, or under the day of the part below it.
        if let (Some(day), Some(below)) = (day, below)
            && key.day != day.max(below.day)
        {
            let reason = format!("it is filed under {}, not {}", key.day, day.max(below.day));
            self.report.add(Finding::Damaged { key: key.object(), reason });
        }
        let hash = manifest.map(|manifest| manifest.last_hash);
        let next = key.last.saturating_add(1);
        if self.below.is_none_or(|below| below.next <= next) {
            self.below = Some(Below { next, day: key.day, hash });
        }
        self.report.progress.parts += 1;
        self.report.progress.height = Some(key.last);
        self.report.first.get_or_insert(key.first);
        self.report.last = self.report.last.max(Some(key.last));
        (self.progress)(&self.report.progress);
        Ok(())
    }

    /// Whether it stands where the part below it ends, and on its last block.
    fn place(&mut self, key: &PartKey, manifest: Option<&Manifest>) {
        let expected = match self.below {
            Some(below) => below.next,
            // Every part says where its archive begins, so that missing first ones are found.
            None => manifest.map_or(key.first, |manifest| manifest.origin),
        };
        if key.first > expected {
            self.report.add(Finding::Gap { range: expected..=key.first - 1 });
        } else if key.first < expected {
            let range = key.first..=key.last.min(expected - 1);
            self.report.add(Finding::Overlap { key: key.object(), range });
        } else if let (Some(Below { hash: Some(hash), .. }), Some(manifest)) =
            (self.below, manifest)
            && manifest.parent_hash != hash
        {
            let parent = manifest.parent_hash;
            let reason = format!("its parent is {parent}, but the part below it ends in {hash}");
            self.report.add(Finding::BrokenLink { key: key.object(), reason });
        }
    }

    /// Compares the part with its manifest, as deep as it was asked. Gives its first block's day.
    async fn content(
        &mut self,
        key: &PartKey,
        manifest: Option<&Manifest>,
        size: u64,
    ) -> Result<Option<Day>, ArchiveError> {
        let differs = || ArchiveError::damaged(key.object(), "its manifest says something else");
        if let Some(manifest) = manifest.filter(|manifest| manifest.size != size) {
            let reason = size_differs(size, manifest.size, "its manifest says");
            return Err(ArchiveError::damaged(key.object(), reason));
        }
        let reader = self.archive.open_part(key, size).await?;
        let check = match self.options.depth {
            Depth::Quick => {
                return match manifest {
                    Some(manifest) if !reader.agrees_with(manifest) => Err(differs()),
                    _ => Ok(None),
                };
            }
            Depth::Hashes => Check::Framing,
            Depth::Full => Check::Full,
        };
        let mut scan = reader.scan(check);
        let mut day = None;
        while let Some(blocks) = scan.next_blocks().await? {
            if let (None, Some(block)) = (day, blocks.first()) {
                day = Some(Day::of_timestamp(block.meta.timestamp));
            }
            self.report.progress.blocks += blocks.len() as u64;
            self.report.progress.height = blocks.last().map(|block| block.meta.height);
            (self.progress)(&self.report.progress);
        }
        let found = scan.finish().await?;
        self.report.progress.bytes += size;
        if found.key() != *key {
            let reason = format!("its SHA-256 is {}, which is not in its name", found.sha256);
            return Err(ArchiveError::damaged(key.object(), reason));
        }
        if manifest.is_some_and(|manifest| *manifest != found) {
            return Err(differs());
        }
        Ok(day)
    }

    /// Damage is a finding; that the storage does not answer is not.
    fn found<T>(&mut self, key: &PartKey, error: ArchiveError) -> Result<Option<T>, ArchiveError> {
        self.report.add(match error {
            ArchiveError::Damaged { key, reason } => Finding::Damaged { key, reason },
            ArchiveError::Missing { .. } => Finding::NoObject { key: key.object() },
            ArchiveError::Core(_) | ArchiveError::Block { .. } => {
                Finding::Damaged { key: key.object(), reason: error.to_string() }
            }
            other => return Err(other),
        });
        Ok(None)
    }

    async fn finish(mut self) -> Result<VerifyReport, ArchiveError> {
        if let Some(key) = self.manifest.take() {
            self.report.add(Finding::NoObject { key: key.object() });
        }
        let next = self.below.map_or(0, |below| below.next);
        match self.alone.take_if(|(key, _)| self.below.is_none() || key.first == next) {
            Some((key, size)) if self.is_whole(&key, size).await? => {
                self.report.unlisted = Some(key.object());
            }
            Some(_) => {}
            None => self.settle_alone(None).await?,
        }
        if let Some(upto) = self.options.upto.filter(|upto| *upto >= next) {
            self.report.add(Finding::Gap { range: next..=upto });
        }
        Ok(self.report)
    }
}
