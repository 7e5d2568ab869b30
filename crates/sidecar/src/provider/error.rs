//! What can go wrong with a provider. Nothing of what is kept here is changed by any of it.

use secateur_archive::ArchiveError;

/// What went wrong with a provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// A setting, a locator or a blob that is refused as it stands.
    #[error("{what} refused: {reason}; nothing was sent")]
    Invalid {
        /// What.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// Nothing is there.
    #[error("{provider} has nothing under {locator}; nothing here was changed")]
    Missing {
        /// The provider.
        provider: String,
        /// The locator.
        locator: String,
    },
    /// More is there than a blob has.
    #[error("{provider} has more than {limit} bytes under {locator}; they were not used")]
    TooLong {
        /// The provider.
        provider: String,
        /// The locator.
        locator: String,
        /// How many were wanted.
        limit: usize,
    },
    /// Other bytes lie under the blob's name.
    #[error(
        "{provider} has other bytes under {locator}; they were not overwritten. Look at that \
         object, and remove it by hand if it is wrong"
    )]
    Conflict {
        /// The provider.
        provider: String,
        /// The locator.
        locator: String,
    },
    /// It said no.
    #[error("{provider} answered {status}: {reason}; nothing here was changed")]
    Refused {
        /// The provider.
        provider: String,
        /// The HTTP status.
        status: u16,
        /// What it says, shortened.
        reason: String,
    },
    /// It answered something that cannot be an answer.
    #[error("{provider} answered {what}; the upload does not count, and is looked for first")]
    BadReply {
        /// The provider.
        provider: String,
        /// What came.
        what: String,
    },
    /// It did not answer, or not in time.
    #[error("{provider} does not answer: {reason}; what was sent is looked for first")]
    Unreachable {
        /// The provider.
        provider: String,
        /// Why.
        reason: String,
    },
    /// A directory is not the one that was opened: an archive that was moved or unmounted.
    #[error(
        "{path} is not the directory that was opened any more ({reason}); nothing was written or read \
         there. Bring it back, or start again to archive into what is there now"
    )]
    Replaced {
        /// The provider.
        provider: String,
        /// The directory.
        path: String,
        /// What is there instead.
        reason: String,
    },
    /// The object storage did not do what was asked.
    #[error(transparent)]
    Storage(#[from] ArchiveError),
}

impl ProviderError {
    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::TooLong { .. } | Self::Conflict { .. } => false,
            // A gateway may show an item later than the agent took it.
            Self::Missing { .. }
            | Self::BadReply { .. }
            | Self::Unreachable { .. }
            | Self::Replaced { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Storage(error) => error.is_retryable(),
        }
    }
}
