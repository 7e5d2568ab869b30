//! The stable ground: an arena and an index in the stable memory of a canister.
//!
//! A message is the transaction: what it wrote stays when it returns and is undone, all of it, when it
//! traps. So there is nothing to sync, and a commit is a handful of inserts. The arena and every table
//! have a memory of their own under an id that is theirs for ever (`docs/format/stable.md`).
//!
//! One message runs at a time on one thread. A snapshot is therefore no copy: it reads the tables as
//! they are, and one that is older than the last commit is refused instead of answering from both sides
//! of it.

use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;

use ic_stable_structures::memory_manager::{MemoryId, MemoryManager, VirtualMemory};
use ic_stable_structures::{Memory, StableBTreeMap};
use send_wrapper::SendWrapper;

use super::{Arena, Change, Family, Ground, Index, KeyValue, Snapshot, Space, Table, Visit};
use crate::StoreError;

/// The layout of memories that this program writes.
pub const STABLE_LAYOUT: u32 = 1;

/// A page of stable memory.
const PAGE: u64 = 64 * 1024;
/// Pages that a memory grows by: 2 MiB. Each memory has at least one of these buckets.
const BUCKET_PAGES: u16 = 32;
/// Buckets that there can be, of all memories together: 64 GiB.
const BUCKETS: u64 = 32_768;
/// Buckets that stand ready for the tables: a prune writes a little before it frees anything.
const RESERVE: u64 = 2;
/// What the memories' manager keeps before the first bucket: a page, which begins with this.
const MANAGER: &[u8; 3] = b"MGR";
const MANAGER_PAGES: u64 = 1;

/// Ids of memories. They are format: none is ever given to something else.
const LAYOUT_ID: u8 = 0;
const ARENA_ID: u8 = 1;
/// A table's memory is this and its number.
const FIRST_TABLE_ID: u8 = 16;

/// The first bytes of the memory that tells the layout.
const WORD: &[u8; 8] = b"SECSTABL";

/// A memory of one of the ground's parts.
type Part<M> = VirtualMemory<M>;
type Rows<M> = StableBTreeMap<Vec<u8>, Vec<u8>, Part<M>>;

/// A ground in stable memory.
pub type StableGround<M> = Ground<StableArena<M>, StableIndex<M>>;

/// Opens the ground of a family, and makes it where the memory is empty. Memory that holds anything
/// else is refused, and nothing of it is changed.
pub fn open<M: Memory + Clone + 'static>(
    memory: M,
    family: Family,
) -> Result<StableGround<M>, StoreError> {
    let is_new = memory.size() == 0;
    if !is_new {
        let mut word = [0; MANAGER.len()];
        memory.read(0, &mut word);
        // The manager would take foreign bytes for an empty memory and write over them.
        if &word != MANAGER {
            return Err(foreign("the stable memory is another program's"));
        }
    }
    let manager = MemoryManager::init_with_bucket_size(memory.clone(), BUCKET_PAGES);
    let layout = manager.get(MemoryId::new(LAYOUT_ID));
    if is_new {
        write_layout(&layout)?;
    }
    check_layout(&layout)?;
    let part = |id| manager.get(MemoryId::new(id));
    let of_table = |table: &Table| part(FIRST_TABLE_ID + *table as u8);
    let parts = [layout, part(ARENA_ID)].into_iter().chain(family.tables().iter().map(of_table));
    let room = Rc::new(Room { all: memory, parts: parts.collect() });
    let arena = StableArena {
        part: SendWrapper::new(part(ARENA_ID)),
        room: SendWrapper::new(room.clone()),
    };
    let tables = family.tables().iter().map(|table| {
        let part = of_table(table);
        TableRows { table: *table, rows: Rows::init(part.clone()), part }
    });
    let tables = Tables { tables: tables.collect(), commits: 0 };
    let tables = SendWrapper::new(Rc::new(RefCell::new(tables)));
    Ok(Ground { arena, index: StableIndex { tables, room: SendWrapper::new(room) } })
}

/// The memory that all parts share. Their manager traps when it asks for more and gets none: so whoever can
/// do without asks here first, and the reserve is kept for who cannot.
struct Room<M: Memory> {
    all: M,
    parts: Vec<Part<M>>,
}

const fn buckets(pages: u64) -> u64 {
    pages.div_ceil(BUCKET_PAGES as u64)
}

impl<M: Memory> Room<M> {
    /// Whether so many buckets more can be taken, and the reserve stands all the same. What is missing is
    /// asked for.
    fn has(&self, more: u64) -> bool {
        let taken: u64 = self.parts.iter().map(|part| buckets(part.size())).sum();
        let wanted = MANAGER_PAGES + (taken + more + RESERVE) * u64::from(BUCKET_PAGES);
        let missing = wanted.saturating_sub(self.all.size());
        missing == 0 || self.all.grow(missing) >= 0
    }
}

fn foreign(what: &str) -> StoreError {
    StoreError::Foreign(what.into())
}

fn write_layout<M: Memory>(layout: &Part<M>) -> Result<(), StoreError> {
    if layout.grow(1) < 0 {
        return Err(full(PAGE));
    }
    layout.write(0, WORD);
    layout.write(WORD.len() as u64, &STABLE_LAYOUT.to_be_bytes());
    Ok(())
}

fn check_layout<M: Memory>(layout: &Part<M>) -> Result<(), StoreError> {
    if layout.size() == 0 {
        return Err(foreign("the stable memory has no layout of a store"));
    }
    let (mut word, mut version) = ([0; WORD.len()], [0; 4]);
    layout.read(0, &mut word);
    layout.read(WORD.len() as u64, &mut version);
    if &word != WORD {
        return Err(foreign("the stable memory's layout is another program's"));
    }
    match u32::from_be_bytes(version) {
        STABLE_LAYOUT => Ok(()),
        found if found > STABLE_LAYOUT => {
            Err(StoreError::NewerFormat { found, known: STABLE_LAYOUT })
        }
        found => Err(foreign(&format!("there is no stable layout {found}"))),
    }
}

fn full(needed: u64) -> StoreError {
    StoreError::DiskFull { what: "growing the stable memory", needed, available: 0 }
}

/// An arena in stable memory.
pub struct StableArena<M: Memory> {
    part: SendWrapper<Part<M>>,
    room: SendWrapper<Rc<Room<M>>>,
}

impl<M: Memory> StableArena<M> {
    fn check(&self, offset: u64, len: usize) -> Result<(), StoreError> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.part.size() * PAGE) {
            return Err(StoreError::corrupt("arena", "a range outside the arena was asked for"));
        }
        Ok(())
    }
}

impl<M: Memory + 'static> Arena for StableArena<M> {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.part.size() * PAGE)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset, out.len())?;
        self.part.read(offset, out);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check(offset, bytes.len())?;
        self.part.write(offset, bytes);
        Ok(())
    }

    fn grow(&self, len: u64) -> Result<(), StoreError> {
        let (has, wants) = (self.part.size(), len.div_ceil(PAGE));
        let more = wants.saturating_sub(has);
        if more == 0 {
            return Ok(());
        }
        let fresh = buckets(wants) - buckets(has);
        if fresh > 0 && !self.room.has(fresh) || self.part.grow(more) < 0 {
            return Err(full(more * PAGE));
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn release(&self, _offset: u64, _len: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        // Whether the subnet has so much is told when it is asked for; but never more than this.
        let most = BUCKETS * u64::from(BUCKET_PAGES);
        let available = most.saturating_sub(self.room.all.size()) * PAGE;
        let (given, total) = (self.part.size() * PAGE, Some(most * PAGE));
        Ok(Space { given, available: Some(available), total })
    }
}

struct TableRows<M: Memory> {
    table: Table,
    rows: Rows<M>,
    part: Part<M>,
}

struct Tables<M: Memory> {
    tables: Vec<TableRows<M>>,
    /// Commits since it was opened.
    commits: u64,
}

fn no_table(table: Table) -> StoreError {
    StoreError::corrupt("index", format!("there is no table {}", table.name()))
}

impl<M: Memory> Tables<M> {
    fn rows(&self, table: Table) -> Result<&Rows<M>, StoreError> {
        let found = self.tables.iter().find(|one| one.table == table);
        found.map(|one| &one.rows).ok_or_else(|| no_table(table))
    }
}

/// An index in stable memory.
pub struct StableIndex<M: Memory> {
    tables: SendWrapper<Rc<RefCell<Tables<M>>>>,
    room: SendWrapper<Rc<Room<M>>>,
}

/// What a reader of a [`StableIndex`] sees until the next commit.
pub struct StableSnapshot<M: Memory> {
    tables: Rc<RefCell<Tables<M>>>,
    commits: u64,
}

impl<M: Memory> StableSnapshot<M> {
    fn read<T>(
        &self,
        table: Table,
        read: impl FnOnce(&Rows<M>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let tables = self.tables.borrow();
        if tables.commits != self.commits {
            return Err(StoreError::refused(
                "reading",
                "the snapshot is older than the last commit",
            ));
        }
        read(tables.rows(table)?)
    }
}

impl<M: Memory> Snapshot for StableSnapshot<M> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(table, |rows| Ok(rows.get(&key.to_vec())))
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.read(table, |rows| {
            for row in rows.range(from.to_vec()..) {
                if visit(row.key(), &row.value())? == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn before(&self, table: Table, bound: &[u8]) -> Result<Option<KeyValue>, StoreError> {
        let bounds = (Bound::Unbounded, Bound::Excluded(bound.to_vec()));
        self.read(table, |rows| {
            let Some(row) = rows.range(bounds).next_back() else { return Ok(None) };
            Ok(Some(row.into_pair()))
        })
    }
}

impl<M: Memory + 'static> Index for StableIndex<M> {
    type Snapshot = StableSnapshot<M>;

    fn snapshot(&self) -> Result<StableSnapshot<M>, StoreError> {
        let commits = self.tables.borrow().commits;
        Ok(StableSnapshot { tables: Rc::clone(&self.tables), commits })
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let mut tables = self.tables.borrow_mut();
        // Refused before the first of them is made.
        for change in &changes {
            tables.rows(change.table)?;
        }
        tables.commits += 1;
        for Change { table, key, value } in changes {
            let Some(one) = tables.tables.iter_mut().find(|one| one.table == table) else {
                continue;
            };
            match value {
                Some(value) => drop(one.rows.insert(key, value)),
                None => drop(one.rows.remove(&key)),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let tables = self.tables.borrow();
        Ok(tables.tables.iter().map(|one| one.part.size() * PAGE).sum())
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(self.room.has(0))
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        let tables = self.tables.borrow();
        let mut wrong = Vec::new();
        for TableRows { table, rows, .. } in &tables.tables {
            let (mut seen, mut last): (u64, Option<Vec<u8>>) = (0, None);
            for key in rows.keys() {
                if last.as_ref().is_some_and(|last| *last >= key) {
                    wrong.push(format!("table {} is not in order", table.name()));
                }
                (seen, last) = (seen + 1, Some(key));
            }
            if seen != rows.len() {
                let (name, says) = (table.name(), rows.len());
                wrong.push(format!("table {name} has {seen} rows and says {says}"));
            }
        }
        Ok(wrong)
    }
}
