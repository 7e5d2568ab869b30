//! What is asked of the records. Nothing here changes one.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use secateur_core::Height;

use crate::UtxoError;
use crate::codec::{self, pages};
use crate::pruner::Job;
use crate::slate::Row;
use crate::store::{Counts, Page, Unmined};
use crate::types::{FileKind, Record, Slot, TxId};

use super::bins::{self, Held, Reader};
use super::records::{Change, Fields, Index, Name, Query, Records, Stored, Write};
use super::work::{Tries, Want};
use super::{Engine, JOBS};

/// Who holds a record, at most: for people.
const HOLDERS: usize = 100;
/// Old unmined transactions that are listed together.
const OLD_AT_ONCE: usize = 64;
/// Pages that are read together.
const PAGES: u32 = 64;
/// Records whose spenders are asked for together.
const GROUP: usize = 256;

/// A height as a bound: one that the store cannot hold is above all that it does.
fn bound(height: Height) -> i64 {
    i64::try_from(height).unwrap_or(i64::MAX)
}

fn note_name(name: &str) -> Name {
    Name::Meta(format!("note/{name}"))
}

/// The name of what is left of a pruned record that nothing else would know.
pub(super) fn pruned_name(txid: TxId) -> Name {
    Name::Meta(format!("pruned/{txid}"))
}

impl<R: Records> Engine<R> {
    /// Those of some ids that are written down as pruned, each with the height of that run.
    pub(super) async fn pruned(&self, txids: &[TxId]) -> Result<Vec<(TxId, Height)>, UtxoError> {
        if txids.is_empty() {
            return Ok(Vec::new());
        }
        let names = txids.iter().copied().map(pruned_name).collect();
        let found = self.records.read(names, &[NUMBER]).await?;
        let remembered = txids.iter().zip(found).filter_map(|(txid, stored)| Some((txid, stored?)));
        let height = |(txid, stored): (&TxId, Stored)| {
            let at = Reader(&stored.fields).int(NUMBER)?;
            let at = at.ok_or_else(|| UtxoError::damaged("a pruned id", "it has no height"))?;
            Ok((*txid, codec::height(at)?))
        };
        remembered.map(height).collect()
    }

    pub(super) async fn record(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        let mut tries = Tries::default();
        loop {
            let desk = self.loaded(&[txid], Want::Inputs).await?;
            let Some(main) = desk.mains.into_values().next() else { return Ok(None) };
            let row = &main.row;
            let slots = self.slots(txid, row.outputs).await?;
            let body = self.body(txid, main.rest).await?;
            let (Some((outputs, held_by)), Some(body)) = (slots, body) else {
                // It is being removed, or was, and somebody made it again.
                if row.cut {
                    return Ok(Some(shown(&main.row, Vec::new(), Vec::new(), Bytes::new())));
                }
                tries.again().await?;
                continue;
            };
            return Ok(Some(shown(row, outputs, held_by, body)));
        }
    }

    /// All slots, and who of them holds; nothing if a page is gone.
    async fn slots(
        &self,
        txid: TxId,
        outputs: u32,
    ) -> Result<Option<(Vec<Slot>, Vec<TxId>)>, UtxoError> {
        let (mut slots, mut holders) = (Vec::new(), Vec::new());
        let mut from = 0;
        while from < pages(outputs) {
            let to = pages(outputs).min(from + PAGES);
            let name = |page| if page == 0 { Name::Tx(txid) } else { Name::Page(txid, page) };
            let names: Vec<Name> = (from..to).map(name).collect();
            let found = self.records.read(names, &[bins::SPENDERS, bins::HOLDS]).await?;
            for (n, stored) in (from..).zip(found) {
                let Some(stored) = stored else { return Ok(None) };
                let (page, mut held) = bins::decode_page(&stored.fields, outputs, n)?;
                held.trim(&page);
                let all = page.all()?;
                holders.extend(holding(&all, held));
                slots.extend(all);
            }
            from = to;
        }
        let mut seen = BTreeSet::new();
        holders.retain(|txid| seen.insert(*txid));
        holders.truncate(HOLDERS);
        Ok(Some((slots, holders)))
    }

    /// The bytes of a transaction; nothing if a part is gone.
    async fn body(&self, txid: TxId, rest: bins::Rest) -> Result<Option<Bytes>, UtxoError> {
        if rest.parts > 0 {
            let Some(bytes) = self.parts(txid, 0..rest.parts).await? else { return Ok(None) };
            let body = bytes.get(rest.input_bytes..).unwrap_or_default();
            return Ok(Some(Bytes::copy_from_slice(body)));
        }
        let found = self.records.read(vec![Name::Tx(txid)], &[bins::BODY]).await?;
        let Some(stored) = found.into_iter().flatten().next() else { return Ok(None) };
        let body = Reader(&stored.fields).bytes(bins::BODY)?.unwrap_or_default();
        Ok(Some(Bytes::copy_from_slice(body)))
    }

    pub(super) async fn old(
        &self,
        cutoff: Height,
        after: Option<R::Cursor>,
        limit: usize,
    ) -> Result<Page<Unmined, R::Cursor>, UtxoError> {
        let wanted = &[bins::TXID, bins::INPUTS, bins::PARTS, bins::INPUT_BYTES];
        let query =
            Query { index: Index::UnminedSince, to: bound(cutoff), bins: wanted, above: None };
        // A page cannot end early, and one transaction may have very many parents.
        let (found, next) = self.records.query(query, after, limit.min(OLD_AT_ONCE)).await?;
        let mut items = Vec::with_capacity(found.len());
        for stored in &found {
            let read = Reader(&stored.fields);
            let (txid, rest) = (read.txid()?, read.rest()?);
            let parents = if rest.parts == 0 {
                codec::decode_inputs(read.bytes(bins::INPUTS)?.unwrap_or_default())?
            } else {
                let desk = self.loaded(&[txid], Want::Inputs).await?;
                desk.mains.into_values().flat_map(|main| main.row.inputs).collect()
            };
            let parents: BTreeSet<TxId> = parents.iter().map(|input| input.spends.txid).collect();
            items.push(Unmined { txid, parents: parents.into_iter().collect() });
        }
        Ok(Page { items, next })
    }

    pub(super) async fn due_some(
        &self,
        height: Height,
        after: Option<R::Cursor>,
        limit: usize,
    ) -> Result<Page<TxId, R::Cursor>, UtxoError> {
        let to = bound(height);
        let query = Query { index: Index::DeleteAt, to, bins: &[bins::TXID], above: None };
        let (found, next) = self.records.query(query, after, limit).await?;
        let items = found.iter().map(|stored| Reader(&stored.fields).txid());
        Ok(Page { items: items.collect::<Result<_, _>>()?, next })
    }

    pub(super) async fn sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
        let bins = &[bins::TXID, bins::EXTERNAL];
        // Every height is above -1.
        let above = Some(not_due.map_or(-1, bound));
        let query = Query { index: Index::External, to: 2, bins, above };
        let (found, _) = self.records.query(query, None, limit).await?;
        let mut sample = Vec::with_capacity(found.len());
        for stored in &found {
            let read = Reader(&stored.fields);
            if let Some(kind) = read.external()? {
                sample.push((read.txid()?, kind));
            }
        }
        Ok(sample)
    }

    pub(super) async fn unsettled(
        &self,
        keys: &[TxId],
        deep: Option<Height>,
        batch: usize,
    ) -> Result<Vec<bool>, UtxoError> {
        let mut unstable = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP) {
            let desk = self.loaded(group, Want::Outputs).await?;
            // What is remembered of spenders is bounded, whatever the fan-out is.
            let mut settled = HashMap::new();
            let mut first = BTreeSet::new();
            for page in desk.mains.values().filter_map(|main| main.row.pages.get(&0)) {
                first.extend(spenders(page)?);
            }
            self.ask(&first, deep, batch, &mut settled).await?;
            for txid in group {
                let row = desk.mains.get(txid).map(|main| &main.row);
                unstable.push(match row {
                    Some(row) => self.is_unsettled(row, deep, batch, &mut settled).await?,
                    None => false,
                });
            }
        }
        Ok(unstable)
    }

    /// Whether a record has a spender that is not settled, page by page.
    async fn is_unsettled(
        &self,
        row: &Row,
        deep: Option<Height>,
        batch: usize,
        settled: &mut HashMap<TxId, bool>,
    ) -> Result<bool, UtxoError> {
        for n in 0..pages(row.outputs) {
            let spenders = if let Some(first) = row.pages.get(&n) {
                spenders(first)?
            } else {
                if settled.len() > batch {
                    settled.clear();
                }
                let names = vec![Name::Page(row.txid, n)];
                let found = self.records.read(names, &[bins::SPENDERS]).await?;
                // It is being removed; whoever deletes looks again.
                let Some(stored) = found.into_iter().flatten().next() else { return Ok(false) };
                spenders(&bins::decode_page(&stored.fields, row.outputs, n)?.0)?
            };
            self.ask(&spenders, deep, batch, settled).await?;
            if spenders.iter().any(|by| !settled.get(by).copied().unwrap_or(false)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds out about spenders that are not known yet, so many at a time.
    async fn ask(
        &self,
        spenders: &BTreeSet<TxId>,
        deep: Option<Height>,
        batch: usize,
        settled: &mut HashMap<TxId, bool>,
    ) -> Result<(), UtxoError> {
        let unknown: Vec<TxId> =
            spenders.iter().copied().filter(|by| !settled.contains_key(by)).collect();
        for some in unknown.chunks(batch.max(1)) {
            let names = some.iter().map(|by| Name::Tx(*by)).collect();
            let found = self.records.read(names, &[bins::MINED_AT, bins::CUT]).await?;
            for (by, stored) in some.iter().zip(found) {
                let is_deep = match stored {
                    None => false,
                    Some(stored) => {
                        let read = Reader(&stored.fields);
                        let mined = read.height(bins::MINED_AT)?;
                        read.int(bins::CUT)?.is_none() && mined.is_some_and(|at| Some(at) <= deep)
                    }
                };
                settled.insert(*by, is_deep);
            }
        }
        Ok(())
    }

    pub(super) async fn count_all(&self, height: Height) -> Result<Counts, UtxoError> {
        let usage = self.records.usage().await?;
        let due = self.records.count(Index::DeleteAt, bound(height)).await?;
        // One that goes at once keeps its date when it is cut, so that the next run finds what a crash left.
        let both = self.records.cut_and_due(bound(height)).await?;
        Ok(Counts {
            records: usage.records,
            unmined: self.records.count(Index::UnminedSince, i64::MAX).await?,
            due: due.saturating_sub(both),
            preserved: self.records.count(Index::PreserveUntil, i64::MAX).await?,
            cut: self.records.count(Index::Cut, i64::MAX).await?,
            size_bytes: usage.bytes,
            // What a cluster has free belongs to the namespace, not to this store.
            free_bytes: None,
        })
    }

    pub(super) async fn read_note(&self, name: &str) -> Result<Option<String>, UtxoError> {
        let names = vec![note_name(name)];
        let found = self.records.read(names, &[VALUE]).await?;
        let Some(stored) = found.into_iter().flatten().next() else { return Ok(None) };
        Ok(Reader(&stored.fields).text(VALUE)?.map(str::to_owned))
    }

    pub(super) async fn write_note(&self, name: &str, value: &str) -> Result<(), UtxoError> {
        let fields = [(VALUE.into(), value.into())].into();
        let name = note_name(name);
        self.records.write(vec![Write { name, change: Change::Put(fields) }]).await.map(drop)
    }

    /// Of two who make the same note one does.
    pub(super) async fn make_note(&self, name: &str, value: &str) -> Result<String, UtxoError> {
        let fields: Fields = [(VALUE.into(), value.into())].into();
        let mut tries = Tries::default();
        loop {
            let change = Change::Create(fields.clone());
            self.records.write(vec![Write { name: note_name(name), change }]).await?;
            if let Some(kept) = self.read_note(name).await? {
                return Ok(kept);
            }
            tries.again().await?;
        }
    }

    /// A ring: a job takes the place of the one that came so many before it.
    pub(super) async fn push_job(&self, job: &Job) -> Result<(), UtxoError> {
        let text =
            serde_json::to_string(job).map_err(|error| UtxoError::store(error.to_string()))?;
        let number = self.records.raise(Name::Meta("jobs".into())).await?;
        let fields = [(VALUE.into(), text.into()), (NUMBER.into(), number.into())].into();
        let name = Name::Meta(format!("job/{}", number.rem_euclid(i64::from(JOBS))));
        self.records.write(vec![Write { name, change: Change::Put(fields) }]).await.map(drop)
    }

    pub(super) async fn all_jobs(&self) -> Result<Vec<Job>, UtxoError> {
        let names = (0..JOBS).map(|n| Name::Meta(format!("job/{n}"))).collect();
        let mut jobs = Vec::new();
        for stored in self.records.read(names, &[VALUE, NUMBER]).await?.into_iter().flatten() {
            let read = Reader(&stored.fields);
            let job = serde_json::from_str(read.text(VALUE)?.unwrap_or_default());
            let job = job.map_err(|error| UtxoError::damaged("a job", error.to_string()))?;
            jobs.push((read.int(NUMBER)?, job));
        }
        jobs.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }
}

/// The fields of notes and jobs.
pub(super) const VALUE: &str = "value";
pub(super) const NUMBER: &str = "number";

/// Whose records are here of those that spend outputs of a page: a spender that is pruned was settled
/// before, and a coin has none.
fn spenders(page: &codec::Page) -> Result<BTreeSet<TxId>, UtxoError> {
    let here = page.all()?.into_iter().filter_map(|slot| match slot {
        Slot::Spent { by, .. } => Some(by),
        Slot::Unspent | Slot::Pruned { .. } => None,
    });
    Ok(here.collect())
}

fn shown(row: &Row, outputs: Vec<Slot>, held_by: Vec<TxId>, body: Bytes) -> Record {
    Record {
        txid: row.txid,
        inputs: row.inputs.iter().map(|input| input.spends).collect(),
        outputs,
        coinbase: row.coinbase,
        conflicting: row.conflicting,
        spending: row.spending,
        blocks: row.blocks.clone(),
        unmined_since: row.unmined_since,
        delete_at_height: row.delete_at,
        preserve_until: row.preserve_until,
        external: row.external,
        cut: row.cut,
        body,
        held_by,
    }
}

fn holding(slots: &[Slot], held: Held) -> Vec<TxId> {
    let held = (0..).zip(slots).filter(|(at, _)| held.get(*at));
    held.filter_map(|(_, slot)| slot.spender().map(|(by, _)| by)).collect()
}
