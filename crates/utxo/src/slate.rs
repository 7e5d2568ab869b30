//! What one operation touches: rows that a backend has loaded and locked, changed here by rules that
//! are the same for every backend, then written back by it.
//!
//! What lives here: every change of a record but its deletion. What deliberately does not: SQL, and
//! where rows come from. A step checks everything before it changes anything, so that a step that
//! fails leaves the slate as it was and the rest of a batch can go on.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use secateur_core::Height;

use crate::UtxoError;
use crate::codec::{Input, MAX_BLOCKS, Page, pages, place};
use crate::rule::Rules;
use crate::store::Created;
use crate::types::{BlockId, BlockRef, Body, NewTx, OutPoint, Slot, TxId};

pub(crate) use crate::row::{HoldChange, Row};

/// The rows of one operation.
#[derive(Debug)]
pub(crate) struct Slate {
    rules: Rules,
    height: Height,
    rows: HashMap<TxId, Row>,
    /// New rows, in the order in which they were made, each with the bytes that it was told with.
    made: Vec<(TxId, Bytes)>,
    fresh: HashSet<TxId>,
    /// Rows that were there and are changed.
    touched: BTreeSet<TxId>,
    /// Pages beyond the first that are changed.
    paged: BTreeSet<(TxId, u32)>,
    /// Rows whose parents were found under other rows than when they were made.
    rewired: BTreeSet<TxId>,
    holds: Vec<HoldChange>,
    /// Ids that are written down as pruned, of those that this operation is about.
    pruned: HashSet<TxId>,
    /// Whether a step that failed may have done a part of itself.
    pieces: bool,
}

/// Those of some transactions that are not among rows. Whether one of them was pruned that no parent names is asked
/// by whoever makes it, and told to the slate ([`Slate::knowing`]).
pub(crate) fn unseen<'a>(txs: &[NewTx], rows: impl IntoIterator<Item = &'a Row>) -> Vec<TxId> {
    let here: HashSet<TxId> = rows.into_iter().map(|row| row.txid).collect();
    let told: BTreeSet<TxId> = txs.iter().map(|tx| tx.txid).collect();
    told.into_iter().filter(|txid| !here.contains(txid)).collect()
}

impl Slate {
    /// Takes the rows that were found.
    pub(crate) fn new(rules: Rules, height: Height, rows: Vec<Row>) -> Self {
        Self {
            rules,
            height,
            rows: rows.into_iter().map(|row| (row.txid, row)).collect(),
            made: Vec::new(),
            fresh: HashSet::new(),
            touched: BTreeSet::new(),
            paged: BTreeSet::new(),
            rewired: BTreeSet::new(),
            holds: Vec::new(),
            pruned: HashSet::new(),
            pieces: false,
        }
    }

    /// With what the store remembers of pruned records.
    pub(crate) fn knowing(mut self, pruned: impl IntoIterator<Item = TxId>) -> Self {
        self.pruned.extend(pruned);
        self
    }

    /// For a store that changes one record at a time: an output may be spent by a transaction whose
    /// record is yet to be made.
    #[cfg(feature = "aerospike")]
    pub(crate) fn of_pieces(mut self) -> Self {
        self.pieces = true;
        self
    }

    /// A row as it is now.
    #[cfg(feature = "aerospike")]
    pub(crate) fn row(&self, txid: TxId) -> Option<&Row> {
        self.rows.get(&txid)
    }

    /// The rows that were made, in order, each with the bytes that go into its record.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&Row, &[u8])> {
        self.made.iter().filter_map(|(txid, body)| Some((self.rows.get(txid)?, body.as_ref())))
    }

    /// The rows that were changed.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &Row> {
        self.touched.iter().filter_map(|txid| self.rows.get(txid))
    }

    /// The changed pages beyond the first of rows that were there.
    pub(crate) fn paged(&self) -> impl Iterator<Item = (i64, u32, &Page)> {
        self.paged.iter().filter_map(|(txid, page)| {
            let row = self.rows.get(txid)?;
            Some((row.id, *page, row.pages.get(page)?))
        })
    }

    /// The rows whose inputs have to be written again.
    pub(crate) fn rewired(&self) -> impl Iterator<Item = &Row> {
        self.rewired.iter().filter_map(|txid| self.rows.get(txid))
    }

    /// What became of holds, in order.
    pub(crate) fn holds(&self) -> &[HoldChange] {
        &self.holds
    }

    fn touch(&mut self, txid: TxId) {
        if !self.fresh.contains(&txid) {
            self.touched.insert(txid);
        }
    }

    /// Applies the rule to a row that changed.
    fn settle(&mut self, txid: TxId) {
        let (rules, height) = (self.rules, self.height);
        if let Some(row) = self.rows.get_mut(&txid) {
            row.delete_at = rules.delete_at(row.facts(), height);
        }
        self.touch(txid);
    }

    /// A row that is here and not cut.
    fn live(&self, txid: TxId) -> Result<&Row, UtxoError> {
        match self.rows.get(&txid) {
            None => Err(UtxoError::Unknown { txid }),
            Some(row) if row.cut => Err(UtxoError::Pruned { txid }),
            Some(row) => Ok(row),
        }
    }

    /// Makes a record, and spends its inputs unless it lost.
    pub(crate) fn create(&mut self, tx: &NewTx, id: i64) -> Result<Created, UtxoError> {
        tx.check()?;
        if self.rows.contains_key(&tx.txid) {
            return self.compare(tx);
        }
        if self.pruned.contains(&tx.txid) {
            return Err(UtxoError::Pruned { txid: tx.txid });
        }
        let spending = !tx.conflicting;
        let inputs = self.wire(tx.inputs.iter().copied());
        if spending {
            let at = tx.mined.map_or(self.height, |block| self.height.max(block.height));
            self.check_inputs(tx.txid, &inputs, at)?;
        } else if inputs.iter().any(|input| self.is_named_by(input.spends, tx.txid)) {
            // A loser asks for nothing, but what was here, won and is pruned comes back as no loser either.
            return Err(UtxoError::Pruned { txid: tx.txid });
        }
        let (external, body) = match &tx.body {
            Body::Inline(body) => (None, body.clone()),
            Body::External(kind) => (Some(*kind), Bytes::new()),
        };
        let row = Row {
            id,
            txid: tx.txid,
            outputs: tx.outputs,
            spent: 0,
            pages: (0..pages(tx.outputs))
                .map(|page| (page, Page::unspent(tx.outputs, page)))
                .collect(),
            blocks: tx.mined.into_iter().collect(),
            unmined_since: tx.mined.is_none().then_some(self.height),
            delete_at: None,
            preserve_until: None,
            coinbase: tx.coinbase,
            conflicting: tx.conflicting,
            spending,
            external,
            cut: false,
            inputs,
        };
        let inputs = row.inputs.clone();
        self.rows.insert(tx.txid, row);
        self.made.push((tx.txid, body));
        self.fresh.insert(tx.txid);
        self.settle(tx.txid);
        if spending {
            self.take_inputs(tx.txid, id, &inputs, tx.mined.is_none());
        }
        Ok(Created::New)
    }

    /// Whether an output says that it is spent by a transaction which is not here: that was pruned. In a store of
    /// pieces only a mark says so.
    fn is_named_by(&self, output: OutPoint, by: TxId) -> bool {
        match self.slot(output) {
            Some(Slot::Spent { by: spender, .. }) => spender == by && !self.pieces,
            Some(Slot::Pruned { by: spender, .. }) => spender == by,
            Some(Slot::Unspent) | None => false,
        }
    }

    /// Inputs with the rows that their parents have now; 0 where there is none.
    fn wire(&self, spends: impl Iterator<Item = OutPoint>) -> Vec<Input> {
        let parent = |output: OutPoint| self.rows.get(&output.txid).map_or(0, |row| row.id);
        spends.map(|spends| Input { spends, parent: parent(spends) }).collect()
    }

    /// A record of this id is here: is it this one?
    fn compare(&self, tx: &NewTx) -> Result<Created, UtxoError> {
        let row = self.live(tx.txid)?;
        let same = row.outputs == tx.outputs
            && row.coinbase == tx.coinbase
            && row.inputs.iter().map(|input| input.spends).eq(tx.inputs.iter().copied());
        if same {
            Ok(Created::WasThere { external: row.external })
        } else {
            Err(UtxoError::Different { txid: tx.txid })
        }
    }

    /// Whether a transaction can spend all of these at a height.
    fn check_inputs(&self, by: TxId, inputs: &[Input], at: Height) -> Result<(), UtxoError> {
        for (n, Input { spends: output, .. }) in (0..).zip(inputs) {
            let output = *output;
            let Some(parent) = self.rows.get(&output.txid) else {
                return Err(UtxoError::MissingParent { output, by });
            };
            if parent.cut {
                return Err(UtxoError::MissingParent { output, by });
            }
            if output.n >= parent.outputs {
                return Err(UtxoError::MissingOutput { output, by, outputs: parent.outputs });
            }
            if parent.conflicting {
                return Err(UtxoError::NotNow {
                    txid: by,
                    state: "spends a transaction that lost a double spend",
                    advice: "Create it as conflicting",
                });
            }
            let ripe_at = parent.mined_at().map(|mined| self.rules.ripe_at(mined));
            if parent.coinbase && ripe_at.is_none_or(|ripe| at < ripe) {
                return Err(UtxoError::Immature { output, by, ripe_at });
            }
            let (page, place) = place(output.n);
            let slot = parent.pages.get(&page).and_then(|page| page.get(place));
            match slot {
                Some(Slot::Unspent) => {}
                Some(Slot::Spent { by: spender, input })
                    if (spender, input) == (by, n)
                        && (self.pieces || self.rows.contains_key(&by)) => {}
                // The parent remembers: this very transaction was here, and is pruned.
                Some(Slot::Spent { by: spender, .. } | Slot::Pruned { by: spender, .. })
                    if spender == by =>
                {
                    return Err(UtxoError::Pruned { txid: by });
                }
                Some(Slot::Spent { by: spender, .. } | Slot::Pruned { by: spender, .. }) => {
                    return Err(UtxoError::DoubleSpend { output, by, spender });
                }
                None => {
                    return Err(UtxoError::damaged(
                        output.to_string(),
                        "its page of spenders is missing",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Spends what was checked, and holds the parents of what no block holds.
    fn take_inputs(&mut self, by: TxId, child: i64, inputs: &[Input], hold: bool) {
        for (n, input) in (0..).zip(inputs) {
            self.write_slot(input.spends, Slot::Spent { by, input: n });
        }
        if hold {
            self.hold_parents(child, inputs);
        }
    }

    fn hold_parents(&mut self, child: i64, inputs: &[Input]) {
        let parents: BTreeSet<i64> = inputs.iter().map(|input| input.parent).collect();
        self.holds.extend(parents.into_iter().map(|parent| HoldChange::Take { parent, child }));
    }

    fn write_slot(&mut self, output: OutPoint, slot: Slot) {
        let (page, at) = place(output.n);
        let Some(row) = self.rows.get_mut(&output.txid) else { return };
        let Some(slots) = row.pages.get_mut(&page) else { return };
        let before = slots.get(at);
        if before == Some(slot) {
            return;
        }
        slots.set(at, slot);
        let was_coin = before == Some(Slot::Unspent);
        match (was_coin, slot == Slot::Unspent) {
            (true, false) => row.spent = row.spent.saturating_add(1),
            (false, true) => row.spent = row.spent.saturating_sub(1),
            _ => {}
        }
        if page > 0 && !self.fresh.contains(&output.txid) {
            self.paged.insert((output.txid, page));
        }
        self.settle(output.txid);
    }

    /// Spends the inputs of a record that let them go.
    pub(crate) fn spend(&mut self, txid: TxId) -> Result<(), UtxoError> {
        let row = self.live(txid)?;
        if row.spending {
            return Ok(());
        }
        if row.conflicting {
            return Err(row.not_now("lost a double spend", "Set it not conflicting instead"));
        }
        let (id, unmined) = (row.id, row.blocks.is_empty());
        let inputs = self.wire(row.inputs.iter().map(|input| input.spends));
        self.check_inputs(txid, &inputs, self.height)?;
        if let Some(row) = self.rows.get_mut(&txid) {
            row.spending = true;
            if row.inputs != inputs {
                row.inputs.clone_from(&inputs);
                self.rewired.insert(txid);
            }
        }
        self.take_inputs(txid, id, &inputs, unmined);
        self.settle(txid);
        Ok(())
    }

    /// Lets the inputs of an unmined record go. Parents that are pruned meanwhile stay so.
    pub(crate) fn unspend(&mut self, txid: TxId) -> Result<(), UtxoError> {
        let row = self.live(txid)?;
        if !row.spending {
            return Ok(());
        }
        if !row.blocks.is_empty() {
            return Err(row.not_now("is in a block", "Unset the block first"));
        }
        let (id, inputs) = (row.id, row.inputs.clone());
        for (n, input) in (0..).zip(&inputs) {
            if self.slot(input.spends) == Some(Slot::Spent { by: txid, input: n }) {
                self.write_slot(input.spends, Slot::Unspent);
            }
        }
        self.holds.push(HoldChange::Release { child: id });
        if let Some(row) = self.rows.get_mut(&txid) {
            row.spending = false;
        }
        self.settle(txid);
        Ok(())
    }

    fn slot(&self, output: OutPoint) -> Option<Slot> {
        let (page, at) = place(output.n);
        let row = self.rows.get(&output.txid).filter(|row| !row.cut)?;
        row.pages.get(&page)?.get(at)
    }

    /// Says of an unmined record that it lost a double spend, or that it did not after all.
    pub(crate) fn set_conflicting(
        &mut self,
        txid: TxId,
        conflicting: bool,
    ) -> Result<(), UtxoError> {
        let row = self.live(txid)?;
        if row.conflicting == conflicting {
            return Ok(());
        }
        if conflicting {
            self.unspend(txid)?;
            self.mark_conflicting(txid, true);
            return Ok(());
        }
        // Asked before anything is changed: a refused step must not restart its clock.
        self.check_inputs(txid, &row.inputs, self.height)?;
        self.mark_conflicting(txid, false);
        self.spend(txid)
    }

    fn mark_conflicting(&mut self, txid: TxId, conflicting: bool) {
        if let Some(row) = self.rows.get_mut(&txid) {
            row.conflicting = conflicting;
        }
        self.settle(txid);
    }

    /// Puts a record into a block of the main chain.
    pub(crate) fn set_mined(&mut self, txid: TxId, block: BlockRef) -> Result<(), UtxoError> {
        let row = self.live(txid)?;
        if row.conflicting {
            return Err(row.not_now("lost a double spend", "Set it not conflicting first"));
        }
        if !row.spending {
            return Err(row.not_now("does not spend its inputs", "Spend them first"));
        }
        let id = row.id;
        match row.blocks.iter().find(|known| known.id == block.id) {
            Some(known) if known.height == block.height => return Ok(()),
            Some(_) => {
                return Err(row.not_now(
                    "is in this block at another height",
                    "Check who computed the height, and unset the block if the first one was wrong",
                ));
            }
            None => {}
        }
        if row.blocks.len() >= MAX_BLOCKS {
            return Err(row.not_now("is in too many blocks", "Unset those that left the chain"));
        }
        if let Some(row) = self.rows.get_mut(&txid) {
            row.blocks.push(block);
            row.unmined_since = None;
        }
        self.holds.push(HoldChange::Release { child: id });
        self.settle(txid);
        Ok(())
    }

    /// Takes a record out of a block that left the main chain. Out of its last one it waits again,
    /// from this height on, and holds its parents.
    pub(crate) fn unset_mined(&mut self, txid: TxId, block: BlockId) -> Result<(), UtxoError> {
        let row = self.live(txid)?;
        if !row.blocks.iter().any(|known| known.id == block) {
            return Ok(());
        }
        let (id, inputs) = (row.id, row.inputs.clone());
        let height = self.height;
        let mut holds = false;
        if let Some(row) = self.rows.get_mut(&txid) {
            row.blocks.retain(|known| known.id != block);
            if row.blocks.is_empty() {
                row.unmined_since = Some(height);
                holds = row.spending;
            }
        }
        if holds {
            self.hold_parents(id, &inputs);
        }
        self.settle(txid);
        Ok(())
    }

    /// Keeps a record at least until a height; answers whether it is here.
    pub(crate) fn preserve(&mut self, txid: TxId, until: Height) -> bool {
        let Some(row) = self.rows.get_mut(&txid).filter(|row| !row.cut) else { return false };
        row.preserve_until = Some(row.preserve_until.map_or(until, |old| old.max(until)));
        row.delete_at = None;
        self.touch(txid);
        true
    }

    /// Ends a preservation whose height is reached: what follows is what the rule says, no more.
    pub(crate) fn expire(&mut self, txid: TxId) {
        let height = self.height;
        let Some(row) = self.rows.get_mut(&txid) else { return };
        if row.cut || row.preserve_until.is_none_or(|until| until > height) {
            return;
        }
        row.preserve_until = None;
        row.delete_at = None;
        self.settle(txid);
    }
}
