//! The one error of this crate. Nothing was changed by what it answers, unless it says so.

use std::io;

use secateur_archive::ArchiveError;
use secateur_core::Height;
use secateur_sql::SqlError;

use crate::types::{MAX_CREATED_INPUTS, MAX_CREATED_OUTPUTS, OutPoint, TxId};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UtxoError {
    /// No record has this id.
    #[error(
        "transaction {txid} is not here: it was never created, or its record is pruned; nothing was \
         changed"
    )]
    Unknown {
        /// The transaction.
        txid: TxId,
    },
    /// The record is pruned, and something here still knows of it.
    #[error("the record of transaction {txid} is pruned; nothing was changed")]
    Pruned {
        /// The transaction.
        txid: TxId,
    },
    /// Another transaction of the same id is here.
    #[error(
        "transaction {txid} is here with other inputs or outputs; nothing was changed. Check who \
         computed the id"
    )]
    Different {
        /// The transaction.
        txid: TxId,
    },
    /// The transaction cannot be one.
    #[error("transaction {txid} is malformed: {reason}; nothing was changed")]
    Malformed {
        /// The transaction.
        txid: TxId,
        /// What is wrong with it.
        reason: String,
    },
    /// One step would create more outputs than it may.
    #[error(
        "the transactions have {outputs} outputs together, and one request creates at most \
         {most}; nothing was changed. Create them in several requests",
        most = MAX_CREATED_OUTPUTS
    )]
    TooManyOutputs {
        /// How many.
        outputs: u64,
    },
    /// One step would look at more parents than it may.
    #[error(
        "the transactions have {inputs} inputs together, and one request takes at most {most}; nothing \
         was changed. Create them in several requests",
        most = MAX_CREATED_INPUTS
    )]
    TooManyInputs {
        /// How many.
        inputs: usize,
    },
    /// A parent is not here.
    #[error(
        "transaction {by} spends {output}, whose transaction is not here: it was never created, or \
         its record is pruned; nothing was changed"
    )]
    MissingParent {
        /// What it would spend.
        output: OutPoint,
        /// The transaction that would spend it.
        by: TxId,
    },
    /// A parent has no such output.
    #[error(
        "transaction {by} spends {output}, but that transaction has {outputs} outputs; nothing was \
         changed"
    )]
    MissingOutput {
        /// What it would spend.
        output: OutPoint,
        /// The transaction that would spend it.
        by: TxId,
        /// How many outputs there are.
        outputs: u32,
    },
    /// Somebody else spends it.
    #[error(
        "transaction {by} spends {output}, which {spender} has spent; nothing was changed. If {by} \
         lost, create it as conflicting; if it won, set {spender} conflicting first"
    )]
    DoubleSpend {
        /// What both spend.
        output: OutPoint,
        /// Who came late.
        by: TxId,
        /// Who has it.
        spender: TxId,
    },
    /// A coinbase's output is not ripe.
    #[error("transaction {by} spends {output} of a coinbase, {}; nothing was changed", ripe(*.ripe_at))]
    Immature {
        /// What it would spend.
        output: OutPoint,
        /// The transaction that would spend it.
        by: TxId,
        /// When it may be spent; never while no block holds it.
        ripe_at: Option<Height>,
    },
    /// The step does not fit the state that the transaction is in.
    #[error("transaction {txid} {state}; nothing was changed. {advice}")]
    NotNow {
        /// The transaction.
        txid: TxId,
        /// The state.
        state: &'static str,
        /// What comes first.
        advice: &'static str,
    },
    /// The database failed.
    #[error("UTXO store: {reason}")]
    Store {
        /// What happened.
        reason: String,
        /// Whether the same step may succeed later.
        retryable: bool,
    },
    /// The database is not the one that is meant.
    #[error("UTXO store: {reason}; nothing was changed")]
    Foreign {
        /// What it is.
        reason: String,
    },
    /// The disk of the database is full.
    #[error(
        "UTXO store: its disk is full: {reason}; nothing of this step was written, and what was done \
         before stays. Free some space there; a prune that an event set off is tried again by itself"
    )]
    Full {
        /// What the database says.
        reason: String,
    },
    /// The database takes no more writes, and changes records one at a time.
    #[error(
        "UTXO store: it takes no more writes: {reason}; a part of this step may be done, and the same step \
         finishes it later. A prune cuts before it deletes, so it needs writes too: make room there first"
    )]
    NoWrites {
        /// What the database says.
        reason: String,
    },
    /// What the database holds does not read back.
    #[error(
        "UTXO store: what it holds of {what} does not read back: {reason}; nothing was changed. Restore it \
         from a backup"
    )]
    Damaged {
        /// What was read.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The object storage of external files failed.
    #[error("external files: {}", .0.told("no record was changed"))]
    Files(ArchiveError),
    /// An external file is not what it should be.
    #[error("external file {name}: {reason}; nothing was changed")]
    File {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The place of external files does not answer.
    #[error("external files at {place}: {reason}; nothing was changed. Try again once it answers")]
    NoAnswer {
        /// Its address.
        place: String,
        /// What was waited for.
        reason: String,
    },
    /// A record is here, and whether its external file is, is not known.
    #[error(
        "the record is here, and its external file {name} may not be: {reason}. {advice} the transaction again",
        advice = if *.with_bytes { "Tell" } else { "See to it that the file is there, then tell" }
    )]
    FileUnsettled {
        /// Its name.
        name: String,
        /// What happened.
        reason: String,
        /// Whether its bytes were told, so that telling the transaction again brings it back.
        with_bytes: bool,
        /// Whether that may be right at once.
        retryable: bool,
    },
    /// Parents could not be preserved, so nothing was deleted.
    #[error(
        "preserving parents at height {height} failed, so nothing was deleted: {}",
        source.bare()
    )]
    NotPreserved {
        /// The run's height.
        height: Height,
        /// Why.
        source: Box<UtxoError>,
    },
    /// A run failed while it deleted.
    #[error(
        "deleting at height {height} failed: {}; {deleted} records were deleted before, and the next run goes on",
        source.bare()
    )]
    Interrupted {
        /// The run's height.
        height: Height,
        /// Records that it deleted.
        deleted: u64,
        /// Why.
        source: Box<UtxoError>,
    },
    /// The service that is asked or listened to is not there, or lies.
    #[error("{what}: {reason}")]
    Service {
        /// Which one.
        what: &'static str,
        /// What happened.
        reason: String,
        /// Whether the same step may succeed later.
        retryable: bool,
    },
    /// A height that cannot be the chain's.
    #[error("{reason}; nothing was changed")]
    WrongHeight {
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that cannot be.
    #[error("{0}; nothing was changed")]
    Setting(String),
}

fn ripe(ripe_at: Option<Height>) -> String {
    ripe_at.map_or_else(
        || "which no block holds".into(),
        |height| format!("which can be spent from height {height}"),
    )
}

impl From<SqlError> for UtxoError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Full { reason } => Self::Full { reason },
            SqlError::Refused(reason) => Self::Foreign { reason },
            SqlError::Unreadable { reason } => Self::damaged("the records", reason),
            other @ SqlError::Failed { .. } => {
                Self::Store { reason: other.to_string(), retryable: other.is_retryable() }
            }
        }
    }
}

// Not as its source: it would be told a second time, in the words of an archive.
impl From<ArchiveError> for UtxoError {
    fn from(error: ArchiveError) -> Self {
        Self::Files(error)
    }
}

impl UtxoError {
    /// What happened, without what was not changed by the step that failed: others before it may have, or nobody
    /// wanted a change.
    pub(crate) fn bare(&self) -> String {
        self.to_string().replace("; nothing was changed", "")
    }

    /// Whether the same step may succeed later without a change from outside.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store { retryable, .. }
            | Self::Service { retryable, .. }
            | Self::FileUnsettled { retryable, .. } => *retryable,
            Self::Full { .. } | Self::NoWrites { .. } | Self::NoAnswer { .. } => true,
            Self::Files(error) => error.is_retryable(),
            Self::NotPreserved { source, .. } | Self::Interrupted { source, .. } => {
                source.is_retryable()
            }
            _ => false,
        }
    }

    /// Whether a disk is full: that of the database, or that of external files.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Full { .. } | Self::NoWrites { .. } => true,
            Self::NotPreserved { source, .. } | Self::Interrupted { source, .. } => {
                source.is_disk_full()
            }
            Self::Files(error) => {
                let first: &(dyn std::error::Error + 'static) = error;
                std::iter::successors(Some(first), |cause| cause.source())
                    .filter_map(|cause| cause.downcast_ref::<io::Error>())
                    .any(|error| {
                        use io::ErrorKind::{QuotaExceeded, StorageFull};
                        matches!(error.kind(), StorageFull | QuotaExceeded)
                    })
            }
            _ => false,
        }
    }

    /// What kind it is: a label for interfaces and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Files(_) if self.is_disk_full() => "full",
            Self::Unknown { .. } => "unknown",
            Self::Pruned { .. } => "pruned",
            Self::Different { .. } => "different",
            Self::Malformed { .. } => "malformed",
            Self::TooManyOutputs { .. } => "too_many_outputs",
            Self::TooManyInputs { .. } => "too_many_inputs",
            Self::MissingParent { .. } => "missing_parent",
            Self::MissingOutput { .. } => "missing_output",
            Self::DoubleSpend { .. } => "double_spend",
            Self::Immature { .. } => "immature",
            Self::NotNow { .. } => "not_now",
            Self::Store { .. } | Self::Foreign { .. } => "store",
            Self::Full { .. } | Self::NoWrites { .. } => "full",
            Self::Damaged { .. } => "damaged",
            Self::Files(_) | Self::File { .. } | Self::NoAnswer { .. } => "files",
            Self::FileUnsettled { .. } => "file_unsettled",
            Self::NotPreserved { .. } => "not_preserved",
            Self::Interrupted { source, .. } => source.label(),
            Self::Service { .. } => "service",
            Self::WrongHeight { .. } => "wrong_height",
            Self::Setting(_) => "setting",
        }
    }

    /// A failure of the database that no retry mends.
    pub fn store(reason: impl Into<String>) -> Self {
        Self::Store { reason: reason.into(), retryable: false }
    }

    /// Something that does not read back.
    pub(crate) fn damaged(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_with_files_is_told_in_the_words_of_records_and_a_full_disk_is_seen_in_it() {
        let stage = |kind: io::ErrorKind| ArchiveError::Stage {
            what: "writing",
            path: "files".into(),
            source: kind.into(),
        };
        let full = UtxoError::from(stage(io::ErrorKind::StorageFull));
        assert!(full.is_disk_full() && full.is_retryable());
        let told = full.to_string();
        assert!(told.ends_with("; no record was changed"), "{told}");
        assert!(!UtxoError::from(stage(io::ErrorKind::NotFound)).is_disk_full());
    }
}
