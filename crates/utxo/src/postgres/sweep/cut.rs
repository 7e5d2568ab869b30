//! Records that cannot go with a range: they are marked as cut, and removed later (`finish`).
//!
//! First every row is locked, then it is looked at and cut, if it is still due, not preserved and not
//! held. The locks and the look must not be one statement, for the reason that `range` gives.

use std::collections::HashMap;

use futures_util::future;
use secateur_sql::postgres::{GenericClient as _, Postgres, Transaction};
use tokio_postgres::Row;

use super::{DOING, remember};
use crate::codec;
use crate::postgres::Key;
use crate::postgres::rows::{kind, txid as decode_txid};
use crate::postgres::trip::{Tried as _, Trip};
use crate::store::{Doomed, Fate, Kept, Sweep};

/// Everybody locks rows in the order of their numbers, all that a transaction needs at once, so that
/// nobody waits for one who waits for them.
pub(in crate::postgres) const LOCK: &str = "with locked as materialized (select t.id \
    from unnest($1::bigint[]) k (id) join utxo_txs t on t.id = k.id \
    order by t.id for no key update of t) select count(*) from locked";
pub(in crate::postgres) const CUT: &str = "update utxo_txs t \
    set cut = true, delete_at = null, unmined_since = null \
    where id = any($1) and delete_at <= $2 and preserve_until is null and not cut \
    and ($3 or external is null) \
    and not exists (select from utxo_holds where parent = t.id) \
    returning id, txid, external, (coinbase or conflicting) and spent > 0";
pub(in crate::postgres) const WHY: &str = "select id, cut, preserve_until is not null, \
    coalesce(delete_at <= $2, false), \
    (select child from utxo_holds where parent = t.id limit 1) is not null, \
    external is not null from utxo_txs t where id = any($1)";

/// Locks rows.
pub(super) async fn lock(transaction: &Transaction<'_>, rows: &[i64]) -> Result<(), Trip> {
    let lock = transaction.prepare_cached(LOCK).await.tried(DOING)?;
    transaction.query_one(&lock, &[&rows]).await.map(drop).tried(DOING)
}

/// Cuts what may go, and says why the others stay. Those that it does not mention are gone.
pub(super) async fn cut(
    database: &Postgres,
    ids: &[i64],
    sweep: Sweep,
) -> Result<HashMap<i64, Fate<Key>>, Trip> {
    let height = codec::stored(sweep.height)?;
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    lock(&transaction, ids).await?;
    let cut = transaction.prepare_cached(CUT).await.tried(DOING)?;
    let why = transaction.prepare_cached(WHY).await.tried(DOING)?;
    let (cut, stay) = future::join(
        transaction.query(&cut, &[&ids, &height, &sweep.external]),
        transaction.query(&why, &[&ids, &height]),
    )
    .await;
    let (cut, stay) = (cut.tried(DOING)?, stay.tried(DOING)?);
    let mut nameless: Vec<Vec<u8>> = Vec::new();
    for row in &cut {
        if row.try_get(3).tried(DOING)? {
            nameless.push(row.try_get(1).tried(DOING)?);
        }
    }
    remember(&transaction, &nameless, height).await?;
    transaction.commit().await.tried(DOING)?;
    let doomed: HashMap<i64, Doomed<Key>> = cut.iter().map(doomed).collect::<Result<_, _>>()?;
    let mut fates = HashMap::new();
    for row in &stay {
        let id = row.try_get(0).tried(DOING)?;
        if !doomed.contains_key(&id) {
            fates.insert(id, why_it_stays(row, sweep)?);
        }
    }
    fates.extend(doomed.into_iter().map(|(id, record)| (id, Fate::Cut(Box::new(record)))));
    Ok(fates)
}

fn doomed(row: &Row) -> Result<(i64, Doomed<Key>), Trip> {
    let id = row.try_get(0).tried(DOING)?;
    let (txid, external) = (row.try_get(1).tried(DOING)?, row.try_get(2).tried(DOING)?);
    let key = Key { height: 0, id };
    Ok((id, Doomed { key, txid: decode_txid(txid)?, external: kind(external)? }))
}

fn why_it_stays(row: &Row, sweep: Sweep) -> Result<Fate<Key>, Trip> {
    let is = |at: usize| row.try_get::<_, bool>(at).tried(DOING);
    let (cut, preserved, due, held, external) = (is(1)?, is(2)?, is(3)?, is(4)?, is(5)?);
    Ok(if cut {
        Fate::Gone
    } else if preserved {
        Fate::Kept(Kept::Preserved)
    } else if !due {
        Fate::Kept(Kept::NotDue)
    } else if external && !held && !sweep.external {
        Fate::Kept(Kept::FilesMissing)
    } else {
        // Nothing but a hold can go while the row is locked: it was held a moment ago.
        Fate::Kept(Kept::Held)
    })
}
