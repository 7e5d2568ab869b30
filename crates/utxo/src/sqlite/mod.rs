//! A UTXO store in one SQLite file: no server, one writer, readers beside it.
//!
//! A prune takes its turn like any writer. There is one at a time, so chunks do not go beside each other
//! but together, in one transaction, which writes a page of an index once for all of them; it ends as
//! soon as somebody else wants to write, so that nobody waits longer than for one chunk. Deletions need not be on the medium when they are acknowledged: what a power cut
//! brings back goes again. A record's cut is different, since its file is removed next; it is written
//! like everything else that somebody relies on.

mod log;
mod read;
mod rows;
mod schema;
mod steps;
mod sweep;

#[cfg(test)]
mod plans;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use secateur_core::Height;
use secateur_sql::SqlError;
use secateur_sql::sqlite::{Sqlite, SqliteReader};
use tokio::sync::Mutex;

use crate::UtxoError;
use crate::pruner::Job;
use crate::rule::Rules;
use crate::store::{Counts, Created, Doomed, Fate, Page, Preserved, Sweep, Unmined, UtxoStore};
use crate::types::{BlockId, BlockRef, FileKind, NewTx, Record, TxId, check_places};

use log::Log;
use read::Settled;

/// Past jobs that are kept.
const JOBS: usize = 10;

/// Chunks that go in one transaction while nobody waits: the pages of the index by id, which a
/// chunk hits everywhere, are written once for all of them.
const TOGETHER: usize = 256;
/// How long such a transaction goes on: that much is done again if the process dies in it.
const LONGEST: Duration = Duration::from_secs(10);
/// What those pages may take in memory, in SQLite's words: 40 MiB, of the 128 of a whole prune.
const SWEEPER_CACHE: &str = "-40960";

const SET_NOTE: &str = "INSERT INTO meta (key, value) VALUES (?1, ?2)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";
const CLAIM_NOTE: &str =
    "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
const FORGET_JOBS: &str = "DELETE FROM jobs WHERE id <= (SELECT max(id) FROM jobs) - ?1";

/// What an SQLite error means.
fn failed(error: rusqlite::Error) -> UtxoError {
    UtxoError::from(SqlError::from(error))
}

/// A place in an index of heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    height: i64,
    id: i64,
}

impl Mark {
    const BEGIN: Self = Self { height: -1, id: 0 };
}

/// UTXO records in one file. Clones share it.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    /// Whatever is acknowledged through it is on the medium.
    durable: Sqlite,
    /// For deletions.
    sweeper: Sqlite,
    /// What deletions leave in the log.
    log: Log,
    /// Who may write: first come, first served.
    turn: Arc<Mutex<()>>,
    /// Who waits for that.
    waiting: Arc<AtomicUsize>,
    /// Only one chunk of a prune waits for a turn.
    sweep: Arc<Mutex<()>>,
    path: Arc<PathBuf>,
    rules: Rules,
}

impl SqliteStore {
    /// Opens a store, and makes it if there is none.
    pub fn open(path: &Path, rules: Rules) -> Result<Self, UtxoError> {
        // The log's file shrinks when it begins anew, so that its length says how much is in it.
        let limit = ("journal_size_limit", "33554432");
        let durable = Sqlite::open(path, &schema::SCHEMA, &[("cache_size", "-32768"), limit])?;
        // Its log is tended beside it.
        let (synchronous, log) = (("synchronous", "NORMAL"), ("wal_autocheckpoint", "0"));
        let pragmas = [("cache_size", SWEEPER_CACHE), limit, synchronous, log];
        let sweeper = Sqlite::open(path, &schema::SCHEMA, &pragmas)?;
        let log = Log::open(path)?;
        let path = Arc::new(path.to_owned());
        let (turn, waiting, sweep) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { durable, sweeper, log, turn, waiting, sweep, path, rules })
    }

    fn reader(&self) -> &SqliteReader {
        self.durable.reader()
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut rusqlite::Connection) -> Result<T, UtxoError> + Send + 'static,
    ) -> Result<T, UtxoError> {
        self.write_on(&self.durable, work).await
    }

    /// Does some work in its turn. Whoever sweeps meanwhile makes room. The turn is kept until the work has ended,
    /// also if nobody is interested any more.
    async fn write_on<T: Send + 'static>(
        &self,
        connection: &Sqlite,
        work: impl FnOnce(&mut rusqlite::Connection) -> Result<T, UtxoError> + Send + 'static,
    ) -> Result<T, UtxoError> {
        let waits = Waits::new(&self.waiting);
        let turn = Arc::clone(&self.turn).lock_owned().await;
        drop(waits);
        connection
            .write(move |connection| {
                let _turn = turn;
                work(connection)
            })
            .await
    }
}

/// Somebody who waits for a turn.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UtxoStore for SqliteStore {
    type Key = i64;
    type Mark = Mark;

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn rules(&self) -> Rules {
        self.rules
    }

    fn chunks_together(&self) -> usize {
        TOGETHER
    }

    async fn create(
        &self,
        txs: Vec<NewTx>,
        height: Height,
    ) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
        check_places(txs.iter().map(NewTx::places))?;
        let rules = self.rules;
        self.write(move |connection| steps::create(connection, rules, &txs, height)).await
    }

    async fn spend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        let rules = self.rules;
        self.write(move |connection| {
            steps::with_parents(connection, rules, height, txid, |slate| slate.spend(txid))
        })
        .await
    }

    async fn unspend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        let rules = self.rules;
        self.write(move |connection| {
            steps::with_parents(connection, rules, height, txid, |slate| slate.unspend(txid))
        })
        .await
    }

    async fn set_conflicting(
        &self,
        txid: TxId,
        conflicting: bool,
        height: Height,
    ) -> Result<(), UtxoError> {
        let rules = self.rules;
        self.write(move |connection| {
            steps::with_parents(connection, rules, height, txid, |slate| {
                slate.set_conflicting(txid, conflicting)
            })
        })
        .await
    }

    async fn set_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockRef,
        height: Height,
    ) -> Result<(), UtxoError> {
        let rules = self.rules;
        self.write(move |connection| {
            steps::for_each(connection, rules, height, &txids, |slate, txid| {
                slate.set_mined(txid, block)
            })
        })
        .await
    }

    async fn unset_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockId,
        height: Height,
    ) -> Result<(), UtxoError> {
        let rules = self.rules;
        self.write(move |connection| {
            steps::for_each(connection, rules, height, &txids, |slate, txid| {
                slate.unset_mined(txid, block)
            })
        })
        .await
    }

    async fn get(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        self.reader().read(move |connection| read::get(connection, txid)).await
    }

    async fn pruned_at(&self, txid: TxId) -> Result<Option<Height>, UtxoError> {
        self.reader().read(move |connection| read::pruned_at(connection, txid)).await
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<Unmined, Mark>, UtxoError> {
        self.reader()
            .read(move |connection| read::old_unmined(connection, cutoff, after, limit))
            .await
    }

    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> Result<Preserved, UtxoError> {
        let rules = self.rules;
        self.write(move |connection| steps::preserve(connection, rules, &txids, until)).await
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<u64, UtxoError> {
        let rules = self.rules;
        self.write(move |connection| steps::expire(connection, rules, height, limit)).await
    }

    async fn due(
        &self,
        height: Height,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<i64, Mark>, UtxoError> {
        self.reader().read(move |connection| read::due(connection, height, after, limit)).await
    }

    async fn unstable(
        &self,
        keys: Vec<i64>,
        deep: Option<Height>,
        batch: usize,
    ) -> Result<Vec<bool>, UtxoError> {
        self.reader()
            .read(move |connection| {
                let mut settled = Settled::new(batch);
                keys.into_iter()
                    .map(|id| read::unstable(connection, id, deep, &mut settled))
                    .collect()
            })
            .await
    }

    async fn delete(&self, keys: Vec<i64>, sweep: Sweep) -> Result<Vec<Fate<i64>>, UtxoError> {
        let _one = self.sweep.lock().await;
        // Where the log cannot be put back, nothing more goes into it.
        self.log.tend().await?;
        let waiting = Arc::clone(&self.waiting);
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let work = move |connection: &mut rusqlite::Connection| {
            let _turn = turn;
            let began = Instant::now();
            let is_enough = || waiting.load(Ordering::Relaxed) > 0 || began.elapsed() > LONGEST;
            sweep::delete(connection, &keys, sweep, is_enough)
        };
        let fates = self.sweeper.write(work).await?;
        if let Err(error) = self.log.tend().await {
            // What went is told first; the next step meets it again.
            tracing::warn!(%error, "the log of the UTXO store could not be put back into its file");
        }
        Ok(fates)
    }

    async fn cut(&self, keys: Vec<i64>, sweep: Sweep) -> Result<Vec<Fate<i64>>, UtxoError> {
        let _one = self.sweep.lock().await;
        self.write(move |connection| sweep::cut(connection, &keys, sweep)).await
    }

    async fn doomed(
        &self,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<Doomed<i64>, Mark>, UtxoError> {
        self.reader().read(move |connection| read::doomed(connection, after, limit)).await
    }

    async fn finish(&self, keys: Vec<i64>) -> Result<usize, UtxoError> {
        let _one = self.sweep.lock().await;
        let keys: Arc<[i64]> = keys.into();
        let mut gone = 0;
        // A record with many pages takes several pieces.
        while gone == 0 && !keys.is_empty() {
            let (keys, waiting) = (Arc::clone(&keys), Arc::clone(&self.waiting));
            let is_enough = move || waiting.load(Ordering::Relaxed) > 0;
            let work = move |connection: &mut _| sweep::finish(connection, &keys, is_enough);
            gone = self.write_on(&self.sweeper, work).await?;
        }
        Ok(gone)
    }

    async fn external_sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
        self.reader()
            .read(move |connection| read::external_sample(connection, not_due, limit))
            .await
    }

    async fn has_records(&self) -> Result<bool, UtxoError> {
        self.reader().read(|connection| Ok(read::records(connection)? > 0)).await
    }

    async fn counts(&self, height: Height) -> Result<Counts, UtxoError> {
        self.reader().read(move |connection| read::counts(connection, height)).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>, UtxoError> {
        let name = name.to_owned();
        self.reader().read(move |connection| read::note(connection, &name)).await
    }

    async fn set_note(&self, name: &str, value: &str) -> Result<(), UtxoError> {
        let pair = [name.to_owned(), value.to_owned()];
        self.write(move |connection| connection.execute(SET_NOTE, pair).map(drop).map_err(failed))
            .await
    }

    async fn claim_note(&self, name: &str, value: &str) -> Result<String, UtxoError> {
        let [name, value] = [name.to_owned(), value.to_owned()];
        self.write(move |connection| {
            connection.execute(CLAIM_NOTE, [&name, &value]).map_err(failed)?;
            let kept = read::note(connection, &name)?;
            kept.ok_or_else(|| {
                UtxoError::damaged(name, "it is not there right after it was written")
            })
        })
        .await
    }

    async fn add_job(&self, job: &Job) -> Result<(), UtxoError> {
        let text =
            serde_json::to_string(job).map_err(|error| UtxoError::store(error.to_string()))?;
        self.write(move |connection| {
            let transaction = steps::begin(connection)?;
            transaction
                .execute("INSERT INTO jobs (job) VALUES (?1)", [text])
                .and_then(|_| {
                    transaction.execute(FORGET_JOBS, [i64::try_from(JOBS).unwrap_or(i64::MAX)])
                })
                .map_err(failed)?;
            steps::commit(transaction)
        })
        .await
    }

    async fn jobs(&self) -> Result<Vec<Job>, UtxoError> {
        self.reader().read(read::jobs).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_lasts_until_its_work_has_ended_also_if_nobody_waits_for_it_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("utxo.sqlite"), Rules::default()).unwrap();
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel();
        let its = store.clone();
        let written = tokio::spawn(async move {
            let work = move |_: &mut _| {
                begins.send(()).unwrap();
                ends.recv().unwrap();
                Ok(())
            };
            its.write_on(&its.sweeper, work).await
        });
        begun.await.unwrap();
        written.abort();
        assert!(written.await.unwrap_err().is_cancelled());
        assert!(store.turn.try_lock().is_err(), "its work is under way");
        end.send(()).unwrap();
        store.set_note("another", "turn").await.unwrap();
    }
}
