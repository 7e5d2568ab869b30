//! What a slate says, back into the database: one statement for each kind of change, whatever the
//! number of rows. Rows that are changed are locked, so that nothing here waits but for new records of
//! the same id; those are inserted in the order of ids, so that two batches never wait for each other.

use std::collections::BTreeSet;

use futures_util::future;
use secateur_sql::postgres::Transaction;
use tokio_postgres::types::ToSql;

use crate::UtxoError;
use crate::codec::{self, Page};
use crate::slate::{HoldChange, Row, Slate};

use super::rows::{counted, execute, kind_code};
use super::trip::Trip;

/// Bytes that one statement takes along, about.
const PIECE: usize = 16 << 20;

const INSERT: &str = "insert into utxo_txs (id, spent, conflicting, spending, mined_at, unmined_since, \
    delete_at, preserve_until, blocks, spenders, txid, outputs, coinbase, external, inputs, body) \
    select * from unnest($1::bigint[], $2::integer[], $3::boolean[], $4::boolean[], $5::bigint[], \
    $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bytea[], $11::bytea[], \
    $12::integer[], $13::boolean[], $14::smallint[], $15::bytea[], $16::bytea[])";
const INSERT_PAGES: &str = "insert into utxo_spender_pages (tx, page, spenders) \
    select * from unnest($1::bigint[], $2::integer[], $3::bytea[])";
pub(super) const UPDATE: &str = "update utxo_txs t set spent = v.spent, conflicting = v.conflicting, \
    spending = v.spending, mined_at = v.mined_at, unmined_since = v.unmined_since, \
    delete_at = v.delete_at, preserve_until = v.preserve_until, blocks = v.blocks, \
    spenders = v.spenders \
    from unnest($1::bigint[], $2::integer[], $3::boolean[], $4::boolean[], $5::bigint[], \
    $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bytea[]) \
    v (id, spent, conflicting, spending, mined_at, unmined_since, delete_at, preserve_until, \
    blocks, spenders) where t.id = v.id";
pub(super) const UPDATE_PAGES: &str = "update utxo_spender_pages p set spenders = v.spenders \
    from unnest($1::bigint[], $2::integer[], $3::bytea[]) v (tx, page, spenders) \
    where p.tx = v.tx and p.page = v.page";
pub(super) const REWIRE: &str = "update utxo_txs t set inputs = v.inputs \
    from unnest($1::bigint[], $2::bytea[]) v (id, inputs) where t.id = v.id";
pub(super) const RELEASE: &str = "delete from utxo_holds where child = any($1)";
const HOLD: &str = "insert into utxo_holds (parent, child) \
    select * from unnest($1::bigint[], $2::bigint[]) on conflict do nothing";

/// What of rows can change, a column each.
#[derive(Default)]
struct States<'a> {
    ids: Vec<i64>,
    spent: Vec<i32>,
    conflicting: Vec<bool>,
    spending: Vec<bool>,
    mined_at: Vec<Option<i64>>,
    unmined_since: Vec<Option<i64>>,
    delete_at: Vec<Option<i64>>,
    preserve_until: Vec<Option<i64>>,
    blocks: Vec<Vec<u8>>,
    spenders: Vec<&'a [u8]>,
}

impl<'a> States<'a> {
    fn push(&mut self, row: &'a Row) -> Result<(), UtxoError> {
        self.ids.push(row.id);
        self.spent.push(counted(row.spent)?);
        self.conflicting.push(row.conflicting);
        self.spending.push(row.spending);
        self.mined_at.push(stored(row.mined_at())?);
        self.unmined_since.push(stored(row.unmined_since)?);
        self.delete_at.push(stored(row.delete_at)?);
        self.preserve_until.push(stored(row.preserve_until)?);
        self.blocks.push(codec::encode_blocks(&row.blocks));
        self.spenders.push(row.pages.get(&0).map_or(&[], Page::bytes));
        Ok(())
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 10] {
        [
            &self.ids,
            &self.spent,
            &self.conflicting,
            &self.spending,
            &self.mined_at,
            &self.unmined_since,
            &self.delete_at,
            &self.preserve_until,
            &self.blocks,
            &self.spenders,
        ]
    }
}

/// Rows that are new, a column each.
#[derive(Default)]
struct NewRows<'a> {
    states: States<'a>,
    txids: Vec<&'a [u8]>,
    outputs: Vec<i32>,
    coinbase: Vec<bool>,
    external: Vec<Option<i16>>,
    inputs: Vec<Vec<u8>>,
    bodies: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> NewRows<'a> {
    fn push(&mut self, row: &'a Row, body: &'a [u8]) -> Result<(), UtxoError> {
        let inputs = codec::encode_inputs(&row.inputs);
        self.bytes += body.len() + inputs.len() + row.pages.get(&0).map_or(0, |p| p.bytes().len());
        self.states.push(row)?;
        self.txids.push(row.txid.0.as_slice());
        self.outputs.push(counted(row.outputs)?);
        self.coinbase.push(row.coinbase);
        self.external.push(row.external.map(kind_code));
        self.inputs.push(inputs);
        self.bodies.push(body);
        Ok(())
    }

    /// Inserts what is gathered, and begins anew.
    async fn flush(&mut self, transaction: &Transaction<'_>) -> Result<(), Trip> {
        let rows = std::mem::take(self);
        let own: [&(dyn ToSql + Sync); 6] = [
            &rows.txids,
            &rows.outputs,
            &rows.coinbase,
            &rows.external,
            &rows.inputs,
            &rows.bodies,
        ];
        let params = [rows.states.params().as_slice(), &own].concat();
        execute(transaction, INSERT, rows.txids.len(), &params).await
    }
}

/// Pages beyond the first, a column each.
#[derive(Default)]
struct Pages<'a> {
    ids: Vec<i64>,
    numbers: Vec<i32>,
    spenders: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> Pages<'a> {
    fn push(&mut self, id: i64, page: u32, spenders: &'a Page) -> Result<(), UtxoError> {
        self.bytes += spenders.bytes().len();
        self.ids.push(id);
        self.numbers.push(counted(page)?);
        self.spenders.push(spenders.bytes());
        Ok(())
    }

    async fn flush(&mut self, transaction: &Transaction<'_>, sql: &str) -> Result<(), Trip> {
        let pages = std::mem::take(self);
        execute(transaction, sql, pages.ids.len(), &[&pages.ids, &pages.numbers, &pages.spenders])
            .await
    }
}

fn stored(height: Option<u64>) -> Result<Option<i64>, UtxoError> {
    height.map(codec::stored).transpose()
}

/// Writes what a slate says.
pub(super) async fn store(transaction: &Transaction<'_>, slate: &Slate) -> Result<(), Trip> {
    insert(transaction, slate).await?;
    let mut states = States::default();
    slate.touched().try_for_each(|row| states.push(row))?;
    let mut pages = Pages::default();
    slate.paged().try_for_each(|(id, page, spenders)| pages.push(id, page, spenders))?;
    let (rewired, inputs): (Vec<i64>, Vec<Vec<u8>>) =
        slate.rewired().map(|row| (row.id, codec::encode_inputs(&row.inputs))).unzip();
    let holds = Holds::of(slate.holds());
    // They go out together.
    let (states, pages, rewired, held) = future::join4(
        execute(transaction, UPDATE, states.ids.len(), &states.params()),
        pages.flush(transaction, UPDATE_PAGES),
        execute(transaction, REWIRE, rewired.len(), &[&rewired, &inputs]),
        holds.write(transaction),
    )
    .await;
    states.and(pages).and(rewired).and(held)
}

/// Inserts what was made, as many statements as its bytes ask for.
async fn insert(transaction: &Transaction<'_>, slate: &Slate) -> Result<(), Trip> {
    let mut made: Vec<(&Row, &[u8])> = slate.made().collect();
    if made.is_empty() {
        return Ok(());
    }
    made.sort_by_key(|(row, _)| row.txid);
    let (mut rows, mut pages) = (NewRows::default(), Pages::default());
    for (row, body) in made {
        rows.push(row, body)?;
        if rows.bytes > PIECE {
            rows.flush(transaction).await?;
        }
        for (page, spenders) in row.pages.iter().filter(|(page, _)| **page > 0) {
            pages.push(row.id, *page, spenders)?;
            if pages.bytes > PIECE {
                pages.flush(transaction, INSERT_PAGES).await?;
            }
        }
    }
    rows.flush(transaction).await?;
    pages.flush(transaction, INSERT_PAGES).await
}

/// What is left of changes of holds when one after another is applied.
#[derive(Default)]
struct Holds {
    released: Vec<i64>,
    parents: Vec<i64>,
    children: Vec<i64>,
}

impl Holds {
    fn of(changes: &[HoldChange]) -> Self {
        let (mut released, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match *change {
                HoldChange::Take { parent, child } => {
                    taken.insert((child, parent));
                }
                HoldChange::Release { child } => {
                    released.insert(child);
                    taken.retain(|(by, _)| *by != child);
                }
            }
        }
        let (children, parents) = taken.into_iter().unzip();
        Self { released: released.into_iter().collect(), parents, children }
    }

    async fn write(&self, transaction: &Transaction<'_>) -> Result<(), Trip> {
        execute(transaction, RELEASE, self.released.len(), &[&self.released]).await?;
        execute(transaction, HOLD, self.parents.len(), &[&self.parents, &self.children]).await
    }
}
