//! `utxo/` in the data directory: the lock, `node.json`, the audit log, and, unless the configuration
//! says otherwise, the records and their external files.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::config::{RecordsIn, UtxoSettings};
use crate::data_dir::{lock, make_directory};
use crate::error::NodeError;

/// The directory's name.
pub(crate) const DIRECTORY: &str = "utxo";
/// The records' file in it.
const RECORDS: &str = "utxo.sqlite";

/// The directory in a data directory.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join(DIRECTORY)
}

/// A directory that this process has for itself.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    /// Where the records are.
    pub(crate) records: RecordsIn,
    _lock: Option<File>,
}

impl Place {
    /// Takes the directory, making it if it is missing.
    pub(crate) fn make(data: &Path, settings: &UtxoSettings) -> Result<Self, anyhow::Error> {
        let directory = directory(data);
        if !directory.is_dir() {
            make_directory(&directory)?;
        }
        let lock = Some(lock(&directory)?);
        Ok(Self { records: records(&directory, settings), directory, _lock: lock })
    }

    /// Takes what is there: a command makes nothing.
    pub(crate) fn existing(data: &Path, settings: &UtxoSettings) -> Result<Self, anyhow::Error> {
        let directory = directory(data);
        // Records in a server, or in a file that was named, need no directory here.
        let lock = if directory.is_dir() { Some(lock(&directory)?) } else { None };
        let records = records(&directory, settings);
        if let RecordsIn::Sqlite(path) = &records
            // An empty one holds none, and to open it would make some.
            && !path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0)
        {
            return Err(NodeError::NoUtxo(path.clone()).into());
        }
        Ok(Self { directory, records, _lock: lock })
    }
}

fn records(directory: &Path, settings: &UtxoSettings) -> RecordsIn {
    settings.store.clone().unwrap_or_else(|| RecordsIn::Sqlite(directory.join(RECORDS)))
}
