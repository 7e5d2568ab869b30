//! Attempts: a transaction that lost against another one is begun anew.

use std::future::Future;

use secateur_sql::SqlError;
use secateur_sql::postgres::Told as _;
use tokio_postgres::error::SqlState;

use crate::UtxoError;

/// How often a step is tried.
const ATTEMPTS: u32 = 8;

/// How an attempt failed.
#[derive(Debug)]
pub(super) enum Trip {
    /// Somebody was first. Nothing was changed, and the next attempt sees what they did.
    Again(UtxoError),
    /// Another attempt would fail as well.
    Failed(UtxoError),
}

impl Trip {
    /// What was read before the rows were locked is not so any more.
    pub(super) fn changed() -> Self {
        let reason = "records changed again and again while they were read; nothing was changed";
        Self::Again(UtxoError::store(reason))
    }
}

impl Trip {
    /// How it failed, for somebody who does not try again.
    pub(super) fn into_error(self) -> UtxoError {
        let (Self::Again(error) | Self::Failed(error)) = self;
        error
    }
}

impl From<UtxoError> for Trip {
    fn from(error: UtxoError) -> Self {
        Self::Failed(error)
    }
}

impl From<SqlError> for Trip {
    fn from(error: SqlError) -> Self {
        Self::Failed(error.into())
    }
}

/// Says what was being done when it failed, and whether to begin anew.
pub(super) trait Tried<T> {
    fn tried(self, doing: &str) -> Result<T, Trip>;
}

impl<T> Tried<T> for Result<T, tokio_postgres::Error> {
    fn tried(self, doing: &str) -> Result<T, Trip> {
        // Two batches made the same record: in the next attempt it is there. Rows are locked in one
        // order, so that a deadlock is nobody's plan; but an operator's statement may cause one.
        let lost = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            // Who was to wait no longer than a moment did.
            SqlState::LOCK_NOT_AVAILABLE,
            // Of statements that went out together another one failed first; alone it will tell why.
            SqlState::IN_FAILED_SQL_TRANSACTION,
        ];
        let again = self.as_ref().err().and_then(tokio_postgres::Error::code);
        let again = again.is_some_and(|code| lost.contains(code));
        let error = |error: SqlError| {
            let error = UtxoError::from(error);
            if again { Trip::Again(error) } else { Trip::Failed(error) }
        };
        self.told(doing).map_err(error)
    }
}

/// Tries a step until it succeeds, fails for good, or has lost too often.
pub(super) async fn retried<T, F>(attempt: impl Fn() -> F) -> Result<T, UtxoError>
where
    F: Future<Output = Result<T, Trip>>,
{
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(Trip::Failed(error)) => return Err(error),
            Err(Trip::Again(UtxoError::Store { reason, .. })) if left == 0 => {
                return Err(UtxoError::Store { reason, retryable: true });
            }
            Err(Trip::Again(error)) if left == 0 => return Err(error),
            Err(Trip::Again(_)) => {}
        }
    }
}
