//! Whose tables a file holds, and the version of their shape.

use rusqlite::{Connection, OptionalExtension as _};

use crate::SqlError;

/// What a family keeps in a file.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// What it is, as errors name it: "the *index* has schema version …".
    pub name: &'static str,
    /// Marks the file as one of this kind (`PRAGMA application_id`).
    pub application_id: i32,
    /// The shape that this program reads and writes. It is noted in `meta` under `schema_version`.
    pub version: u32,
    /// The statements that make the tables. One of them is `meta`, with `key` and `value`, both text.
    pub tables: &'static str,
    /// Older shapes that are brought up to date when the file is opened to be written: a version, and the
    /// statements that make it the next one. Versions that are not here are refused.
    pub upgrades: &'static [(u32, &'static str)],
}

/// The version that a file says it has.
fn noted_version(connection: &Connection) -> Result<Option<u32>, SqlError> {
    let noted: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE key = 'schema_version'", [], |row| row.get(0))
        .optional()?;
    Ok(noted.and_then(|text| text.parse().ok()))
}

impl Schema {
    /// Makes the tables if the file is new, and brings those of an older version up to date; refuses a file
    /// of another kind, or of a version that this program does not know. All or nothing.
    pub(super) fn prepare(&self, connection: &mut Connection) -> Result<(), SqlError> {
        let txn = connection.transaction()?;
        let empty: bool =
            txn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
        if empty {
            txn.execute_batch(self.tables)?;
            txn.pragma_update(None, "application_id", self.application_id)?;
            txn.execute(
                "INSERT INTO meta (key, value) VALUES ('schema_version', ?1)",
                [self.version.to_string()],
            )?;
        }
        self.check_kind(&txn)?;
        self.upgrade(&txn)?;
        self.check(&txn)?;
        Ok(txn.commit()?)
    }

    fn upgrade(&self, connection: &Connection) -> Result<(), SqlError> {
        for (from, statements) in self.upgrades {
            if noted_version(connection)? == Some(*from) {
                tracing::info!(from, "bringing the schema of the {} up to date", self.name);
                connection.execute_batch(statements)?;
                connection.execute(
                    "UPDATE meta SET value = ?1 WHERE key = 'schema_version'",
                    [(from + 1).to_string()],
                )?;
            }
        }
        Ok(())
    }

    fn check_kind(&self, connection: &Connection) -> Result<(), SqlError> {
        let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        if id == self.application_id {
            return Ok(());
        }
        Err(SqlError::Refused(format!("this SQLite file is no {} of Secateur", self.name)))
    }

    /// Refuses a file of another kind, or of a version that this program does not know.
    pub(super) fn check(&self, connection: &Connection) -> Result<(), SqlError> {
        self.check_kind(connection)?;
        let Self { name, version: known, .. } = self;
        match noted_version(connection)? {
            Some(version) if version == *known => Ok(()),
            Some(version) if self.upgrades.iter().any(|(from, _)| *from == version) => {
                Err(SqlError::Refused(format!(
                    "the {name} has schema version {version}, and {known} is wanted: run what writes to it \
                     once with this program, which brings it up to date"
                )))
            }
            Some(version) => Err(SqlError::Refused(format!(
                "the {name} has schema version {version}, and this program knows {known}; use the \
                 program that made it, or another file"
            ))),
            None => Err(SqlError::lasting(format!(
                "the {name} does not say which schema version it has"
            ))),
        }
    }
}
