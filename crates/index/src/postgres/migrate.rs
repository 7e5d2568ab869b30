//! The schema's versions: SQL files in the binary, each applied once, in order, in a transaction of
//! its own, with its checksum noted. Several programs may start at once: they take turns.

use deadpool_postgres::{Client, Transaction};
use sha2::{Digest as _, Sha256};

use super::failure::Told as _;
use crate::IndexError;

/// The versions, oldest first. A file that was released is never changed; a new one is added.
const MIGRATIONS: [(&str, &str); 2] = [
    ("0001_tables", include_str!("../../migrations/postgres/0001_tables.sql")),
    ("0002_functions", include_str!("../../migrations/postgres/0002_functions.sql")),
];

/// The turn of those who migrate.
const LOCK: i64 = 0x5ec4_7e01;
const DOING: &str = "bringing the schema up to date";

/// The version that this program knows.
pub(super) fn known_version() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

fn newer(version: i64) -> IndexError {
    IndexError::sink(format!(
        "the index has schema version {version}, and this program knows {}; nothing was changed. \
         Use a newer program",
        known_version()
    ))
}

/// Brings the schema to the version that this program knows.
pub(super) async fn migrate(client: &mut Client) -> Result<(), IndexError> {
    for (version, (name, sql)) in (1_i64..).zip(MIGRATIONS) {
        // A large table takes its time.
        let transaction = client.transaction().await.told(DOING)?;
        begin(&transaction).await?;
        if !is_applied(&transaction, version, name, sql).await? {
            tracing::info!(version, name, "bringing the index's schema up to date");
            transaction.batch_execute(sql).await.told(DOING)?;
            note(&transaction, version, name, sql).await?;
        }
        transaction.commit().await.told(DOING)?;
    }
    Ok(())
}

/// Compares without a change: for those who only read.
pub(super) async fn check(client: &Client) -> Result<(), IndexError> {
    let found = "select coalesce(max(version), 0) from schema_migrations";
    let there = client
        .query_one("select to_regclass('schema_migrations') is not null", &[])
        .await
        .and_then(|row| row.try_get::<_, bool>(0))
        .told(DOING)?;
    let version = if there {
        let row = client.query_one(found, &[]).await.told(DOING)?;
        row.try_get::<_, i64>(0).told(DOING)?
    } else {
        0
    };
    if version > i64::from(known_version()) {
        return Err(newer(version));
    }
    if version < i64::from(known_version()) {
        return Err(IndexError::sink(format!(
            "the index has schema version {version}, and this program reads {}; start the worker \
             once, which brings it up to date",
            known_version()
        )));
    }
    Ok(())
}

/// Takes the turn, and refuses what a newer program made.
async fn begin(transaction: &Transaction<'_>) -> Result<(), IndexError> {
    let sql = "set local statement_timeout = 0; set local lock_timeout = '60s'";
    transaction.batch_execute(sql).await.told(DOING)?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await.told(DOING)?;
    let sql = "create table if not exists schema_migrations (
        version bigint primary key,
        name text not null,
        sha256 bytea not null,
        applied_at timestamptz not null default clock_timestamp()
    )";
    transaction.batch_execute(sql).await.told(DOING)?;
    let version: i64 = transaction
        .query_one("select coalesce(max(version), 0) from schema_migrations", &[])
        .await
        .and_then(|row| row.try_get(0))
        .told(DOING)?;
    if version > i64::from(known_version()) {
        return Err(newer(version));
    }
    Ok(())
}

async fn is_applied(
    transaction: &Transaction<'_>,
    version: i64,
    name: &str,
    sql: &str,
) -> Result<bool, IndexError> {
    let row = transaction
        .query_opt("select sha256 from schema_migrations where version = $1", &[&version])
        .await
        .told(DOING)?;
    let Some(row) = row else { return Ok(false) };
    let noted: Vec<u8> = row.try_get(0).told(DOING)?;
    if noted != Sha256::digest(sql.as_bytes()).to_vec() {
        return Err(IndexError::sink(format!(
            "the schema's version {version} ({name}) was made from another text than this \
             program's; nothing was changed. Use the program that made it, or rebuild the index \
             in a fresh database"
        )));
    }
    Ok(true)
}

async fn note(
    transaction: &Transaction<'_>,
    version: i64,
    name: &str,
    sql: &str,
) -> Result<(), IndexError> {
    let sum = Sha256::digest(sql.as_bytes()).to_vec();
    let insert = "insert into schema_migrations (version, name, sha256) values ($1, $2, $3)";
    transaction.execute(insert, &[&version, &name, &sum]).await.told(DOING)?;
    let upsert = "insert into meta (key, value) values ('schema_version', $1)
        on conflict (key) do update set value = excluded.value";
    transaction.execute(upsert, &[&version.to_string()]).await.told(DOING)?;
    Ok(())
}
