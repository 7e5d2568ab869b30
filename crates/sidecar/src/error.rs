//! The one error of this crate. A message says what happened, what was not changed and what to do.

use std::path::PathBuf;

use secateur_core::{CoreError, Height, Locator};
use secateur_store::StoreError;

use crate::engine::Unpermitted;
use crate::gossip::GossipError;
use crate::notice::Rejection;
use crate::provider::ProviderError;
use crate::types::{BLOB_LEN, BlobKeccak, Round, ValidatorId};

/// What went wrong with blobs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// Something that is refused as it stands.
    #[error("{what} refused: {reason}; nothing was changed")]
    Refused {
        /// What.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// Bytes that cannot be read.
    #[error(transparent)]
    Decode(#[from] CoreError),
    /// A height that is not known here.
    #[error("height {0} is not known here; nothing was changed")]
    Unknown(Height),
    /// The bytes are gone from here, or are served no more.
    #[error(
        "the {} of height {height} {}; {} where {}",
        if *blob_count == 1 { "blob".to_owned() } else { format!("{blob_count} blobs") },
        fate(*blob_count, *is_here),
        if locators.is_empty() { "no records say" } else { "its records say" },
        if *blob_count == 1 { "it is" } else { "they are" }
    )]
    BlobsPruned {
        /// The height.
        height: Height,
        /// How many blobs it has.
        blob_count: u32,
        /// Whether the bytes are here all the same: they are archived, and such are not served
        /// ([`ServeArchived::Refuse`](crate::reader::ServeArchived::Refuse)).
        is_here: bool,
        /// Where they are, blob by blob.
        locators: Vec<Vec<Locator>>,
    },
    /// No archived copy could be read.
    #[error("{}", no_copy(*height, *index, locators.len()))]
    NoCopy {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// Where copies are said to be.
        locators: Vec<Locator>,
    },
    /// A blob of another length.
    #[error("blob {index} has {len} bytes and not {BLOB_LEN}; nothing was stored")]
    WrongLength {
        /// Its index.
        index: u32,
        /// Its length.
        len: u64,
    },
    /// More blobs than a height may have.
    #[error("{count} blobs are proposed, and a height has at most {max}; nothing was stored")]
    TooManyBlobs {
        /// How many there are.
        count: u64,
        /// How many there may be.
        max: u32,
    },
    /// Too much is stored that nobody has decided.
    #[error(
        "{rounds} undecided rounds with {blobs} blobs are stored, and {max} are allowed; nothing was \
         stored. Rounds go when their height is decided, once 32 heights above it are final, or when \
         they are dropped (DropRound); `sidecar.max_undecided_blobs` is the limit"
    )]
    TooManyUndecided {
        /// Rounds that are stored.
        rounds: u64,
        /// Their blobs.
        blobs: u64,
        /// How many of each there may be.
        max: u32,
    },
    /// Indexes that do not count up from 0.
    #[error("a blob has index {got} where {expected} should stand; nothing was stored")]
    WrongIndex {
        /// What should stand there.
        expected: u32,
        /// What does.
        got: u32,
    },
    /// A blob that is not one: a field element is out of range.
    #[error("blob {index} is not a list of field elements; nothing was stored")]
    BadBlob {
        /// Its index.
        index: u32,
    },
    /// A commitment that is not the blob's.
    #[error("the commitment of blob {index} is not the blob's; nothing was stored")]
    BadCommitment {
        /// The blob's index.
        index: u32,
    },
    /// A proof that does not hold.
    #[error("the proof of blob {index} does not hold; nothing was stored")]
    BadProof {
        /// The blob's index.
        index: u32,
    },
    /// A round that is none.
    #[error(
        "round {round} is none: rounds count from 0, and -1 stands for no round; nothing was stored"
    )]
    BadRound {
        /// What came.
        round: Round,
    },
    /// A round that is not stored.
    #[error("round {round} of height {height} is not stored here; nothing was changed")]
    UnknownRound {
        /// The height.
        height: Height,
        /// The round.
        round: Round,
    },
    /// Another proposal is stored for the round.
    #[error(
        "another proposal is stored for round {round} of height {height}; nothing was stored. \
         Drop the round first if this one is to take its place"
    )]
    RoundConflict {
        /// The height.
        height: Height,
        /// The round.
        round: Round,
    },
    /// The height was decided otherwise.
    #[error(
        "height {height} was decided in round {decided} with other blobs or in another round than \
         {round}; nothing was changed"
    )]
    DecidedOtherwise {
        /// The height.
        height: Height,
        /// The round that is recorded.
        decided: Round,
        /// The round that came.
        round: Round,
    },
    /// An index that the height does not have.
    #[error("height {height} has {blob_count} blobs, none with index {index}")]
    NoSuchBlob {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// How many blobs it has.
        blob_count: u32,
    },
    /// Bytes that should be here are not.
    #[error(
        "the bytes of blob {index} of height {height} are missing though they were not pruned; \
         `secateur verify` tells how far the damage goes"
    )]
    Missing {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
    },
    /// A hash that is not the blob's.
    #[error(
        "blob {index} of height {height} hashes to {stored} and not to {got}; nothing was changed"
    )]
    KeccakMismatch {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// What was computed here.
        stored: BlobKeccak,
        /// What came.
        got: BlobKeccak,
    },
    /// One signer says two things of a blob.
    #[error(
        "{signer} has signed for other copies of blob {index} of height {height}; the first record \
         stays"
    )]
    RecordConflict {
        /// The height.
        height: Height,
        /// The index.
        index: u32,
        /// Who.
        signer: ValidatorId,
    },
    /// This node may not sign for a height.
    #[error("{signer} may not sign for height {height}: {why}; nothing was archived or signed")]
    MayNotSign {
        /// The height.
        height: Height,
        /// Who this node is.
        signer: ValidatorId,
        /// Why not.
        why: Unpermitted,
    },
    /// This node is no validator, so it signs for nothing.
    #[error(
        "height {height} cannot be archived here: this node has no name and no key to sign with; nothing was \
         queued, archived or signed"
    )]
    NoIdentity {
        /// The height.
        height: Height,
    },
    /// A notice that is not believed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A key file that is not used or not written.
    #[error("the notice key {} was refused: {reason}; nothing was signed or overwritten", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The ground failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A provider failed.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Gossip failed.
    #[error(transparent)]
    Gossip(#[from] GossipError),
    /// A task of this node ended before its answer.
    #[error("{what} ended before it was done: {reason}; what was durable before stays")]
    Task {
        /// What it was doing.
        what: &'static str,
        /// How it ended.
        reason: String,
    },
}

/// What became of blobs whose bytes are not given out.
fn fate(blob_count: u32, is_here: bool) -> &'static str {
    match (is_here, blob_count) {
        (false, 1) => "is pruned",
        (false, _) => "are pruned",
        (true, 1) => "is archived, and not served any more (`sidecar.serve_archived = refuse`)",
        (true, _) => "are archived, and not served any more (`sidecar.serve_archived = refuse`)",
    }
}

/// Why there is no copy.
fn no_copy(height: Height, index: u32, places: usize) -> String {
    let blob = format!("blob {index} of height {height}");
    if places == 0 {
        return format!(
            "nobody has signed for a copy of {blob} yet, so there is none to fetch; what is known of it \
             stays"
        );
    }
    let places = if places == 1 { "the place" } else { "any of the places" };
    format!(
        "no copy of {blob} could be read from {places} that its records name; what is known of it \
         stays. Look at the providers that are configured, and try again"
    )
}

impl SidecarError {
    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Rejected(rejection) => rejection.is_retryable(),
            Self::Provider(error) => error.is_retryable(),
            Self::Gossip(error) => error.is_retryable(),
            Self::MayNotSign { why, .. } => *why == Unpermitted::NotYet,
            Self::NoCopy { .. } | Self::TooManyUndecided { .. } => true,
            _ => false,
        }
    }

    /// Whether what was asked for is known and its bytes are not here.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::BlobsPruned { .. } | Self::Missing { .. })
    }

    /// Whether bytes that are here are not what they were: as good as none, and no more.
    pub fn is_damage(&self) -> bool {
        // Rows are in the index; the arena has bytes of blobs and nothing else.
        matches!(self, Self::Store(StoreError::Corrupt { what: "arena", .. }))
    }

    /// A short word for the kind of error, for counters.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Decode(_) => "malformed",
            Self::Unknown(_) => "unknown_height",
            Self::BlobsPruned { .. } => "pruned",
            Self::NoCopy { .. } => "no_copy",
            Self::WrongLength { .. } => "wrong_length",
            Self::TooManyBlobs { .. } => "too_many_blobs",
            Self::TooManyUndecided { .. } => "too_many_undecided",
            Self::WrongIndex { .. } => "wrong_index",
            Self::BadBlob { .. } => "bad_blob",
            Self::BadCommitment { .. } => "bad_commitment",
            Self::BadProof { .. } => "bad_proof",
            Self::BadRound { .. } => "bad_round",
            Self::UnknownRound { .. } => "unknown_round",
            Self::RoundConflict { .. } => "round_conflict",
            Self::DecidedOtherwise { .. } => "decided_otherwise",
            Self::NoSuchBlob { .. } => "no_such_blob",
            Self::Missing { .. } => "missing",
            Self::KeccakMismatch { .. } => "keccak_mismatch",
            Self::RecordConflict { .. } => "record_conflict",
            Self::MayNotSign { .. } | Self::NoIdentity { .. } => "may_not_sign",
            Self::Rejected(rejection) => rejection.label(),
            Self::Key { .. } => "key",
            Self::Provider(_) => "provider",
            Self::Gossip(_) => "gossip",
            Self::Store(_) => "store",
            Self::Task { .. } => "task",
        }
    }

    /// A task that ended before its answer.
    pub(crate) fn task(what: &'static str, error: &tokio::task::JoinError) -> Self {
        Self::Task { what, reason: error.to_string() }
    }

    pub(crate) fn refused(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Refused { what, reason: reason.into() }
    }
}
