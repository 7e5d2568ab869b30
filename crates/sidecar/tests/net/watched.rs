//! An index that tells of every commit, and can fail like a crash after one that touches a table.

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_store::ground::disk::RedbIndex;
use secateur_store::{Change, Index, StoreError, Table};
use tokio::sync::watch;

/// What is known of an index's commits.
pub struct Commits {
    count: watch::Sender<u64>,
    crash_after: Mutex<Option<Table>>,
}

impl Commits {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { count: watch::Sender::new(0), crash_after: Mutex::default() })
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// The next commit with a row of this table is durable, and its caller never hears of it.
    pub fn crash_after(&self, table: Table) {
        *self.crash_after.lock() = Some(table);
    }
}

pub struct WatchedIndex {
    pub rows: RedbIndex,
    pub commits: Arc<Commits>,
}

impl Index for WatchedIndex {
    type Snapshot = <RedbIndex as Index>::Snapshot;

    fn snapshot(&self) -> Result<Self::Snapshot, StoreError> {
        self.rows.snapshot()
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let mut crash = self.commits.crash_after.lock();
        let crashes = crash.is_some_and(|table| changes.iter().any(|one| one.table == table));
        self.rows.commit(changes)?;
        self.commits.count.send_modify(|count| *count += 1);
        if crashes {
            *crash = None;
            return Err(StoreError::io("a commit", std::io::Error::other("the power is out")));
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.rows.bytes()
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.rows.ensure_reserve()
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.rows.check()
    }
}
