//! The naive model: what the specification says, over a map, in the plainest words. It shares nothing
//! with the product but its types.

use std::collections::{BTreeMap, BTreeSet};

use secateur_core::Height;
use secateur_utxo::{BlockRef, Body, FileKind, NewTx, OutPoint, Record, Slot, TxId, UtxoError};

/// The numbers of a history.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub retention: Height,
    pub maturity: Height,
    pub unmined_retention: Height,
    pub preservation: Height,
}

/// Why a step is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum No {
    Unknown,
    Pruned,
    Different,
    MissingParent,
    MissingOutput,
    DoubleSpend,
    Immature,
    NotNow,
}

/// The same of the product's answer.
pub fn no(error: &UtxoError) -> No {
    match error {
        UtxoError::Unknown { .. } => No::Unknown,
        UtxoError::Pruned { .. } => No::Pruned,
        UtxoError::Different { .. } => No::Different,
        UtxoError::MissingParent { .. } => No::MissingParent,
        UtxoError::MissingOutput { .. } => No::MissingOutput,
        UtxoError::DoubleSpend { .. } => No::DoubleSpend,
        UtxoError::Immature { .. } => No::Immature,
        UtxoError::NotNow { .. } => No::NotNow,
        other => panic!("{other}"),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "as the record has them")]
pub struct Tx {
    pub inputs: Vec<OutPoint>,
    pub slots: Vec<Slot>,
    pub coinbase: bool,
    pub conflicting: bool,
    pub spending: bool,
    pub blocks: Vec<BlockRef>,
    pub unmined_since: Option<Height>,
    pub delete_at: Option<Height>,
    pub preserve_until: Option<Height>,
    pub external: Option<FileKind>,
    pub cut: bool,
}

impl Tx {
    pub fn all_spent(&self) -> bool {
        self.slots.iter().all(|slot| *slot != Slot::Unspent)
    }

    /// Whether no parent names it although something of it was spent.
    pub fn is_nameless(&self) -> bool {
        (self.coinbase || self.conflicting) && self.slots.iter().any(|slot| *slot != Slot::Unspent)
    }

    pub fn is_mined(&self) -> bool {
        !self.blocks.is_empty()
    }
}

impl From<Record> for Tx {
    fn from(record: Record) -> Self {
        Self {
            inputs: record.inputs,
            slots: record.outputs,
            coinbase: record.coinbase,
            conflicting: record.conflicting,
            spending: record.spending,
            blocks: record.blocks,
            unmined_since: record.unmined_since,
            delete_at: record.delete_at_height,
            preserve_until: record.preserve_until,
            external: record.external,
            cut: record.cut,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Model {
    pub numbers: Numbers,
    pub txs: BTreeMap<TxId, Tx>,
    /// What is gone, of which something was spent, and which no parent names.
    pub spent_up: BTreeSet<TxId>,
}

impl Model {
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, txs: BTreeMap::new(), spent_up: BTreeSet::new() }
    }

    fn live(&self, txid: TxId) -> Result<&Tx, No> {
        match self.txs.get(&txid) {
            None => Err(No::Unknown),
            Some(tx) if tx.cut => Err(No::Pruned),
            Some(tx) => Ok(tx),
        }
    }

    fn edit(&mut self, txid: TxId, height: Height, change: impl FnOnce(&mut Tx)) {
        let retention = self.numbers.retention;
        let tx = self.txs.get_mut(&txid).unwrap();
        change(tx);
        if tx.preserve_until.is_none() {
            let reason = tx.conflicting || tx.all_spent() && tx.is_mined();
            tx.delete_at = reason.then(|| tx.delete_at.unwrap_or(height + retention));
        }
    }

    fn can_spend(&self, by: TxId, inputs: &[OutPoint], at: Height) -> Result<(), No> {
        for (n, output) in (0..).zip(inputs) {
            let parent =
                self.txs.get(&output.txid).filter(|tx| !tx.cut).ok_or(No::MissingParent)?;
            let slot = parent.slots.get(output.n as usize).ok_or(No::MissingOutput)?;
            if parent.conflicting {
                return Err(No::NotNow);
            }
            let mined = parent.blocks.iter().map(|block| block.height).max();
            if parent.coinbase && mined.is_none_or(|mined| at < mined + self.numbers.maturity) {
                return Err(No::Immature);
            }
            match slot {
                Slot::Unspent => {}
                Slot::Spent { by: known, input } if (*known, *input) == (by, n) => {}
                Slot::Pruned { by: known, .. } if *known == by => return Err(No::Pruned),
                _ => return Err(No::DoubleSpend),
            }
        }
        Ok(())
    }

    fn knows_as_pruned(&self, output: OutPoint, by: TxId) -> bool {
        let parent = self.txs.get(&output.txid).filter(|tx| !tx.cut);
        let slot = parent.and_then(|parent| parent.slots.get(output.n as usize));
        matches!(slot, Some(Slot::Pruned { by: known, .. }) if *known == by)
    }

    fn take(&mut self, by: TxId, height: Height) {
        for (input, output) in (0..).zip(self.txs[&by].inputs.clone()) {
            self.edit(output.txid, height, |parent| {
                parent.slots[output.n as usize] = Slot::Spent { by, input };
            });
        }
    }

    pub fn create(&mut self, new: &NewTx, height: Height) -> Result<(), No> {
        if self.txs.contains_key(&new.txid) {
            let known = self.live(new.txid)?;
            let same = known.inputs == new.inputs
                && known.slots.len() == new.outputs as usize
                && known.coinbase == new.coinbase;
            return if same { Ok(()) } else { Err(No::Different) };
        }
        if self.spent_up.contains(&new.txid) {
            return Err(No::Pruned);
        }
        if !new.conflicting {
            let at = new.mined.map_or(height, |block| height.max(block.height));
            self.can_spend(new.txid, &new.inputs, at)?;
        } else if new.inputs.iter().any(|output| self.knows_as_pruned(*output, new.txid)) {
            return Err(No::Pruned);
        }
        let tx = Tx {
            inputs: new.inputs.clone(),
            slots: vec![Slot::Unspent; new.outputs as usize],
            coinbase: new.coinbase,
            conflicting: new.conflicting,
            spending: !new.conflicting,
            blocks: new.mined.into_iter().collect(),
            unmined_since: new.mined.is_none().then_some(height),
            delete_at: None,
            preserve_until: None,
            external: match new.body {
                Body::Inline(_) => None,
                Body::External(kind) => Some(kind),
            },
            cut: false,
        };
        self.txs.insert(new.txid, tx);
        self.edit(new.txid, height, |_| {});
        if !new.conflicting {
            self.take(new.txid, height);
        }
        Ok(())
    }

    pub fn spend(&mut self, txid: TxId, height: Height) -> Result<(), No> {
        let tx = self.live(txid)?.clone();
        if tx.spending {
            return Ok(());
        }
        if tx.conflicting {
            return Err(No::NotNow);
        }
        self.can_spend(txid, &tx.inputs, height)?;
        self.edit(txid, height, |tx| tx.spending = true);
        self.take(txid, height);
        Ok(())
    }

    pub fn unspend(&mut self, txid: TxId, height: Height) -> Result<(), No> {
        let tx = self.live(txid)?.clone();
        if !tx.spending {
            return Ok(());
        }
        if tx.is_mined() {
            return Err(No::NotNow);
        }
        for (input, output) in (0..).zip(tx.inputs) {
            let spent = Slot::Spent { by: txid, input };
            let parent = self.txs.get(&output.txid).filter(|parent| !parent.cut);
            if parent.is_some_and(|parent| parent.slots.get(output.n as usize) == Some(&spent)) {
                self.edit(output.txid, height, |parent| {
                    parent.slots[output.n as usize] = Slot::Unspent;
                });
            }
        }
        self.edit(txid, height, |tx| tx.spending = false);
        Ok(())
    }

    pub fn set_conflicting(&mut self, txid: TxId, lost: bool, height: Height) -> Result<(), No> {
        let tx = self.live(txid)?.clone();
        if tx.conflicting == lost {
            return Ok(());
        }
        if lost {
            self.unspend(txid, height)?;
            self.edit(txid, height, |tx| tx.conflicting = true);
            return Ok(());
        }
        self.can_spend(txid, &tx.inputs, height)?;
        self.edit(txid, height, |tx| tx.conflicting = false);
        self.spend(txid, height)
    }

    pub fn set_mined(&mut self, txids: &[TxId], block: BlockRef, height: Height) -> Result<(), No> {
        let mut next = self.clone();
        for txid in txids {
            let tx = next.live(*txid)?;
            if tx.conflicting || !tx.spending {
                return Err(No::NotNow);
            }
            if !tx.blocks.iter().any(|known| known.id == block.id) {
                next.edit(*txid, height, |tx| {
                    tx.blocks.push(block);
                    tx.unmined_since = None;
                });
            }
        }
        *self = next;
        Ok(())
    }

    pub fn unset_mined(
        &mut self,
        txids: &[TxId],
        block: BlockRef,
        height: Height,
    ) -> Result<(), No> {
        let mut next = self.clone();
        for txid in txids {
            if next.live(*txid)?.blocks.iter().any(|known| known.id == block.id) {
                next.edit(*txid, height, |tx| {
                    tx.blocks.retain(|known| known.id != block.id);
                    if tx.blocks.is_empty() {
                        tx.unmined_since = Some(height);
                    }
                });
            }
        }
        *self = next;
        Ok(())
    }

    /// Live unmined transactions that spend it.
    pub fn held_by(&self, txid: TxId) -> BTreeSet<TxId> {
        let holds =
            |tx: &Tx| tx.spending && !tx.is_mined() && tx.inputs.iter().any(|o| o.txid == txid);
        self.txs.iter().filter(|(_, tx)| holds(tx)).map(|(txid, _)| *txid).collect()
    }

    /// A whole run.
    pub fn prune(&mut self, height: Height, safe: Height) {
        let Numbers { unmined_retention, preservation, .. } = self.numbers;
        if let Some(cutoff) = height.checked_sub(unmined_retention) {
            let old = |tx: &&Tx| !tx.cut && tx.unmined_since.is_some_and(|since| since <= cutoff);
            let parents: BTreeSet<TxId> =
                self.txs.values().filter(old).flat_map(|tx| &tx.inputs).map(|o| o.txid).collect();
            for parent in parents {
                if let Some(tx) = self.txs.get_mut(&parent).filter(|tx| !tx.cut) {
                    tx.preserve_until = tx.preserve_until.max(Some(height + preservation));
                    tx.delete_at = None;
                }
            }
        }
        let ended = |tx: &Tx| !tx.cut && tx.preserve_until.is_some_and(|until| until <= height);
        for txid in self.which(ended) {
            self.edit(txid, height, |tx| (tx.preserve_until, tx.delete_at) = (None, None));
        }
        let due = |tx: &Tx| {
            tx.cut || tx.preserve_until.is_none() && tx.delete_at.is_some_and(|at| at <= safe)
        };
        for txid in self.which(due) {
            if self.txs[&txid].cut || self.held_by(txid).is_empty() {
                self.remove(txid);
            }
        }
    }

    fn which(&self, wanted: impl Fn(&Tx) -> bool) -> Vec<TxId> {
        self.txs.iter().filter(|(_, tx)| wanted(tx)).map(|(txid, _)| *txid).collect()
    }

    fn remove(&mut self, txid: TxId) {
        let tx = self.txs.remove(&txid).unwrap();
        if tx.is_nameless() {
            self.spent_up.insert(txid);
        }
        for (input, output) in (0..).zip(tx.inputs) {
            if let Some(parent) = self.txs.get_mut(&output.txid)
                && let Some(slot) = parent.slots.get_mut(output.n as usize)
                && *slot == (Slot::Spent { by: txid, input })
            {
                *slot = Slot::Pruned { by: txid, input };
            }
        }
    }
}
