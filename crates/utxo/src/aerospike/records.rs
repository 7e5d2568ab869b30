//! The seam to single records: what Aerospike promises about one of them, and nothing about two.
//!
//! A record has a name, fields and a generation, which every write raises. Everything of this backend is
//! said in these words, so that its order of writes can be tried with a map in memory that fails on
//! purpose; what a cluster answers is `cluster`'s matter.

use std::fmt::Debug;
use std::future::Future;

use aerospike::{IndexMap, Value};

use crate::UtxoError;
use crate::store::RoomLook;
use crate::types::TxId;

use super::bins;

/// Fields by name.
pub type Fields = IndexMap<String, Value>;

/// How a record is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// The record of a transaction.
    Tx(TxId),
    /// A page of its spenders, beyond the first.
    Page(TxId, u32),
    /// A part of its inputs and bytes, where those are many.
    Part(TxId, u32),
    /// Something about the store itself.
    Meta(String),
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The fields that were asked for and are there.
    pub fields: Fields,
    /// How often it was written.
    pub generation: u32,
}

/// What must be true of a record at the moment it is changed, beside its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// It is due at a height, not preserved, not held and not cut.
    Due(i64),
    /// It is cut.
    Cut,
}

/// What is done to a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// It is made; it must not be there.
    Create(Fields),
    /// Fields of it change, `Nil` takes one away; it must have this generation.
    Update {
        /// The generation.
        generation: u32,
        /// The fields.
        fields: Fields,
        /// What else must be true.
        guard: Option<Guard>,
    },
    /// It is made or its fields change, whatever it was.
    Put(Fields),
    /// It goes.
    Delete {
        /// What must be true.
        guard: Option<Guard>,
    },
}

/// A change of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Which record.
    pub name: Name,
    /// What is done to it.
    pub change: Change,
}

/// What became of a change that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The record is not what it had to be: another generation, a guard that does not hold, or there
    /// where it must not be. Nothing was changed.
    Changed,
    /// There is no such record. Nothing was changed.
    Missing,
}

/// The fields that have a numeric secondary index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// When records may go.
    DeleteAt,
    /// Since when transactions wait.
    UnminedSince,
    /// Until when records are preserved.
    PreserveUntil,
    /// Records that are cut.
    Cut,
    /// Records with files.
    External,
}

impl Index {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::DeleteAt, Self::UnminedSince, Self::PreserveUntil, Self::Cut, Self::External];

    /// The field.
    pub const fn bin(self) -> &'static str {
        match self {
            Self::DeleteAt => bins::DELETE_AT,
            Self::UnminedSince => bins::UNMINED_SINCE,
            Self::PreserveUntil => bins::PRESERVE_UNTIL,
            Self::Cut => bins::CUT,
            Self::External => bins::EXTERNAL,
        }
    }
}

/// A question to an index: records of transactions whose field is between 0 and `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The index.
    pub index: Index,
    /// The highest number.
    pub to: i64,
    /// The fields that are wanted.
    pub bins: &'static [&'static str],
    /// Only what is not cut and not due at this height.
    pub above: Option<i64>,
}

/// How much there is, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Records of transactions.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
}

/// Records, one at a time. What is done to several is done to each by itself: in any order, and some of
/// it may be done when the whole fails.
pub trait Records: Clone + Debug + Send + Sync + 'static {
    /// Where a listing goes on.
    type Cursor: Clone + Debug + Send + Sync + 'static;

    /// Where they are, for people.
    fn address(&self) -> String;

    /// Reads records; nothing where there is none. An answer for every name, in order.
    fn read(
        &self,
        names: Vec<Name>,
        bins: &'static [&'static str],
    ) -> impl Future<Output = Result<Vec<Option<Stored>>, UtxoError>> + Send;

    /// Changes records. Every row's own result is looked at: an error if one failed, whatever the whole
    /// says; else an answer for every change, in order.
    fn write(
        &self,
        writes: Vec<Write>,
    ) -> impl Future<Output = Result<Vec<Outcome>, UtxoError>> + Send;

    /// One page of an index, in no order, and where the next one begins.
    fn query(
        &self,
        query: Query,
        after: Option<Self::Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<(Vec<Stored>, Option<Self::Cursor>), UtxoError>> + Send;

    /// How many records of transactions have this field between 0 and a number.
    fn count(&self, index: Index, to: i64) -> impl Future<Output = Result<u64, UtxoError>> + Send;

    /// How many of those that are cut are still among what is due at a height.
    fn cut_and_due(&self, height: i64) -> impl Future<Output = Result<u64, UtxoError>> + Send;

    /// Whether more writes are taken.
    fn room(&self) -> impl Future<Output = RoomLook> + Send;

    /// Raises a number that is kept under a name, and answers what it is then.
    fn raise(&self, name: Name) -> impl Future<Output = Result<i64, UtxoError>> + Send;

    /// How much there is.
    fn usage(&self) -> impl Future<Output = Result<Usage, UtxoError>> + Send;
}
