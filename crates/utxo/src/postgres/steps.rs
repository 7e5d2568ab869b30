//! Steps that change records: rows are locked, a slate changes them, and they go back, all in one
//! transaction.
//!
//! Which rows are locked decides races with a prune. Whoever adds a hold on a record, or changes what
//! makes it due, holds the lock of its row until that is committed; a prune takes the same lock first
//! and looks only then. So one of two happens: the prune sees the change, or the step finds the record
//! gone.

use std::collections::{BTreeMap, HashSet};

use futures_util::future;
use secateur_core::Height;
use secateur_sql::postgres::{GenericClient as _, Postgres, Transaction};

use crate::UtxoError;
use crate::codec::{self, Input};
use crate::rule::Rules;
use crate::slate::{Row, Slate, unseen};
use crate::store::{Created, Preserved};
use crate::types::{BlockId, NewTx, OutPoint, TxId};

use super::read::HERE;
use super::rows::{self, bytes_of, limited, txid as decode_txid};
use super::trip::{Tried as _, Trip};
use super::write;

const DOING: &str = "changing records";

const NEXT_IDS: &str = "select nextval('utxo_txs_id_seq') from generate_series(1, $1::bigint)";
/// Those of some ids that are written down as pruned.
pub(super) const PRUNED: &str = "select txid from utxo_pruned where txid = any($1)";
pub(super) const INPUTS: &str = "select id, txid, inputs from utxo_txs where txid = any($1)";
pub(super) const EXPIRED: &str = "select id from utxo_txs where preserve_until <= $1 \
    order by preserve_until, id limit $2";

/// Numbers of rows that were never used.
async fn next_ids(transaction: &Transaction<'_>, wanted: usize) -> Result<Vec<i64>, Trip> {
    let next = transaction.prepare_cached(NEXT_IDS).await.tried(DOING)?;
    let rows = transaction.query(&next, &[&limited(wanted)]).await.tried(DOING)?;
    rows.iter().map(|row| row.try_get(0).tried(DOING)).collect()
}

/// What transactions spend, as it is now. Nothing is locked: what follows has to look again.
async fn inputs_of(
    transaction: &Transaction<'_>,
    txids: &[TxId],
) -> Result<Vec<(i64, TxId, Vec<Input>)>, Trip> {
    let select = transaction.prepare_cached(INPUTS).await.tried(DOING)?;
    let rows = transaction.query(&select, &[&bytes_of(txids)]).await.tried(DOING)?;
    let decode = |row: &tokio_postgres::Row| {
        let inputs = codec::decode_inputs(row.try_get(2).tried(DOING)?)?;
        Ok((row.try_get(0).tried(DOING)?, decode_txid(row.try_get(1).tried(DOING)?)?, inputs))
    };
    rows.iter().map(decode).collect()
}

/// Makes sure that what looks pruned is. Parents that were waited for are seen as they are now and name
/// their spenders; but a spender that somebody made meanwhile could not be seen by the same statement.
async fn is_still_gone(
    transaction: &Transaction<'_>,
    created: &[Result<Created, UtxoError>],
) -> Result<(), Trip> {
    let pruned = created.iter().filter_map(|created| match created {
        Err(UtxoError::Pruned { txid }) => Some(txid),
        _ => None,
    });
    let pruned = bytes_of(pruned);
    if pruned.is_empty() {
        return Ok(());
    }
    let here = transaction.prepare_cached(HERE).await.tried(DOING)?;
    let here = transaction.query(&here, &[&pruned]).await.tried(DOING)?;
    if here.is_empty() { Ok(()) } else { Err(Trip::changed()) }
}

/// Those of some ids that are written down as pruned. Asked in a statement of its own, after rows of theirs were
/// waited for: what a prune committed meanwhile is seen.
async fn pruned(transaction: &Transaction<'_>, unseen: &[TxId]) -> Result<Vec<TxId>, Trip> {
    if unseen.is_empty() {
        return Ok(Vec::new());
    }
    let pruned = transaction.prepare_cached(PRUNED).await.tried(DOING)?;
    let rows = transaction.query(&pruned, &[&bytes_of(unseen)]).await.tried(DOING)?;
    rows.iter().map(|row| Ok(decode_txid(row.try_get(0).tried(DOING)?)?)).collect()
}

pub(super) async fn create(
    database: &Postgres,
    rules: Rules,
    txs: &[NewTx],
    height: Height,
) -> Result<Vec<Result<Created, UtxoError>>, Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let outputs = || txs.iter().flat_map(|tx| tx.inputs.iter().copied());
    let mut wanted: BTreeMap<TxId, bool> = outputs().map(|output| (output.txid, false)).collect();
    wanted.extend(txs.iter().map(|tx| (tx.txid, true)));
    let (found, ids) =
        future::join(rows::lock_by_txid(&transaction, &wanted), next_ids(&transaction, txs.len()))
            .await;
    let (mut found, ids) = (found?, ids?);
    rows::load_pages(&transaction, &mut found, outputs()).await?;
    let pruned = pruned(&transaction, &unseen(txs, &found)).await?;
    let mut slate = Slate::new(rules, height, found).knowing(pruned);
    let created: Vec<_> = txs.iter().zip(ids).map(|(tx, id)| slate.create(tx, id)).collect();
    is_still_gone(&transaction, &created).await?;
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)?;
    Ok(created)
}

/// A step about one transaction and those that it spends.
pub(super) async fn with_parents(
    database: &Postgres,
    rules: Rules,
    height: Height,
    txid: TxId,
    step: impl Fn(&mut Slate) -> Result<(), UtxoError>,
) -> Result<(), Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let spends = |inputs: &[Input]| inputs.iter().map(|input| input.spends).collect();
    let known = inputs_of(&transaction, &[txid]).await?;
    let known: Vec<OutPoint> = known.first().map_or_else(Vec::new, |known| spends(&known.2));
    let parents = known.iter().map(|output| (output.txid, false));
    let wanted = parents.chain([(txid, true)]).collect();
    let mut found = rows::lock_by_txid(&transaction, &wanted).await?;
    // It may have gone and come back in between.
    let child = found.iter().find(|row| row.txid == txid);
    if child.is_some_and(|child| known != spends(&child.inputs)) {
        return Err(Trip::changed());
    }
    rows::load_pages(&transaction, &mut found, known).await?;
    let mut slate = Slate::new(rules, height, found);
    step(&mut slate)?;
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)
}

/// A step about each of these and nothing else, all or none.
pub(super) async fn for_each(
    database: &Postgres,
    rules: Rules,
    height: Height,
    txids: &[TxId],
    step: impl Fn(&mut Slate, TxId) -> Result<(), UtxoError>,
) -> Result<(), Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let wanted = txids.iter().map(|txid| (*txid, false)).collect();
    let found = rows::lock_by_txid(&transaction, &wanted).await?;
    let mut slate = Slate::new(rules, height, found);
    txids.iter().try_for_each(|txid| step(&mut slate, *txid))?;
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)
}

/// Takes transactions out of a block. Out of their last one they hold their parents again, so the
/// parents' rows are locked as well: a prune that is about to delete one waits, and sees the hold.
pub(super) async fn unset_mined(
    database: &Postgres,
    rules: Rules,
    height: Height,
    txids: &[TxId],
    block: BlockId,
) -> Result<(), Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let known = inputs_of(&transaction, txids).await?;
    let parents = |inputs: &[Input]| inputs.iter().map(|input| input.parent).collect::<Vec<_>>();
    let mut wanted = BTreeMap::new();
    for (_, _, inputs) in &known {
        wanted.extend(parents(inputs).into_iter().map(|parent| (parent, false)));
    }
    wanted.extend(known.iter().map(|(id, ..)| (*id, true)));
    let found = rows::lock_by_id(&transaction, &wanted).await?;
    // Whoever let its inputs go and spent them again has other parents now.
    let is_known =
        |row: &Row| parents(&row.inputs).iter().all(|parent| wanted.contains_key(parent));
    let here: HashSet<i64> = found.iter().map(|row| row.id).collect();
    if !known.iter().all(|(id, ..)| here.contains(id)) || !found.iter().all(is_known) {
        return Err(Trip::changed());
    }
    let mut slate = Slate::new(rules, height, found);
    txids.iter().try_for_each(|txid| slate.unset_mined(*txid, block))?;
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)
}

pub(super) async fn preserve(
    database: &Postgres,
    rules: Rules,
    txids: &[TxId],
    until: Height,
) -> Result<Preserved, Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let wanted = txids.iter().map(|txid| (*txid, false)).collect();
    let found = rows::lock_by_txid(&transaction, &wanted).await?;
    let mut slate = Slate::new(rules, 0, found);
    let mut preserved = Preserved::default();
    for txid in txids {
        if slate.preserve(*txid, until) { preserved.kept += 1 } else { preserved.missing += 1 }
    }
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)?;
    Ok(preserved)
}

pub(super) async fn expire(
    database: &Postgres,
    rules: Rules,
    height: Height,
    limit: usize,
) -> Result<u64, Trip> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await.tried(DOING)?;
    let select = transaction.prepare_cached(EXPIRED).await.tried(DOING)?;
    let bounds = (codec::stored(height)?, limited(limit));
    let ended = transaction.query(&select, &[&bounds.0, &bounds.1]).await.tried(DOING)?;
    let ended: BTreeMap<i64, bool> = ended
        .iter()
        .map(|row| Ok((row.try_get(0).tried(DOING)?, false)))
        .collect::<Result<_, Trip>>()?;
    if ended.is_empty() {
        return Ok(0);
    }
    let found = rows::lock_by_id(&transaction, &ended).await?;
    let txids: Vec<TxId> = found.iter().map(|row| row.txid).collect();
    let mut slate = Slate::new(rules, height, found);
    // A preservation that was made longer in between is left alone.
    for txid in &txids {
        slate.expire(*txid);
    }
    write::store(&transaction, &slate).await?;
    transaction.commit().await.tried(DOING)?;
    Ok(ended.len() as u64)
}
