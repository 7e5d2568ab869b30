//! Records that one attempt at a step has read, what they are to become, and the writes that lie between.
//! Nothing here talks to a cluster.
//!
//! A page of spenders beyond the first is a record of its own, and what its transaction's record says of
//! it (`tally`) is a copy. The page is written first: until the copy follows, fewer outputs count as
//! spent than are, or as many holds stand as did, and either keeps the record. Whoever reads the page
//! next makes the copy right.

use std::collections::{BTreeMap, HashMap, HashSet};

use aerospike::Value;
use secateur_core::Height;

use crate::UtxoError;
use crate::codec::{Input, Page, place};
use crate::rule::{Facts, Rules};
use crate::slate::{Row, Slate};
use crate::types::{Slot, TxId};

use super::bins::{self, Held, Main, Tally};
use super::records::{Change, Fields, Name, Write};

/// A page beyond the first.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) page: Page,
    pub(super) held: Held,
    pub(super) generation: u32,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) mains: HashMap<TxId, Main>,
    pub(super) leaves: HashMap<(TxId, u32), Leaf>,
}

/// What it is to become.
#[derive(Debug)]
pub(super) struct Sheet {
    rows: HashMap<TxId, Row>,
    held: HashMap<(TxId, u32), Held>,
    /// Whether the rule was applied to what the pages say, so that the copies of how much is spent follow.
    fresh: bool,
}

impl Desk {
    /// The rows as they were read, each with the pages that were.
    fn rows(&self) -> HashMap<TxId, Row> {
        let mut rows: HashMap<TxId, Row> =
            self.mains.iter().map(|(txid, main)| (*txid, main.row.clone())).collect();
        for ((txid, page), leaf) in &self.leaves {
            if let Some(row) = rows.get_mut(txid) {
                row.pages.insert(*page, leaf.page.clone());
            }
        }
        rows
    }

    /// A slate of these rows. Where a copy was behind its page, the rule is applied to what the page says.
    pub(super) fn slate(&self, rules: Rules, height: Height) -> Slate {
        self.slate_with(rules, height, None)
    }

    /// The same with one more row.
    pub(super) fn slate_with(&self, rules: Rules, height: Height, more: Option<Row>) -> Slate {
        let mut rows = self.rows();
        for (txid, row) in &mut rows {
            let Some(main) = self.mains.get(txid) else { continue };
            let tally = copies(main, |page| self.leaves.get(&(*txid, page)).map(Leaf::tally));
            if tally == main.tally {
                continue;
            }
            let first = row.pages.get(&0).map_or(0, bins::spent);
            row.spent =
                u32::from(first) + tally.iter().map(|page| u32::from(page.spent)).sum::<u32>();
            let facts = Facts {
                all_spent: row.spent == row.outputs,
                mined: !row.blocks.is_empty(),
                conflicting: row.conflicting,
                preserved: row.preserve_until.is_some(),
                delete_at: row.delete_at,
            };
            row.delete_at = rules.delete_at(facts, height);
        }
        Slate::new(rules, height, rows.into_values().chain(more).collect()).of_pieces()
    }

    /// Everything as a slate has it now.
    pub(super) fn after(&self, slate: &Slate) -> Sheet {
        let known = self.mains.keys().filter_map(|txid| slate.row(*txid));
        let rows = known
            .chain(slate.made().map(|(row, _)| row))
            .map(|row| (row.txid, row.clone()))
            .collect();
        self.sheet(rows, true)
    }

    /// Everything as it was read.
    pub(super) fn as_read(&self) -> Sheet {
        self.sheet(self.rows(), false)
    }

    fn sheet(&self, rows: HashMap<TxId, Row>, fresh: bool) -> Sheet {
        let first = self.mains.iter().map(|(txid, main)| ((*txid, 0), main.held));
        let held = first.chain(self.leaves.iter().map(|(at, leaf)| (*at, leaf.held))).collect();
        Sheet { rows, held, fresh }
    }

    /// Whether a transaction has a slot of what was read.
    pub(super) fn owns(&self, by: TxId, inputs: &[Input]) -> bool {
        (0..).zip(inputs).any(|(n, input)| {
            let (page, at) = place(input.spends.n);
            let txid = input.spends.txid;
            let page = match page {
                0 => self.mains.get(&txid).and_then(|main| main.row.pages.get(&0)),
                page => self.leaves.get(&(txid, page)).map(|leaf| &leaf.page),
            };
            page.and_then(|page| page.get(at)) == Some(Slot::Spent { by, input: n })
        })
    }

    /// The writes of pages, and those of transactions' records.
    pub(super) fn writes(&self, sheet: &Sheet) -> Result<(Vec<Write>, Vec<Write>), UtxoError> {
        let mut pages = Vec::new();
        for ((txid, n), leaf) in &self.leaves {
            let Some(page) = sheet.page(*txid, *n) else { continue };
            let held = sheet.held(*txid, *n, page);
            if *page != leaf.page || held != leaf.held {
                let fields = bins::page_fields(page, held).map(|(bin, value)| (bin.into(), value));
                pages.push(update(Name::Page(*txid, *n), leaf.generation, fields.into()));
            }
        }
        let mut mains = Vec::new();
        for (txid, main) in &self.mains {
            let (Some(row), Some(first)) = (sheet.rows.get(txid), sheet.page(*txid, 0)) else {
                continue;
            };
            let mut tally = copies(main, |n| {
                let page =
                    sheet.page(*txid, n).filter(|_| self.leaves.contains_key(&(*txid, n)))?;
                Some(Tally::of(page, &sheet.held(*txid, n, page)))
            });
            if !sheet.fresh {
                tally.iter_mut().zip(&main.tally).for_each(|(now, copy)| now.spent = copy.spent);
            }
            let held = sheet.held(*txid, 0, first);
            let fields = bins::changed(bins::state(row, held, &tally)?, &main.stored.fields);
            if !fields.is_empty() {
                mains.push(update(Name::Tx(*txid), main.stored.generation, fields));
            }
        }
        Ok((pages, mains))
    }
}

/// What a transaction's record is to say of its pages: of those that are known, what they are.
fn copies(main: &Main, known: impl Fn(u32) -> Option<Tally>) -> Vec<Tally> {
    (1..).zip(&main.tally).map(|(page, copy)| known(page).unwrap_or(*copy)).collect()
}

fn update(name: Name, generation: u32, fields: Fields) -> Write {
    Write { name, change: Change::Update { generation, fields, guard: None } }
}

impl Leaf {
    fn tally(&self) -> Tally {
        Tally::of(&self.page, &self.held)
    }
}

impl Sheet {
    fn page(&self, txid: TxId, page: u32) -> Option<&Page> {
        self.rows.get(&txid)?.pages.get(&page)
    }

    /// The holds of a page that have a reason.
    fn held(&self, txid: TxId, n: u32, page: &Page) -> Held {
        let mut held = self.held.get(&(txid, n)).copied().unwrap_or_default();
        held.trim(page);
        held
    }

    /// Changes every slot that a child has, and whether it holds it.
    fn each_slot(
        &mut self,
        by: TxId,
        first: u32,
        inputs: &[Input],
        mut change: impl FnMut(Slot) -> (Slot, bool),
    ) {
        for (n, input) in (first..).zip(inputs) {
            let (page, at) = place(input.spends.n);
            let txid = input.spends.txid;
            let row = self.rows.get_mut(&txid).filter(|row| !row.cut);
            let Some(slots) = row.and_then(|row| row.pages.get_mut(&page)) else { continue };
            let mine = Slot::Spent { by, input: n };
            if slots.get(at) == Some(mine) {
                let (slot, held) = change(mine);
                slots.set(at, slot);
                self.held.entry((txid, page)).or_default().set(at, held);
            }
        }
    }

    /// Says whether a child holds the outputs that are spent by it.
    pub(super) fn hold(&mut self, by: TxId, inputs: &[Input], held: bool) {
        self.each_slot(by, 0, inputs, |slot| (slot, held));
    }

    /// Says that a child is pruned, from one of its inputs on.
    pub(super) fn tell(&mut self, by: TxId, first: u32, inputs: &[Input]) {
        self.each_slot(by, first, inputs, |slot| match slot {
            Slot::Spent { by, input } => (Slot::Pruned { by, input }, false),
            other => (other, false),
        });
    }

    /// The records of what a slate has made, in levels: nothing spends what is in its own level or a later
    /// one, so that a child is never here without its parent's word of it.
    pub(super) fn made(&self, slate: &Slate) -> Result<Vec<Vec<New>>, UtxoError> {
        let mut depth: HashMap<TxId, usize> = HashMap::new();
        let mut levels: BTreeMap<usize, Vec<New>> = BTreeMap::new();
        for (row, body) in slate.made() {
            let parents = row.inputs.iter().filter_map(|input| depth.get(&input.spends.txid));
            let level = parents.max().map_or(0, |deepest| deepest + 1);
            depth.insert(row.txid, level);
            levels.entry(level).or_default().push(self.new_record(row, body)?);
        }
        Ok(levels.into_values().collect())
    }

    fn new_record(&self, row: &Row, body: &[u8]) -> Result<New, UtxoError> {
        let held = |n: u32, page: &Page| self.held(row.txid, n, page);
        let (mut tally, mut extras) = (Vec::new(), Vec::new());
        for (n, page) in row.pages.iter().filter(|(n, _)| **n > 0) {
            let held = held(*n, page);
            tally.push(Tally::of(page, &held));
            let fields = bins::changed(bins::page_fields(page, held), &Fields::new());
            extras.push((Name::Page(row.txid, *n), fields));
        }
        let first = row.pages.get(&0).map(|page| held(0, page)).unwrap_or_default();
        let (fields, parts) = bins::new(row, body, first, &tally)?;
        extras.extend((0..).zip(parts).map(|(n, bytes)| {
            let fields = [(bins::BYTES.into(), Value::Blob(bytes))];
            (Name::Part(row.txid, n), fields.into())
        }));
        Ok(New { txid: row.txid, fields, extras })
    }
}

/// The records of a new transaction.
#[derive(Debug)]
pub(super) struct New {
    pub(super) txid: TxId,
    pub(super) fields: Fields,
    /// Its pages and parts, which come first.
    pub(super) extras: Vec<(Name, Fields)>,
}

/// Each once, in order.
pub(super) fn once(txids: &[TxId]) -> Vec<TxId> {
    let mut seen = HashSet::with_capacity(txids.len());
    txids.iter().copied().filter(|txid| seen.insert(*txid)).collect()
}
