//! The suite of every backend, on one file.

use secateur_utxo::{Rules, SqliteStore};

use crate::conformance::conformance;
use crate::conformance::rig::Home;

async fn open(rules: Rules) -> Home<SqliteStore> {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("utxo.sqlite"), rules).unwrap();
    Home { store, _keeps: Box::new(dir) }
}

conformance!(open);
