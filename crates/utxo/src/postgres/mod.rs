//! A UTXO store in PostgreSQL: for nodes that outgrow one file, and for several programs at once.
//!
//! Work is done a batch at a time, one statement for each kind of it. Transactions see what is
//! committed (READ COMMITTED) and rely on locks of rows, which everybody takes in the order of the
//! rows' numbers; `steps` and `sweep` say why that is enough. What deliberately does not live here:
//! connections and how a schema is brought up to date (`secateur-sql`), and the rules (`slate`).

mod pace;
#[cfg(test)]
mod plans;
mod read;
mod rows;
mod schema;
mod settled;
mod steps;
mod sweep;
mod trip;
mod write;

use std::sync::Arc;

use secateur_core::Height;
use secateur_sql::postgres::{Address, Client, Postgres, PostgresOptions, Told as _};

use crate::UtxoError;
use crate::pruner::Job;
use crate::rule::Rules;
use crate::store::{Counts, Created, Doomed, Fate, Page, Preserved, Sweep, Unmined, UtxoStore};
use crate::types::{BlockId, BlockRef, FileKind, NewTx, Record, TxId, check_places};

use pace::Pace;
use settled::Looker;
use trip::retried;

/// Past jobs that are kept.
const JOBS: i64 = 10;

/// A place in an index of heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    height: i64,
    id: i64,
}

impl Mark {
    const BEGIN: Self = Self { height: -1, id: 0 };
}

/// A record that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// When it was listed; where it stands in the index of due records.
    height: i64,
    id: i64,
}

/// UTXO records in PostgreSQL. Clones share its connections.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    database: Postgres,
    pace: Arc<Pace>,
    shown: Arc<str>,
    rules: Rules,
}

impl PostgresStore {
    /// Connections that are enough for a prune as it is set by default, and as many writers.
    pub const CONNECTIONS: usize = 20;

    /// Opens a store, and makes it if there is none. A prune uses half of the connections.
    pub async fn open(
        address: &Address,
        options: PostgresOptions,
        rules: Rules,
    ) -> Result<Self, UtxoError> {
        let options = PostgresOptions { settings: schema::SETTINGS, ..options };
        let database = Postgres::open(address, options, &schema::SCHEMA).await?;
        let pace = Arc::new(Pace::new(options.connections));
        Ok(Self { database, pace, shown: address.to_string().into(), rules })
    }

    async fn client(&self) -> Result<Client, UtxoError> {
        Ok(self.database.client().await?)
    }
}

impl UtxoStore for PostgresStore {
    type Key = Key;
    type Mark = Mark;

    fn address(&self) -> String {
        self.shown.to_string()
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
        if txs.is_empty() {
            return Ok(Vec::new());
        }
        let _step = self.pace.step();
        retried(|| steps::create(&self.database, self.rules, &txs, height)).await
    }

    async fn spend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        let _step = self.pace.step();
        retried(|| {
            steps::with_parents(&self.database, self.rules, height, txid, |slate| slate.spend(txid))
        })
        .await
    }

    async fn unspend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        let _step = self.pace.step();
        retried(|| {
            steps::with_parents(&self.database, self.rules, height, txid, |slate| {
                slate.unspend(txid)
            })
        })
        .await
    }

    async fn set_conflicting(
        &self,
        txid: TxId,
        conflicting: bool,
        height: Height,
    ) -> Result<(), UtxoError> {
        let _step = self.pace.step();
        retried(|| {
            steps::with_parents(&self.database, self.rules, height, txid, move |slate| {
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
        let _step = self.pace.step();
        retried(|| {
            steps::for_each(&self.database, self.rules, height, &txids, move |slate, txid| {
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
        let _step = self.pace.step();
        retried(|| steps::unset_mined(&self.database, self.rules, height, &txids, block)).await
    }

    async fn get(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        read::get(&self.client().await?, txid).await
    }

    async fn pruned_at(&self, txid: TxId) -> Result<Option<Height>, UtxoError> {
        read::pruned_at(&self.client().await?, txid).await
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<Unmined, Mark>, UtxoError> {
        read::old_unmined(&self.client().await?, cutoff, after, limit).await
    }

    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> Result<Preserved, UtxoError> {
        retried(|| steps::preserve(&self.database, self.rules, &txids, until)).await
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<u64, UtxoError> {
        retried(|| steps::expire(&self.database, self.rules, height, limit)).await
    }

    async fn due(
        &self,
        height: Height,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<Key, Mark>, UtxoError> {
        read::due(&self.client().await?, height, after, limit).await
    }

    async fn unstable(
        &self,
        keys: Vec<Key>,
        deep: Option<Height>,
        batch: usize,
    ) -> Result<Vec<bool>, UtxoError> {
        Looker { database: &self.database, pace: &self.pace, deep, batch }.unstable(&keys).await
    }

    async fn delete(&self, keys: Vec<Key>, sweep: Sweep) -> Result<Vec<Fate<Key>>, UtxoError> {
        self.pace.sweep(sweep::delete(&self.database, &keys, sweep)).await
    }

    async fn cut(&self, keys: Vec<Key>, sweep: Sweep) -> Result<Vec<Fate<Key>>, UtxoError> {
        self.pace.sweep(sweep::cut(&self.database, &keys, sweep)).await
    }

    async fn doomed(
        &self,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Page<Doomed<Key>, Mark>, UtxoError> {
        read::doomed(&self.client().await?, after, limit).await
    }

    async fn finish(&self, keys: Vec<Key>) -> Result<usize, UtxoError> {
        let ids: Vec<i64> = keys.iter().map(|key| key.id).collect();
        if !ids.is_empty() {
            self.pace.sweep(retried(|| sweep::finish(&self.database, &ids))).await?;
        }
        Ok(ids.len())
    }

    async fn external_sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
        read::external_sample(&self.client().await?, not_due, limit).await
    }

    async fn has_records(&self) -> Result<bool, UtxoError> {
        let some =
            read::query(&self.client().await?, "select 1 from utxo_txs limit 1", &[]).await?;
        Ok(!some.is_empty())
    }

    async fn counts(&self, height: Height) -> Result<Counts, UtxoError> {
        read::counts(&self.client().await?, height).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>, UtxoError> {
        read::note(&self.client().await?, name).await
    }

    async fn set_note(&self, name: &str, value: &str) -> Result<(), UtxoError> {
        let doing = "writing a note";
        let sql = "insert into utxo_meta (key, value) values ($1, $2) \
            on conflict (key) do update set value = excluded.value";
        let client = self.client().await?;
        let upsert = client.prepare_cached(sql).await.told(doing)?;
        client.execute(&upsert, &[&name, &value]).await.told(doing)?;
        Ok(())
    }

    async fn claim_note(&self, name: &str, value: &str) -> Result<String, UtxoError> {
        let doing = "writing a note";
        let sql = "insert into utxo_meta (key, value) values ($1, $2) on conflict (key) do nothing";
        let client = self.client().await?;
        let insert = client.prepare_cached(sql).await.told(doing)?;
        client.execute(&insert, &[&name, &value]).await.told(doing)?;
        let kept = read::note(&client, name).await?;
        kept.ok_or_else(|| UtxoError::damaged(name, "it is not there right after it was written"))
    }

    async fn add_job(&self, job: &Job) -> Result<(), UtxoError> {
        let doing = "writing a job";
        let text =
            serde_json::to_string(job).map_err(|error| UtxoError::store(error.to_string()))?;
        let mut client = self.client().await?;
        let transaction = client.transaction().await.told(doing)?;
        let insert = "insert into utxo_jobs (job) values ($1)";
        transaction.execute(insert, &[&text]).await.told(doing)?;
        let forget = "delete from utxo_jobs where id <= \
            (select id from utxo_jobs order by id desc offset $1 limit 1)";
        transaction.execute(forget, &[&JOBS]).await.told(doing)?;
        Ok(transaction.commit().await.told(doing)?)
    }

    async fn jobs(&self) -> Result<Vec<Job>, UtxoError> {
        read::jobs(&self.client().await?).await
    }
}
