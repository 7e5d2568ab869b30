//! The suite of every backend, on a database of its own for each case.

use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_utxo::{PostgresStore, Rules, UtxoStore as _};

use crate::conformance::conformance;
use crate::conformance::rig::{Home, RULES, add, block, coinbase};
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

#[tokio::test]
async fn few_records_are_counted_whatever_the_statistics_say() {
    let home = open(RULES).await;
    for half in [0, 50] {
        let txs = (half..half + 50).map(|n| coinbase(n, 1, block(1, 1)));
        add(&home.store, 1, txs.collect()).await;
        assert_eq!(home.store.counts(1).await.unwrap().records, half + 50);
    }
}
