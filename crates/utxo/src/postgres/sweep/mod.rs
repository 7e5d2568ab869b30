//! Records that go: looked at again in the transaction that deletes them.
//!
//! Their parents are not touched: they name their spenders, and one that is named and not here was
//! pruned (`read`). So a parent learns of it with the very commit that removes its spender, and chunks
//! beside each other have no row in common.
//!
//! What is usual goes as a whole ([`range`]). What is left of a chunk, records with files or with many
//! rows and chunks that somebody else works on, is only marked as cut, under the same checks
//! ([`mod@cut`]), and removed later, piece by piece ([`mod@finish`]).

mod cut;
mod finish;
mod range;

use secateur_sql::postgres::{Postgres, Transaction};

use super::Key;
use super::rows::execute;
use super::trip::{Tried as _, Trip, retried};
use crate::UtxoError;
use crate::codec;
use crate::store::{Fate, Sweep};

#[cfg(test)]
pub(super) use self::{
    cut::{CUT, LOCK, WHY},
    finish::{CUTS, DROP, DROP_SOME_PAGES},
    range::{DELETE_RANGE, HELD},
};
pub(super) use finish::finish;

const DOING: &str = "deleting records";
/// Pages of spenders that go in one transaction with their record.
const LIGHT: i32 = 64;

pub(super) const DROP_PAGES: &str = "delete from utxo_spender_pages where tx = any($1)";

const REMEMBER: &str = "insert into utxo_pruned (txid, pruned_at) \
    select txid, $2 from unnest($1::bytea[]) k (txid) on conflict (txid) do nothing";

/// Deletes what may go at once; the rest is left to be cut.
pub(super) async fn delete(
    database: &Postgres,
    keys: &[Key],
    sweep: Sweep,
) -> Result<Vec<Fate<Key>>, UtxoError> {
    let height = codec::stored(sweep.height)?;
    let due: Vec<Key> = keys.iter().filter(|key| key.height <= height).copied().collect();
    // It is not tried again: what it leaves is cut.
    let went = range::delete(database, &due, height).await.map_err(Trip::into_error)?;
    let fate = |key: &Key| if went.contains(&key.id) { Fate::Deleted } else { Fate::Left };
    Ok(keys.iter().map(fate).collect())
}

/// Cuts what may go and did not go at once.
pub(super) async fn cut(
    database: &Postgres,
    keys: &[Key],
    sweep: Sweep,
) -> Result<Vec<Fate<Key>>, UtxoError> {
    let ids: Vec<i64> = keys.iter().map(|key| key.id).collect();
    let mut fates = retried(|| cut::cut(database, &ids, sweep)).await?;
    Ok(ids.iter().map(|id| fates.remove(id).unwrap_or(Fate::Gone)).collect())
}

/// Removes the pages of records that go.
async fn drop_pages(transaction: &Transaction<'_>, records: &[i64]) -> Result<(), Trip> {
    execute(transaction, DROP_PAGES, records.len(), &[&records]).await
}

/// Keeps in mind that records are pruned which nothing else would know, in the transaction that decides about them.
async fn remember(
    transaction: &Transaction<'_>,
    nameless: &[Vec<u8>],
    height: i64,
) -> Result<(), Trip> {
    execute(transaction, REMEMBER, nameless.len(), &[&nameless, &height]).await
}

/// Deletions need not be on the medium when they are acknowledged: what a power cut brings back goes
/// again. A cut is different, since a file is removed next.
async fn ease(transaction: &Transaction<'_>) -> Result<(), Trip> {
    transaction.batch_execute("set local synchronous_commit = off").await.tried(DOING)
}
