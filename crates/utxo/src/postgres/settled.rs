//! Whether the spenders of records are settled, which defensive mode asks before it deletes.
//!
//! Finding a spender by its id is most of what that costs: a random place in a large index each. So many records
//! are looked at together, a spender that several of them have in common is asked for once, and questions go
//! beside each other. Each takes its turn like a chunk of a prune, so that writers come first here too.

use std::collections::{BTreeMap, HashSet};

use futures_util::future;
use secateur_core::Height;
use secateur_sql::postgres::Postgres;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Key;
use super::pace::Pace;
use super::read::{field, query};
use super::rows::{bytes_of, count, txid as decode_txid};
use crate::UtxoError;
use crate::codec::{self, pages};
use crate::types::{Slot, TxId};

/// Records whose first pages are read at once.
const READ_AT_ONCE: usize = 1000;
/// Records whose further pages are read together.
const WIDE_AT_ONCE: usize = 100;
/// Further pages that are read at once.
const PAGES_AT_ONCE: i64 = 256;
/// Questions beside each other.
const BESIDE: usize = 4;
/// Spenders that are collected before they are asked about, at most.
const COLLECTED: usize = 1 << 17;

pub(super) const SPENDERS: &str = "select id, outputs, spenders from utxo_txs where id = any($1)";
pub(super) const MORE_SPENDERS: &str = "select tx, page, spenders from utxo_spender_pages \
    where tx = any($1) and (tx, page) > ($2, $3) order by tx, page limit $4";
pub(super) const UNSETTLED: &str = "select txid from utxo_txs where txid = any($1) and not cut \
    and coalesce(mined_at > $2, true)";

/// Who looks, and how.
pub(super) struct Looker<'a> {
    pub(super) database: &'a Postgres,
    pub(super) pace: &'a Pace,
    /// The highest block that is deep enough.
    pub(super) deep: Option<Height>,
    /// Spenders that are asked about in one question.
    pub(super) batch: usize,
}

/// What is being found out.
#[derive(Default)]
struct Found {
    /// Who is yet to be asked about, and whose spenders they are.
    collected: Vec<(TxId, i64)>,
    unstable: HashSet<i64>,
}

impl Looker<'_> {
    /// Whether each of these has a spender that is not settled.
    pub(super) async fn unstable(&self, keys: &[Key]) -> Result<Vec<bool>, UtxoError> {
        let ids: Vec<i64> = keys.iter().map(|key| key.id).collect();
        let mut found = Found::default();
        for some in ids.chunks(READ_AT_ONCE * BESIDE) {
            // All of them end before anything else is asked: one that had its turn, and that nobody went on
            // with, would keep the others from theirs.
            let reads: Vec<_> =
                some.chunks(READ_AT_ONCE).map(|ids| self.first_pages(ids)).collect();
            let rows = future::try_join_all(reads).await?;
            let mut wide = BTreeMap::new();
            for row in rows.iter().flatten() {
                let (id, outputs) = (field(row, 0)?, count(field(row, 1)?)?);
                self.collect(&mut found, id, (outputs, 0), field(row, 2)?).await?;
                if pages(outputs) > 1 {
                    wide.insert(id, outputs);
                }
            }
            self.further_pages(&mut found, &wide).await?;
        }
        self.judge(&mut found).await?;
        Ok(keys.iter().map(|key| found.unstable.contains(&key.id)).collect())
    }

    /// Takes in the spenders of all but the first pages of records with more, whose outputs are told.
    async fn further_pages(
        &self,
        found: &mut Found,
        wide: &BTreeMap<i64, u32>,
    ) -> Result<(), UtxoError> {
        let ids: Vec<i64> = wide.keys().copied().collect();
        for ids in ids.chunks(WIDE_AT_ONCE) {
            let mut from = Some((0_i64, 0_i32));
            while let Some((tx, page)) = from.take() {
                let rows = self.ask(MORE_SPENDERS, &[&ids, &tx, &page, &PAGES_AT_ONCE]).await?;
                for row in &rows {
                    let (id, page) = (field(row, 0)?, field(row, 1)?);
                    let outputs = wide.get(&id).copied().unwrap_or_default();
                    self.collect(found, id, (outputs, count(page)?), field(row, 2)?).await?;
                    from = Some((id, page));
                }
            }
        }
        Ok(())
    }

    /// One question, when its turn comes.
    async fn ask(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, UtxoError> {
        self.pace.sweep(async { query(&self.database.client().await?, sql, params).await }).await
    }

    async fn first_pages(&self, ids: &[i64]) -> Result<Vec<Row>, UtxoError> {
        self.ask(SPENDERS, &[&ids]).await
    }

    /// Takes in the spenders of a page.
    async fn collect(
        &self,
        found: &mut Found,
        id: i64,
        (outputs, page): (u32, u32),
        bytes: Vec<u8>,
    ) -> Result<(), UtxoError> {
        let slots = codec::Page::decode(bytes, outputs, page)?.all()?;
        // One that is marked as pruned was settled before.
        found.collected.extend(slots.into_iter().filter_map(|slot| match slot {
            Slot::Spent { by, .. } => Some((by, id)),
            Slot::Unspent | Slot::Pruned { .. } => None,
        }));
        if found.collected.len() < COLLECTED {
            return Ok(());
        }
        self.judge(found).await
    }

    /// Asks about everybody who was collected.
    async fn judge(&self, found: &mut Found) -> Result<(), UtxoError> {
        let mut collected = std::mem::take(&mut found.collected);
        collected.sort_unstable();
        let mut txids = bytes_of(collected.iter().map(|(txid, _)| txid));
        txids.dedup();
        let batches: Vec<_> = txids.chunks(self.batch.max(1)).collect();
        let mut unsettled = HashSet::new();
        for some in batches.chunks(BESIDE) {
            let asked: Vec<_> = some.iter().map(|txids| self.unsettled(txids)).collect();
            unsettled.extend(future::try_join_all(asked).await?.into_iter().flatten());
        }
        if !unsettled.is_empty() {
            let whose = collected.iter().filter(|(txid, _)| unsettled.contains(txid));
            found.unstable.extend(whose.map(|(_, id)| *id));
        }
        Ok(())
    }

    /// Those of them that are not settled. One that is not here was pruned, and so was settled before.
    async fn unsettled(&self, txids: &[&[u8]]) -> Result<Vec<TxId>, UtxoError> {
        let deep = self.deep.map(codec::stored).transpose()?;
        let rows = self.ask(UNSETTLED, &[&txids, &deep]).await?;
        rows.iter().map(|row| decode_txid(field(row, 0)?)).collect()
    }
}
