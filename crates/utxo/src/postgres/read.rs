//! What is asked of the database. Each question is one statement, and so answered from one state of it; what asks
//! several times is in `settled`.

use std::collections::{BTreeSet, HashSet};
use std::pin::pin;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use secateur_core::Height;
use secateur_sql::postgres::{Client, Told as _};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::UtxoError;
use crate::codec::{self, PAGE_BYTES, pages};
use crate::pruner::Job;
use crate::store::{Counts, Doomed, Page, Unmined};
use crate::types::{FileKind, Record, Slot, TxId};

use super::rows::{bytes_of, count, kind, limited, txid as decode_txid};
use super::{Key, Mark};

const DOING: &str = "reading records";
/// Spenders that are asked for at once.
const SPENDERS_AT_ONCE: usize = 10_000;

pub(super) const GET: &str = "select id, outputs, coinbase, conflicting, spending, cut, external, \
    unmined_since, delete_at, preserve_until, blocks, spenders, inputs, body, \
    array(select spenders from utxo_spender_pages where tx = t.id order by page), \
    array(select c.txid from utxo_holds h join utxo_txs c on c.id = h.child where h.parent = t.id \
        order by h.child limit 100) \
    from utxo_txs t where txid = $1";
pub(super) const OLD_UNMINED: &str = "select unmined_since, id, txid, inputs from utxo_txs \
    where unmined_since <= $1 and (unmined_since, id) > ($2, $3) \
    order by unmined_since, id limit $4";
pub(super) const DUE: &str = "select delete_at, id from utxo_txs \
    where delete_at <= $1 and (delete_at, id) > ($2, $3) order by delete_at, id limit $4";
pub(super) const PRUNED_AT: &str = "select pruned_at from utxo_pruned where txid = $1";
pub(super) const HERE: &str = "select txid from utxo_txs where txid = any($1) and not cut";
pub(super) const DOOMED: &str = "select id, txid, external from utxo_txs where cut and id > $1 \
    order by id limit $2";
/// Newest first, as far as one can tell from an index by delete-at-height.
pub(super) const EXTERNAL: &str = "select txid, external from ( \
        (select id, txid, external from utxo_txs where external is not null and not cut \
            and delete_at is null order by delete_at desc, id desc limit $2) \
        union all \
        (select id, txid, external from utxo_txs where external is not null and not cut \
            and delete_at > $1 order by delete_at desc, id desc limit $2) \
    ) sample order by id desc limit $2";
pub(super) const COUNTS: &str = "select \
    (select count(*) from utxo_txs where unmined_since is not null), \
    (select count(*) from utxo_txs where delete_at <= $1), \
    (select count(*) from utxo_txs where preserve_until is not null), \
    (select count(*) from utxo_txs where cut)";
/// So many records are counted; whether there are more the statistics say.
const COUNTED: i64 = 10_000;
pub(super) const SOME: &str = "select count(*) from (select 1 from utxo_txs limit $1) few";
/// How many records there are the statistics say at once, and the last `vacuum` otherwise. What is free
/// is what their average width leaves of the pages.
pub(super) const SIZES: &str = "select records, \
    pg_total_relation_size('utxo_txs') + pg_total_relation_size('utxo_spender_pages') \
        + pg_total_relation_size('utxo_holds'), \
    greatest(0, pg_relation_size('utxo_txs') - records * (28 + width)) \
    from (select coalesce(nullif(pg_stat_get_live_tuples(oid), 0), \
            greatest(0, reltuples)::bigint) as records \
        from pg_class where oid = 'utxo_txs'::regclass) r, \
    (select coalesce(sum(avg_width * (1 - null_frac)), 8192)::bigint as width from pg_stats \
        where schemaname = current_schema and tablename = 'utxo_txs') w";

/// The rows of a statement.
pub(super) async fn query(
    client: &Client,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, UtxoError> {
    let statement = client.prepare_cached(sql).await.told(DOING)?;
    Ok(client.query(&statement, params).await.told(DOING)?)
}

pub(super) fn field<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, UtxoError> {
    Ok(row.try_get(at).told(DOING)?)
}

fn height(row: &Row, at: usize) -> Result<Option<Height>, UtxoError> {
    field::<Option<i64>>(row, at)?.map(codec::height).transpose()
}

pub(super) async fn get(client: &Client, txid: TxId) -> Result<Option<Record>, UtxoError> {
    let rows = query(client, GET, &[&txid.0.as_slice()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let total = count(field(row, 1)?)?;
    let cut: bool = field(row, 5)?;
    let mut outputs = codec::Page::decode(field(row, 11)?, total, 0)?.all()?;
    let more: Vec<&[u8]> = field(row, 14)?;
    if more.len() + 1 == pages(total) as usize {
        for (page, bytes) in (1..).zip(more) {
            outputs.extend(codec::Page::decode(bytes.to_vec(), total, page)?.all()?);
        }
    } else if !cut {
        // Of a record that is cut they may be gone already.
        return Err(UtxoError::damaged("spenders", "a page is missing"));
    }
    tell_pruned(client, &mut outputs).await?;
    let inputs = codec::decode_inputs(field(row, 12)?)?;
    let held_by: Vec<&[u8]> = field(row, 15)?;
    Ok(Some(Record {
        txid,
        inputs: inputs.iter().map(|input| input.spends).collect(),
        outputs,
        coinbase: field(row, 2)?,
        conflicting: field(row, 3)?,
        spending: field(row, 4)?,
        blocks: codec::decode_blocks(field(row, 10)?)?,
        unmined_since: height(row, 7)?,
        delete_at_height: height(row, 8)?,
        preserve_until: height(row, 9)?,
        external: kind(field(row, 6)?)?,
        cut,
        body: Bytes::copy_from_slice(field(row, 13)?),
        held_by: held_by.into_iter().map(decode_txid).collect::<Result<_, _>>()?,
    }))
}

/// A spender that is named and not here was pruned: its record came with the name, in one step.
async fn tell_pruned(client: &Client, outputs: &mut [Slot]) -> Result<(), UtxoError> {
    for some in outputs.chunks_mut(SPENDERS_AT_ONCE) {
        let named: BTreeSet<TxId> =
            some.iter().filter_map(|slot| Some(slot.spender()?.0)).collect();
        if named.is_empty() {
            continue;
        }
        let rows = query(client, HERE, &[&bytes_of(&named)]).await?;
        let here = rows.iter().map(|row| decode_txid(field(row, 0)?));
        let here: HashSet<TxId> = here.collect::<Result<_, _>>()?;
        for slot in some {
            *slot = slot.seen(|by| here.contains(&by));
        }
    }
    Ok(())
}

/// A page of a listing by height and row. It ends early where its rows are large, and then goes on.
async fn page<T>(
    client: &Client,
    sql: &str,
    (height, after, limit): (Height, Option<Mark>, usize),
    decode: impl Fn(&Row) -> Result<(T, usize), UtxoError>,
) -> Result<Page<T, Mark>, UtxoError> {
    let from = after.unwrap_or(Mark::BEGIN);
    let (height, most) = (codec::stored(height)?, limited(limit));
    let params: [&(dyn ToSql + Sync); 4] = [&height, &from.height, &from.id, &most];
    let statement = client.prepare_cached(sql).await.told(DOING)?;
    let rows = client.query_raw(&statement, params).await.told(DOING)?;
    let mut rows = pin!(rows);
    let mut page = Page { items: Vec::with_capacity(limit.min(1024)), next: None };
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await.told(DOING)? {
        let (item, size) = decode(&row)?;
        page.items.push(item);
        bytes += size;
        if page.items.len() == limit || bytes > PAGE_BYTES {
            page.next = Some(Mark { height: field(&row, 0)?, id: field(&row, 1)? });
            break;
        }
    }
    Ok(page)
}

pub(super) async fn old_unmined(
    client: &Client,
    cutoff: Height,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<Unmined, Mark>, UtxoError> {
    page(client, OLD_UNMINED, (cutoff, after, limit), |row| {
        let inputs: &[u8] = field(row, 3)?;
        let parents: BTreeSet<TxId> =
            codec::decode_inputs(inputs)?.iter().map(|input| input.spends.txid).collect();
        let parents = parents.into_iter().collect();
        Ok((Unmined { txid: decode_txid(field(row, 2)?)?, parents }, inputs.len()))
    })
    .await
}

pub(super) async fn due(
    client: &Client,
    height: Height,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<Key, Mark>, UtxoError> {
    page(client, DUE, (height, after, limit), |row| {
        Ok((Key { height: field(row, 0)?, id: field(row, 1)? }, 0))
    })
    .await
}

pub(super) async fn doomed(
    client: &Client,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<Doomed<Key>, Mark>, UtxoError> {
    let after = after.map_or(i64::MIN, |mark| mark.id);
    let rows = query(client, DOOMED, &[&after, &limited(limit)]).await?;
    let decode = |row: &Row| {
        let (txid, external) = (decode_txid(field(row, 1)?)?, kind(field(row, 2)?)?);
        let key = Key { height: 0, id: field(row, 0)? };
        Ok(Doomed { key, txid, external })
    };
    let items: Vec<_> = rows.iter().map(decode).collect::<Result<_, UtxoError>>()?;
    let last = items.last().map(|last| Mark { height: 0, id: last.key.id });
    Ok(Page { next: last.filter(|_| items.len() >= limit), items })
}

pub(super) async fn external_sample(
    client: &Client,
    not_due: Option<Height>,
    limit: usize,
) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
    // Every height is above this one.
    let above = not_due.map_or(Ok(-1), codec::stored)?;
    let mut sample = Vec::new();
    for row in query(client, EXTERNAL, &[&above, &limited(limit)]).await? {
        let txid = decode_txid(field(&row, 0)?)?;
        sample.extend(kind(field(&row, 1)?)?.map(|kind| (txid, kind)));
    }
    Ok(sample)
}

pub(super) async fn counts(client: &Client, height: Height) -> Result<Counts, UtxoError> {
    let height = codec::stored(height).unwrap_or(i64::MAX);
    let counts = query(client, COUNTS, &[&height]).await?;
    let sizes = query(client, SIZES, &[]).await?;
    let some = query(client, SOME, &[&(COUNTED + 1)]).await?;
    let number = |rows: &[Row], at: usize| -> Result<u64, UtxoError> {
        let number: i64 = rows.first().map_or(Ok(0), |row| field(row, at))?;
        Ok(u64::try_from(number).unwrap_or(0))
    };
    let some = number(&some, 0)?;
    let all = if some > COUNTED.unsigned_abs() { number(&sizes, 0)?.max(some) } else { some };
    Ok(Counts {
        records: all,
        unmined: number(&counts, 0)?,
        due: number(&counts, 1)?,
        preserved: number(&counts, 2)?,
        cut: number(&counts, 3)?,
        size_bytes: number(&sizes, 1)?,
        free_bytes: Some(number(&sizes, 2)?),
    })
}

pub(super) async fn pruned_at(client: &Client, txid: TxId) -> Result<Option<Height>, UtxoError> {
    let select = client.prepare_cached(PRUNED_AT).await.told(DOING)?;
    let row = client.query_opt(&select, &[&txid.0.as_slice()]).await.told(DOING)?;
    row.map(|row| codec::height(row.try_get(0).told(DOING)?)).transpose()
}

pub(super) async fn note(client: &Client, name: &str) -> Result<Option<String>, UtxoError> {
    let rows = query(client, "select value from utxo_meta where key = $1", &[&name]).await?;
    rows.first().map(|row| field(row, 0)).transpose()
}

pub(super) async fn jobs(client: &Client) -> Result<Vec<Job>, UtxoError> {
    let rows = query(client, "select job from utxo_jobs order by id desc", &[]).await?;
    let decode = |row: &Row| {
        serde_json::from_str(field(row, 0)?)
            .map_err(|error| UtxoError::damaged("a job", error.to_string()))
    };
    rows.iter().map(decode).collect()
}
