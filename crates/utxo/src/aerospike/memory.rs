//! Records in a map, which fail when they are told to. This is no Aerospike server and shows nothing about
//! one: it shows what our own order of writes is worth when any of them is the last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aerospike::Value;
use parking_lot::Mutex;

use crate::UtxoError;
use crate::store::{Room, RoomLook};

use super::bins::{self, Reader};
use super::read;
use super::records::{
    Change, Fields, Guard, Index, Name, Outcome, Query, Records, Stored, Usage, Write,
};

/// The largest record that servers take unless they are told otherwise.
const LARGEST: usize = 1 << 20;
/// The longest name of a field.
const LONGEST: usize = 15;

/// What goes wrong with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is not done, and everything after it neither.
    Before,
    /// It is done, and its answer is lost.
    After,
    /// Somebody else came first.
    Late,
}

type Hook = Box<dyn FnMut(&Write) -> Option<Trouble> + Send>;

#[derive(Clone)]
pub(super) struct Memory {
    records: Arc<Mutex<BTreeMap<Name, Stored>>>,
    hook: Arc<Mutex<Hook>>,
    /// What it says of its room; one that is full refuses all writes but deletions.
    pub(super) room: Arc<Mutex<Room>>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    pub(super) fn new(hook: impl FnMut(&Write) -> Option<Trouble> + Send + 'static) -> Self {
        let hook: Arc<Mutex<Hook>> = Arc::new(Mutex::new(Box::new(hook)));
        Self { records: Arc::default(), hook, room: Arc::default() }
    }

    /// Everything that is there.
    pub(super) fn all(&self) -> BTreeMap<Name, Stored> {
        self.records.lock().clone()
    }

    fn one(&self, write: Write) -> Outcome {
        let mut records = self.records.lock();
        let stored = records.get(&write.name);
        let generation = stored.map_or(0, |stored| stored.generation);
        let (fields, expected, guard) = match write.change {
            Change::Create(_) if stored.is_some() => return Outcome::Changed,
            Change::Create(fields) | Change::Put(fields) => (Some(fields), None, None),
            Change::Update { generation, fields, guard } => (Some(fields), Some(generation), guard),
            Change::Delete { guard } => (None, None, guard),
        };
        let must_be = expected.is_some() || guard.is_some() || fields.is_none();
        match stored {
            None if must_be => return Outcome::Missing,
            Some(stored) if guard.is_some_and(|guard| !holds(guard, &stored.fields)) => {
                return Outcome::Changed;
            }
            _ if expected.is_some_and(|expected| expected != generation) => {
                return Outcome::Changed;
            }
            _ => {}
        }
        let Some(fields) = fields else {
            records.remove(&write.name);
            return Outcome::Done;
        };
        let empty = || Stored { fields: Fields::new(), generation: 0 };
        let stored = records.entry(write.name).or_insert_with(empty);
        stored.generation += 1;
        for (bin, value) in fields {
            assert!(bin.len() <= LONGEST, "{bin}");
            if value == Value::Nil {
                stored.fields.shift_remove(&bin);
            } else {
                stored.fields.insert(bin, value);
            }
        }
        assert!(size(&stored.fields) <= LARGEST, "a record is larger than servers take");
        Outcome::Done
    }
}

fn size(fields: &Fields) -> usize {
    let bytes = fields.values().map(|value| match value {
        Value::Blob(bytes) => bytes.len(),
        Value::String(text) => text.len(),
        _ => 8,
    });
    bytes.sum()
}

fn holds(guard: Guard, fields: &Fields) -> bool {
    let int = |bin| Reader(fields).int(bin).unwrap();
    match guard {
        Guard::Due(height) => {
            int(bins::DELETE_AT).is_some_and(|at| at <= height)
                && int(bins::PRESERVE_UNTIL).is_none()
                && int(bins::HELD) == Some(0)
                && int(bins::CUT).is_none()
        }
        Guard::Cut => int(bins::CUT).is_some(),
    }
}

impl Records for Memory {
    type Cursor = Name;

    fn address(&self) -> String {
        "memory".into()
    }

    async fn read(
        &self,
        names: Vec<Name>,
        bins: &'static [&'static str],
    ) -> Result<Vec<Option<Stored>>, UtxoError> {
        tokio::task::yield_now().await;
        let records = self.records.lock();
        let found = names.iter().map(|name| {
            let mut stored = records.get(name)?.clone();
            stored.fields.retain(|bin, _| bins.contains(&bin.as_str()));
            Some(stored)
        });
        Ok(found.collect())
    }

    async fn write(&self, writes: Vec<Write>) -> Result<Vec<Outcome>, UtxoError> {
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            tokio::task::yield_now().await;
            let mut trouble = (self.hook.lock())(&write);
            // Nobody is late for what depends on nothing.
            if matches!(write.change, Change::Put(_) | Change::Delete { .. }) {
                trouble = trouble.filter(|trouble| *trouble != Trouble::Late);
            }
            let deletes = matches!(write.change, Change::Delete { .. });
            if let Room::Full(reason) = &*self.room.lock()
                && !deletes
            {
                return Err(UtxoError::NoWrites { reason: reason.clone() });
            }
            let lost = || UtxoError::Store { reason: "no answer".into(), retryable: true };
            match trouble {
                Some(Trouble::Before) => return Err(lost()),
                Some(Trouble::Late) => outcomes.push(Outcome::Changed),
                _ => outcomes.push(self.one(write)),
            }
            if trouble == Some(Trouble::After) {
                return Err(lost());
            }
        }
        Ok(outcomes)
    }

    async fn query(
        &self,
        query: Query,
        after: Option<Name>,
        limit: usize,
    ) -> Result<(Vec<Stored>, Option<Name>), UtxoError> {
        tokio::task::yield_now().await;
        let records = self.records.lock();
        let (mut found, mut last) = (Vec::new(), None);
        for (name, stored) in records.iter() {
            let read = Reader(&stored.fields);
            let is_tx = matches!(name, Name::Tx(_));
            let number = read.int(query.index.bin())?.filter(|_| is_tx);
            let due = read.int(bins::DELETE_AT)?;
            let stays = query.above.is_none_or(|height| {
                !stored.fields.contains_key(bins::CUT) && due.is_none_or(|at| at > height)
            });
            let listed = number.is_some_and(|number| (0..=query.to).contains(&number));
            if !listed || !stays || after.as_ref().is_some_and(|after| name <= after) {
                continue;
            }
            let mut stored = stored.clone();
            stored.fields.retain(|bin, _| query.bins.contains(&bin.as_str()));
            found.push(stored);
            if found.len() == limit {
                last = Some(name.clone());
                break;
            }
        }
        Ok((found, last))
    }

    async fn count(&self, index: Index, to: i64) -> Result<u64, UtxoError> {
        let query = Query { index, to, bins: &[], above: None };
        Ok(self.query(query, None, usize::MAX).await?.0.len() as u64)
    }

    async fn cut_and_due(&self, height: i64) -> Result<u64, UtxoError> {
        let query =
            Query { index: Index::Cut, to: i64::MAX, bins: &[bins::DELETE_AT], above: None };
        let (cut, _) = self.query(query, None, usize::MAX).await?;
        let due = cut.iter().map(|stored| Reader(&stored.fields).int(bins::DELETE_AT));
        let due = due.collect::<Result<Vec<_>, _>>()?;
        Ok(due.into_iter().flatten().filter(|at| *at <= height).count() as u64)
    }

    async fn room(&self) -> RoomLook {
        RoomLook { room: self.room.lock().clone(), failed: None }
    }

    async fn raise(&self, name: Name) -> Result<i64, UtxoError> {
        let mut records = self.records.lock();
        let empty = || Stored { fields: Fields::new(), generation: 0 };
        let stored = records.entry(name).or_insert_with(empty);
        let number = Reader(&stored.fields).int(read::NUMBER)?.unwrap_or(0) + 1;
        stored.fields.insert(read::NUMBER.into(), Value::Int(number));
        Ok(number)
    }

    async fn usage(&self) -> Result<Usage, UtxoError> {
        let records = self.records.lock();
        let txs = records.keys().filter(|name| matches!(name, Name::Tx(_))).count() as u64;
        let bytes = records.values().map(|stored| size(&stored.fields) as u64).sum();
        Ok(Usage { records: txs, bytes })
    }
}
