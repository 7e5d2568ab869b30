//! What is asked of the file. Each question is answered from one state of it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};
use secateur_core::Height;

use crate::UtxoError;
use crate::codec::{self, PAGE_BYTES, pages};
use crate::pruner::Job;
use crate::store::{Counts, Doomed, Page, Unmined};
use crate::types::{FileKind, Record, Slot, TxId};

use super::rows::{self, Want, by_txid, kind};
use super::{Mark, failed};

const BODY: &str = "SELECT body FROM txs WHERE id = ?1";
const HELD_BY: &str = "SELECT txid FROM holds JOIN txs ON txs.id = holds.child WHERE parent = ?1
    ORDER BY child LIMIT 100";
const OLD_UNMINED: &str = "SELECT unmined_since, id, txid, inputs FROM txs
    WHERE unmined_since <= ?1 AND (unmined_since, id) > (?2, ?3)
    ORDER BY unmined_since, id LIMIT ?4";
const DUE: &str = "SELECT delete_at, id FROM txs
    WHERE delete_at <= ?1 AND (delete_at, id) > (?2, ?3) ORDER BY delete_at, id LIMIT ?4";
const HERE: &str = concat!("SELECT 1 FROM txs WHERE ", by_txid!(), " AND cut = 0");
const SETTLED: &str = concat!("SELECT mined_at FROM txs WHERE ", by_txid!(), " AND cut = 0");
const DOOMED: &str =
    "SELECT id, txid, external FROM txs WHERE cut = 1 AND id > ?1 ORDER BY id LIMIT ?2";
/// What is cut may have lost its file.
const EXTERNAL: &str = "SELECT txid, external FROM txs WHERE external IS NOT NULL AND cut = 0
    AND (?1 IS NULL OR delete_at IS NULL OR delete_at > ?1) ORDER BY id DESC LIMIT ?2";
const COUNT_DUE: &str = "SELECT count(*) FROM txs WHERE delete_at <= ?1";
const COUNT_UNMINED: &str = "SELECT count(*) FROM txs WHERE unmined_since IS NOT NULL";
const COUNT_PRESERVED: &str = "SELECT count(*) FROM txs WHERE preserve_until IS NOT NULL";
const COUNT_CUT: &str = "SELECT count(*) FROM txs WHERE cut = 1";
const PRUNED_AT: &str = "SELECT pruned_at FROM pruned WHERE txid = ?1";
const NOTE: &str = "SELECT CAST(value AS TEXT) FROM meta WHERE key = ?1";

/// What is asked of records, for whoever looks at how it is done.
#[cfg(test)]
pub(super) const ASKED: [&str; 14] = [
    BODY,
    HELD_BY,
    OLD_UNMINED,
    DUE,
    SETTLED,
    DOOMED,
    EXTERNAL,
    HERE,
    COUNT_DUE,
    COUNT_UNMINED,
    COUNT_PRESERVED,
    COUNT_CUT,
    PRUNED_AT,
    NOTE,
];

fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn get(connection: &Connection, txid: TxId) -> Result<Option<Record>, UtxoError> {
    let view = connection.unchecked_transaction().map_err(failed)?;
    let Some(row) = rows::load(&view, txid, Want::Inputs)? else { return Ok(None) };
    let mut outputs = Vec::with_capacity(row.outputs as usize);
    for page in 0..pages(row.outputs) {
        match row.pages.get(&page) {
            Some(page) => outputs.extend(page.all()?),
            // The pages of a record that is cut may be gone already.
            None if row.cut => break,
            None => outputs.extend(rows::load_page(&view, row.id, row.outputs, page)?.all()?),
        }
    }
    tell_pruned(&view, &mut outputs)?;
    let body: Vec<u8> = view.query_row(BODY, [row.id], |row| row.get(0)).map_err(failed)?;
    let held_by = {
        let mut statement = view.prepare_cached(HELD_BY).map_err(failed)?;
        let held = statement.query_map([row.id], |row| row.get(0).map(TxId));
        held.and_then(Iterator::collect).map_err(failed)?
    };
    Ok(Some(Record {
        txid,
        inputs: row.inputs.iter().map(|input| input.spends).collect(),
        outputs,
        coinbase: row.coinbase,
        conflicting: row.conflicting,
        spending: row.spending,
        blocks: row.blocks,
        unmined_since: row.unmined_since,
        delete_at_height: row.delete_at,
        preserve_until: row.preserve_until,
        external: row.external,
        cut: row.cut,
        body: Bytes::from(body),
        held_by,
    }))
}

pub(super) fn pruned_at(connection: &Connection, txid: TxId) -> Result<Option<Height>, UtxoError> {
    let found: Option<i64> = connection
        .prepare_cached(PRUNED_AT)
        .and_then(|mut statement| statement.query_row([txid.0], |row| row.get(0)).optional())
        .map_err(failed)?;
    found.map(codec::height).transpose()
}

/// A spender that is named and not here was pruned: its record came with the name, in one step.
fn tell_pruned(connection: &Connection, outputs: &mut [Slot]) -> Result<(), UtxoError> {
    let mut here = connection.prepare_cached(HERE).map_err(failed)?;
    for slot in outputs {
        let Some((by, _)) = slot.spender() else { continue };
        let is_here = here.exists([by.0]).map_err(failed)?;
        *slot = slot.seen(|_| is_here);
    }
    Ok(())
}

pub(super) fn old_unmined(
    connection: &Connection,
    cutoff: Height,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<Unmined, Mark>, UtxoError> {
    let mut statement = connection.prepare_cached(OLD_UNMINED).map_err(failed)?;
    let from = after.unwrap_or(Mark::BEGIN);
    let bounds = params![codec::stored(cutoff)?, from.height, from.id, limited(limit)];
    let mut rows = statement.query(bounds).map_err(failed)?;
    let (mut page, mut bytes) = (Page { items: Vec::new(), next: None }, 0);
    while let Some(row) = rows.next().map_err(failed)? {
        let inputs: Vec<u8> = row.get(3).map_err(failed)?;
        bytes += inputs.len();
        let parents: BTreeSet<TxId> =
            codec::decode_inputs(&inputs)?.iter().map(|input| input.spends.txid).collect();
        let txid = TxId(row.get(2).map_err(failed)?);
        page.items.push(Unmined { txid, parents: parents.into_iter().collect() });
        if page.items.len() == limit || bytes > PAGE_BYTES {
            let mark = || Ok(Mark { height: row.get(0)?, id: row.get(1)? });
            page.next = Some(mark().map_err(failed)?);
            break;
        }
    }
    Ok(page)
}

/// Room that is made for a page of ids before they are read.
const LISTED: usize = 1 << 18;

pub(super) fn due(
    connection: &Connection,
    height: Height,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<i64, Mark>, UtxoError> {
    let mut statement = connection.prepare_cached(DUE).map_err(failed)?;
    let from = after.unwrap_or(Mark::BEGIN);
    let bounds = params![codec::stored(height)?, from.height, from.id, limited(limit)];
    // Ids alone, and no more room than asked for: a page has a quarter of a million of them.
    let (mut items, mut last) = (Vec::with_capacity(limit.min(LISTED)), None);
    let mut rows = statement.query(bounds).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let mark = || Ok(Mark { height: row.get(0)?, id: row.get(1)? });
        let mark = mark().map_err(failed)?;
        items.push(mark.id);
        last = Some(mark);
    }
    let next = last.filter(|_| items.len() >= limit);
    Ok(Page { items, next })
}

/// The spenders of a record, a page at a time.
fn spenders(
    connection: &Connection,
    id: i64,
    mut each: impl FnMut(Vec<Slot>) -> Result<bool, UtxoError>,
) -> Result<(), UtxoError> {
    let found: Option<(u32, Vec<u8>)> = connection
        .prepare_cached(rows::SPENDERS)
        .and_then(|mut statement| {
            statement.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(failed)?;
    let Some((outputs, first)) = found else { return Ok(()) };
    if !each(codec::Page::decode(first, outputs, 0)?.all()?)? {
        return Ok(());
    }
    for page in 1..pages(outputs) {
        if !each(rows::load_page(connection, id, outputs, page)?.all()?)? {
            break;
        }
    }
    Ok(())
}

/// What was found out about spenders. It is bounded, whatever the fan-out is.
pub(super) struct Settled {
    known: HashMap<TxId, bool>,
    most: usize,
}

impl Settled {
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most }
    }

    fn remember(&mut self, spender: TxId, is_settled: bool) {
        if self.known.len() >= self.most {
            self.known.clear();
        }
        self.known.insert(spender, is_settled);
    }
}

/// Whether a record has a spender that is not settled. What was found out about a spender is kept for
/// those that follow.
pub(super) fn unstable(
    connection: &Connection,
    id: i64,
    deep: Option<Height>,
    settled: &mut Settled,
) -> Result<bool, UtxoError> {
    let mut unstable = false;
    let deep = deep.map(codec::stored).transpose()?;
    let mut statement = connection.prepare_cached(SETTLED).map_err(failed)?;
    spenders(connection, id, |slots| {
        for slot in slots {
            let is_settled = match slot {
                Slot::Unspent | Slot::Pruned { .. } => true,
                Slot::Spent { by, .. } => {
                    if let Some(known) = settled.known.get(&by) {
                        *known
                    } else {
                        let mined: Option<Option<i64>> = statement
                            .query_row([by.0], |row| row.get(0))
                            .optional()
                            .map_err(failed)?;
                        // One that is not here was pruned, and so was settled before.
                        let is_deep = match mined {
                            None => true,
                            Some(mined) => mined.is_some_and(|mined| Some(mined) <= deep),
                        };
                        settled.remember(by, is_deep);
                        is_deep
                    }
                }
            };
            unstable |= !is_settled;
        }
        Ok(!unstable)
    })?;
    Ok(unstable)
}

pub(super) fn doomed(
    connection: &Connection,
    after: Option<Mark>,
    limit: usize,
) -> Result<Page<Doomed<i64>, Mark>, UtxoError> {
    let mut statement = connection.prepare_cached(DOOMED).map_err(failed)?;
    let after = after.map_or(i64::MIN, |mark| mark.id);
    let rows = statement.query_map(params![after, limited(limit)], |row| {
        Ok((row.get(0)?, TxId(row.get(1)?), row.get::<_, Option<i64>>(2)?))
    });
    let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(failed)?;
    let items: Vec<_> = rows
        .into_iter()
        .map(|(key, txid, external)| Ok(Doomed { key, txid, external: kind(external)? }))
        .collect::<Result<_, UtxoError>>()?;
    let last = items.last().map(|last| Mark { height: 0, id: last.key });
    Ok(Page { next: last.filter(|_| items.len() >= limit), items })
}

pub(super) fn external_sample(
    connection: &Connection,
    not_due: Option<Height>,
    limit: usize,
) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
    let height = not_due.map(codec::stored).transpose()?;
    let mut statement = connection.prepare_cached(EXTERNAL).map_err(failed)?;
    let rows = statement.query_map(params![height, limited(limit)], |row| {
        Ok((TxId(row.get(0)?), row.get::<_, Option<i64>>(1)?))
    });
    let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(failed)?;
    rows.into_iter()
        .filter_map(|(txid, code)| match kind(code) {
            Ok(kind) => kind.map(|kind| Ok((txid, kind))),
            Err(error) => Some(Err(error)),
        })
        .collect()
}

/// How many records there are.
pub(super) fn records(connection: &Connection) -> Result<u64, UtxoError> {
    Ok(note(connection, "records")?.and_then(|text| text.parse().ok()).unwrap_or(0))
}

pub(super) fn counts(connection: &Connection, height: Height) -> Result<Counts, UtxoError> {
    let one = |sql: &str| -> Result<u64, UtxoError> {
        let number = connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)))
            .map_err(failed)?;
        Ok(u64::try_from(number).unwrap_or(0))
    };
    let due = connection
        .prepare_cached(COUNT_DUE)
        .and_then(|mut statement| {
            statement
                .query_row([codec::stored(height).unwrap_or(i64::MAX)], |row| row.get::<_, i64>(0))
        })
        .map_err(failed)?;
    let page_size = one("PRAGMA page_size")?;
    Ok(Counts {
        records: records(connection)?,
        unmined: one(COUNT_UNMINED)?,
        due: u64::try_from(due).unwrap_or(0),
        preserved: one(COUNT_PRESERVED)?,
        cut: one(COUNT_CUT)?,
        size_bytes: one("PRAGMA page_count")? * page_size,
        free_bytes: Some(one("PRAGMA freelist_count")? * page_size),
    })
}

pub(super) fn note(connection: &Connection, name: &str) -> Result<Option<String>, UtxoError> {
    connection
        .prepare_cached(NOTE)
        .and_then(|mut statement| statement.query_row([name], |row| row.get(0)).optional())
        .map_err(failed)
}

pub(super) fn jobs(connection: &Connection) -> Result<Vec<Job>, UtxoError> {
    let sql = "SELECT job FROM jobs ORDER BY id DESC";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let rows = statement.query_map([], |row| row.get(0));
    let texts: Vec<String> = rows.and_then(Iterator::collect).map_err(failed)?;
    texts
        .iter()
        .map(|text| {
            serde_json::from_str(text)
                .map_err(|error| UtxoError::damaged("a job", error.to_string()))
        })
        .collect()
}
