//! Records that go.
//!
//! Every one is cut first: a single write that looks at it for the last time, by its generation and by a
//! guard on the server, and takes it out of everybody's reach. Then its parents learn, or it is remembered
//! where none names it; its pages and parts go, and last its own record. Whatever is cut off in between is found
//! again: with a file or many inputs as doomed, else among what is due.

use std::collections::HashMap;

use aerospike::Value;

use crate::UtxoError;
use crate::codec::{self, Input, pages};
use crate::slate::Row;
use crate::store::{Doomed, Fate, Kept, Page, Sweep};
use crate::types::TxId;

use super::Engine;
use super::bins::{self, Main, Reader};
use super::desk::{Desk, once};
use super::read::{NUMBER, pruned_name};
use super::records::{Change, Fields, Guard, Index, Name, Outcome, Query, Records, Write};
use super::work::{Tries, Want};

/// Records that are looked at and cut together.
const GROUP: usize = 256;
/// How often a record is looked at again that changes while it is to be deleted.
const LOOKS: usize = 8;
/// Inputs and pages of a record that goes at once; one with more is cut and removed piece by piece.
const LIGHT: usize = 4096;

/// What the last look at a record shows.
enum Look {
    /// It stays, or is gone.
    Ends(Fate<TxId>),
    /// It is cut, and has no file.
    IsCut,
    /// It is to be cut; and removed later if it has a file or is heavy.
    Cut { later: bool },
}

/// Whether no parent names it, and something of it is spent: told again it must not be taken for new.
const fn is_nameless(row: &Row) -> bool {
    (row.coinbase || row.conflicting) && row.spent > 0
}

fn heavy(main: &Main) -> bool {
    main.row.inputs.len() + pages(main.row.outputs) as usize > LIGHT
}

fn look(main: Option<&Main>, sweep: Sweep) -> Look {
    let Some(main) = main else { return Look::Ends(Fate::Gone) };
    let row = &main.row;
    let later = row.external.is_some() || heavy(main);
    let held = u32::from(main.held.count())
        + main.tally.iter().map(|page| u32::from(page.held)).sum::<u32>();
    if row.cut {
        if later { Look::Ends(Fate::Gone) } else { Look::IsCut }
    } else if row.preserve_until.is_some() {
        Look::Ends(Fate::Kept(Kept::Preserved))
    } else if row.delete_at.is_none_or(|at| at > sweep.height) {
        Look::Ends(Fate::Kept(Kept::NotDue))
    } else if held > 0 {
        Look::Ends(Fate::Kept(Kept::Held))
    } else if row.external.is_some() && !sweep.external {
        Look::Ends(Fate::Kept(Kept::FilesMissing))
    } else {
        Look::Cut { later }
    }
}

/// The write that decides.
fn last_write(main: &Main, later: bool, sweep: Sweep) -> Result<Write, UtxoError> {
    let (name, generation) = (Name::Tx(main.row.txid), main.stored.generation);
    let height = codec::stored(sweep.height)?;
    let mut fields = Fields::new();
    fields.insert(bins::CUT.into(), Value::Int(height));
    fields.insert(bins::UNMINED_SINCE.into(), Value::Nil);
    // What goes at once stays among what is due, so that the next run finds it there.
    if later {
        fields.insert(bins::DELETE_AT.into(), Value::Nil);
    }
    let guard = Some(Guard::Due(height));
    Ok(Write { name, change: Change::Update { generation, fields, guard } })
}

impl<R: Records> Engine<R> {
    pub(super) async fn delete_all(
        &self,
        keys: &[TxId],
        sweep: Sweep,
    ) -> Result<Vec<Fate<TxId>>, UtxoError> {
        let mut fates = HashMap::with_capacity(keys.len());
        for group in once(keys).chunks(GROUP) {
            self.delete_group(group, sweep, &mut fates).await?;
        }
        Ok(keys.iter().map(|txid| fates.remove(txid).unwrap_or(Fate::Gone)).collect())
    }

    async fn delete_group(
        &self,
        group: &[TxId],
        sweep: Sweep,
        fates: &mut HashMap<TxId, Fate<TxId>>,
    ) -> Result<(), UtxoError> {
        let (mut left, mut cut) = (group.to_vec(), Vec::new());
        for _ in 0..LOOKS {
            if left.is_empty() {
                break;
            }
            // A record that went while it was read is looked at again.
            let Some(desk) = self.load(&left, Want::Inputs).await? else { continue };
            left = self.decide(&left, desk, sweep, fates, &mut cut).await?;
        }
        // It changes all the time, so it is not what it was when it was listed.
        fates.extend(left.into_iter().map(|txid| (txid, Fate::Kept(Kept::NotDue))));
        let gone: Vec<TxId> = cut.iter().map(|main| main.row.txid).collect();
        self.remove(&cut).await?;
        fates.extend(gone.into_iter().map(|txid| (txid, Fate::Deleted)));
        Ok(())
    }

    /// Looks at records and does what decides about them; answers those that changed meanwhile, and adds
    /// those that are cut and go at once.
    async fn decide(
        &self,
        txids: &[TxId],
        mut desk: Desk,
        sweep: Sweep,
        fates: &mut HashMap<TxId, Fate<TxId>>,
        cut: &mut Vec<Main>,
    ) -> Result<Vec<TxId>, UtxoError> {
        let (mut going, mut writes) = (Vec::new(), Vec::new());
        for txid in txids {
            let main = desk.mains.remove(txid);
            let later = match look(main.as_ref(), sweep) {
                Look::Ends(fate) => {
                    fates.insert(*txid, fate);
                    continue;
                }
                Look::IsCut => {
                    cut.extend(main);
                    continue;
                }
                Look::Cut { later } => later,
            };
            let Some(main) = main else { continue };
            writes.push(last_write(&main, later, sweep)?);
            going.push((main, later));
        }
        let outcomes =
            if writes.is_empty() { Vec::new() } else { self.records.write(writes).await? };
        let mut left = Vec::new();
        for ((main, later), outcome) in going.into_iter().zip(outcomes) {
            let (txid, external) = (main.row.txid, main.row.external);
            match (outcome, later) {
                (Outcome::Done, true) => {
                    fates.insert(txid, Fate::Cut(Box::new(Doomed { key: txid, txid, external })));
                }
                (Outcome::Done, false) => {
                    cut.push(Main { cut_at: Some(sweep.height), ..main });
                }
                (Outcome::Changed, _) => left.push(txid),
                (Outcome::Missing, _) => drop(fates.insert(txid, Fate::Gone)),
            }
        }
        Ok(left)
    }

    /// Removes records that are cut: their parents learn, or they are written down; their pages and parts
    /// go, then they.
    async fn remove(&self, cut: &[Main]) -> Result<(), UtxoError> {
        let spending: Vec<&Main> = cut.iter().filter(|main| main.row.spending).collect();
        let mut pieces: Vec<(TxId, u32, &[Input])> = Vec::new();
        let mut weight = 0;
        for main in spending {
            for (n, piece) in (0_u32..).zip(main.row.inputs.chunks(LIGHT)) {
                let first = n.saturating_mul(u32::try_from(LIGHT).unwrap_or(u32::MAX));
                if weight + piece.len() > LIGHT {
                    self.tell(&std::mem::take(&mut pieces)).await?;
                    weight = 0;
                }
                weight += piece.len();
                pieces.push((main.row.txid, first, piece));
            }
        }
        self.tell(&pieces).await?;
        // One that does not spend has nothing of its parents but what a step left that was cut off.
        for main in cut.iter().filter(|main| !main.row.spending) {
            let height = main.cut_at.unwrap_or(0);
            self.give_back(main.row.txid, &main.row.inputs, height).await?;
        }
        self.remember(cut.iter().filter(|main| is_nameless(&main.row))).await?;
        let extras = cut.iter().flat_map(|main| {
            let txid = main.row.txid;
            let pages = (1..pages(main.row.outputs)).map(move |page| Name::Page(txid, page));
            pages.chain((0..main.rest.parts).map(move |part| Name::Part(txid, part)))
        });
        self.drop_all(extras, None).await?;
        self.drop_all(cut.iter().map(|main| Name::Tx(main.row.txid)), Some(Guard::Cut)).await
    }

    /// Keeps in mind that records are pruned which nothing else would know.
    async fn remember<'a>(
        &self,
        nameless: impl Iterator<Item = &'a Main> + Send,
    ) -> Result<(), UtxoError> {
        let mut writes = Vec::new();
        for main in nameless {
            let at = codec::stored(main.cut_at.unwrap_or(0))?;
            let change = Change::Put([(NUMBER.into(), Value::Int(at))].into());
            writes.push(Write { name: pruned_name(main.row.txid), change });
        }
        if writes.is_empty() { Ok(()) } else { self.records.write(writes).await.map(drop) }
    }

    async fn drop_all(
        &self,
        names: impl Iterator<Item = Name> + Send,
        guard: Option<Guard>,
    ) -> Result<(), UtxoError> {
        let change = Change::Delete { guard };
        let writes: Vec<Write> = names.map(|name| Write { name, change: change.clone() }).collect();
        if writes.is_empty() {
            return Ok(());
        }
        // What is not there any more somebody else removed.
        self.records.write(writes).await.map(drop)
    }

    /// Parents that are still here remember that their spender is pruned.
    async fn tell(&self, pruned: &[(TxId, u32, &[Input])]) -> Result<(), UtxoError> {
        if pruned.is_empty() {
            return Ok(());
        }
        let mut tries = Tries::default();
        loop {
            let mut desk = Desk::default();
            let outputs = pruned.iter().flat_map(|(_, _, inputs)| inputs.iter());
            if self.load_outputs(&mut desk, outputs.map(|input| input.spends)).await? {
                let mut sheet = desk.as_read();
                for (txid, first, inputs) in pruned {
                    sheet.tell(*txid, *first, inputs);
                }
                if self.store(&desk, &sheet, None).await? {
                    return Ok(());
                }
            }
            tries.again().await?;
        }
    }

    /// Removes records that are cut, one after the other.
    pub(super) async fn finish_one(&self, txid: TxId) -> Result<(), UtxoError> {
        let desk = self.loaded(&[txid], Want::Inputs).await?;
        let cut: Vec<Main> = desk.mains.into_values().filter(|main| main.row.cut).collect();
        self.remove(&cut).await
    }

    pub(super) async fn doomed_some(
        &self,
        after: Option<R::Cursor>,
        limit: usize,
    ) -> Result<Page<Doomed<TxId>, R::Cursor>, UtxoError> {
        let bins = &[bins::TXID, bins::EXTERNAL];
        let query = Query { index: Index::Cut, to: i64::MAX, bins, above: None };
        let (found, next) = self.records.query(query, after, limit).await?;
        let mut items = Vec::new();
        for stored in &found {
            let read = Reader(&stored.fields);
            let (txid, file) = (read.txid()?, read.external()?);
            items.push(Doomed { key: txid, txid, external: file });
        }
        Ok(Page { items, next })
    }
}
