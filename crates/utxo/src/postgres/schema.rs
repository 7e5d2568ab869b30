//! The schema's versions, and what every connection is set to.

use secateur_sql::postgres::Schema;

/// What a UTXO store is in PostgreSQL.
pub(super) const SCHEMA: Schema = Schema {
    name: "UTXO store",
    updater: "the UTXO service",
    migrations: &[
        ("0001_tables", include_str!("../../migrations/postgres/0001_tables.sql")),
        ("0002_pruned", include_str!("../../migrations/postgres/0002_pruned.sql")),
    ],
    versions: "utxo_schema_migrations",
    meta: "utxo_meta",
    lock: 0x5ec4_7e07,
};

/// Every statement here finds some rows of a large table by their keys. One plan for any values is
/// right for that, and is made once; whatever reads a table from end to end is never right, however
/// small the table looks to statistics of yesterday.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];
