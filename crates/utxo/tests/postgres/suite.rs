//! The suite of every backend, on a database of its own for each case.

use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_utxo::{PostgresStore, Rules};

use crate::conformance::conformance;
use crate::conformance::rig::Home;
use crate::fixture;

/// Opens the store of a database.
pub async fn open_at(url: &str, rules: Rules) -> PostgresStore {
    let options =
        PostgresOptions { connections: PostgresStore::CONNECTIONS, ..PostgresOptions::default() };
    PostgresStore::open(&Address::parse(url).unwrap(), options, rules).await.unwrap()
}

async fn open(rules: Rules) -> Home<PostgresStore> {
    Home { store: open_at(&fixture::database(), rules).await, _keeps: Box::new(()) }
}

conformance!(open);
