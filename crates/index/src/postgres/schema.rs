//! The schema's versions, and what every connection is set to.

use secateur_sql::postgres::Schema;

/// What an index is in PostgreSQL.
pub(super) const SCHEMA: Schema = Schema {
    name: "index",
    updater: "the worker",
    migrations: &[
        ("0001_tables", include_str!("../../migrations/postgres/0001_tables.sql")),
        ("0002_functions", include_str!("../../migrations/postgres/0002_functions.sql")),
        ("0003_status", include_str!("../../migrations/postgres/0003_status.sql")),
        ("0004_kept_from", include_str!("../../migrations/postgres/0004_kept_from.sql")),
    ],
    versions: "schema_migrations",
    meta: "meta",
    lock: 0x5ec4_7e01,
};

/// A plan is made for the values at hand: one for any values cannot know that an address is rare and a
/// topic is not.
pub(super) const SETTINGS: &[(&str, &str)] = &[("plan_cache_mode", "force_custom_plan")];
