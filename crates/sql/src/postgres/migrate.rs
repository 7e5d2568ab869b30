//! A schema's versions: SQL texts in the program, each applied once, in order, in a transaction of
//! its own, with its checksum noted. Several programs may start at once: they take turns.

use deadpool_postgres::{Client, Transaction};
use sha2::{Digest as _, Sha256};

use super::failure::Told as _;
use crate::SqlError;

const DOING: &str = "bringing the schema up to date";

/// What a family keeps in a database, and every version of its tables that there ever was. Names of
/// tables are a program's own words, never a user's.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// What it is, as errors name it: "the *index* has schema version …".
    pub name: &'static str,
    /// What brings it up to date, as errors name it: "start *the worker* once".
    pub updater: &'static str,
    /// Names and texts of the versions, oldest first. A text that was released is never changed; a
    /// new one is added. The first one makes [`Schema::meta`].
    pub migrations: &'static [(&'static str, &'static str)],
    /// The table of the versions that were applied. It is made here.
    pub versions: &'static str,
    /// The table of keys and values, both text, whose `schema_version` is the newest version.
    pub meta: &'static str,
    /// The number of the advisory lock by which those who migrate take turns.
    pub lock: i64,
}

impl Schema {
    /// The version that this program knows.
    fn known(&self) -> i64 {
        i64::try_from(self.migrations.len()).unwrap_or(i64::MAX)
    }

    /// Refuses what a newer program made.
    fn refuse_newer(&self, version: i64) -> Result<(), SqlError> {
        if version <= self.known() {
            return Ok(());
        }
        Err(SqlError::Refused(format!(
            "the {} has schema version {version}, and this program knows {}; use a newer program",
            self.name,
            self.known()
        )))
    }

    /// Brings the schema to the version that this program knows.
    pub(super) async fn migrate(&self, client: &mut Client) -> Result<(), SqlError> {
        for (version, &(name, sql)) in (1..).zip(self.migrations) {
            // A large table takes its time.
            let transaction = client.transaction().await.told(DOING)?;
            self.begin(&transaction).await?;
            if !self.is_applied(&transaction, version, name, sql).await? {
                tracing::info!(
                    version,
                    name,
                    "bringing the schema of the {} up to date",
                    self.name
                );
                transaction.batch_execute(sql).await.told(DOING)?;
                self.note(&transaction, version, name, sql).await?;
            }
            transaction.commit().await.told(DOING)?;
        }
        Ok(())
    }

    /// Compares without a change: for those who only read.
    pub(super) async fn check(&self, client: &Client) -> Result<(), SqlError> {
        let there = client
            .query_one("select to_regclass($1) is not null", &[&self.versions])
            .await
            .and_then(|row| row.try_get::<_, bool>(0))
            .told(DOING)?;
        let version = if there {
            let row = client.query_one(&self.newest(), &[]).await.told(DOING)?;
            row.try_get::<_, i64>(0).told(DOING)?
        } else {
            0
        };
        self.refuse_newer(version)?;
        if version < self.known() {
            return Err(SqlError::Refused(format!(
                "the {} has schema version {version}, and this program reads {}; start {} once, \
                 which brings it up to date",
                self.name,
                self.known(),
                self.updater
            )));
        }
        Ok(())
    }

    fn newest(&self) -> String {
        format!("select coalesce(max(version), 0) from {}", self.versions)
    }

    /// Takes the turn, and refuses what a newer program made.
    async fn begin(&self, transaction: &Transaction<'_>) -> Result<(), SqlError> {
        let sql = "set local statement_timeout = 0; set local lock_timeout = '60s'";
        transaction.batch_execute(sql).await.told(DOING)?;
        transaction.execute("select pg_advisory_xact_lock($1)", &[&self.lock]).await.told(DOING)?;
        let sql = format!(
            "create table if not exists {} (
                version bigint primary key,
                name text not null,
                sha256 bytea not null,
                applied_at timestamptz not null default clock_timestamp()
            )",
            self.versions
        );
        transaction.batch_execute(&sql).await.told(DOING)?;
        let newest = transaction.query_one(&self.newest(), &[]).await;
        self.refuse_newer(newest.and_then(|row| row.try_get(0)).told(DOING)?)
    }

    async fn is_applied(
        &self,
        transaction: &Transaction<'_>,
        version: i64,
        name: &str,
        sql: &str,
    ) -> Result<bool, SqlError> {
        let select = format!("select sha256 from {} where version = $1", self.versions);
        let row = transaction.query_opt(&select, &[&version]).await.told(DOING)?;
        let Some(row) = row else { return Ok(false) };
        let noted: Vec<u8> = row.try_get(0).told(DOING)?;
        if noted != Sha256::digest(sql.as_bytes()).to_vec() {
            return Err(SqlError::Refused(format!(
                "version {version} ({name}) of the {}'s schema was made from another text than this \
                 program's; use the program that made it, or a fresh database",
                self.name
            )));
        }
        Ok(true)
    }

    async fn note(
        &self,
        transaction: &Transaction<'_>,
        version: i64,
        name: &str,
        sql: &str,
    ) -> Result<(), SqlError> {
        let sum = Sha256::digest(sql.as_bytes()).to_vec();
        let insert =
            format!("insert into {} (version, name, sha256) values ($1, $2, $3)", self.versions);
        transaction.execute(&insert, &[&version, &name, &sum]).await.told(DOING)?;
        let upsert = format!(
            "insert into {} (key, value) values ('schema_version', $1)
             on conflict (key) do update set value = excluded.value",
            self.meta
        );
        transaction.execute(&upsert, &[&version.to_string()]).await.told(DOING)?;
        Ok(())
    }
}
