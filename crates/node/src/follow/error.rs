//! Why following pauses, and why it ends.

use secateur_core::{BlockHash, Height};
use secateur_store::StoreError;

use super::convert::Unfit;

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    /// The source, or the space here, is not as it should be; it is tried again later.
    #[error("{0}")]
    Trouble(String),
    /// The disk here has no room for blocks, and nothing is wrong with the source; they are brought
    /// again later.
    #[error("{0}")]
    Full(String),
    /// A block that was refused; the source is asked for it again later.
    #[error("block {} was refused and not stored: {}", .0.height, .0.reason)]
    Block(Box<Misfit>),
    /// A header that was refused where the two chains part. The block of its height is here, so that
    /// only a round that ends well puts it right.
    #[error("the header of block {} was refused: {}", .0.height, .0.reason)]
    Header(Box<Misfit>),
    /// Nothing that waiting could put right.
    #[error("{0}")]
    Fatal(anyhow::Error),
}

/// A block or a header that was refused.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) height: Height,
    /// As the source states it, if it states one.
    pub(crate) hash: Option<BlockHash>,
    /// What the source sent for it.
    pub(crate) bytes: u64,
    pub(crate) reason: Unfit,
}

impl FollowError {
    pub(super) fn trouble(text: impl Into<String>) -> Self {
        Self::Trouble(text.into())
    }
}

impl From<StoreError> for FollowError {
    fn from(error: StoreError) -> Self {
        match error {
            error @ StoreError::DiskFull { .. } => Self::Full(error.to_string()),
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
