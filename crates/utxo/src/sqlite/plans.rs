//! How SQLite does what a prune asks of it: by keys, and never by reading a table from end to end.

use rusqlite::Connection;

use super::schema::SCHEMA;
use super::{FORGET_JOBS, SET_NOTE, read, rows, steps, sweep};

/// Twenty thousand records of every kind, most of them due, which is when reading the whole table looks
/// cheapest.
const FILL: &str = "
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
    INSERT INTO txs (txid, outputs, spent, coinbase, conflicting, spending, cut, external, mined_at,
        unmined_since, delete_at, preserve_until, blocks, spenders, inputs, body)
    SELECT randomblob(32), 2, 2, 0, 0, 1, n % 910 = 0, iif(n % 90 = 0, 1, NULL), 7,
        iif(n % 50 = 0, n, NULL), iif(n % 7 > 0, n % 300, NULL), iif(n % 70 = 0, n, NULL), x'',
        zeroblob(74), x'', x'' FROM n;
    INSERT INTO spender_pages SELECT id, 1, x'' FROM txs WHERE id <= 2000;
    INSERT INTO holds SELECT id, id + 1 FROM txs WHERE id % 20 = 0;
    ANALYZE;
";

/// What a statement does to tables: a line for each of them.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let lines = statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>();
    lines.unwrap()
}

#[test]
fn nothing_that_a_prune_asks_reads_a_table_from_end_to_end() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA.tables).unwrap();
    let own = [steps::EXPIRED, steps::COUNT, SET_NOTE, FORGET_JOBS];
    let asked = read::ASKED.into_iter().chain(sweep::ASKED).chain(own).map(str::to_owned);
    let asked: Vec<String> = asked.chain(rows::asked()).collect();
    // These are exactly what they index, and small or as large as what is asked for.
    let whole = ["txs_unmined", "txs_preserved", "txs_cut", "txs_external"];
    // Without statistics, as a store is, and with those of a store of which nearly everything is due.
    for fill in ["", FILL] {
        connection.execute_batch(fill).unwrap();
        for sql in &asked {
            let plan = plan(&connection, sql);
            for line in &plan {
                let partial = whole.iter().any(|index| line.ends_with(&format!("INDEX {index}")));
                assert!(!line.starts_with("SCAN") || partial, "{sql}: {plan:#?}");
                assert!(!line.contains("AUTOMATIC"), "{sql}: {plan:#?}");
            }
            let found =
                plan.iter().any(|line| line.starts_with("SEARCH") || line.contains("INDEX"));
            assert!(found || sql.starts_with("INSERT"), "{sql}: {plan:#?}");
        }
    }
}
