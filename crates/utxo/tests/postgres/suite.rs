//! The suite of every backend, on a database of its own for each case.

use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_utxo::{PostgresStore, Rules, UtxoStore as _};

use crate::conformance::broke::place;
use crate::conformance::conformance;
use crate::conformance::prunes::{pruner, settings};
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

#[tokio::test]
async fn of_two_services_with_two_places_of_files_one_is_refused() {
    let url = fixture::database();
    let dir = tempfile::tempdir().unwrap();
    let service = async |name: &str| {
        let store = open_at(&url, RULES).await;
        let pruner = pruner(&store, Some(place(&dir.path().join(name))), settings());
        pruner.check_place().await
    };
    let (one, other) = tokio::join!(service("one"), service("other"));
    assert_ne!(one.is_ok(), other.is_ok(), "{one:?} {other:?}");
}
