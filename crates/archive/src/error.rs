//! The one error of this crate. The message says what happened, what was not changed and what
//! to do; whether trying again can help, and the exit code of a command that fails with it, are
//! methods.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secateur_core::{BlockHash, CoreError, Height};
use secateur_evm::EvmError;

use crate::refusal;

/// What went wrong with an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// An address or a setting that is refused as it stands.
    #[error("{what} refused: {reason}; nothing was changed")]
    Invalid {
        /// The setting.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Credentials that cannot be used.
    #[error("credentials of {path} refused: {reason}; nothing was sent")]
    Credentials {
        /// The file they are in.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The object storage did not do what was asked.
    #[error("{}", of_storage(.what, .key, .source, "what is archived was not changed"))]
    Storage {
        /// What was asked.
        what: &'static str,
        /// The object, or what was listed.
        key: String,
        /// What the storage says.
        source: object_store::Error,
    },
    /// A request that was not answered in its time.
    #[error("{what} {key} took longer than {seconds} s; it is tried again and compared first")]
    Timeout {
        /// What was asked.
        what: &'static str,
        /// The object.
        key: String,
        /// The limit.
        seconds: u64,
    },
    /// The local disk did not do what was asked.
    #[error("{}", of_stage(.what, .path, .source, "no part was listed"))]
    Stage {
        /// What was asked.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has the stage directory.
    #[error(
        "the stage directory {path} is in use by another archiver; nothing was archived. Stop that \
         one, or name another directory with --stage"
    )]
    Locked {
        /// The stage directory.
        path: PathBuf,
    },
    /// An object is not what its name, its manifest or its own hashes say.
    #[error("{key} is damaged: {reason}; it was not used. Run `secateur archive verify --full`")]
    Damaged {
        /// The object.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Other bytes lie under a name that is made of a hash.
    #[error(
        "{key} is there already with other content ({reason}); it was not overwritten and nothing \
         was listed. Look at that object, and remove it by hand if it is wrong"
    )]
    Conflict {
        /// The object.
        key: String,
        /// What differs.
        reason: String,
    },
    /// Bytes lie under a part's name that are not the ones that it is made of.
    #[error(
        "{key} is there already with other content ({reason}): it is not whole, its bytes are not what \
         its name says. It was not overwritten and nothing was listed; remove that object, with the \
         key that may delete, and start again"
    )]
    NotWhole {
        /// The object.
        key: String,
        /// What differs.
        reason: String,
    },
    /// A listed part has some of the blocks of one that is to be listed.
    #[error(
        "{key} has blocks that the finished part {ours} has as well: another archiver, with another \
         grain, wrote it meanwhile; it was not touched and nothing was listed. Let all archivers of an \
         archive have the same grain, or only one of them run; then start again, and what waits in \
         the stage is cut anew"
    )]
    Overlap {
        /// The listed part.
        key: String,
        /// The part that was to be listed.
        ours: String,
    },
    /// What was uploaded came back as something else.
    #[error("{key} was uploaded, but reads back as {got}, not {wanted}; it was not listed")]
    ReadBack {
        /// The object.
        key: String,
        /// What was sent.
        wanted: String,
        /// What came back.
        got: String,
    },
    /// No part has the block.
    #[error("block {height} of chain {chain_id} is not in the archive {provider}")]
    NotArchived {
        /// The chain.
        chain_id: u64,
        /// The block.
        height: Height,
        /// The archive.
        provider: String,
    },
    /// An object that should be there is not.
    #[error("{key} is missing in the archive {provider}")]
    Missing {
        /// The object.
        key: String,
        /// The archive.
        provider: String,
    },
    /// A block that does not follow the last one.
    #[error("block {got} does not follow: the next height is {expected}; nothing was written")]
    OutOfOrder {
        /// The height that would fit.
        expected: Height,
        /// The height that came.
        got: Height,
    },
    /// A block whose parent is not the block below it.
    #[error("block {height} names parent {got}, but the block below it is {expected}")]
    WrongParent {
        /// The block.
        height: Height,
        /// The hash of the block below it.
        expected: BlockHash,
        /// The parent that it names.
        got: BlockHash,
    },
    /// A block that is not what it says.
    #[error("block {height} is not what it says: {source}")]
    Block {
        /// The block.
        height: Height,
        /// What is wrong with it.
        source: Box<EvmError>,
    },
    /// Bytes that do not follow their format.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// Too many finished parts wait for their upload.
    #[error(
        "{parts} finished parts wait in the stage for their upload; the block was not taken. \
         Publish them first"
    )]
    StageFull {
        /// How many.
        parts: usize,
    },
}

fn of_storage(what: &str, key: &str, source: &object_store::Error, unchanged: &str) -> String {
    let (cause, advice) = (refusal::cause(source), refusal::advice(source));
    format!("{what} {key} failed: {source}{cause}; {unchanged}{advice}")
}

fn of_stage(what: &str, path: &Path, source: &io::Error, unchanged: &str) -> String {
    format!("{what} {} failed: {source}; {unchanged}", path.display())
}

impl ArchiveError {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, reason: reason.into() }
    }

    pub(crate) fn damaged(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { key: key.into(), reason: reason.into() }
    }

    pub(crate) fn stage(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Stage { what, path: path.to_owned(), source }
    }

    pub(crate) fn storage(
        what: &'static str,
        key: impl Into<String>,
    ) -> impl FnOnce(object_store::Error) -> Self {
        move |source| Self::Storage { what, key: key.into(), source }
    }

    pub(crate) fn timeout(what: &'static str, key: &str, limit: Duration) -> Self {
        Self::Timeout { what, key: key.to_owned(), seconds: limit.as_secs() }
    }

    /// Its text for those whose objects are no archive: what of theirs was not changed is `unchanged`.
    pub fn told(&self, unchanged: &str) -> String {
        match self {
            Self::Storage { what, key, source } => of_storage(what, key, source, unchanged),
            Self::Stage { what, path, source } => of_stage(what, path, source, unchanged),
            other => other.to_string(),
        }
    }

    /// Whether the same call may succeed later without a change of its input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Storage { source, .. } => refusal::may_pass(source),
            Self::Timeout { .. } | Self::ReadBack { .. } | Self::StageFull { .. } => true,
            Self::Stage { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// The exit code of a command that fails with this, in the binary's one table.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Invalid { .. } => 2,
            Self::Block { .. } | Self::Core(_) => 5,
            Self::Stage { source, .. } if source.kind() == io::ErrorKind::StorageFull => 8,
            Self::Damaged { .. } => 9,
            Self::Locked { .. } => 10,
            Self::Credentials { .. } => 11,
            _ => 6,
        }
    }
}
