//! A UTXO store on an Aerospike cluster.
//!
//! A transaction is a record; where it is wide or long, it has further records for pages of spenders and
//! for parts of its inputs and bytes. Aerospike changes one record at a time, so what the trait calls
//! atomic is here an order of writes, each conditional on the generation that was read:
//!
//! - *create, spend*: the parents' slots are taken and held, then the record is written. Cut off in
//!   between, a slot belongs to a transaction that is not here: nobody else gets it, its transaction is not
//!   pruned, and the same submission finds the slot its own and goes on, or gives it back if it is refused.
//! - *a block*: the records, then their parents' holds. *A block taken back*: the holds, then the records.
//!   Nothing ever waits that is not held.
//! - *let go*: the parents, then the record.
//! - *delete*: the record is cut, in one write that looks at it for the last time; its parents learn, or it
//!   is written down where none names it; its other records go; it goes.
//!
//! A step that fails may have done part of itself, and does no harm before it is told again: then it
//! finishes. Steps about the same transaction are told one after the other; steps about others may go on
//! beside them. `docs/aerospike.md` says more to operators.
//!
//! What lives here: the records and their order ([`Engine`]), and how a cluster is spoken to
//! (`cluster`). What deliberately does not: multi-record transactions of Aerospike, which only one of its
//! editions has.

mod address;
mod answers;
mod bins;
mod cluster;
mod desk;
mod index;
mod read;
mod records;
mod steps;
mod storage;
mod sweep;
mod work;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod tests;

use secateur_core::Height;

use crate::UtxoError;
use crate::pruner::Job;
use crate::rule::Rules;
use crate::store::{
    Counts, Created, Doomed, Fate, Page, Preserved, RoomLook, Sweep, Unmined, UtxoStore,
};
use crate::types::{BlockId, BlockRef, FileKind, NewTx, Record, TxId, check_places};

use self::cluster::Cluster;
use self::records::{Change, Name, Outcome, Records, Write};

/// Past jobs that are kept.
const JOBS: u32 = 1000;
/// The version of the records' format.
const VERSION: i64 = 2;
/// The version before pruned records were remembered; it becomes this one as it is.
const FORGETFUL: i64 = 1;

/// UTXO records in an Aerospike namespace. Clones share the connections.
pub type AerospikeStore = Engine<Cluster>;

/// UTXO records that are changed one at a time.
#[derive(Debug, Clone)]
pub struct Engine<R> {
    records: R,
    rules: Rules,
}

impl AerospikeStore {
    /// Opens a store at `aerospike://host[:port][,host2…]/namespace[?…]` (`docs/aerospike.md`), and makes its
    /// indexes if there are none; answers when they are ready. A cluster on which deleted records would come
    /// back is refused, and nothing is written there. A user and a password are taken from `AEROSPIKE_USER` and
    /// `AEROSPIKE_PASSWORD`.
    pub async fn open(address: &str, rules: Rules) -> Result<Self, UtxoError> {
        Self::with(Cluster::open(&address.parse()?).await?, rules).await
    }

    /// Whether an address is one; nobody is asked.
    pub fn check(address: &str) -> Result<(), UtxoError> {
        address.parse::<address::Address>().map(drop)
    }

    /// Removes every record of this store, and its indexes.
    #[doc(hidden)]
    pub async fn erase(&self) -> Result<(), UtxoError> {
        self.records.erase().await
    }
}

impl<R: Records> Engine<R> {
    /// Looks whether the records are of a format that is known here.
    async fn with(records: R, rules: Rules) -> Result<Self, UtxoError> {
        let name = Name::Meta("schema_version".into());
        let fields = [(read::NUMBER.into(), VERSION.into())].into();
        let made = Write { name: name.clone(), change: Change::Create(fields) };
        if records.write(vec![made]).await? != [Outcome::Done] {
            let found = records
                .read(vec![name.clone()], &[read::NUMBER])
                .await?
                .into_iter()
                .flatten()
                .next();
            let fields = found.map(|stored| stored.fields).unwrap_or_default();
            let version = bins::Reader(&fields).int(read::NUMBER)?;
            if version == Some(FORGETFUL) {
                let fields = [(read::NUMBER.into(), VERSION.into())].into();
                records.write(vec![Write { name, change: Change::Put(fields) }]).await?;
            } else if version != Some(VERSION) {
                return Err(UtxoError::store(format!(
                    "{} holds UTXO records of version {}; this program knows version {VERSION}; nothing \
                     was changed",
                    records.address(),
                    version.unwrap_or(0)
                )));
            }
        }
        Ok(Self { records, rules })
    }
}

impl<R: Records> UtxoStore for Engine<R> {
    type Key = TxId;
    type Mark = R::Cursor;

    fn address(&self) -> String {
        self.records.address()
    }

    fn rules(&self) -> Rules {
        self.rules
    }

    async fn create(
        &self,
        txs: Vec<NewTx>,
        height: Height,
    ) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
        check_places(txs.iter().map(NewTx::places))?;
        self.create_all(&txs, height).await
    }

    async fn spend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        self.with_parents(txid, height, |slate| slate.spend(txid)).await
    }

    async fn unspend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        self.with_parents(txid, height, |slate| slate.unspend(txid)).await
    }

    async fn set_conflicting(
        &self,
        txid: TxId,
        conflicting: bool,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.with_parents(txid, height, |slate| slate.set_conflicting(txid, conflicting)).await
    }

    async fn set_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockRef,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.mine(&txids, block, height).await
    }

    async fn unset_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockId,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.unmine(&txids, block, height).await
    }

    async fn get(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        self.record(txid).await
    }

    async fn pruned_at(&self, txid: TxId) -> Result<Option<Height>, UtxoError> {
        Ok(self.pruned(&[txid]).await?.into_iter().next().map(|(_, height)| height))
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> Result<Page<Unmined, Self::Mark>, UtxoError> {
        self.old(cutoff, after, limit).await
    }

    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> Result<Preserved, UtxoError> {
        self.keep(&txids, until).await
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<u64, UtxoError> {
        self.expire(height, limit).await
    }

    async fn due(
        &self,
        height: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> Result<Page<TxId, Self::Mark>, UtxoError> {
        self.due_some(height, after, limit).await
    }

    async fn unstable(
        &self,
        keys: Vec<TxId>,
        deep: Option<Height>,
        batch: usize,
    ) -> Result<Vec<bool>, UtxoError> {
        self.unsettled(&keys, deep, batch).await
    }

    async fn delete(&self, keys: Vec<TxId>, sweep: Sweep) -> Result<Vec<Fate<TxId>>, UtxoError> {
        self.delete_all(&keys, sweep).await
    }

    /// Nothing is left to it: every record is cut first here, and goes or is told as cut with that step.
    async fn cut(&self, keys: Vec<TxId>, sweep: Sweep) -> Result<Vec<Fate<TxId>>, UtxoError> {
        self.delete_all(&keys, sweep).await
    }

    async fn doomed(
        &self,
        after: Option<R::Cursor>,
        limit: usize,
    ) -> Result<Page<Doomed<TxId>, R::Cursor>, UtxoError> {
        self.doomed_some(after, limit).await
    }

    async fn finish(&self, keys: Vec<TxId>) -> Result<usize, UtxoError> {
        let Some(first) = keys.first() else { return Ok(0) };
        self.finish_one(*first).await?;
        Ok(1)
    }

    async fn external_sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
        self.sample(not_due, limit).await
    }

    async fn counts(&self, height: Height) -> Result<Counts, UtxoError> {
        self.count_all(height).await
    }

    async fn room(&self) -> RoomLook {
        self.records.room().await
    }

    async fn has_records(&self) -> Result<bool, UtxoError> {
        Ok(self.records.usage().await?.records > 0)
    }

    async fn note(&self, name: &str) -> Result<Option<String>, UtxoError> {
        self.read_note(name).await
    }

    async fn set_note(&self, name: &str, value: &str) -> Result<(), UtxoError> {
        self.write_note(name, value).await
    }

    async fn claim_note(&self, name: &str, value: &str) -> Result<String, UtxoError> {
        self.make_note(name, value).await
    }

    async fn add_job(&self, job: &Job) -> Result<(), UtxoError> {
        self.push_job(job).await
    }

    async fn jobs(&self) -> Result<Vec<Job>, UtxoError> {
        self.all_jobs().await
    }
}
