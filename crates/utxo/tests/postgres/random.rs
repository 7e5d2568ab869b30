//! Five hundred random histories on PostgreSQL.

use secateur_utxo::ExternalFiles;

use crate::fixture;
use crate::histories::{numbers, play, play_all, rules, workers};
use crate::races::connect;
use crate::suite::open_at;

const HISTORIES: u64 = 500;
/// A database for each worker; a new one for each history would take longer than the history.
const EMPTY: &str = "truncate utxo_txs, utxo_spender_pages, utxo_holds, utxo_jobs, utxo_pruned;
    delete from utxo_meta where key <> 'schema_version'";

/// Ends every other connection, as the end of a process does, and waits for it.
const ALONE: &str = "select pg_terminate_backend(pid, 60000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";

async fn one(url: String, seed: u64) -> u64 {
    let rules = rules(&numbers(seed));
    let store = open_at(&url, rules).await;
    let reopen = async || {
        connect(&url).await.batch_execute(ALONE).await.unwrap();
        open_at(&url, rules).await
    };
    connect(&url).await.batch_execute(EMPTY).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&place, &secateur_archive::Settings::default()).unwrap();
    Box::pin(play(seed, store, files, reopen)).await
}

#[test]
fn five_hundred_random_histories_end_as_the_naive_model_says() {
    let urls: Vec<String> = (0..workers()).map(|_| fixture::database()).collect();
    play_all(HISTORIES, |worker, seed| one(urls[worker].clone(), seed));
}
