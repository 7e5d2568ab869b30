//! Records that go: looked at again in the transaction that deletes them.
//!
//! Their parents are not touched: they name their spenders, and one that is named and not here was
//! pruned (`read`). So a parent learns of it with the very commit that removes its spender.

use rusqlite::{Connection, params};

use crate::UtxoError;
use crate::codec::{self, PAGE_SLOTS, pages};
use crate::store::{Doomed, Fate, Kept, Sweep};
use crate::types::TxId;

use super::rows::kind;
use super::{failed, steps};

/// Pages of spenders that go in one transaction with their record; a record with more is cut first and
/// removed piece by piece, so that a writer does not wait for it.
const LIGHT: u32 = 64;
/// Records after which it is asked whether that is enough.
const LOOK_UP: usize = 100;

/// The same for the others, and why they stay.
const LOOK: &str = "SELECT txid, outputs, external, cut, delete_at, preserve_until,
    EXISTS (SELECT 1 FROM holds WHERE parent = txs.id), (coinbase OR conflicting) AND spent > 0 FROM txs WHERE id = ?1";
/// What nearly every record is: still due, not preserved, not held, without a file, in one row, and known to
/// its parents. A hold of an unmined spender is asked for here, in the deleting transaction, and nowhere
/// before.
const DELETE: &str = "DELETE FROM txs WHERE id = ?1 AND delete_at <= ?2 AND preserve_until IS NULL
    AND cut = 0 AND external IS NULL AND outputs <= ?3 AND NOT ((coinbase OR conflicting) AND spent > 0)
    AND NOT EXISTS (SELECT 1 FROM holds WHERE parent = txs.id)";
const CUT: &str = "UPDATE txs SET cut = 1, delete_at = NULL, unmined_since = NULL WHERE id = ?1";
const DROP_PAGES: &str = "DELETE FROM spender_pages WHERE tx = ?1";
const DROP_SOME_PAGES: &str = "DELETE FROM spender_pages WHERE tx = ?1 AND page IN
    (SELECT page FROM spender_pages WHERE tx = ?1 LIMIT ?2)";
const DROP: &str = "DELETE FROM txs WHERE id = ?1";
const REMEMBER: &str = "INSERT INTO pruned (txid, pruned_at) VALUES (?1, ?2)
    ON CONFLICT (txid) DO NOTHING";
const IS_CUT: &str = "SELECT 1 FROM txs WHERE id = ?1 AND cut = 1";

/// What a deletion asks, for whoever looks at how it is done.
#[cfg(test)]
pub(super) const ASKED: [&str; 8] =
    [LOOK, DELETE, CUT, DROP_PAGES, DROP_SOME_PAGES, DROP, REMEMBER, IS_CUT];

/// What a record's last look shows.
struct Look {
    txid: TxId,
    /// Whether no parent names it and something of it is spent: told again it must not be taken for new.
    remembered: bool,
    fate: Option<Fate<i64>>,
    doomed: Option<Doomed<i64>>,
}

fn look(connection: &Connection, id: i64, sweep: Sweep) -> Result<Option<Look>, UtxoError> {
    let mut statement = connection.prepare_cached(LOOK).map_err(failed)?;
    let mut rows = statement.query([id]).map_err(failed)?;
    let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
    let txid = TxId(row.get(0).map_err(failed)?);
    let external = kind(row.get(2).map_err(failed)?)?;
    let outputs: u32 = row.get(1).map_err(failed)?;
    let (cut, held): (bool, bool) = (row.get(3).map_err(failed)?, row.get(6).map_err(failed)?);
    let remembered = row.get(7).map_err(failed)?;
    let due = row.get::<_, Option<i64>>(4).map_err(failed)?;
    let due = due.map(codec::height).transpose()?.is_some_and(|at| at <= sweep.height);
    let preserved = row.get::<_, Option<i64>>(5).map_err(failed)?.is_some();
    let fate = if cut || preserved {
        Some(if cut { Fate::Gone } else { Fate::Kept(Kept::Preserved) })
    } else if !due {
        Some(Fate::Kept(Kept::NotDue))
    } else if held {
        Some(Fate::Kept(Kept::Held))
    } else if external.is_some() && !sweep.external {
        Some(Fate::Kept(Kept::FilesMissing))
    } else {
        None
    };
    let heavy = pages(outputs) > LIGHT;
    let doomed = (external.is_some() || heavy).then_some(Doomed { key: id, txid, external });
    Ok(Some(Look { txid, remembered, fate, doomed }))
}

/// Deletes what may go, until that is enough for one transaction, and answers for as many as it came to. What has a
/// file or many rows is left for [`cut`].
pub(super) fn delete(
    connection: &mut Connection,
    keys: &[i64],
    sweep: Sweep,
    is_enough: impl Fn() -> bool,
) -> Result<Vec<Fate<i64>>, UtxoError> {
    let transaction = steps::begin(connection)?;
    let mut fates = Vec::with_capacity(keys.len());
    let mut deleted = 0;
    let height = codec::stored(sweep.height)?;
    let mut delete = transaction.prepare_cached(DELETE).map_err(failed)?;
    for id in keys {
        let fate = if delete.execute(params![id, height, PAGE_SLOTS]).map_err(failed)? > 0 {
            Fate::Deleted
        } else {
            delete_pages_too(&transaction, *id, sweep)?
        };
        deleted += i64::from(fate == Fate::Deleted);
        fates.push(fate);
        if fates.len().is_multiple_of(LOOK_UP) && is_enough() {
            break;
        }
    }
    drop(delete);
    if deleted > 0 {
        steps::count(&transaction, -deleted)?;
    }
    steps::commit(transaction)?;
    Ok(fates)
}

/// A record that is not like most.
fn delete_pages_too(
    connection: &Connection,
    id: i64,
    sweep: Sweep,
) -> Result<Fate<i64>, UtxoError> {
    Ok(match look(connection, id, sweep)? {
        None => Fate::Gone,
        Some(Look { fate: Some(fate), .. }) => fate,
        Some(Look { doomed: Some(_), .. }) => Fate::Left,
        Some(look) => {
            remember(connection, &look, sweep)?;
            drop_pages(connection, id)?;
            drop_row(connection, id)?;
            Fate::Deleted
        }
    })
}

/// Marks records as cut that cannot go in one transaction. From then on nothing brings them back, so
/// that their files can be removed.
pub(super) fn cut(
    connection: &mut Connection,
    keys: &[i64],
    sweep: Sweep,
) -> Result<Vec<Fate<i64>>, UtxoError> {
    let transaction = steps::begin(connection)?;
    let mut fates = Vec::with_capacity(keys.len());
    for id in keys {
        let fate = match look(&transaction, *id, sweep)? {
            None => Fate::Gone,
            Some(Look { fate: Some(fate), .. }) => fate,
            Some(look) => {
                remember(&transaction, &look, sweep)?;
                transaction
                    .prepare_cached(CUT)
                    .and_then(|mut statement| statement.execute([id]))
                    .map_err(failed)?;
                let plain = Doomed { key: *id, txid: look.txid, external: None };
                Fate::Cut(Box::new(look.doomed.unwrap_or(plain)))
            }
        };
        fates.push(fate);
    }
    steps::commit(transaction)?;
    Ok(fates)
}

/// Keeps in mind that a record is pruned which nothing else would know, in the transaction that decides about it.
fn remember(connection: &Connection, look: &Look, sweep: Sweep) -> Result<(), UtxoError> {
    if !look.remembered {
        return Ok(());
    }
    let height = codec::stored(sweep.height)?;
    connection
        .prepare_cached(REMEMBER)
        .and_then(|mut statement| statement.execute(params![look.txid.0, height]))
        .map(drop)
        .map_err(failed)
}

fn drop_pages(connection: &Connection, id: i64) -> Result<(), UtxoError> {
    connection
        .prepare_cached(DROP_PAGES)
        .and_then(|mut statement| statement.execute([id]))
        .map(drop)
        .map_err(failed)
}

fn drop_row(connection: &Connection, id: i64) -> Result<(), UtxoError> {
    connection
        .prepare_cached(DROP)
        .and_then(|mut statement| statement.execute([id]))
        .map(drop)
        .map_err(failed)
}

/// One piece of the removal of records that are cut: pages go, and each row with the last of its own, until that is
/// enough for one transaction. Answers how many of the first records it is done with.
pub(super) fn finish(
    connection: &mut Connection,
    keys: &[i64],
    is_enough: impl Fn() -> bool,
) -> Result<usize, UtxoError> {
    let transaction = steps::begin(connection)?;
    let (mut done, mut removed, mut room) = (0, 0, i64::from(LIGHT));
    for id in keys {
        let is_cut = transaction.prepare_cached(IS_CUT).and_then(|mut one| one.exists([id]));
        if is_cut.map_err(failed)? {
            let pages = transaction
                .prepare_cached(DROP_SOME_PAGES)
                .and_then(|mut statement| statement.execute([*id, room]))
                .map_err(failed)?;
            room = room.saturating_sub(i64::try_from(pages).unwrap_or(i64::MAX));
            if room == 0 {
                // It may have more of them.
                break;
            }
            drop_row(&transaction, *id)?;
            removed += 1;
        }
        done += 1;
        if is_enough() {
            break;
        }
    }
    steps::count(&transaction, -removed)?;
    steps::commit(transaction)?;
    Ok(done)
}
