//! Why following pauses, and why it ends.

use secateur_store::StoreError;

use super::convert::Unfit;

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    /// The source, or the space here, is not as it should be; it is tried again later.
    #[error("{0}")]
    Trouble(String),
    /// A block that was refused; the source is asked for it again later.
    #[error("block {height} was refused and not stored: {reason}")]
    Block { height: u64, reason: Box<Unfit> },
    /// Nothing that waiting could put right.
    #[error("{0}")]
    Fatal(anyhow::Error),
}

impl FollowError {
    pub(super) fn trouble(text: impl Into<String>) -> Self {
        Self::Trouble(text.into())
    }
}

impl From<StoreError> for FollowError {
    fn from(error: StoreError) -> Self {
        match error {
            error if error.is_retryable() => Self::Trouble(error.to_string()),
            // Somebody else appended or rolled back: the next round begins behind whatever the
            // head is then.
            StoreError::Gap { .. }
            | StoreError::WrongParent { .. }
            | StoreError::Conflict { .. }
            | StoreError::Invalid(_)
            | StoreError::Lookup(_)
            | StoreError::Refused { .. } => Self::Trouble(error.to_string()),
            other => Self::Fatal(other.into()),
        }
    }
}
