//! The write-ahead log of a prune: put back into the file beside the deletions that follow, by a
//! connection of its own, so that neither they nor a writer's commit wait for it. Only when it has grown
//! long is it waited for, and begins anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secateur_sql::sqlite::Sqlite;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::{failed, schema};
use crate::UtxoError;

/// Below this it is left to whoever writes next.
const SHORT: u64 = 32 << 20;
/// Above this, and above a quarter of the file, it is waited for.
const LONG: u64 = 128 << 20;

/// One that is under way.
type Checkpoint = JoinHandle<Result<(), UtxoError>>;

/// A store's log. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Log {
    file: Arc<PathBuf>,
    frames: Arc<PathBuf>,
    keeper: Sqlite,
    running: Arc<Mutex<Option<Checkpoint>>>,
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

impl Log {
    pub(super) fn open(file: &Path) -> Result<Self, UtxoError> {
        let pragmas = [("cache_size", "-1024"), ("synchronous", "NORMAL")];
        let keeper = Sqlite::open(file, &schema::SCHEMA, &pragmas)?;
        let mut frames = file.as_os_str().to_owned();
        frames.push("-wal");
        let (file, frames) = (Arc::new(file.to_owned()), Arc::new(frames.into()));
        Ok(Self { file, frames, keeper, running: Arc::default() })
    }

    /// After a transaction: begins to put the log back, or waits until that is done.
    pub(super) async fn tend(&self) -> Result<(), UtxoError> {
        let grown = length(&self.frames);
        if grown < SHORT {
            return Ok(());
        }
        let mut running = self.running.lock().await;
        let is_long = grown > LONG.max(length(&self.file) / 4);
        if let Some(task) = running.take_if(|task| is_long || task.is_finished()) {
            task.await.map_err(|error| UtxoError::store(error.to_string()))??;
        }
        if is_long {
            // What came meanwhile; then the next transaction begins it anew.
            return checkpoint(self.keeper.clone()).await;
        }
        running.get_or_insert_with(|| tokio::spawn(checkpoint(self.keeper.clone())));
        Ok(())
    }
}

async fn checkpoint(keeper: Sqlite) -> Result<(), UtxoError> {
    let passive = "PRAGMA wal_checkpoint(PASSIVE)";
    keeper.write(move |keeper| keeper.query_row(passive, [], |_| Ok(())).map_err(failed)).await
}
