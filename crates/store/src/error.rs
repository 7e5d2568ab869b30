//! The one error of this crate. The message says what happened, what was not changed and what
//! to do; whether trying again can help is a method.

use std::io;

use secateur_core::{BlockHash, CoreError, ExportError, Height, LookupError, format_bytes};

/// What went wrong in a store, or the honest answer of a lookup or export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A lookup has nothing to return, and says why.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// An export call has no chunks to give, and says why.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A block, policy or name that is refused as it stands.
    #[error(transparent)]
    Invalid(#[from] CoreError),
    /// A block that does not follow the head.
    #[error("block {got} leaves a gap: the next height is {expected}; nothing was written")]
    Gap {
        /// The height that would fit.
        expected: Height,
        /// The height that came.
        got: Height,
    },
    /// A block whose parent is not the block below it.
    #[error(
        "block {height} names parent {got}, but block {} is {expected}; nothing was written. \
         Roll back first if the chain reorganised", height - 1
    )]
    WrongParent {
        /// The block.
        height: Height,
        /// The hash of the block below it.
        expected: BlockHash,
        /// The parent that it names.
        got: BlockHash,
    },
    /// Another block at a height that is already taken.
    #[error(
        "a different block is stored at height {height}; nothing was written. \
         Roll back first if the chain reorganised"
    )]
    Conflict {
        /// The height.
        height: Height,
    },
    /// A request that the store's state or a hold forbids.
    #[error("{what} refused: {reason}; nothing was changed")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// No space for what was asked.
    #[error(
        "disk full: {what}{}; what was asked was not done, reads and pruning go on. Free space on \
         the disk, or let history be pruned: `secateur status` names a budget that this store \
         accepts. Blobs are deleted only once they are archived and final (`secateur blob plan`)",
        shortage(*.needed, *.available)
    )]
    DiskFull {
        /// What needed the space.
        what: &'static str,
        /// How much.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// Bytes on the medium that cannot be right.
    #[error(
        "corrupt {what}: {detail}. Nothing was changed; `secateur verify` tells how far the \
         damage goes, and where it does not open, restore the directory from a copy"
    )]
    Corrupt {
        /// Which thing.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// Data of another store, of another program, or half of a store.
    #[error("not this store's data: {0}; nothing was changed")]
    Foreign(String),
    /// Data that a newer version wrote.
    #[error(
        "the data has format version {found}, this program knows up to {known}; nothing was \
         changed. Use a newer secateur"
    )]
    NewerFormat {
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// Another process has the store open.
    #[error("{0} is in use by another process; nothing was changed. Stop that process first")]
    Locked(String),
    /// A pointer to a region that was reused since.
    #[error("stale pointer: region {offset} has generation {found}, the pointer says {wanted}")]
    StaleGeneration {
        /// Where the region is.
        offset: u64,
        /// Its generation now.
        found: u32,
        /// The pointer's generation.
        wanted: u32,
    },
    /// The medium failed.
    #[error("{what} failed: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// An earlier sync or commit failed: what is on the medium is unknown until it is reopened.
    #[error(
        "the store stopped accepting writes after an earlier failure ({0}); what was \
         acknowledged before is safe. Check the disk, then restart to reopen it"
    )]
    Poisoned(String),
}

impl StoreError {
    /// Whether the same call may succeed later without a change of its input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lookup(answer) => matches!(answer, LookupError::Pending),
            Self::DiskFull { .. } | Self::Locked(_) => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ),
            _ => false,
        }
    }

    /// Whether the data on the medium is damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// The lookup's answer, if that is what this is.
    pub fn as_lookup(&self) -> Option<LookupError> {
        match self {
            Self::Lookup(answer) => Some(*answer),
            _ => None,
        }
    }

    pub(crate) fn corrupt(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt { what, detail: detail.into() }
    }

    pub(crate) fn refused(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Refused { what, reason: reason.into() }
    }

    /// A failed call on the medium; a full medium becomes [`StoreError::DiskFull`].
    pub fn io(what: &'static str, source: io::Error) -> Self {
        if is_full(&source) {
            return Self::DiskFull { what, needed: 0, available: 0 };
        }
        Self::Io { what, source }
    }
}

/// Whether a call failed for want of space, be it the disk's or a quota's.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn shortage(needed: u64, available: u64) -> String {
    if needed == 0 {
        return " met a full file system".into();
    }
    let (needed, available) = (format_bytes(needed), format_bytes(available));
    format!(" needs {needed} and {available} are left beside the reserve")
}

/// Bytes of a stored row that do not decode are corruption, not bad input.
pub(crate) fn row_error(what: &'static str) -> impl Fn(CoreError) -> StoreError {
    move |error| StoreError::corrupt(what, error.to_string())
}
