//! Records that go: looked at again in the transaction that deletes them.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::UtxoError;
use crate::codec::{self, Input, PAGE_SLOTS, Page, pages, place};
use crate::store::{Doomed, Fate, Kept, Sweep};
use crate::types::{Slot, TxId};

use super::rows::{SPENDERS, WRITE_PAGE, kind, load_page};
use super::{failed, steps};

/// Rows that belong to one record and go in one transaction with it; a record with more is cut first
/// and removed piece by piece, so that a writer does not wait for it.
const LIGHT: usize = 4096;

/// A hold of an unmined spender is asked for here, in the deleting transaction, and nowhere before.
const LOOK: &str = "SELECT txid, outputs, external, cut, delete_at, preserve_until, inputs,
    EXISTS (SELECT 1 FROM holds WHERE parent = txs.id) FROM txs WHERE id = ?1";
const CUT: &str = "UPDATE txs SET cut = 1, delete_at = NULL, unmined_since = NULL WHERE id = ?1";
const TELL: &str = "UPDATE txs SET spenders = ?2 WHERE id = ?1";
const OUTPUTS: &str = "SELECT outputs FROM txs WHERE id = ?1 AND cut = 0";
const DROP_PAGES: &str = "DELETE FROM spender_pages WHERE tx = ?1";
const DROP_SOME_PAGES: &str = "DELETE FROM spender_pages WHERE tx = ?1 AND page IN
    (SELECT page FROM spender_pages WHERE tx = ?1 LIMIT ?2)";
const DROP: &str = "DELETE FROM txs WHERE id = ?1";
const DOOMED: &str = "SELECT txid, inputs, outputs FROM txs WHERE id = ?1 AND cut = 1";

/// What a deletion asks, for whoever looks at how it is done.
#[cfg(test)]
pub(super) const ASKED: [&str; 8] =
    [LOOK, CUT, TELL, OUTPUTS, DROP_PAGES, DROP_SOME_PAGES, DROP, DOOMED];

/// What a record's last look shows.
struct Look {
    txid: TxId,
    outputs: u32,
    inputs: Vec<Input>,
    fate: Option<Fate<i64>>,
    doomed: Option<Doomed<i64>>,
}

fn look(connection: &Connection, id: i64, sweep: Sweep) -> Result<Option<Look>, UtxoError> {
    let mut statement = connection.prepare_cached(LOOK).map_err(failed)?;
    let mut rows = statement.query([id]).map_err(failed)?;
    let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
    let txid = TxId(row.get(0).map_err(failed)?);
    let external = kind(row.get(2).map_err(failed)?)?;
    let inputs = row.get_ref(6).map_err(failed)?.as_blob().map_err(|error| failed(error.into()))?;
    let outputs: u32 = row.get(1).map_err(failed)?;
    let inputs = codec::decode_inputs(inputs)?;
    let (cut, held): (bool, bool) = (row.get(3).map_err(failed)?, row.get(7).map_err(failed)?);
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
    let heavy = inputs.len() + pages(outputs) as usize > LIGHT;
    let doomed = (external.is_some() || heavy).then_some(Doomed { key: id, txid, external });
    Ok(Some(Look { txid, outputs, inputs, fate, doomed }))
}

/// Deletes what may go. What has a file or many rows is left for [`cut`]: `None`.
pub(super) fn delete(
    connection: &mut Connection,
    keys: &[i64],
    sweep: Sweep,
) -> Result<Vec<Option<Fate<i64>>>, UtxoError> {
    let transaction = steps::begin(connection)?;
    let mut fates = Vec::with_capacity(keys.len());
    let mut deleted = 0;
    for id in keys {
        let fate = match look(&transaction, *id, sweep)? {
            None => Some(Fate::Gone),
            Some(Look { fate: Some(fate), .. }) => Some(fate),
            Some(Look { doomed: Some(_), .. }) => None,
            Some(record) => {
                tell_parents(&transaction, record.txid, 0, &record.inputs)?;
                drop_pages(&transaction, *id, record.outputs)?;
                drop_row(&transaction, *id)?;
                deleted += 1;
                Some(Fate::Deleted)
            }
        };
        fates.push(fate);
    }
    if deleted > 0 {
        steps::count(&transaction, -deleted)?;
    }
    steps::commit(transaction)?;
    Ok(fates)
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
            Some(Look { txid, doomed, .. }) => {
                transaction
                    .prepare_cached(CUT)
                    .and_then(|mut statement| statement.execute([id]))
                    .map_err(failed)?;
                let plain = Doomed { key: *id, txid, external: None };
                Fate::Cut(doomed.unwrap_or(plain))
            }
        };
        fates.push(fate);
    }
    steps::commit(transaction)?;
    Ok(fates)
}

/// Parents that are still here remember that their spender is pruned.
fn tell_parents(
    connection: &Connection,
    txid: TxId,
    first: u32,
    inputs: &[Input],
) -> Result<(), UtxoError> {
    for (n, input) in (first..).zip(inputs) {
        let (page, at) = place(input.spends.n);
        let mark = |spenders: &mut Page| {
            let told = spenders.get(at) == Some(Slot::Spent { by: txid, input: n });
            if told {
                spenders.set(at, Slot::Pruned { by: txid, input: n });
            }
            told
        };
        if page > 0 {
            tell_page(connection, input.parent, page, mark)?;
            continue;
        }
        let found: Option<(u32, Vec<u8>)> = connection
            .prepare_cached(SPENDERS)
            .and_then(|mut statement| {
                statement.query_row([input.parent], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        let Some((outputs, spenders)) = found else { continue };
        let mut spenders = Page::decode(spenders, outputs, 0)?;
        if mark(&mut spenders) {
            connection
                .prepare_cached(TELL)
                .and_then(|mut one| one.execute(params![input.parent, spenders.bytes()]))
                .map_err(failed)?;
        }
    }
    Ok(())
}

fn tell_page(
    connection: &Connection,
    parent: i64,
    page: u32,
    mark: impl FnOnce(&mut Page) -> bool,
) -> Result<(), UtxoError> {
    let outputs: Option<u32> = connection
        .prepare_cached(OUTPUTS)
        .and_then(|mut statement| statement.query_row([parent], |row| row.get(0)).optional())
        .map_err(failed)?;
    let Some(outputs) = outputs else { return Ok(()) };
    let mut spenders = load_page(connection, parent, outputs, page)?;
    if mark(&mut spenders) {
        connection
            .prepare_cached(WRITE_PAGE)
            .and_then(|mut one| one.execute(params![parent, page, spenders.bytes()]))
            .map_err(failed)?;
    }
    Ok(())
}

fn drop_pages(connection: &Connection, id: i64, outputs: u32) -> Result<(), UtxoError> {
    if outputs <= PAGE_SLOTS {
        return Ok(());
    }
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

/// One piece of the removal of a record that is cut: parents are told, then pages go, then the row.
/// Answers where to go on, or nothing at the end.
pub(super) fn finish(
    connection: &mut Connection,
    id: i64,
    from: usize,
) -> Result<Option<usize>, UtxoError> {
    let transaction = steps::begin(connection)?;
    let found: Option<(Vec<u8>, Vec<u8>, u32)> = transaction
        .query_row(DOOMED, [id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()
        .map_err(failed)?;
    let Some((txid, inputs, outputs)) = found else { return Ok(None) };
    let txid = txid.try_into().map(TxId).map_err(|_| UtxoError::damaged("an id", "its length"))?;
    let inputs = codec::decode_inputs(&inputs)?;
    let end = inputs.len().min(from.saturating_add(LIGHT));
    let first = u32::try_from(from).unwrap_or(u32::MAX);
    tell_parents(&transaction, txid, first, inputs.get(from..end).unwrap_or_default())?;
    let mut next = Some(end);
    if end == inputs.len() {
        let light = i64::try_from(LIGHT).unwrap_or(i64::MAX);
        let gone = transaction.execute(DROP_SOME_PAGES, params![id, light]).map_err(failed)?;
        if outputs <= PAGE_SLOTS || gone < LIGHT {
            drop_row(&transaction, id)?;
            steps::count(&transaction, -1)?;
            next = None;
        }
    }
    steps::commit(transaction)?;
    Ok(next)
}
