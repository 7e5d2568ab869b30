//! The tables of an SQLite index, and the version of their shape
//! (`docs/format/index-schema.md`).

use secateur_sql::sqlite::Schema;

/// What an index is in SQLite.
pub(super) const SCHEMA: Schema = Schema {
    name: "index",
    // "sect".
    application_id: 0x7365_6374,
    version: 2,
    tables: concat!(
        include_str!("../../../migrations/sqlite/0001_tables.sql"),
        include_str!("../../../migrations/sqlite/0002_amounts.sql")
    ),
    upgrades: &[(1, include_str!("../../../migrations/sqlite/0002_amounts.sql"))],
};
