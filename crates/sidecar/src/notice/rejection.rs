//! Why a notice is not believed: a variant for each check, in the order of the checks.

use secateur_core::notice::MAX_NOTICE_LEN;
use secateur_core::{CoreError, Height};

use crate::{BlobKeccak, Commitment, Round, ValidatorId};

/// Why a notice is refused. Nothing was changed, and other notices are not affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// It is longer than any notice.
    #[error("notice refused: it has {len} bytes, over the limit of {MAX_NOTICE_LEN}")]
    Oversized {
        /// Its length.
        len: usize,
    },
    /// It is in Ultramarine's form, which is off.
    #[error(
        "notice refused: it is a V0 notice, which names no chain; they are read only where V0 is \
         turned on"
    )]
    V0Disabled,
    /// Its bytes are not those of a notice.
    #[error("notice refused: {0}")]
    Malformed(CoreError),
    /// It is about another chain.
    #[error("notice refused: it is about chain {said}, and this is chain {here}")]
    WrongChain {
        /// The chain that it names.
        said: u64,
        /// Ours.
        here: u64,
    },
    /// Its signer is no validator at that height.
    #[error("notice refused: {signer} is no validator at height {height}")]
    UnknownValidator {
        /// Who claims to have signed.
        signer: ValidatorId,
        /// The height.
        height: Height,
    },
    /// The signature is not that of its signer over these bytes.
    #[error("notice refused: the signature is not {signer}'s")]
    BadSignature {
        /// Who claims to have signed.
        signer: ValidatorId,
    },
    /// Nothing is decided here at that height.
    #[error("notice refused: height {height} is not decided here; it is accepted once it is")]
    NoMetadata {
        /// The height.
        height: Height,
    },
    /// The height has fewer blobs.
    #[error("notice refused: blob {index} of height {height}, which has {blob_count}")]
    IndexOutOfRange {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// How many blobs there are.
        blob_count: u32,
    },
    /// Only the proposer may sign.
    #[error("notice refused: {signer} signed for height {height}, which {proposer} proposed")]
    NotProposer {
        /// The height.
        height: Height,
        /// Who signed.
        signer: ValidatorId,
        /// Who proposed.
        proposer: ValidatorId,
    },
    /// Others than the proposer may sign later.
    #[error(
        "notice refused: until height {from} only the proposer signs for height {height}, and \
         {signer} is not"
    )]
    NotYetPermitted {
        /// The height.
        height: Height,
        /// Who signed.
        signer: ValidatorId,
        /// From when on it is accepted.
        from: Height,
    },
    /// Another round was decided.
    #[error("notice refused: it is about round {said} of height {height}; {decided} was decided")]
    WrongRound {
        /// The height.
        height: Height,
        /// The round that it names.
        said: Round,
        /// The decided one.
        decided: Round,
    },
    /// It names another commitment.
    #[error("notice refused: its commitment is {said}, and the decided one is {here}")]
    CommitmentMismatch {
        /// The commitment that it names.
        said: Commitment,
        /// The decided one.
        here: Commitment,
    },
    /// It names other bytes.
    #[error("notice refused: its keccak is {said}, and the blob's is {here}")]
    KeccakMismatch {
        /// The hash that it names.
        said: BlobKeccak,
        /// The hash of the blob, computed here.
        here: BlobKeccak,
    },
    /// Its signer has said something else before.
    #[error(
        "notice refused: {signer} has signed another notice for blob {index} of height {height}; \
         the first one stands"
    )]
    Conflict {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// Who signed both.
        signer: ValidatorId,
    },
}

impl Rejection {
    /// Every label, in the order of the checks.
    pub const LABELS: [&'static str; 14] = [
        "oversized",
        "v0_disabled",
        "malformed",
        "wrong_chain",
        "unknown_validator",
        "bad_signature",
        "no_metadata",
        "index_out_of_range",
        "not_proposer",
        "not_yet_permitted",
        "wrong_round",
        "commitment_mismatch",
        "keccak_mismatch",
        "conflict",
    ];

    /// What it is counted as; these words do not change.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Oversized { .. } => "oversized",
            Self::V0Disabled => "v0_disabled",
            Self::Malformed(_) => "malformed",
            Self::WrongChain { .. } => "wrong_chain",
            Self::UnknownValidator { .. } => "unknown_validator",
            Self::BadSignature { .. } => "bad_signature",
            Self::NoMetadata { .. } => "no_metadata",
            Self::IndexOutOfRange { .. } => "index_out_of_range",
            Self::NotProposer { .. } => "not_proposer",
            Self::NotYetPermitted { .. } => "not_yet_permitted",
            Self::WrongRound { .. } => "wrong_round",
            Self::CommitmentMismatch { .. } => "commitment_mismatch",
            Self::KeccakMismatch { .. } => "keccak_mismatch",
            Self::Conflict { .. } => "conflict",
        }
    }

    /// Whether the same notice may be accepted later, when this node has decided more.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoMetadata { .. } | Self::NotYetPermitted { .. })
    }
}
