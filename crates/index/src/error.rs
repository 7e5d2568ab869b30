//! The one error of this crate. Its classes decide what a worker does: go on, wait, or stop with an
//! exit code of its own.

use secateur_core::{CoreError, Height};
use secateur_sql::SqlError;

/// What kind of trouble an error is. The names are labels of metrics and part of `last_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The source cut what is wanted.
    Pruned,
    /// Cursor and answer do not fit together.
    InvalidCursor,
    /// Bytes are not what they say they are.
    Decode,
    /// The archive failed.
    ArchiveIo,
    /// The index failed.
    Sink,
    /// The source is not there, or breaks off.
    Net,
    /// The source does not answer in time.
    Timeout,
    /// The source, or the index, does not let us.
    Refused,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 8] = [
        Self::Pruned,
        Self::InvalidCursor,
        Self::Decode,
        Self::ArchiveIo,
        Self::Sink,
        Self::Net,
        Self::Timeout,
        Self::Refused,
    ];

    /// The class's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pruned => "pruned",
            Self::InvalidCursor => "invalid_cursor",
            Self::Decode => "decode",
            Self::ArchiveIo => "archive_io",
            Self::Sink => "sink",
            Self::Net => "net",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
        }
    }
}

/// Why a worker cannot go on. The index is as it was before the step that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The next block was cut at the source.
    #[error(
        "block {wanted} is pruned, or in no part: the source has no block from there up to \
         {pruned_before_block}; nothing from there on was written. Name a source that has them, a node or an \
         archive, or set on_pruned = rebase to go on above and leave a row in `gaps`"
    )]
    Pruned {
        /// The block that was asked for.
        wanted: Height,
        /// The source's boundary.
        pruned_before_block: Height,
    },
    /// The source refuses the cursor, or answers something else than was asked for.
    #[error("invalid cursor: {0}; the index was not changed")]
    InvalidCursor(String),
    /// A block that is not what it says it is.
    #[error("block {height} does not decode: {reason}; the index was not changed")]
    Decode {
        /// The block.
        height: Height,
        /// What is wrong with it.
        reason: String,
    },
    /// The archive failed.
    #[error("archive: {reason}; nothing was acknowledged")]
    ArchiveIo {
        /// What happened.
        reason: String,
        /// Whether the same step may succeed later.
        retryable: bool,
    },
    /// The index itself failed.
    #[error("index: {reason}")]
    Sink {
        /// What happened.
        reason: String,
        /// Whether the same step may succeed later.
        retryable: bool,
    },
    /// The source is not there, or broke off.
    #[error("source: {0}")]
    Net(String),
    /// The source did not answer in time.
    #[error("source: no answer in time ({0})")]
    Timeout(String),
    /// The source does not take a part that is in the archive.
    #[error(
        "the source does not take the part {key} of {provider} ({reason}). It is in the archive and in \
         the index, and was not acknowledged; {advice}"
    )]
    PartRefused {
        /// The part.
        key: String,
        /// The archive that it is in.
        provider: String,
        /// What the source says.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// The source wants another token, or the index belongs to another chain.
    #[error("refused: {0}; nothing was changed")]
    Refused(String),
}

impl IndexError {
    /// What kind of trouble it is.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Pruned { .. } => ErrorClass::Pruned,
            Self::InvalidCursor(_) => ErrorClass::InvalidCursor,
            Self::Decode { .. } => ErrorClass::Decode,
            Self::ArchiveIo { .. } => ErrorClass::ArchiveIo,
            Self::Sink { .. } => ErrorClass::Sink,
            Self::Net(_) => ErrorClass::Net,
            Self::Timeout(_) => ErrorClass::Timeout,
            Self::Refused(_) | Self::PartRefused { .. } => ErrorClass::Refused,
        }
    }

    /// Whether the same step may succeed later without a change from outside.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Net(_) | Self::Timeout(_) => true,
            Self::ArchiveIo { retryable, .. } | Self::Sink { retryable, .. } => *retryable,
            Self::Pruned { .. }
            | Self::InvalidCursor(_)
            | Self::Decode { .. }
            | Self::PartRefused { .. }
            | Self::Refused(_) => false,
        }
    }

    /// A failure of the index that no retry mends.
    pub fn sink(reason: impl Into<String>) -> Self {
        Self::Sink { reason: reason.into(), retryable: false }
    }

    /// A failure of the index that may pass: it is busy, or not there at the moment.
    pub fn busy_sink(reason: impl Into<String>) -> Self {
        Self::Sink { reason: reason.into(), retryable: true }
    }

    /// A block that does not decode.
    pub fn decode(height: Height, reason: impl Into<String>) -> Self {
        Self::Decode { height, reason: reason.into() }
    }

    /// A value of the index that does not read back.
    pub fn stored(error: &CoreError) -> Self {
        Self::sink(format!("what the index holds does not read back: {error}"))
    }
}

/// What a database does not do, the index does not.
impl From<SqlError> for IndexError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Failed { reason, retryable } => Self::Sink { reason, retryable },
            SqlError::Full { reason } => Self::Sink { reason, retryable: true },
            SqlError::Unreadable { reason } => Self::Sink { reason, retryable: false },
            SqlError::Refused(why) => Self::Refused(why),
        }
    }
}
