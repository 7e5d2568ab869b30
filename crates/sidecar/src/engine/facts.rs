//! What goes into the engine and comes out of it, as plain values. The bytes of rows are in `rows`.

use bytes::Bytes;
use secateur_core::{Height, Locator};
use serde::Serialize;

use crate::types::{
    BlobKeccak, BlobState, Commitment, Inclusion, Proof, Round, ValidatorId, VersionedHash,
};

/// Locators of one record, at most.
pub const MAX_LOCATORS: usize = 16;
/// Records of one blob, at most: what further signers say of it is not kept.
pub const MAX_RECORDS: usize = 16;
/// The same where none of those led to a copy (`trust = fetch`),
pub const MAX_DOUBTED_RECORDS: usize = 32;
/// and how many of them one signer may have then.
pub const MAX_DOUBTED_OF_ONE: usize = 4;

/// Whether this node proposed what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It did: a job for each blob goes into the archiver's queue, in the same batch.
    Proposer,
    /// It did not.
    Follower,
}

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is stored as an undecided round.
    New,
    /// The same proposal was stored already.
    Known,
    /// The same proposal is decided already.
    Decided,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// The height is recorded now.
    New,
    /// The height was recorded already, with this round. Nothing of it was changed.
    Known,
}

/// What became of an archive record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// It is the blob's first one: the blob is archived now.
    New,
    /// It was added to those of other signers.
    Added,
    /// The same one was there already.
    Known,
    /// The blob has [`MAX_RECORDS`] of them; this one was not kept.
    Enough,
}

/// How an archive record came here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordForm {
    /// From this node's own archiver, which has read the copy back.
    Own = 0,
    /// From a verified notice, version 1.
    V1 = 1,
    /// From a verified notice of the compatibility form. It binds no chain, so it leads to pruning
    /// only under [`Trust::Fetch`].
    V0 = 2,
}

/// That somebody signs, or is about to sign, for a copy of a blob. Together with the blob's
/// metadata it is the whole content of a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveRecord {
    /// Who signs.
    pub signer: ValidatorId,
    /// How it came here.
    pub form: RecordForm,
    /// Where the copies are: 1 to [`MAX_LOCATORS`].
    pub locators: Vec<Locator>,
    /// The chain's height when it was archived.
    pub archived_at_height: Height,
    /// Seconds since 1970, as the signer says. It tells two records apart only where it is signed
    /// ([`RecordForm::V0`]).
    pub archived_at: u64,
    /// The notice's signature, so that the same bytes can be told for ever, whatever key this node
    /// has later. Our own record is not stored without it.
    #[serde(skip)]
    pub signature: Option<[u8; 64]>,
}

impl ArchiveRecord {
    /// Whether another record says the same as this one.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let signs_time = self.form == RecordForm::V0;
        self.signer == other.signer
            && self.form.is_signed_v1() == other.form.is_signed_v1()
            && self.locators == other.locators
            && self.archived_at_height == other.archived_at_height
            && (!signs_time || self.archived_at == other.archived_at)
    }
}

impl RecordForm {
    /// Whether what is signed for it is a v1 notice. Our own record and the notice made from it
    /// are one thing.
    pub fn is_signed_v1(self) -> bool {
        self != Self::V0
    }
}

/// A record as it is kept: with when it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptRecord {
    /// The record.
    #[serde(flatten)]
    pub record: ArchiveRecord,
    /// Seconds since 1970 by this node's clock, when it was verified and stored here.
    pub verified_at: u64,
}

/// What is known for ever of a decided height.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeightRecord {
    /// The height.
    pub height: Height,
    /// The round that was decided.
    pub round: Round,
    /// Who proposed it.
    pub proposer: ValidatorId,
    /// How many blobs it has; 0 is an honest answer.
    pub blob_count: u32,
    /// The execution payload's header, as it came.
    pub payload_header: Bytes,
    /// The signed block header, where there is one.
    pub signed_header: Option<Bytes>,
    /// Seconds since 1970, when it was stored and when it was decided here.
    pub stored_at: u64,
    /// See `stored_at`.
    pub decided_at: u64,
}

/// What is known for ever of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobMeta {
    /// Its height.
    pub height: Height,
    /// Its place in the block.
    pub index: u32,
    /// The commitment.
    pub commitment: Commitment,
    /// What transactions name it by.
    pub versioned_hash: VersionedHash,
    /// Its proof, where the source had one.
    pub proof: Option<Proof>,
    /// The keccak-256 of its bytes, computed here when it came.
    pub keccak: BlobKeccak,
    /// Where it stands in a beacon block, where the source said so.
    pub inclusion: Option<Inclusion>,
}

impl BlobMeta {
    /// The blob's name.
    pub fn key(&self) -> BlobKey {
        BlobKey { height: self.height, index: self.index }
    }
}

/// A blob's bytes with its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// What is known of it.
    pub meta: BlobMeta,
    /// Its bytes, checked against the checksum that they were stored with.
    pub blob: Bytes,
}

/// The name of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BlobKey {
    /// Its height.
    pub height: Height,
    /// Its place in the block.
    pub index: u32,
}

impl std::fmt::Display for BlobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "blob {} of height {}", self.index, self.height)
    }
}

/// A blob that the archiver is to archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Which blob.
    pub key: BlobKey,
    /// How often it was tried in vain.
    pub attempts: u32,
    /// When it is to be tried, in milliseconds since 1970.
    pub due: u64,
    /// Why this node may not sign for the blob, if that is what it waits for.
    pub held: Option<Unpermitted>,
}

/// Why a node may not sign for a height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unpermitted {
    /// It has no key.
    NoKey = 1,
    /// It is no validator at that height.
    NotValidator = 2,
    /// Its term at that height has another key than the one that it has now.
    OtherKey = 3,
    /// Another validator proposed, and only the proposer signs.
    NotProposer = 4,
    /// Another validator proposed, and it is too early for others to sign.
    NotYet = 5,
}

impl std::fmt::Display for Unpermitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoKey => "this node has no key (`sidecar.key_file`)",
            Self::NotValidator => "it is no validator at that height (`sidecar.validators`)",
            Self::OtherKey => {
                "its term at that height has another key than `sidecar.key_file`, and peers verify \
                 with that one; put the term's key back to have it archived"
            }
            Self::NotProposer => {
                "another validator proposed it, and `sidecar.signers` lets only the proposer sign"
            }
            Self::NotYet => "another validator proposed it, and it is too early for others to sign",
        })
    }
}

/// One of our own notices that peers have not acknowledged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Which blob.
    pub key: BlobKey,
    /// The durable record, signed.
    pub record: ArchiveRecord,
    /// The chain's height when it was last broadcast; none if it never was.
    pub broadcast_at: Option<Height>,
    /// How often it was broadcast.
    pub told: u32,
}

/// A blob that must be fetched and compared before its height can be pruned ([`Trust::Fetch`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchDue {
    /// What is known of the blob: its keccak is what must come out.
    pub meta: BlobMeta,
    /// Where copies are said to be, in the order of the records.
    pub locators: Vec<Locator>,
}

/// A height whose bytes are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WaitingHeight {
    /// The height.
    pub height: Height,
    /// How many blobs it has.
    pub blob_count: u32,
    /// How many of them nobody has signed for.
    pub unarchived: u32,
}

/// Why bytes stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The height is not final.
    NotFinalized,
    /// It is younger than `retain_blocks` after finality.
    Retained,
    /// A blob of the height has no verified notice.
    NotArchived,
    /// All it has is a notice of a form that is not enough under `trust = signature`.
    UnboundNotice,
    /// A blob of the height was not fetched and compared yet (`trust = fetch`).
    NotFetched,
    /// A row that would tell cannot be read.
    Unreadable,
}

impl Hold {
    /// Its word, as it is also written in JSON; these words do not change.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotFinalized => "not_finalized",
            Self::Retained => "retained",
            Self::NotArchived => "not_archived",
            Self::UnboundNotice => "unbound_notice",
            Self::NotFetched => "not_fetched",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Serialize for Hold {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// What a prune would do now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// The highest height that finality and `retain_blocks` let go; none: nothing at all.
    pub limit: Option<Height>,
    /// Heights that would be pruned, of those that were looked at.
    pub heights: u64,
    /// Their blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The lowest of them, and the highest.
    pub first: Option<Height>,
    /// See `first`.
    pub last: Option<Height>,
    /// The lowest height at or below the limit whose bytes must stay, and why.
    pub held: Option<(Height, Hold)>,
    /// More may be prunable: only so many heights were looked at.
    pub more: bool,
}

/// What a prune did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PruneReport {
    /// Heights whose bytes went.
    pub heights: u64,
    /// Blobs whose bytes went.
    pub blobs: u64,
    /// Bytes that were cut.
    pub bytes: u64,
    /// Blobs whose bytes were gone already; each counts as a failure.
    pub failures: u64,
    /// The lowest and the highest height that was pruned.
    pub first: Option<Height>,
    /// See `first`.
    pub last: Option<Height>,
    /// Heights that were looked at and must stay.
    pub held: u64,
    /// The lowest of those, and why.
    pub first_held: Option<(Height, Hold)>,
    /// There may be more to do: a batch was full.
    pub more: bool,
}

/// A blob, as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlobStatus {
    /// Its place in the block.
    pub index: u32,
    /// Where it is in its life.
    pub state: BlobState,
    /// The commitment.
    pub commitment: Commitment,
    /// What transactions name it by.
    pub versioned_hash: VersionedHash,
    /// The keccak-256 of its bytes.
    pub keccak: BlobKeccak,
    /// Who signed for which copies, oldest first.
    pub records: Vec<KeptRecord>,
    /// Seconds since 1970, when a copy was fetched and compared here.
    pub fetched_at: Option<u64>,
    /// Its job, if it waits to be archived by this node.
    pub job: Option<Job>,
}

/// A height, as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeightStatus {
    /// The height.
    pub height: Height,
    /// The round that was decided; none while it is not.
    pub round: Option<Round>,
    /// Who proposed it.
    pub proposer: Option<ValidatorId>,
    /// Rounds that are stored and not decided.
    pub undecided: Vec<Round>,
    /// Its blobs.
    pub blobs: Vec<BlobStatus>,
    /// Why its bytes stay, if they are here and must.
    pub hold: Option<Hold>,
    /// When its bytes went.
    pub pruned: Option<Pruned>,
}

/// When a height's bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The finalized height by which it was allowed.
    pub finalized: Height,
    /// Seconds since 1970.
    pub at: u64,
    /// Blobs whose bytes were gone already.
    pub failures: u32,
}

/// The whole story of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainBlob {
    /// Its height.
    pub height: Height,
    /// The round that was decided, and who proposed it.
    pub round: Round,
    /// See `round`.
    pub proposer: ValidatorId,
    /// How many blobs the height has.
    pub blob_count: u32,
    /// Seconds since 1970: stored, decided.
    pub stored_at: u64,
    /// See `stored_at`.
    pub decided_at: u64,
    /// The blob itself, with its records.
    #[serde(flatten)]
    pub blob: BlobStatus,
    /// Whether its bytes are here.
    pub here: bool,
    /// Why they stay, if they must.
    pub hold: Option<Hold>,
    /// When they went.
    pub pruned: Option<Pruned>,
}

/// Figures of the whole store, for metrics and alarms. None of them costs a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Decided heights.
    pub heights: u64,
    /// Blobs of decided heights that are pending, archived, pruned.
    pub pending: u64,
    /// See `pending`.
    pub archived: u64,
    /// See `pending`.
    pub pruned: u64,
    /// Blobs whose bytes were gone when they were pruned.
    pub prune_failures: u64,
    /// Rounds that are stored and not decided, and their blobs.
    pub rounds: u64,
    /// See `rounds`.
    pub undecided: u64,
    /// The highest decided height.
    pub latest_decided: Option<Height>,
    /// The highest height all of whose blobs are archived.
    pub latest_archived: Option<Height>,
    /// What is final.
    pub finalized: Option<Height>,
    /// The lowest height with a blob that nobody has signed for, or only in a form that lets
    /// nothing go under `trust = signature`.
    pub oldest_unarchived: Option<Height>,
    /// Jobs of the archiver, and the lowest height among them.
    pub jobs: u64,
    /// See `jobs`.
    pub oldest_job: Option<Height>,
    /// Own notices that are not acknowledged.
    pub announcements: u64,
    /// The lowest height that is archived and not pruned though finality and `retain_blocks` let it
    /// go.
    pub pruner_backlog: Option<Height>,
    /// Bytes of regions in use or quarantined, and the budget (0: none).
    pub used_bytes: u64,
    /// See `used_bytes`.
    pub budget_bytes: u64,
    /// What arena and index take on the medium.
    pub disk_bytes: u64,
}

impl Summary {
    /// Whether the budget is passed. It only alarms: nothing is cut for it.
    pub fn over_budget(&self) -> bool {
        self.budget_bytes > 0 && self.used_bytes > self.budget_bytes
    }

    /// By how many heights archiving is behind.
    pub fn archival_lag(&self) -> u64 {
        match (self.latest_decided, self.oldest_unarchived) {
            (Some(latest), Some(oldest)) => {
                latest.checked_sub(oldest).map_or(0, |behind| behind.saturating_add(1))
            }
            _ => 0,
        }
    }
}
