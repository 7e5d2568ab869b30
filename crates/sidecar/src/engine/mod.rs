//! The engine: blobs, what is known of them, and the only code that cuts their bytes.
//!
//! Synchronous, `&self`, one writer at a time inside; calls that come together share one commit.
//! A call that returns has made durable what it says. It names no file, socket or thread; time is
//! informational but for jobs' due times, and comes in.
//!
//! What others call (all return `Result<_, SidecarError>`):
//!
//! ```text
//! SidecarStore<A: Arena, I: Index>
//!   open(ground: Ground<A, I>, config: EngineConfig, clock: Arc<dyn Clock>) -> Self
//!   config() -> &EngineConfig
//!
//! proposals and decisions
//!   verify_and_store(&Proposal) -> Stored                       KZG checked outside the lock
//!   mark_decided(height, round, Role) -> Decided                insert-if-absent; other rounds go
//!   store_decided(&Proposal, Role) -> Decided                   both in one batch: sync, beacon
//!   store_decided_all(&[Proposal], Fn(&Proposal) -> Role) -> Vec<Result<Decided, _>>               one commit
//!   drop_round(height, round) -> bool
//!   drop_rounds_below(height, max: usize) -> usize              proposals that nobody decided
//!   drop_left_rounds() -> usize                                 those well below what is final
//!   set_finalized(height) -> Option<Height>                     never moves back
//!
//! reading
//!   head() -> Option<Height>                                    the newest decided height
//!   proposer(height, round) -> Option<ValidatorId>              of a stored or decided round
//!   height(height) -> Option<HeightRecord>
//!   is_pruned(height) -> bool
//!   blob_meta(height, index) -> Option<BlobMeta>
//!   blob_metas(height) -> Vec<BlobMeta>
//!   get(height) -> Vec<StoredBlob>                              BlobsPruned, Unknown
//!   get_blob(height, index) -> StoredBlob
//!   get_by_versioned_hash(&VersionedHash) -> Option<StoredBlob>
//!   get_undecided(height, round) -> Proposal
//!   records(height, index) -> Vec<KeptRecord>
//!
//! archive records
//!   record_archived(key, &ArchiveRecord) -> Marked              our own, signed, before it is told;
//!                                                               ends the job, begins announcing
//!   record_archived_all(&[(BlobKey, ArchiveRecord)]) -> Vec<Result<Marked, _>>    one commit
//!   mark_archived(key, &ArchiveRecord, blob_keccak) -> Marked   from a verified notice
//!   mark_archived_all(&[(BlobKey, ArchiveRecord, BlobKeccak)]) -> Vec<Result<Marked, _>>
//!   set_fetched(key, blob_keccak) -> bool                       false: it was fetched already
//!   doubt(key) -> bool, is_doubted(key), is_unseen(key)         trust = fetch: no copy is there
//!   fetch_due(from: BlobKey, max) -> Vec<FetchDue>              trust = fetch: what holds prunes
//!   list_archivable(finalized, from: BlobKey, max) -> Vec<BlobKey>     nobody has signed for them
//!   heights_without_notice(from, max) -> Vec<Height>
//!   list_records(from: BlobKey, max) -> Vec<(BlobMeta, Vec<KeptRecord>)>   for an export
//!   waiting_heights(from, max) -> Vec<WaitingHeight>            bytes are here
//!
//! jobs and announcements of this node's archiver
//!   enqueue(height, due) -> usize                               retry: at once, whatever was
//!   enqueue_absent(height, due) -> usize                        for a dead proposer: once
//!   jobs_due(now, max, skip: impl Fn(&BlobKey) -> bool) -> Vec<Job>   skip those in flight
//!   next_due() -> Option<u64>
//!   job_failed(key, next_due, attempts)                         no such job: nothing
//!   job_done(key)                                               the job goes without a record
//!   job_held(key, next_due, attempts, Unpermitted)              this node may not sign for it
//!   announcements(from: BlobKey, max) -> Vec<Announcement>      all that are not acknowledged
//!   announcements_due(head, max) -> Vec<Announcement>           what to broadcast now
//!   announced(&[BlobKey], at: Height, every: u64)
//!   acknowledged(&[BlobKey])                                    they are announced no more
//!   reannounce(height) -> usize                                 an operator asks for it
//!
//! the family's verbs
//!   plan(max_heights) -> Plan
//!   prune_step(before) -> PruneReport                           one batch; `more` says go on
//!   prune_step_from(from, before) -> PruneReport                the same, nothing below is looked at
//!   prune_archived_before(before) -> PruneReport                heights below `before`
//!   explain(height, index) -> ExplainBlob
//!   status(height) -> HeightStatus
//!   summary() -> Summary
//!   verify(progress) -> ShelfReport
//! ```
//!
//! What deliberately is not here: who may sign for what and whether a signature holds (`notice`),
//! uploading (`archiver`), and when to prune (`pruner`).

mod announce;
mod archive;
mod decide;
mod doubt;
#[cfg(feature = "sim")]
mod early;
mod facts;
mod ingest;
mod jobs;
mod lists;
mod marks;
mod prune;
mod read;
mod rows;
mod story;
mod verify;

#[cfg(test)]
mod tests;

pub use facts::{
    Announcement, ArchiveRecord, BlobKey, BlobMeta, BlobStatus, Decided, ExplainBlob, FetchDue,
    HeightRecord, HeightStatus, Hold, Job, KeptRecord, MAX_DOUBTED_OF_ONE, MAX_DOUBTED_RECORDS,
    MAX_LOCATORS, MAX_RECORDS, Marked, Plan, PruneReport, Pruned, RecordForm, Role, Stored,
    StoredBlob, Summary, Unpermitted, WaitingHeight,
};

use std::sync::Arc;

use secateur_store::{
    Arena, Clock, Family, Ground, Index, Shelf, ShelfBatch, ShelfConfig, StoreError,
};

use crate::error::SidecarError;
use crate::sabotage::Sabotage;
use crate::types::{BLOB_LEN, DEFAULT_MAX_BLOBS, MAX_BLOBS, Trust};

/// Rounds of one height that may be stored undecided, unless something else is configured.
const DEFAULT_MAX_ROUNDS: u32 = 64;
/// Blobs of undecided rounds of all heights, unless something else is configured: 512 MiB.
pub const DEFAULT_MAX_UNDECIDED: u32 = 4_096;
/// Blobs that one batch of a prune cuts, unless something else is configured.
const DEFAULT_MAX_OPS: u32 = 1_024;

/// How an engine is opened. Only `chain_id` is fixed for ever; the rest is as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// The chain. A store of another chain is refused.
    pub chain_id: u64,
    /// Random bytes that tell a new store from any other; a store that is there keeps its own.
    pub store_id: [u8; 16],
    /// Blobs of a height, at most: 1 to [`MAX_BLOBS`].
    pub max_blobs: u32,
    /// Undecided rounds of a height, at most.
    pub max_rounds: u32,
    /// Blobs of undecided rounds of all heights together, and such rounds, at most.
    pub max_undecided: u32,
    /// Heights that keep their bytes after they are final.
    pub retain_blocks: u64,
    /// What must be true of a copy before bytes go.
    pub trust: Trust,
    /// Bytes that the blobs should not pass; 0: none. It only alarms.
    pub budget_bytes: u64,
    /// Blobs that one batch of a prune cuts, at most; a height is never divided.
    pub max_ops: u32,
    /// A planted bug. Without the feature `sim` none is ever armed.
    pub sabotage: Sabotage,
}

impl EngineConfig {
    /// The defaults for a chain.
    pub fn new(chain_id: u64, store_id: [u8; 16]) -> Self {
        Self {
            chain_id,
            store_id,
            max_blobs: DEFAULT_MAX_BLOBS,
            max_rounds: DEFAULT_MAX_ROUNDS,
            max_undecided: DEFAULT_MAX_UNDECIDED,
            retain_blocks: 0,
            trust: Trust::Signature,
            budget_bytes: 0,
            max_ops: DEFAULT_MAX_OPS,
            sabotage: Sabotage::None,
        }
    }

    fn check(&self) -> Result<(), SidecarError> {
        if self.max_blobs == 0 || self.max_blobs > MAX_BLOBS {
            let reason = format!("max_blobs is 1 to {MAX_BLOBS} and not {}", self.max_blobs);
            return Err(SidecarError::refused("sidecar settings", reason));
        }
        if self.max_rounds == 0 || self.max_ops == 0 {
            return Err(SidecarError::refused("sidecar settings", "a limit of 0"));
        }
        if self.max_undecided < self.max_blobs {
            let reason = "max_undecided is less than max_blobs: no full proposal could be stored";
            return Err(SidecarError::refused("sidecar settings", reason));
        }
        Ok(())
    }
}

/// Blobs and what is known of them. Share it by reference.
pub struct SidecarStore<A, I> {
    shelf: Shelf<A, I>,
    config: EngineConfig,
    clock: Arc<dyn Clock>,
    doubts: doubt::Doubts,
    #[cfg(feature = "sim")]
    early: early::Early,
}

impl<A: Arena, I: Index> SidecarStore<A, I> {
    /// Opens the store of a ground, or makes it where the ground is empty. What it reads does not
    /// grow with the chain.
    pub fn open(
        ground: Ground<A, I>,
        config: EngineConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SidecarError> {
        config.check()?;
        let family = Family::Sidecar;
        // A blob fills a region to the last byte.
        let region_len = u32::try_from(BLOB_LEN).unwrap_or(u32::MAX);
        let shelf = if Shelf::exists(&ground)? {
            Shelf::open(ground, family)?
        } else {
            let EngineConfig { chain_id, store_id, .. } = config;
            Shelf::create(ground, ShelfConfig { family, chain_id, store_id, region_len })?
        };
        let header = shelf.header();
        if header.chain_id != config.chain_id || header.region_len() != region_len {
            let detail = format!(
                "these are blobs of chain {} in regions of {}, and chain {} is wanted",
                header.chain_id,
                header.region_len(),
                config.chain_id
            );
            return Err(StoreError::Foreign(detail).into());
        }
        Ok(Self {
            shelf,
            config,
            clock,
            doubts: doubt::Doubts::default(),
            #[cfg(feature = "sim")]
            early: early::Early::default(),
        })
    }

    /// How it was opened.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What it lives on, for checks from outside.
    pub fn shelf(&self) -> &Shelf<A, I> {
        &self.shelf
    }

    /// Takes it apart without writing anything.
    pub fn into_ground(self) -> Ground<A, I> {
        self.shelf.into_ground()
    }

    /// Why it refuses writes, if it does.
    pub fn poisoned(&self) -> Option<&str> {
        self.shelf.poisoned()
    }

    fn write<'b, T>(
        &self,
        change: impl FnOnce(&mut ShelfBatch<'_, 'b, I::Snapshot>) -> Result<T, SidecarError>,
    ) -> Result<T, SidecarError> {
        self.shelf.write(change)
    }
}

impl<A, I> std::fmt::Debug for SidecarStore<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SidecarStore").field("config", &self.config).finish_non_exhaustive()
    }
}
