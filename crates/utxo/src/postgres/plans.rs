//! How the server does what a prune asks of it: by keys, and never by reading a table from end to
//! end.

use secateur_sql::postgres::{Address, Client, PostgresOptions};

use super::{PostgresStore, read, rows, settled, steps, sweep, write};
use crate::rule::Rules;
use fixture::database;

#[path = "../../../sql/tests/it/fixture.rs"]
#[allow(dead_code, reason = "the tests of other crates use the rest")]
mod fixture;

/// Twenty thousand records of every kind, most of them due, which is when reading the whole table looks
/// cheapest.
const FILL: &str = "
    insert into utxo_txs (mined_at, unmined_since, delete_at, preserve_until, outputs, spent,
        external, coinbase, conflicting, spending, cut, txid, blocks, spenders, inputs, body)
    select 7, case when n % 50 = 0 then n end, case when n % 7 > 0 then n % 300 end,
        case when n % 70 = 0 then n end, 2, 2, case when n % 90 = 0 then 1 end, false, false, true,
        n % 910 = 0, sha256(n::text::bytea), '', decode(repeat('00', 74), 'hex'), '', ''
    from generate_series(1, 20000) n;
    insert into utxo_spender_pages (tx, page, spenders)
        select n, page, '' from generate_series(1, 2000) n, generate_series(1, 4) page;
    insert into utxo_holds (parent, child)
        select n, n + 1 from generate_series(1, 20000, 20) n;
    analyze;
";

/// The plan of a statement in a session of the store's: the one for any values.
async fn plan(client: &Client, sql: &str) -> Vec<String> {
    let values = (1..=16).filter(|n| sql.contains(&format!("${n}"))).map(|_| "null");
    let values = values.collect::<Vec<_>>().join(", ");
    client.batch_execute(&format!("prepare asked as {sql}")).await.unwrap();
    let explain = format!("explain (costs off) execute asked ({values})");
    let rows = client.query(&explain, &[]).await.unwrap();
    client.batch_execute("deallocate asked").await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// What a plan does to the store's tables: each scan with the line below it.
fn scans(plan: &[String]) -> Vec<(String, String)> {
    let below = plan.iter().skip(1).cloned().chain([String::new()]);
    let lines = plan.iter().cloned().zip(below);
    lines.filter(|(line, _)| line.contains("Scan") && line.contains("utxo_")).collect()
}

#[tokio::test]
async fn nothing_that_a_prune_asks_reads_a_table_from_end_to_end() {
    let options = PostgresOptions::default();
    let address = Address::parse(&database()).unwrap();
    let store = PostgresStore::open(&address, options, Rules::default()).await.unwrap();
    let client = store.client().await.unwrap();
    client.batch_execute(FILL).await.unwrap();
    let asked = [
        read::GET,
        read::OLD_UNMINED,
        read::DUE,
        settled::SPENDERS,
        settled::MORE_SPENDERS,
        read::HERE,
        settled::UNSETTLED,
        read::DOOMED,
        read::EXTERNAL,
        read::COUNTS,
        rows::LOCK_BY_TXID,
        rows::LOCK_BY_ID,
        rows::PAGES,
        write::UPDATE,
        write::UPDATE_PAGES,
        write::REWIRE,
        write::RELEASE,
        steps::EXPIRED,
        steps::PRUNED,
        steps::INPUTS,
        read::PRUNED_AT,
        sweep::LOCK,
        sweep::DELETE_RANGE,
        sweep::HELD,
        sweep::CUT,
        sweep::WHY,
        sweep::DROP_PAGES,
        sweep::CUTS,
        sweep::DROP_SOME_PAGES,
        sweep::DROP,
    ];
    // These are exactly what they index, and small or as large as what is asked for.
    let whole = ["utxo_txs_unmined", "utxo_txs_preserved", "utxo_txs_cut", "utxo_txs_external"];
    for sql in asked {
        let plan = plan(&client, sql).await;
        let scans = scans(&plan);
        assert!(!scans.is_empty(), "{sql}: {plan:#?}");
        for (scan, below) in scans {
            assert!(!scan.contains("Seq Scan"), "{sql}: {plan:#?}");
            let bounded = below.contains("Index Cond") || below.contains("Recheck Cond");
            let partial = whole.iter().any(|index| scan.contains(index));
            assert!(bounded || partial, "{sql}: {plan:#?}");
        }
    }
}
