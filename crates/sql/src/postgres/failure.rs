//! What PostgreSQL's errors mean: whether the same step may succeed later, and what a person is
//! told.

use std::error::Error;

use deadpool_postgres::{HookError, PoolError};
use tokio_postgres::error::SqlState;

use crate::SqlError;

/// What goes on may be over later: the server restarts, is full, is busy, or somebody was first.
fn may_pass(state: &SqlState) -> bool {
    let code = state.code();
    // Connections, resources, the operator's hand (a stop, a timeout), conflicts and locks; a server
    // that became a standby answers 25006.
    ["08", "53", "57", "58", "40"].iter().any(|class| code.starts_with(class))
        || [SqlState::LOCK_NOT_AVAILABLE, SqlState::READ_ONLY_SQL_TRANSACTION].contains(state)
}

/// What is known where the server refused, or was never asked.
const NOT_DONE: &str = "nothing of it was written";
/// What is known where a connection broke: the answer may have been on its way.
const LOST: &str = "whether it was done is not known";

/// An error of the connection or of a statement. Without an answer of the server this is what is known.
fn failure(doing: &str, error: &tokio_postgres::Error, unanswered: &str) -> SqlError {
    let is_full = error.code() == Some(&SqlState::DISK_FULL);
    let known = if error.as_db_error().is_some() { NOT_DONE } else { unanswered };
    let (reason, retryable) = if let Some(db) = error.as_db_error() {
        let hint = db.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let text = format!("{} [{}]{hint}", db.message(), db.code().code());
        (text, may_pass(db.code()))
    } else {
        // No answer of the server: the connection broke or never came to be. What it cannot be
        // read as, or how it wants to be spoken to, does not change by itself.
        let lasting = error.source().is_some_and(|cause| {
            let io = cause.downcast_ref::<std::io::Error>();
            io.is_none_or(|io| {
                io.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>)
            })
        });
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        (format!("{error}{cause}"), !lasting)
    };
    let reason = format!("PostgreSQL, while {doing}: {reason}; {known}");
    if is_full { SqlError::Full { reason } } else { SqlError::Failed { reason, retryable } }
}

/// No connection could be had.
pub(super) fn no_connection(shown: &str, error: PoolError) -> SqlError {
    let doing = format!("connecting to {shown}");
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            failure(&doing, &error, NOT_DONE)
        }
        PoolError::Timeout(_) => SqlError::Failed {
            reason: format!("PostgreSQL, while {doing}: no connection in time"),
            retryable: true,
        },
        other => SqlError::lasting(format!("PostgreSQL, while {doing}: {other}")),
    }
}

/// Says what was being done when it failed.
pub trait Told<T> {
    /// The value, or an error that says what was being done: "while *doing*".
    fn told(self, doing: &str) -> Result<T, SqlError>;
}

impl<T> Told<T> for Result<T, tokio_postgres::Error> {
    fn told(self, doing: &str) -> Result<T, SqlError> {
        self.map_err(|error| failure(doing, &error, LOST))
    }
}
