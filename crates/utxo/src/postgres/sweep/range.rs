//! A chunk that goes as one range of the index of due records, which is what a chunk nearly always is.
//!
//! 1. One statement deletes whatever of the range is still due and not preserved, and so locks it. A
//!    row that somebody changes meanwhile is waited for, and looked at again as it is then.
//! 2. Only then are the holds of what went looked at. This statement begins after the locks are there
//!    and so sees every hold that was committed before; who comes later finds the record gone. The
//!    two must not be one statement: what waits for a row sees that row as it is then, but everything
//!    else, the holds too, as it was when the statement began. If anything is held, all of it is
//!    rolled back, and begun anew without that.
//!
//! The range is locked in the order of the index and not in that of the rows' numbers, so somebody may
//! wait for it who has what it waits for. It gives up soon, long before the server would look for a
//! deadlock, and then nothing was changed.

use std::collections::HashSet;

use futures_util::future;
use secateur_sql::postgres::{GenericClient as _, Postgres, Transaction};
use tokio_postgres::types::ToSql;

use super::{DOING, LIGHT, drop_pages, ease, remember};
use crate::codec::PAGE_SLOTS;
use crate::postgres::Key;
use crate::postgres::rows::count;
use crate::postgres::trip::{Tried as _, Trip};

/// Records amid the range that are not to go, at most.
const MOST_EXCEPTIONS: usize = 64;

/// The first two conditions say the same as the next two, in words that the index of due records is
/// chosen by.
pub(in crate::postgres) const DELETE_RANGE: &str = "delete from utxo_txs \
    where delete_at >= $1 and delete_at <= $3 \
    and (delete_at, id) >= ($1, $2) and (delete_at, id) <= ($3, $4) \
    and preserve_until is null and not cut and external is null \
    and outputs <= 256 * $5::integer and id <> all($6::bigint[]) \
    returning id, outputs, case when (coinbase or conflicting) and spent > 0 then txid end";
pub(in crate::postgres) const HELD: &str =
    "select distinct parent from utxo_holds where parent = any($1)";

/// How an attempt at a range ended.
enum Attempt {
    /// These went.
    Went(HashSet<i64>),
    /// These are in the range and must not go; nothing was changed.
    Except(Vec<i64>),
}

/// A record that a range took with it.
struct Gone {
    id: i64,
    outputs: u32,
    /// Its id, if nothing else would know it.
    nameless: Option<Vec<u8>>,
}

/// Deletes what of these can go as a range, at a height, and answers what went.
pub(super) async fn delete(
    database: &Postgres,
    keys: &[Key],
    height: i64,
) -> Result<HashSet<i64>, Trip> {
    let mut except = Vec::new();
    loop {
        match Box::pin(attempt(database, keys, height, &except)).await {
            Ok(Attempt::Went(went)) => return Ok(went),
            Ok(Attempt::Except(more)) => except.extend(more),
            // Somebody works on it; nothing was changed.
            Err(Trip::Again(_)) => return Ok(HashSet::new()),
            Err(failed) => return Err(failed),
        }
        if except.len() > MOST_EXCEPTIONS {
            return Ok(HashSet::new());
        }
    }
}

async fn attempt(
    database: &Postgres,
    keys: &[Key],
    height: i64,
    except: &[i64],
) -> Result<Attempt, Trip> {
    let place = |key: &&Key| (key.height, key.id);
    let (Some(first), Some(last)) = (keys.iter().min_by_key(place), keys.iter().max_by_key(place))
    else {
        return Ok(Attempt::Went(HashSet::new()));
    };
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let range: [&(dyn ToSql + Sync); 6] =
        [&first.height, &first.id, &last.height, &last.id, &LIGHT, &except];
    let (patience, went) = future::join(
        transaction.batch_execute("set local lock_timeout = '100ms'"),
        delete_range(&transaction, range),
    )
    .await;
    patience.tried(DOING)?;
    let went = went?;
    let wanted: HashSet<i64> = keys.iter().map(|key| key.id).collect();
    let ids: Vec<i64> = went.iter().map(|gone| gone.id).collect();
    let others: Vec<i64> = ids.iter().copied().filter(|id| !wanted.contains(id)).collect();
    if !others.is_empty() {
        return Ok(Attempt::Except(others));
    }
    let paged = went.iter().filter(|gone| gone.outputs > PAGE_SLOTS);
    let paged: Vec<i64> = paged.map(|gone| gone.id).collect();
    let nameless: Vec<Vec<u8>> = went.into_iter().filter_map(|gone| gone.nameless).collect();
    let (held, dropped, remembered, eased) = future::join4(
        held(&transaction, &ids),
        drop_pages(&transaction, &paged),
        remember(&transaction, &nameless, height),
        ease(&transaction),
    )
    .await;
    let held = held?;
    if !held.is_empty() {
        return Ok(Attempt::Except(held));
    }
    dropped.and(remembered).and(eased)?;
    transaction.commit().await.tried(DOING)?;
    Ok(Attempt::Went(ids.into_iter().collect()))
}

/// Answers what went.
async fn delete_range(
    transaction: &Transaction<'_>,
    range: [&(dyn ToSql + Sync); 6],
) -> Result<Vec<Gone>, Trip> {
    let delete = transaction.prepare_cached(DELETE_RANGE).await.tried(DOING)?;
    let rows = transaction.query(&delete, &range).await.tried(DOING)?;
    let decode = |row: &tokio_postgres::Row| {
        let outputs = count(row.try_get(1).tried(DOING)?)?;
        let nameless = row.try_get(2).tried(DOING)?;
        Ok(Gone { id: row.try_get(0).tried(DOING)?, outputs, nameless })
    };
    rows.iter().map(decode).collect()
}

/// Those of them that a live unmined transaction spends.
async fn held(transaction: &Transaction<'_>, ids: &[i64]) -> Result<Vec<i64>, Trip> {
    let held = transaction.prepare_cached(HELD).await.tried(DOING)?;
    let rows = transaction.query(&held, &[&ids]).await.tried(DOING)?;
    rows.iter().map(|row| row.try_get(0).tried(DOING)).collect()
}
