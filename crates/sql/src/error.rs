//! The one error of this crate. Its texts say what happened; a family says beside them what that
//! means for its own work.

/// Why a database did not do what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// It failed, or is not there.
    #[error("{reason}")]
    Failed {
        /// What happened.
        reason: String,
        /// Whether the same step may succeed later.
        retryable: bool,
    },
    /// The disk that it writes to is full.
    #[error("{reason}")]
    Full {
        /// What happened.
        reason: String,
    },
    /// The file is no database, or is damaged.
    #[error("{reason}")]
    Unreadable {
        /// What happened.
        reason: String,
    },
    /// It is another one than is meant: of another kind, or of another version.
    #[error("{0}; nothing was changed")]
    Refused(String),
}

impl SqlError {
    /// Whether the same step may succeed later without a change from outside.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Failed { retryable: true, .. } | Self::Full { .. })
    }

    /// A failure that no retry mends.
    pub(crate) fn lasting(reason: String) -> Self {
        Self::Failed { reason, retryable: false }
    }
}
