//! Rows out of the file and back into it.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::UtxoError;
use crate::codec::{self, Page, place};
use crate::slate::{HoldChange, Row, Slate};
use crate::types::{FileKind, OutPoint, TxId};

use super::failed;

/// A record by the id of its transaction, as the index has it.
macro_rules! by_txid {
    () => {
        "substr(txid, 1, 8) = substr(?1, 1, 8) AND txid = ?1"
    };
}
pub(super) use by_txid;
const BY_TXID: &str = by_txid!();
/// The columns of a row, without its inputs and its bytes.
const COLUMNS: &str = "id, txid, outputs, spent, coinbase, conflicting, spending, cut, external, \
    unmined_since, delete_at, preserve_until, blocks, spenders";

/// A record's first page of spenders.
pub(super) const SPENDERS: &str = "SELECT outputs, spenders FROM txs WHERE id = ?1";
const PAGE: &str = "SELECT spenders FROM spender_pages WHERE tx = ?1 AND page = ?2";
const WRITE_PAGE: &str = "UPDATE spender_pages SET spenders = ?3 WHERE tx = ?1 AND page = ?2";
const REWIRE: &str = "UPDATE txs SET inputs = ?2 WHERE id = ?1";
const RELEASE: &str = "DELETE FROM holds WHERE child = ?1";
const UPDATE: &str = "UPDATE txs SET spent = ?2, conflicting = ?3, spending = ?4, mined_at = ?5,
    unmined_since = ?6, delete_at = ?7, preserve_until = ?8, blocks = ?9, spenders = ?10
    WHERE id = ?1";

/// How much of a row is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Its outputs and its state.
    Outputs,
    /// Its inputs as well.
    Inputs,
}

pub(super) const fn kind_code(kind: FileKind) -> i64 {
    match kind {
        FileKind::Tx => 1,
        FileKind::Outputs => 2,
    }
}

pub(super) fn kind(code: Option<i64>) -> Result<Option<FileKind>, UtxoError> {
    match code {
        None => Ok(None),
        Some(1) => Ok(Some(FileKind::Tx)),
        Some(2) => Ok(Some(FileKind::Outputs)),
        Some(_) => Err(UtxoError::damaged("a kind of file", "it is unknown")),
    }
}

fn count(stored: i64) -> Result<u32, UtxoError> {
    u32::try_from(stored).map_err(|_| UtxoError::damaged("a count", format!("it is {stored}")))
}

fn heights(stored: Option<i64>) -> Result<Option<u64>, UtxoError> {
    stored.map(codec::height).transpose()
}

/// Reads one row whose columns are [`COLUMNS`], and inputs behind them if they were asked for.
fn decode(row: &rusqlite::Row<'_>, want: Want) -> Result<Row, UtxoError> {
    let outputs = count(row.get(2).map_err(failed)?)?;
    let spenders: Vec<u8> = row.get(13).map_err(failed)?;
    let blocks: Vec<u8> = row.get(12).map_err(failed)?;
    let inputs = match want {
        Want::Outputs => Vec::new(),
        Want::Inputs => codec::decode_inputs(&row.get::<_, Vec<u8>>(14).map_err(failed)?)?,
    };
    Ok(Row {
        id: row.get(0).map_err(failed)?,
        txid: TxId(row.get(1).map_err(failed)?),
        outputs,
        spent: count(row.get(3).map_err(failed)?)?,
        inputs,
        pages: [(0, Page::decode(spenders, outputs, 0)?)].into(),
        blocks: codec::decode_blocks(&blocks)?,
        unmined_since: heights(row.get(9).map_err(failed)?)?,
        delete_at: heights(row.get(10).map_err(failed)?)?,
        preserve_until: heights(row.get(11).map_err(failed)?)?,
        coinbase: row.get(4).map_err(failed)?,
        conflicting: row.get(5).map_err(failed)?,
        spending: row.get(6).map_err(failed)?,
        cut: row.get(7).map_err(failed)?,
        external: kind(row.get(8).map_err(failed)?)?,
    })
}

fn select(want: Want) -> String {
    let inputs = if want == Want::Inputs { ", inputs" } else { "" };
    format!("SELECT {COLUMNS}{inputs} FROM txs WHERE {BY_TXID}")
}

/// What finds rows here, for whoever looks at how it is done.
#[cfg(test)]
pub(super) fn asked() -> Vec<String> {
    let found = [SPENDERS, PAGE, WRITE_PAGE, REWIRE, RELEASE, UPDATE].map(str::to_owned);
    [select(Want::Outputs), select(Want::Inputs)].into_iter().chain(found).collect()
}

/// The row of a transaction.
pub(super) fn load(
    connection: &Connection,
    txid: TxId,
    want: Want,
) -> Result<Option<Row>, UtxoError> {
    let mut statement = connection.prepare_cached(&select(want)).map_err(failed)?;
    let mut rows = statement.query([txid.0]).map_err(failed)?;
    match rows.next().map_err(failed)? {
        Some(row) => decode(row, want).map(Some),
        None => Ok(None),
    }
}

/// A page of spenders beyond the first.
pub(super) fn load_page(
    connection: &Connection,
    id: i64,
    outputs: u32,
    page: u32,
) -> Result<Page, UtxoError> {
    let bytes: Option<Vec<u8>> = connection
        .prepare_cached(PAGE)
        .and_then(|mut statement| {
            statement.query_row(params![id, page], |row| row.get(0)).optional()
        })
        .map_err(failed)?;
    let bytes = bytes.ok_or_else(|| UtxoError::damaged("spenders", "a page is missing"))?;
    Page::decode(bytes, outputs, page)
}

/// The rows that spend and are spent: `children` with their inputs, the transactions of `outputs` with
/// the pages that those are on.
pub(super) fn gather(
    connection: &Connection,
    children: impl IntoIterator<Item = TxId>,
    outputs: impl IntoIterator<Item = OutPoint>,
) -> Result<Vec<Row>, UtxoError> {
    let mut rows: HashMap<TxId, Row> = HashMap::new();
    for txid in children {
        if let Some(row) = load(connection, txid, Want::Inputs)? {
            rows.insert(txid, row);
        }
    }
    let mut missing = BTreeSet::new();
    for output in outputs {
        if !rows.contains_key(&output.txid) && !missing.contains(&output.txid) {
            match load(connection, output.txid, Want::Outputs)? {
                Some(row) => drop(rows.insert(output.txid, row)),
                None => drop(missing.insert(output.txid)),
            }
        }
        let (page, _) = place(output.n);
        if let Some(row) = rows.get_mut(&output.txid)
            && output.n < row.outputs
            && !row.cut
            && !row.pages.contains_key(&page)
        {
            let loaded = load_page(connection, row.id, row.outputs, page)?;
            row.pages.insert(page, loaded);
        }
    }
    Ok(rows.into_values().collect())
}

/// Writes what a slate says.
pub(super) fn store(connection: &Connection, slate: &Slate) -> Result<(), UtxoError> {
    for (row, body) in slate.made() {
        insert(connection, row, body)?;
    }
    for row in slate.touched() {
        update(connection, row)?;
    }
    for (id, page, spenders) in slate.paged() {
        connection
            .prepare_cached(WRITE_PAGE)
            .and_then(|mut statement| statement.execute(params![id, page, spenders.bytes()]))
            .map_err(failed)?;
    }
    for row in slate.rewired() {
        connection
            .prepare_cached(REWIRE)
            .and_then(|mut one| one.execute(params![row.id, codec::encode_inputs(&row.inputs)]))
            .map_err(failed)?;
    }
    for change in slate.holds() {
        match change {
            HoldChange::Take { parent, child } => connection
                .prepare_cached("INSERT OR IGNORE INTO holds (parent, child) VALUES (?1, ?2)")
                .and_then(|mut statement| statement.execute([parent, child])),
            HoldChange::Release { child } => connection
                .prepare_cached(RELEASE)
                .and_then(|mut statement| statement.execute([child])),
        }
        .map_err(failed)?;
    }
    Ok(())
}

fn stored(height: Option<u64>) -> Result<Option<i64>, UtxoError> {
    height.map(codec::stored).transpose()
}

fn insert(connection: &Connection, row: &Row, body: &[u8]) -> Result<(), UtxoError> {
    let first: &[u8] = row.pages.get(&0).map_or(&[], Page::bytes);
    let sql =
        "INSERT INTO txs (id, txid, outputs, spent, coinbase, conflicting, spending, external,
        mined_at, unmined_since, delete_at, preserve_until, blocks, spenders, inputs, body)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement.execute(params![
                row.id,
                row.txid.0,
                row.outputs,
                row.spent,
                row.coinbase,
                row.conflicting,
                row.spending,
                row.external.map(kind_code),
                stored(row.mined_at()).map_err(other)?,
                stored(row.unmined_since).map_err(other)?,
                stored(row.delete_at).map_err(other)?,
                stored(row.preserve_until).map_err(other)?,
                codec::encode_blocks(&row.blocks),
                first,
                codec::encode_inputs(&row.inputs),
                body,
            ])
        })
        .map_err(failed)?;
    for (page, spenders) in row.pages.iter().filter(|(page, _)| **page > 0) {
        connection
            .prepare_cached("INSERT INTO spender_pages (tx, page, spenders) VALUES (?1, ?2, ?3)")
            .and_then(|mut statement| statement.execute(params![row.id, page, spenders.bytes()]))
            .map_err(failed)?;
    }
    Ok(())
}

/// A height that is too large, on its way through a closure of rusqlite's.
fn other(error: UtxoError) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn update(connection: &Connection, row: &Row) -> Result<(), UtxoError> {
    let first: &[u8] = row.pages.get(&0).map_or(&[], Page::bytes);
    connection
        .prepare_cached(UPDATE)
        .and_then(|mut statement| {
            statement.execute(params![
                row.id,
                row.spent,
                row.conflicting,
                row.spending,
                stored(row.mined_at()).map_err(other)?,
                stored(row.unmined_since).map_err(other)?,
                stored(row.delete_at).map_err(other)?,
                stored(row.preserve_until).map_err(other)?,
                codec::encode_blocks(&row.blocks),
                first,
            ])
        })
        .map(drop)
        .map_err(failed)
}
