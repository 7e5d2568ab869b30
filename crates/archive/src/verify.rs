//! The proof, from the archive alone, that its parts are whole and that nothing is missing.

use std::ops::RangeInclusive;

use secateur_core::Height;

use crate::{Archive, ArchiveError};

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
}

impl VerifyReport {
    /// More findings than this are counted only.
    pub const MAX_FINDINGS: usize = 1_000;

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
        _chain_id: u64,
        _options: VerifyOptions,
        _progress: impl FnMut(&Progress) + Send,
    ) -> Result<VerifyReport, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}
