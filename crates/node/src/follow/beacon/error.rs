//! Why a round of following ends early: trouble that may pass, something that is refused, or the end.

use alloy_primitives::B256;
use secateur_core::Height;
use secateur_sidecar::{SidecarError, VersionedHash};

use super::super::FollowError;
use super::super::client::Failure;
use super::super::convert::Unfit;

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeaconError {
    /// A source does not answer, or the space here is short; it is tried again later.
    #[error("{0}")]
    Trouble(String),
    /// What came is not believed; it is asked for again later.
    #[error("the blobs of height {height} were refused and not stored: {reason}")]
    Refused { height: Height, reason: Refused },
    /// What the source calls final is not believed; it is asked again later.
    #[error("what the source calls final was refused, and nothing was changed: {0}")]
    Final(Refused),
    /// Nothing that waiting could put right.
    #[error("{0}")]
    Fatal(anyhow::Error),
}

impl BeaconError {
    /// A task that ended before its answer.
    pub(super) fn task(error: tokio::task::JoinError) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<FollowError> for BeaconError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Fatal(error) => Self::Fatal(error),
            other => Self::Trouble(other.to_string()),
        }
    }
}

impl From<SidecarError> for BeaconError {
    fn from(error: SidecarError) -> Self {
        match error {
            error if error.is_retryable() => Self::Trouble(error.to_string()),
            other => Self::Fatal(other.into()),
        }
    }
}

/// Why something that came is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("the source's {what} cannot be read: {reason}")]
    Json { what: &'static str, reason: String },
    #[error("the source's answer is longer than the {limit} bytes that it may have")]
    TooLong { limit: usize },
    #[error("the header is stated to have root {stated}, and has {computed}")]
    Root { stated: B256, computed: B256 },
    #[error("{0}")]
    Header(Box<Unfit>),
    #[error("the source was asked for height {asked} and gave {found}")]
    Other { asked: Height, found: Height },
    #[error("the source has the slot's header and not its block")]
    NoBlock,
    #[error("the block's {0} is not its header's")]
    NotTheHeaders(&'static str),
    #[error("the block is of fork `{0}`, which this version does not know; a newer secateur may")]
    Fork(String),
    #[error("the block has no {0}")]
    Lacks(&'static str),
    #[error("transaction {index} cannot be read: {reason}")]
    Transaction { index: usize, reason: String },
    #[error("the transactions root is stated as {stated} and computed as {computed}")]
    Transactions { stated: B256, computed: B256 },
    #[error("the block has {commitments} commitments, and its transactions name {named} blobs")]
    Count { commitments: usize, named: usize },
    #[error("commitment {index} is not the one that the transactions name there")]
    Commitment { index: usize },
    #[error("the block names {named} blobs, and a height has at most {most} here")]
    TooMany { named: usize, most: u32 },
    #[error("the block names {0} blobs, and the source does not have them")]
    NoBlobs(usize),
    #[error("{found} blobs came, and the block names {named}")]
    Missing { found: usize, named: usize },
    #[error("blob {0} is none: {1}")]
    NotABlob(usize, Box<SidecarError>),
    #[error("blob {index} hashes to {found}, which no transaction of the block names")]
    Unnamed { index: usize, found: VersionedHash },
    #[error("blob {index} hashes to {found}, which belongs to another place")]
    Order { index: usize, found: VersionedHash },
    #[error("sidecar {index} is of another block")]
    OtherBlock { index: usize },
    #[error("the inclusion proof of sidecar {index} does not hold")]
    Inclusion { index: usize },
    #[error(
        "it stands on {parent}, and the last one here is {last}; the source lacks a block between \
         them, or is of another chain"
    )]
    Unlinked { parent: B256, last: B256 },
    #[error("it is {found}, and the final one has {stated}")]
    NotTheFinal { stated: B256, found: B256 },
    #[error("the source says that {found} is final, and {ours} was final here before")]
    Backwards { found: Height, ours: Height },
    #[error("{0}")]
    Store(Box<SidecarError>),
}

impl Refused {
    /// At a height.
    pub(super) fn at(self, height: Height) -> BeaconError {
        BeaconError::Refused { height, reason: self }
    }

    pub(super) fn json(what: &'static str) -> impl Fn(serde_json::Error) -> Self {
        move |error| Self::Json { what, reason: super::super::envelope::shown(&error.to_string()) }
    }
}

/// What a failed request means to whoever has no more patience.
pub(super) fn words(failure: &Failure) -> String {
    match failure {
        Failure::Transient { reason, .. } | Failure::Rejected { reason } => reason.clone(),
        Failure::TooLong { limit } => Refused::TooLong { limit: *limit }.to_string(),
    }
}
