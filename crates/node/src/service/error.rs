//! The one error of every interface. Each interface says it in its own way; what is said is here.

use std::sync::Arc;

use secateur_core::{ExportError, Height, Locator, LookupError};
use secateur_sidecar::SidecarError;
use secateur_store::StoreError;

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ApiError {
    /// It was here and was cut.
    #[error("pruned: everything at or below block {pruned_before_block} is gone from this node")]
    Pruned {
        pruned_before_block: Height,
        /// What is known of where it went.
        locator: Option<Locator>,
    },
    /// A transaction that is queued and in no block yet.
    #[error("pending: the transaction is queued and in no block yet")]
    Pending,
    /// Not known.
    #[error("not found")]
    NotFound { searched_from: Option<Height> },
    /// An export cursor that points nowhere.
    #[error("invalid cursor: {0}")]
    InvalidCursor(String),
    /// The request is not one.
    #[error("{0}")]
    BadRequest(String),
    /// The request asks for more than a limit allows.
    #[error("{0}")]
    Limit(String),
    /// The store says no: a hold, a gap, a conflict. The reason says that nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// Nobody showed a token.
    #[error("a token is needed: send it as `authorization: Bearer <token>`")]
    Unauthenticated,
    /// A token was shown, and it is none of ours.
    #[error("this token is not known here: it is another node's, or was taken out of the file")]
    UnknownToken,
    /// The token is ours, but not for this.
    #[error("this token may not do that")]
    Forbidden,
    /// The archive cannot be read, or gives what is not what it must be; that is never served.
    #[error("archive: {0}")]
    Archive(String),
    /// The archive does not answer. Asking for less would not help.
    #[error("archive: {provider} {what}; ask again later")]
    ArchiveSilent {
        provider: String,
        what: String,
        /// Whether it was asked for this, or only for something before it in the same request.
        asked: bool,
    },
    /// The archive is asked by as many lookups as may ask it at once.
    #[error(
        "archive: {asking} lookups wait for {provider} already (archive.read_through_concurrency); \
         ask again later"
    )]
    ArchiveBusy { provider: String, asking: usize },
    /// What blobs say of themselves: pruned with where they are, not known, refused.
    #[error("{0}")]
    Blobs(Arc<SidecarError>),
    /// The node keeps no blobs.
    #[error("this node keeps no blobs; sidecar.enabled turns that on")]
    NoBlobs,
    /// Too many requests are waiting.
    #[error("too many requests are waiting; try again later")]
    Overloaded,
    /// It took too long.
    #[error("the request took longer than the node allows; ask for less")]
    Timeout,
    /// It took too long, and changes something.
    #[error(
        "the request took longer than the node allows, and may still be done; ask again: told twice \
         it does no harm"
    )]
    MayBeDone,
    /// The budget is in an emergency, and blocks are refused until it is over.
    #[error(
        "the budget is in an emergency, so that blocks are refused (pruning.backpressure); nothing \
         was written; `secateur status` says what holds pruning back; push them again later"
    )]
    Emergency,
    /// The disk is full.
    #[error("{0}")]
    DiskFull(String),
    /// Something here is broken.
    #[error("{0}")]
    Internal(String),
}

impl From<LookupError> for ApiError {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Pruned { pruned_before_block } => {
                Self::Pruned { pruned_before_block, locator: None }
            }
            LookupError::Pending => Self::Pending,
            LookupError::NotFound { searched_from } => Self::NotFound { searched_from },
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Lookup(answer) => answer.into(),
            StoreError::Export(ExportError::Pruned { pruned_before_block }) => {
                Self::Pruned { pruned_before_block, locator: None }
            }
            StoreError::Export(ExportError::InvalidCursor { reason }) => {
                Self::InvalidCursor(reason)
            }
            StoreError::Export(ExportError::Limit { reason }) => Self::Limit(reason),
            StoreError::Invalid(error) => Self::BadRequest(error.to_string()),
            StoreError::DiskFull { .. } => Self::DiskFull(error.to_string()),
            StoreError::Refused { .. }
            | StoreError::Gap { .. }
            | StoreError::Conflict { .. }
            | StoreError::WrongParent { .. } => Self::Refused(error.to_string()),
            other => Self::Internal(other.to_string()),
        }
    }
}
