//! The seam to the database that keeps the records.
//!
//! Each step is atomic: it is done as a whole, or not at all. Every backend keeps the same promises,
//! and one suite of tests says so (`conformance`). Where a database can only change one record at a time
//! (Aerospike), a step that fails may have done a part of itself; that part does no harm, and the same
//! step, told again, finishes.

use std::fmt::Debug;
use std::future::Future;

use secateur_core::Height;
use serde::{Deserialize, Serialize};

use crate::UtxoError;
use crate::pruner::Job;
use crate::rule::Rules;
use crate::types::{BlockId, BlockRef, FileKind, NewTx, Record, TxId};

/// What became of a transaction that was to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// Its record was made, and its inputs are spent.
    New,
    /// It was there before, with the same inputs and outputs; nothing was changed, also not where it was told
    /// with another block.
    WasThere {
        /// The file that its record names.
        external: Option<FileKind>,
    },
}

/// An unmined transaction that has waited long, and whose outputs it spends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmined {
    /// The transaction.
    pub txid: TxId,
    /// Its parents, each once.
    pub parents: Vec<TxId>,
}

/// One page of a listing, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, M> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where to go on; nothing at the end.
    pub next: Option<M>,
}

/// What became of parents that were to be preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserved {
    /// Kept until the height.
    pub kept: u64,
    /// Not here, so that nothing can keep them.
    pub missing: u64,
}

/// Why a record that was due stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// It is not due any more: a reorganisation or an unspent output changed it.
    NotDue,
    /// It is preserved.
    Preserved,
    /// A live unmined transaction spends it.
    Held,
    /// Defensive mode: a spender is unmined, not deep enough, or not known.
    Unstable,
    /// Its external file could not be removed.
    FileStays,
    /// Its external file is not where it should be, and neither are others.
    FilesMissing,
}

impl Kept {
    /// The label of metrics and of reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::Preserved => "preserved",
            Self::Held => "held",
            Self::Unstable => "unstable",
            Self::FileStays => "file_stays",
            Self::FilesMissing => "files_missing",
        }
    }
}

/// What a deleting step did with one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate<K> {
    /// Its record is gone, and its parents know.
    Deleted,
    /// It does not go at once, and is to be cut.
    Left,
    /// It is cut for good, and its record goes once its file and its many rows are gone. Boxed: few
    /// are, and a prune has a quarter of a million fates in its hands.
    Cut(Box<Doomed<K>>),
    /// It stays.
    Kept(Kept),
    /// Somebody else removed it.
    Gone,
}

/// What a deleting step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Records whose delete-at-height is at or below it.
    pub height: Height,
    /// Whether records with external files may go: the place of those files is known to be right.
    pub external: bool,
}

/// A record that is cut and not yet removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed<K> {
    /// How the store finds it.
    pub key: K,
    /// The transaction.
    pub txid: TxId,
    /// Its file.
    pub external: Option<FileKind>,
}

/// How many records are in which state. Each number comes from an index of its own; only the whole is
/// what the database estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// All of them, about.
    pub records: u64,
    /// In no block.
    pub unmined: u64,
    /// Past their delete-at-height at the height that was asked for, and not cut.
    pub due: u64,
    /// Preserved.
    pub preserved: u64,
    /// Cut and not yet removed.
    pub cut: u64,
    /// What the database takes on the disk.
    pub size_bytes: u64,
    /// What of that is free to be used again, where it is known.
    pub free_bytes: Option<u64>,
}

/// Whether a database takes more writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Room {
    /// It does, or it does not say.
    #[default]
    Enough,
    /// It does, and is near the limit from which on it will not: why.
    Low(String),
    /// It does not: why. A prune needs writes too.
    Full(String),
}

/// A look at the room of a database, which may have parts that do not answer.
#[derive(Debug, Default)]
pub struct RoomLook {
    /// The worst of what those said that answered.
    pub room: Room,
    /// Why one that was asked did not.
    pub failed: Option<UtxoError>,
}

impl Room {
    /// The worse of two.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Enough, _) | (Self::Low(_), Self::Full(_)) => other,
            _ => self,
        }
    }
}

impl Counts {
    /// Past their delete-at-height and still here: also those that are cut, and whose file stays.
    pub const fn past_due(&self) -> u64 {
        self.due.saturating_add(self.cut)
    }
}

/// A database of UTXO records.
///
/// Heights are those of the main chain's tip at the moment of a step: what is decided is counted from
/// there. A step that is told twice does no harm.
pub trait UtxoStore: Clone + Debug + Send + Sync + 'static {
    /// How a record is found again within one run.
    type Key: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// Where a listing goes on.
    type Mark: Clone + Debug + Send + Sync + 'static;

    /// What the database is, for people: without a password.
    fn address(&self) -> String;

    /// The numbers that it was opened with.
    fn rules(&self) -> Rules;

    /// How many chunks of a prune go in one step, one after the other. With more than one they do not
    /// go beside each other.
    fn chunks_together(&self) -> usize {
        1
    }

    /// Makes records and spends their inputs, each transaction as a whole or not at all. One that is
    /// refused does not keep the others from being made; a transaction may spend one before it. Together
    /// they have at most [`MAX_CREATED_OUTPUTS`](crate::MAX_CREATED_OUTPUTS) outputs; otherwise none is made.
    fn create(
        &self,
        txs: Vec<NewTx>,
        height: Height,
    ) -> impl Future<Output = Result<Vec<Result<Created, UtxoError>>, UtxoError>> + Send;

    /// Spends the inputs of a record that let them go, as when it is submitted again.
    fn spend(
        &self,
        txid: TxId,
        height: Height,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Lets the inputs of an unmined record go.
    fn unspend(
        &self,
        txid: TxId,
        height: Height,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Says that an unmined transaction lost a double spend, and lets its inputs go; or that it won
    /// after all, and spends them.
    fn set_conflicting(
        &self,
        txid: TxId,
        conflicting: bool,
        height: Height,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Puts transactions into a block of the main chain: all, or none.
    fn set_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockRef,
        height: Height,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Takes transactions out of a block that left the main chain: all, or none.
    fn unset_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockId,
        height: Height,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Everything about one transaction.
    fn get(&self, txid: TxId) -> impl Future<Output = Result<Option<Record>, UtxoError>> + Send;

    /// Up to which height the run went that pruned a record, if the store remembers it; 0 where an earlier version
    /// did not note it. It remembers those that no parent names, coinbases and losers of double spends, if something
    /// of them was spent: they could come back with their outputs unspent. Others are known to their parents, or
    /// cannot come back without them.
    fn pruned_at(
        &self,
        txid: TxId,
    ) -> impl Future<Output = Result<Option<Height>, UtxoError>> + Send;

    /// Transactions that are unmined since `cutoff` or longer, in any order.
    fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Unmined, Self::Mark>, UtxoError>> + Send;

    /// Keeps records until a height, and takes their delete-at-height away: all that are here, or none.
    fn preserve(
        &self,
        txids: Vec<TxId>,
        until: Height,
    ) -> impl Future<Output = Result<Preserved, UtxoError>> + Send;

    /// Ends preservations whose height is reached, at most so many, and applies the rule to them;
    /// answers how many.
    fn expire_preservations(
        &self,
        height: Height,
        limit: usize,
    ) -> impl Future<Output = Result<u64, UtxoError>> + Send;

    /// Records whose delete-at-height is at or below a height.
    fn due(
        &self,
        height: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Self::Key, Self::Mark>, UtxoError>> + Send;

    /// Whether each of these has a spender that is not settled: unmined, or in a block above `deep`, or
    /// not here although nothing says that it was pruned; nothing is deep enough without a depth.
    /// Spenders are read at most so many at a time.
    fn unstable(
        &self,
        keys: Vec<Self::Key>,
        deep: Option<Height>,
        batch: usize,
    ) -> impl Future<Output = Result<Vec<bool>, UtxoError>> + Send;

    /// Deletes records: in the step that deletes, each is looked at again, and goes only if it is
    /// still due, not preserved, and spent by no live unmined transaction. Parents that stay learn of
    /// it with that step or before: from then on they say that their spender is pruned; and what is
    /// remembered of a record that none names is written with that step or before. What has a file or many rows
    /// is left for [`UtxoStore::cut`], or is cut by this step already. Answers in the order of the keys, for as
    /// many as one step came to, which is at least one: whoever asks goes on with the others, and knows meanwhile
    /// what went.
    fn delete(
        &self,
        keys: Vec<Self::Key>,
        sweep: Sweep,
    ) -> impl Future<Output = Result<Vec<Fate<Self::Key>>, UtxoError>> + Send;

    /// Cuts records that do not go at once, under the same look: nothing brings them back, and they are removed
    /// once their files are gone. All of them in one step, and in the order of the keys.
    fn cut(
        &self,
        keys: Vec<Self::Key>,
        sweep: Sweep,
    ) -> impl Future<Output = Result<Vec<Fate<Self::Key>>, UtxoError>> + Send;

    /// Records that are cut and not yet removed.
    fn doomed(
        &self,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Doomed<Self::Key>, Self::Mark>, UtxoError>> + Send;

    /// Removes records that are cut, whose files are gone: as many of the first of them as one step comes to, which
    /// is at least one if there is any. How many is the answer, so that what went is known also if the next step fails.
    fn finish(&self, keys: Vec<Self::Key>)
    -> impl Future<Output = Result<usize, UtxoError>> + Send;

    /// Some transactions with external files, the newest where there is an order: those that are not due
    /// at a height, whose files must be there; or any, which are not cut.
    fn external_sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(TxId, FileKind)>, UtxoError>> + Send;

    /// Whether more writes are taken. One that knows its disk only by a write that fails has enough room.
    fn room(&self) -> impl Future<Output = RoomLook> + Send {
        async { RoomLook::default() }
    }

    /// Whether there is any record, as far as is known without counting them.
    fn has_records(&self) -> impl Future<Output = Result<bool, UtxoError>> + Send;

    /// How many records are in which state.
    fn counts(&self, height: Height) -> impl Future<Output = Result<Counts, UtxoError>> + Send;

    /// Something small that is kept under a name.
    fn note(&self, name: &str) -> impl Future<Output = Result<Option<String>, UtxoError>> + Send;

    /// Keeps it.
    fn set_note(
        &self,
        name: &str,
        value: &str,
    ) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Keeps something under a name if nothing is kept there yet, in one step; what is there then is the
    /// answer, the same for everybody who asks.
    fn claim_note(
        &self,
        name: &str,
        value: &str,
    ) -> impl Future<Output = Result<String, UtxoError>> + Send;

    /// Adds a job that ended, and forgets the oldest beyond what is kept.
    fn add_job(&self, job: &Job) -> impl Future<Output = Result<(), UtxoError>> + Send;

    /// Past jobs, newest first.
    fn jobs(&self) -> impl Future<Output = Result<Vec<Job>, UtxoError>> + Send;
}
