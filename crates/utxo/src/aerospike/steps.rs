//! Steps that change records. Each reads, changes a slate, and writes in an order in which every state
//! between two writes is safe and the same step, told again, goes on from there.

use std::collections::HashSet;

use secateur_core::Height;

use crate::UtxoError;
use crate::codec::Input;
use crate::slate::{Row, Slate, unseen};
use crate::store::{Created, Preserved};
use crate::types::{BlockId, BlockRef, NewTx, OutPoint, TxId};

use super::Engine;
use super::bins::{self, Reader};
use super::desk::{Desk, once};
use super::records::{Index, Query, Records};
use super::work::{Tries, Want};

/// Transactions that are created together: the more, the fewer writes; and the more are done again when
/// somebody else comes between.
const GROUP: usize = 128;

fn spends(inputs: &[Input]) -> impl Iterator<Item = OutPoint> + '_ {
    inputs.iter().map(|input| input.spends)
}

impl<R: Records> Engine<R> {
    pub(super) async fn create_all(
        &self,
        txs: &[NewTx],
        height: Height,
    ) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
        let mut created = Vec::with_capacity(txs.len());
        for group in txs.chunks(GROUP) {
            created.extend(self.create_group(group, height).await?);
        }
        Ok(created)
    }

    /// Parents first, with their slots taken and held; then the records themselves.
    async fn create_group(
        &self,
        txs: &[NewTx],
        height: Height,
    ) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
        let txids: Vec<TxId> = once(&txs.iter().map(|tx| tx.txid).collect::<Vec<_>>());
        let (mut tries, mut made) = (Tries::default(), HashSet::new());
        let (mut created, desk) = loop {
            if let Some(mut desk) = self.load(&txids, Want::Inputs).await?
                && self.load_outputs(&mut desk, txs.iter().flat_map(|tx| tx.inputs.clone())).await?
            {
                // After they were looked for: a prune writes it down before the record goes.
                let here = desk.mains.values().map(|main| &main.row);
                let pruned = self.pruned(&unseen(txs, here)).await?;
                let pruned = pruned.into_iter().map(|(txid, _)| txid);
                let mut slate = desk.slate(self.rules, height).knowing(pruned);
                let created: Vec<_> = txs.iter().map(|tx| slate.create(tx, 0)).collect();
                let mut sheet = desk.after(&slate);
                for (row, _) in slate.made().filter(|(row, _)| row.spending) {
                    // One that came with a block holds nothing, even if it tried without one before.
                    sheet.hold(row.txid, &row.inputs, row.blocks.is_empty());
                }
                let levels = sheet.made(&slate)?;
                if self.store(&desk, &sheet, None).await?
                    && self.store_new(levels, &mut made).await?
                {
                    break (created, desk);
                }
            }
            tries.again().await?;
        };
        for (tx, result) in txs.iter().zip(&mut created) {
            match result {
                // Made in an earlier round of this very call.
                Ok(was) if made.remove(&tx.txid) => *was = Created::New,
                Ok(_) => {}
                Err(_) => self.let_go_if_lost(tx, &desk, height).await?,
            }
        }
        Ok(created)
    }

    /// A transaction that is refused gives back what it took, now or before a crash.
    async fn let_go_if_lost(
        &self,
        tx: &NewTx,
        desk: &Desk,
        height: Height,
    ) -> Result<(), UtxoError> {
        let inputs: Vec<Input> =
            tx.inputs.iter().map(|spends| Input { spends: *spends, parent: 0 }).collect();
        if desk.owns(tx.txid, &inputs) {
            self.give_back(tx.txid, &inputs, height).await
        } else {
            Ok(())
        }
    }

    /// Lets every output go that is spent by a transaction which is not here, or does not spend.
    pub(super) async fn give_back(
        &self,
        by: TxId,
        inputs: &[Input],
        height: Height,
    ) -> Result<(), UtxoError> {
        let mut tries = Tries::default();
        loop {
            if let Some(mut desk) = self.load(&[by], Want::Outputs).await?
                && self.load_outputs(&mut desk, spends(inputs)).await?
            {
                let here = desk.mains.remove(&by);
                if here.is_some_and(|main| main.row.spending) || !desk.owns(by, inputs) {
                    return Ok(());
                }
                let mut slate = desk.slate_with(self.rules, height, Some(ghost(by, inputs)));
                slate.unspend(by)?;
                let sheet = desk.after(&slate);
                if self.store(&desk, &sheet, None).await? {
                    return Ok(());
                }
            }
            tries.again().await?;
        }
    }

    /// A step about one transaction and those that it spends: they first, then itself.
    pub(super) async fn with_parents(
        &self,
        txid: TxId,
        height: Height,
        step: impl Fn(&mut Slate) -> Result<(), UtxoError> + Send,
    ) -> Result<(), UtxoError> {
        let (mut tries, mut inputs) = (Tries::default(), Vec::new());
        let spending = loop {
            if let Some(mut desk) = self.load(&[txid], Want::Inputs).await? {
                let known = desk.mains.get(&txid).map(|main| main.row.inputs.clone());
                inputs = known.unwrap_or(inputs);
                if self.load_outputs(&mut desk, spends(&inputs)).await? {
                    let mut slate = desk.slate(self.rules, height);
                    if let Err(error) = step(&mut slate) {
                        self.give_back(txid, &inputs, height).await?;
                        return Err(error);
                    }
                    let mut sheet = desk.after(&slate);
                    let row = slate.row(txid).filter(|row| row.spending);
                    let (spending, waits) = (row.is_some(), row.map(|row| row.blocks.is_empty()));
                    if let Some(waits) = waits {
                        sheet.hold(txid, &inputs, waits);
                    }
                    if self.store(&desk, &sheet, Some(txid)).await? {
                        break spending;
                    }
                }
            }
            tries.again().await?;
        };
        // A step that was cut off may have left it slots that its record knows nothing of.
        if spending { Ok(()) } else { self.give_back(txid, &inputs, height).await }
    }

    /// A step about records by themselves: all are asked before one is written.
    async fn rewrite<T: Send>(
        &self,
        txids: &[TxId],
        height: Height,
        step: impl Fn(&mut Slate) -> Result<T, UtxoError> + Send,
    ) -> Result<(T, Desk, Slate), UtxoError> {
        let (mut tries, txids) = (Tries::default(), once(txids));
        loop {
            if let Some(desk) = self.load(&txids, Want::Outputs).await? {
                let mut slate = desk.slate(self.rules, height);
                let answer = step(&mut slate)?;
                if self.store(&desk, &desk.after(&slate), None).await? {
                    return Ok((answer, desk, slate));
                }
            }
            tries.again().await?;
        }
    }

    /// The records first, then their parents' holds: nothing is let go that still waits.
    pub(super) async fn mine(
        &self,
        txids: &[TxId],
        block: BlockRef,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.rewrite(txids, height, |slate| {
            txids.iter().try_for_each(|txid| slate.set_mined(*txid, block))
        })
        .await?;
        self.hold_parents(txids, |row| row.blocks.is_empty()).await
    }

    /// Their parents' holds first, then the records: nothing waits that is not held.
    pub(super) async fn unmine(
        &self,
        txids: &[TxId],
        block: BlockId,
        height: Height,
    ) -> Result<(), UtxoError> {
        let step =
            |slate: &mut Slate| txids.iter().try_for_each(|txid| slate.unset_mined(*txid, block));
        let desk = self.loaded(&once(txids), Want::Outputs).await?;
        let mut slate = desk.slate(self.rules, height);
        step(&mut slate)?;
        let will_wait =
            |txid: &TxId| slate.row(*txid).is_some_and(|row| row.spending && row.blocks.is_empty());
        let waits: Vec<TxId> = txids.iter().copied().filter(will_wait).collect();
        self.hold_parents(&waits, |_| true).await?;
        let ((), _, slate) = self.rewrite(txids, height, step).await?;
        // Somebody may have put one into another block meanwhile.
        let is_mined = |txid: &TxId| slate.row(*txid).is_some_and(|row| !row.blocks.is_empty());
        let mined: Vec<TxId> = waits.into_iter().filter(is_mined).collect();
        self.hold_parents(&mined, |row| row.blocks.is_empty()).await
    }

    /// Says of each of these whether it holds its parents.
    async fn hold_parents(
        &self,
        children: &[TxId],
        holds: impl Fn(&Row) -> bool + Send + Sync,
    ) -> Result<(), UtxoError> {
        for some in once(children).chunks(GROUP) {
            let mut tries = Tries::default();
            loop {
                if let Some(mut desk) = self.load(some, Want::Inputs).await? {
                    let rows: Vec<Row> = some
                        .iter()
                        .filter_map(|txid| Some(desk.mains.get(txid)?.row.clone()))
                        .collect();
                    let outputs: Vec<OutPoint> =
                        rows.iter().flat_map(|row| spends(&row.inputs)).collect();
                    if self.load_outputs(&mut desk, outputs).await? {
                        let mut sheet = desk.as_read();
                        for row in rows.iter().filter(|row| row.spending) {
                            sheet.hold(row.txid, &row.inputs, holds(row));
                        }
                        if self.store(&desk, &sheet, None).await? {
                            break;
                        }
                    }
                }
                tries.again().await?;
            }
        }
        Ok(())
    }

    pub(super) async fn keep(&self, txids: &[TxId], until: Height) -> Result<Preserved, UtxoError> {
        let (preserved, ..) = self
            .rewrite(txids, 0, |slate| {
                let mut preserved = Preserved::default();
                for txid in txids {
                    if slate.preserve(*txid, until) {
                        preserved.kept += 1;
                    } else {
                        preserved.missing += 1;
                    }
                }
                Ok(preserved)
            })
            .await?;
        Ok(preserved)
    }

    pub(super) async fn expire(&self, height: Height, limit: usize) -> Result<u64, UtxoError> {
        let to = i64::try_from(height).unwrap_or(i64::MAX);
        let query = Query { index: Index::PreserveUntil, to, bins: &[bins::TXID], above: None };
        let (ended, _) = self.records.query(query, None, limit).await?;
        let ended: Vec<TxId> =
            ended.iter().map(|stored| Reader(&stored.fields).txid()).collect::<Result<_, _>>()?;
        self.rewrite(&ended, height, |slate| {
            for txid in &ended {
                slate.expire(*txid);
            }
            Ok(())
        })
        .await?;
        Ok(ended.len() as u64)
    }
}

/// A row in place of a transaction that has none, so that what it took can be let go.
fn ghost(txid: TxId, inputs: &[Input]) -> Row {
    Row {
        id: 0,
        txid,
        outputs: 0,
        spent: 0,
        inputs: inputs.to_vec(),
        pages: std::collections::BTreeMap::new(),
        blocks: Vec::new(),
        unmined_since: None,
        delete_at: None,
        preserve_until: None,
        coinbase: false,
        conflicting: false,
        spending: true,
        external: None,
        cut: false,
    }
}
