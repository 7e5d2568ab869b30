//! Records that go: looked at again in the transaction that deletes them.
//!
//! A chunk is one short transaction of three kinds of statements:
//!
//! 1. Every row that it may delete, and every parent that it may tell, is locked, in the order of
//!    their numbers. Which parents those are the keys say: they were read with the page of due
//!    records. Chunks beside each other share parents, and one's record is the other's parent; since
//!    all take all their locks in one order, they wait and never block each other.
//! 2. Then the rows are deleted, if they are still due, not preserved and not held. This statement
//!    begins after the locks are there and so sees everything that was committed before; what is not
//!    committed yet has no lock on these rows, and who comes later finds them gone. The locks and the
//!    look must not be one statement: a statement that waits for a row sees that row as it is then,
//!    but everything else, the holds too, as it was when the statement began.
//! 3. Parents of what was deleted remember it.
//!
//! A record with a file or with many rows is only marked as cut, under the same checks, and removed
//! later, piece by piece ([`finish`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::future;
use secateur_sql::postgres::{GenericClient as _, Postgres, Transaction};
use tokio_postgres::types::ToSql;

use crate::codec::{self, INPUT, Input, PAGE_SLOTS, encode_slot, pages, place};
use crate::store::{Doomed, Fate, Kept, Sweep};
use crate::types::{Slot, TxId};

use super::Key;
use super::rows::{count, counted, execute, limited, txid as decode_txid};
use super::trip::{Tried as _, Trip};

const DOING: &str = "deleting records";
/// Rows that belong to one record and go in one transaction with it.
pub(super) const LIGHT: usize = 4096;

pub(super) const LOCK: &str = "select count(*) from (select from unnest($1::bigint[]) k (row) \
    join utxo_txs t on t.id = k.row order by t.id for no key update of t) locked";
pub(super) const DELETE: &str = "delete from utxo_txs t where id = any($1) and delete_at <= $2 \
    and preserve_until is null and not cut and external is null and not rewired \
    and not exists (select from utxo_holds where parent = t.id) returning id";
pub(super) const CUT: &str = "update utxo_txs t \
    set cut = true, delete_at = null, unmined_since = null \
    where id = any($1) and delete_at <= $2 and preserve_until is null and not cut \
    and not exists (select from utxo_holds where parent = t.id) returning id";
pub(super) const WHY: &str = "select id, cut, preserve_until is not null, \
    coalesce(delete_at <= $2, false), \
    (select child from utxo_holds where parent = t.id limit 1) is not null, \
    external is not null from utxo_txs t where id = any($1)";
pub(super) const TELL: &str = "update utxo_txs t set spenders = utxo_tell(t.spenders, v.marks) \
    from unnest($1::bigint[], $2::bytea[]) v (id, marks) where t.id = v.id";
pub(super) const TELL_PAGES: &str = "update utxo_spender_pages p \
    set spenders = utxo_tell(p.spenders, v.marks) \
    from unnest($1::bigint[], $2::integer[], $3::bytea[]) v (tx, page, marks) \
    where p.tx = v.tx and p.page = v.page";
pub(super) const DROP_PAGES: &str = "delete from utxo_spender_pages where tx = any($1)";
pub(super) const WEIGH: &str = "select id, txid, outputs, octet_length(inputs) from utxo_txs \
    where id = any($1) and cut order by id";
pub(super) const INPUTS: &str = "select id, inputs from utxo_txs where id = any($1) and cut";
pub(super) const SOME_INPUTS: &str = "select substring(inputs from $2::integer for $3::integer) \
    from utxo_txs where id = $1 and cut";
pub(super) const DROP_SOME_PAGES: &str = "delete from utxo_spender_pages where tx = $1 and page = any \
    (array(select page from utxo_spender_pages where tx = $1 order by page limit $2))";
pub(super) const DROP: &str = "delete from utxo_txs where id = any($1) and cut";

/// What parents are told: their pages, each with its marks as `utxo_tell` reads them.
#[derive(Default)]
struct Marks(BTreeMap<(i64, u32), Vec<u8>>);

impl Marks {
    /// The inputs of a transaction from `first` on are pruned.
    fn add(&mut self, by: TxId, first: u32, inputs: &[Input]) {
        for (n, input) in (first..).zip(inputs) {
            let (page, at) = place(input.spends.n);
            let marks = self.0.entry((input.parent, page)).or_default();
            marks.push(u8::try_from(at).unwrap_or_default());
            marks.extend(encode_slot(Slot::Spent { by, input: n }));
        }
    }

    /// Tells parents that are still here; their rows are locked.
    async fn tell(self, transaction: &Transaction<'_>) -> Result<(), Trip> {
        let (mut rows, mut row_marks) = (Vec::new(), Vec::new());
        let (mut owners, mut numbers, mut page_marks) = (Vec::new(), Vec::new(), Vec::new());
        for ((id, page), marks) in self.0 {
            if page == 0 {
                rows.push(id);
                row_marks.push(marks);
            } else {
                owners.push(id);
                numbers.push(counted(page)?);
                page_marks.push(marks);
            }
        }
        let (first, others) = future::join(
            execute(transaction, TELL, rows.len(), &[&rows, &row_marks]),
            execute(transaction, TELL_PAGES, owners.len(), &[&owners, &numbers, &page_marks]),
        )
        .await;
        first.and(others)
    }
}

/// The numbers of rows that a statement answers.
async fn ids(
    transaction: &Transaction<'_>,
    sql: &str,
    keys: &[i64],
    height: i64,
) -> Result<HashSet<i64>, Trip> {
    if keys.is_empty() {
        return Ok(HashSet::new());
    }
    let statement = transaction.prepare_cached(sql).await.tried(DOING)?;
    let rows = transaction.query(&statement, &[&keys, &height]).await.tried(DOING)?;
    rows.iter().map(|row| row.try_get(0).tried(DOING)).collect()
}

/// Locks records, and the parents of their inputs.
async fn lock<'a>(
    transaction: &Transaction<'_>,
    records: impl Iterator<Item = (i64, &'a [Input])>,
) -> Result<(), Trip> {
    let mut rows = BTreeSet::new();
    for (id, inputs) in records {
        rows.insert(id);
        rows.extend(inputs.iter().map(|input| input.parent));
    }
    let rows: Vec<i64> = rows.into_iter().collect();
    execute(transaction, LOCK, rows.len(), &[&rows]).await
}

/// Deletes what may go, and cuts what cannot go at once.
pub(super) async fn delete(
    database: &Postgres,
    keys: &[Key],
    sweep: Sweep,
) -> Result<Vec<Fate<Key>>, Trip> {
    let height = codec::stored(sweep.height)?;
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let (light, heavy): (Vec<&Key>, Vec<&Key>) = keys.iter().partition(|key| key.inputs.is_some());
    let light: Vec<i64> = light.iter().map(|key| key.id).collect();
    let heavy = heavy.iter().filter(|key| sweep.external || key.external.is_none());
    let heavy: Vec<i64> = heavy.map(|key| key.id).collect();
    let all = keys.iter().map(|key| (key.id, key.inputs.as_deref().unwrap_or_default()));
    lock(&transaction, all).await?;
    let (deleted, cut) = future::join(
        ids(&transaction, DELETE, &light, height),
        ids(&transaction, CUT, &heavy, height),
    )
    .await;
    let (deleted, cut) = (deleted?, cut?);

    let (mut marks, mut paged, mut left) = (Marks::default(), Vec::new(), Vec::new());
    for key in keys {
        if deleted.contains(&key.id) {
            marks.add(key.txid, 0, key.inputs.as_deref().unwrap_or_default());
            if key.outputs > PAGE_SLOTS {
                paged.push(key.id);
            }
        } else if !cut.contains(&key.id) {
            left.push(key.id);
        }
    }
    // Of parents that went with this chunk nobody is left to be told.
    marks.0.retain(|(parent, _), _| !deleted.contains(parent));
    let (told, dropped, why, eased) = future::join4(
        marks.tell(&transaction),
        execute(&transaction, DROP_PAGES, paged.len(), &[&paged]),
        why(&transaction, &left, sweep),
        ease(&transaction, cut.is_empty()),
    )
    .await;
    let mut why = told.and(dropped).and(eased).and(why)?;
    transaction.commit().await.tried(DOING)?;
    let fate = |key: &Key| {
        if deleted.contains(&key.id) {
            Fate::Deleted
        } else if cut.contains(&key.id) {
            let Key { txid, external, .. } = *key;
            Fate::Cut(Doomed { key: key.clone(), txid, external })
        } else {
            why.remove(&key.id).unwrap_or(Fate::Gone)
        }
    };
    Ok(keys.iter().map(fate).collect())
}

/// Deletions need not be on the medium when they are acknowledged: what a power cut brings back goes
/// again. A cut is different, since a file is removed next.
async fn ease(transaction: &Transaction<'_>, may: bool) -> Result<(), Trip> {
    if !may {
        return Ok(());
    }
    transaction.batch_execute("set local synchronous_commit = off").await.tried(DOING)
}

/// Why records that were not deleted stay. Those that are not answered are gone.
async fn why(
    transaction: &Transaction<'_>,
    left: &[i64],
    sweep: Sweep,
) -> Result<HashMap<i64, Fate<Key>>, Trip> {
    if left.is_empty() {
        return Ok(HashMap::new());
    }
    let height = codec::stored(sweep.height)?;
    let look = transaction.prepare_cached(WHY).await.tried(DOING)?;
    let rows = transaction.query(&look, &[&left, &height]).await.tried(DOING)?;
    let decode = |row: &tokio_postgres::Row| {
        let is = |at: usize| row.try_get::<_, bool>(at).tried(DOING);
        let (cut, preserved, due, held, external) = (is(1)?, is(2)?, is(3)?, is(4)?, is(5)?);
        let fate = if cut {
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
        };
        Ok((row.try_get(0).tried(DOING)?, fate))
    };
    rows.iter().map(decode).collect()
}

/// A record that is cut, and what there is to do.
struct Weighed {
    id: i64,
    txid: TxId,
    outputs: u32,
    inputs: usize,
}

/// Removes records that are cut: light ones together, each of the others piece by piece.
pub(super) async fn finish(database: &Postgres, keys: &[i64]) -> Result<(), Trip> {
    let weighed = weigh(database, keys).await?;
    let rows = |record: &Weighed| record.inputs + pages(record.outputs) as usize;
    let (mut group, mut weight) = (Vec::new(), 0);
    for record in &weighed {
        if rows(record) > LIGHT {
            finish_heavy(database, record).await?;
            continue;
        }
        if weight + rows(record) > LIGHT {
            finish_light(database, &std::mem::take(&mut group)).await?;
            weight = 0;
        }
        weight += rows(record);
        group.push(record);
    }
    finish_light(database, &group).await
}

async fn weigh(database: &Postgres, keys: &[i64]) -> Result<Vec<Weighed>, Trip> {
    let client = database.client().await?;
    let select = client.prepare_cached(WEIGH).await.tried(DOING)?;
    let rows = client.query(&select, &[&keys]).await.tried(DOING)?;
    let decode = |row: &tokio_postgres::Row| {
        let bytes = count(row.try_get(3).tried(DOING)?)? as usize;
        Ok(Weighed {
            id: row.try_get(0).tried(DOING)?,
            txid: decode_txid(row.try_get(1).tried(DOING)?)?,
            outputs: count(row.try_get(2).tried(DOING)?)?,
            inputs: bytes / INPUT,
        })
    };
    rows.iter().map(decode).collect()
}

async fn finish_light(database: &Postgres, records: &[&Weighed]) -> Result<(), Trip> {
    if records.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = records.iter().map(|record| record.id).collect();
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    // Nothing changes the inputs of a record that is cut, so they can be read before it is locked.
    let select = transaction.prepare_cached(INPUTS).await.tried(DOING)?;
    let mut inputs = HashMap::new();
    for row in transaction.query(&select, &[&ids]).await.tried(DOING)? {
        let found = codec::decode_inputs(row.try_get(1).tried(DOING)?)?;
        inputs.insert(row.try_get::<_, i64>(0).tried(DOING)?, found);
    }
    let inputs = |id: i64| inputs.get(&id).map_or(&[][..], Vec::as_slice);
    lock(&transaction, ids.iter().map(|id| (*id, inputs(*id)))).await?;
    let mut marks = Marks::default();
    for record in records {
        marks.add(record.txid, 0, inputs(record.id));
    }
    let paged = records.iter().filter(|record| record.outputs > PAGE_SLOTS);
    let paged: Vec<i64> = paged.map(|record| record.id).collect();
    marks.tell(&transaction).await?;
    let (pages, rows) = future::join(
        execute(&transaction, DROP_PAGES, paged.len(), &[&paged]),
        execute(&transaction, DROP, ids.len(), &[&ids]),
    )
    .await;
    pages.and(rows)?;
    ease(&transaction, true).await?;
    transaction.commit().await.tried(DOING)
}

/// One after another: parents are told, pages go, the row goes. What was done stays done if it is cut
/// off in between, and doing it again does no harm.
async fn finish_heavy(database: &Postgres, record: &Weighed) -> Result<(), Trip> {
    for first in (0..record.inputs).step_by(LIGHT) {
        let mut client = database.client().await?;
        let transaction = client.transaction().await.tried(DOING)?;
        let select = transaction.prepare_cached(SOME_INPUTS).await.tried(DOING)?;
        let bytes = |inputs: usize| i32::try_from(inputs * INPUT).unwrap_or(i32::MAX);
        let (from, length) = (bytes(first).saturating_add(1), bytes(LIGHT));
        let piece = transaction.query_opt(&select, &[&record.id, &from, &length]).await;
        let Some(piece) = piece.tried(DOING)? else { return Ok(()) };
        let inputs = codec::decode_inputs(piece.try_get(0).tried(DOING)?)?;
        lock(&transaction, [(record.id, inputs.as_slice())].into_iter()).await?;
        let mut marks = Marks::default();
        marks.add(record.txid, u32::try_from(first).unwrap_or(u32::MAX), &inputs);
        marks.tell(&transaction).await?;
        transaction.commit().await.tried(DOING)?;
    }
    loop {
        let mut client = database.client().await?;
        let transaction = client.transaction().await.tried(DOING)?;
        lock(&transaction, [(record.id, [].as_slice())].into_iter()).await?;
        let some = transaction.prepare_cached(DROP_SOME_PAGES).await.tried(DOING)?;
        let params: [&(dyn ToSql + Sync); 2] = [&record.id, &limited(LIGHT)];
        let gone = transaction.execute(&some, &params).await.tried(DOING)?;
        let ended = gone < LIGHT as u64;
        if ended {
            execute(&transaction, DROP, 1, &[&vec![record.id]]).await?;
        }
        transaction.commit().await.tried(DOING)?;
        if ended {
            return Ok(());
        }
    }
}
