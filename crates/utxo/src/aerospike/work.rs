//! Reading records into a desk and writing them back, as often as it takes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::UtxoError;
use crate::codec::{self, place};
use crate::types::{OutPoint, TxId};

use super::Engine;
use super::bins::{self, Main, Reader};
use super::desk::{Desk, Leaf, New, Sheet};
use super::records::{Change, Name, Outcome, Records, Write};

/// How often a step begins again because records changed under it.
const TRIES: u32 = 64;
/// The longest pause before it does.
const PAUSE: Duration = Duration::from_millis(32);

/// How much of a record is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Its outputs and its state.
    Outputs,
    /// Its inputs as well.
    Inputs,
}

/// A step that begins again until nobody comes between its reads and its writes.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// Waits a little, longer each time and not for as long as the others; or gives up.
    pub(super) async fn again(&mut self) -> Result<(), UtxoError> {
        self.0 += 1;
        if self.0 > TRIES {
            return Err(UtxoError::Store {
                reason: format!(
                    "Aerospike: {TRIES} times somebody else changed the same records; what is done of the \
                     step stays, and the same step finishes it"
                ),
                retryable: true,
            });
        }
        let longest = Duration::from_micros(250).saturating_mul(1 << self.0.min(8)).min(PAUSE);
        let micros = u64::try_from(longest.as_micros()).unwrap_or(1).max(1);
        let drawn = RandomState::new().hash_one(self.0) % micros;
        tokio::time::sleep(Duration::from_micros(drawn)).await;
        Ok(())
    }
}

impl<R: Records> Engine<R> {
    /// The records of these transactions; those that are not here are not on the desk. Nothing if one
    /// went while it was read: begin again.
    pub(super) async fn load(&self, txids: &[TxId], want: Want) -> Result<Option<Desk>, UtxoError> {
        let fields = if want == Want::Inputs { bins::WITH_INPUTS } else { bins::STATE };
        let names = txids.iter().map(|txid| Name::Tx(*txid)).collect();
        let mut desk = Desk::default();
        for stored in self.records.read(names, fields).await?.into_iter().flatten() {
            let mut main = bins::decode(stored)?;
            let apart = want == Want::Inputs && main.rest.parts > 0;
            // The parts of one that is cut go after its parents know, so its inputs are of no use then.
            if apart && !self.load_inputs(&mut main).await? && !main.row.cut {
                return Ok(None);
            }
            desk.mains.insert(main.row.txid, main);
        }
        Ok(Some(desk))
    }

    /// The same, begun again until nothing went meanwhile.
    pub(super) async fn loaded(&self, txids: &[TxId], want: Want) -> Result<Desk, UtxoError> {
        let mut tries = Tries::default();
        loop {
            match self.load(txids, want).await? {
                Some(desk) => return Ok(desk),
                None => tries.again().await?,
            }
        }
    }

    /// Takes the inputs out of their parts; not if those are gone.
    async fn load_inputs(&self, main: &mut Main) -> Result<bool, UtxoError> {
        let parts = main.rest.input_parts();
        let Some(mut bytes) = self.parts(main.row.txid, 0..parts).await? else { return Ok(false) };
        bytes.truncate(main.rest.input_bytes);
        main.row.inputs = codec::decode_inputs(&bytes)?;
        Ok(true)
    }

    /// The bytes of parts, one after the other; nothing if one is gone.
    pub(super) async fn parts(
        &self,
        txid: TxId,
        parts: std::ops::Range<u32>,
    ) -> Result<Option<Vec<u8>>, UtxoError> {
        let names = parts.map(|part| Name::Part(txid, part)).collect();
        let mut bytes = Vec::new();
        for part in self.records.read(names, &[bins::BYTES]).await? {
            let Some(part) = part else { return Ok(None) };
            bytes.extend_from_slice(Reader(&part.fields).bytes(bins::BYTES)?.unwrap_or_default());
        }
        Ok(Some(bytes))
    }

    /// Adds the transactions of outputs, with the pages that those are on. Not if one went meanwhile:
    /// begin again.
    pub(super) async fn load_outputs(
        &self,
        desk: &mut Desk,
        outputs: impl IntoIterator<Item = OutPoint>,
    ) -> Result<bool, UtxoError> {
        let outputs: Vec<OutPoint> = outputs.into_iter().collect();
        let missing: BTreeSet<TxId> = outputs.iter().map(|output| output.txid).collect();
        let missing: Vec<TxId> =
            missing.into_iter().filter(|txid| !desk.mains.contains_key(txid)).collect();
        let Some(parents) = self.load(&missing, Want::Outputs).await? else { return Ok(false) };
        desk.mains.extend(parents.mains);
        let mut wanted = BTreeSet::new();
        for output in outputs {
            let (page, _) = place(output.n);
            let row = desk.mains.get(&output.txid).map(|main| &main.row);
            if page > 0 && row.is_some_and(|row| !row.cut && output.n < row.outputs) {
                wanted.insert((output.txid, page));
            }
        }
        self.load_pages(desk, wanted).await
    }

    async fn load_pages(
        &self,
        desk: &mut Desk,
        wanted: BTreeSet<(TxId, u32)>,
    ) -> Result<bool, UtxoError> {
        let wanted: Vec<(TxId, u32)> = wanted.into_iter().collect();
        let names = wanted.iter().map(|(txid, page)| Name::Page(*txid, *page)).collect();
        let found = self.records.read(names, &[bins::SPENDERS, bins::HOLDS]).await?;
        for ((txid, n), stored) in wanted.into_iter().zip(found) {
            let outputs = desk.mains.get(&txid).map_or(0, |main| main.row.outputs);
            let Some(stored) = stored else { return Ok(false) };
            let (page, held) = bins::decode_page(&stored.fields, outputs, n)?;
            desk.leaves.insert((txid, n), Leaf { page, held, generation: stored.generation });
        }
        Ok(true)
    }

    /// Does changes that do not depend on each other; answers whether all of them are done.
    async fn apply(&self, writes: Vec<Write>) -> Result<bool, UtxoError> {
        if writes.is_empty() {
            return Ok(true);
        }
        let outcomes = self.records.write(writes).await?;
        Ok(outcomes.into_iter().all(|outcome| outcome == Outcome::Done))
    }

    /// Writes what was read and is changed: pages, then transactions' records, and `last` after all
    /// others. Answers whether everything is written.
    pub(super) async fn store(
        &self,
        desk: &Desk,
        sheet: &Sheet,
        last: Option<TxId>,
    ) -> Result<bool, UtxoError> {
        let (pages, mains) = desk.writes(sheet)?;
        let is_last = |write: &Write| last.is_some_and(|txid| write.name == Name::Tx(txid));
        let (last, mains) = mains.into_iter().partition(is_last);
        Ok(self.apply(pages).await? && self.apply(mains).await? && self.apply(last).await?)
    }

    /// Writes new transactions, level by level, and notes which ones it made. Answers whether all are
    /// written; if not, somebody made one of them at the same time.
    pub(super) async fn store_new(
        &self,
        levels: Vec<Vec<New>>,
        made: &mut HashSet<TxId>,
    ) -> Result<bool, UtxoError> {
        for level in levels {
            if !self.store_extras(&level).await? {
                return Ok(false);
            }
            let txids: Vec<TxId> = level.iter().map(|new| new.txid).collect();
            let writes = level
                .into_iter()
                .map(|new| Write { name: Name::Tx(new.txid), change: Change::Create(new.fields) });
            let outcomes = self.records.write(writes.collect()).await?;
            let done = |(_, outcome): &(&TxId, &Outcome)| **outcome == Outcome::Done;
            made.extend(txids.iter().zip(&outcomes).filter(done).map(|(txid, _)| *txid));
            if outcomes.iter().any(|outcome| *outcome != Outcome::Done) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the pages and parts of new transactions. Some may be there, from somebody who was cut off
    /// before the record itself: those are written over, as long as the record is still not there.
    async fn store_extras(&self, level: &[New]) -> Result<bool, UtxoError> {
        let extras: HashMap<&Name, &New> = level
            .iter()
            .flat_map(|new| new.extras.iter().map(move |(name, _)| (name, new)))
            .collect();
        let all = level.iter().flat_map(|new| &new.extras);
        let writes: Vec<Write> = all
            .map(|(name, fields)| Write {
                name: name.clone(),
                change: Change::Create(fields.clone()),
            })
            .collect();
        if writes.is_empty() {
            return Ok(true);
        }
        let names: Vec<Name> = writes.iter().map(|write| write.name.clone()).collect();
        let outcomes = self.records.write(writes).await?;
        let left: Vec<Name> = names
            .into_iter()
            .zip(outcomes)
            .filter_map(|(name, outcome)| (outcome != Outcome::Done).then_some(name))
            .collect();
        if left.is_empty() {
            return Ok(true);
        }
        // In this order: what changes after the record came is seen by its generation.
        let there = self.records.read(left.clone(), &[]).await?;
        let owners = left.iter().filter_map(|name| extras.get(name)).map(|new| Name::Tx(new.txid));
        let owners: BTreeSet<Name> = owners.collect();
        let owners = self.records.read(owners.into_iter().collect(), &[bins::TXID]).await?;
        if owners.iter().any(Option::is_some) {
            return Ok(false);
        }
        let over = left.into_iter().zip(there).filter_map(|(name, stored)| {
            let new = extras.get(&name)?;
            let fields = new.extras.iter().find(|(one, _)| *one == name)?.1.clone();
            let change = match stored {
                Some(stored) => {
                    Change::Update { generation: stored.generation, fields, guard: None }
                }
                None => Change::Create(fields),
            };
            Some(Write { name, change })
        });
        self.apply(over.collect()).await
    }
}
