//! The one table of exit codes, and how an error finds its code and its words.
//!
//! An error keeps its causes on the way up; only here are they looked through.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use secateur_archive::ArchiveError;
use secateur_core::{CoreError, ExportError, LookupError};
use secateur_index::{ErrorClass, IndexError};
use secateur_sidecar::SidecarError;
use secateur_sql::SqlError;
use secateur_store::StoreError;
use secateur_utxo::UtxoError;

use crate::error::{NodeError, UNCHANGED};
use crate::ui::log;
use secateur_evm::EvmError;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Pruned = 3,
    InvalidCursor = 4,
    Decode = 5,
    Archive = 6,
    Sink = 7,
    DiskFull = 8,
    Corrupt = 9,
    Locked = 10,
    Refused = 11,
}

/// Every code with its meaning: the text of `--help`.
const TABLE: [(Exit, &str); 12] = [
    (
        Exit::Done,
        "done; for `explain block` and `tx` also when the answer is \"pruned\" or \"not found\"",
    ),
    (Exit::Failed, "failed"),
    (Exit::Usage, "the command line or a setting is wrong"),
    (Exit::Pruned, "what was asked for was pruned"),
    (Exit::InvalidCursor, "invalid export cursor"),
    (Exit::Decode, "bytes that do not decode"),
    (Exit::Archive, "the archive failed"),
    (Exit::Sink, "a database failed"),
    (Exit::DiskFull, "disk full"),
    (Exit::Corrupt, "the data is corrupt"),
    (Exit::Locked, "another process has the data directory open"),
    (Exit::Refused, "refused by a hold, by the store's state or for want of a permission"),
];

impl Exit {
    /// The number that the process ends with.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The table as `--help` shows it.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning) in TABLE {
        // Writing into a string cannot fail.
        writeln!(text, "  {:>2}  {meaning}", exit.code()).unwrap_or_default();
    }
    text
}

/// The code of an error: that of the first cause that has one.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(of_cause).unwrap_or(Exit::Failed)
}

fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<NodeError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(of_store(error));
    }
    if let Some(error) = cause.downcast_ref::<CoreError>() {
        return Some(of_core(error));
    }
    if let Some(error) = cause.downcast_ref::<EvmError>() {
        return Some(match error {
            EvmError::Spec { .. } => Exit::Usage,
            EvmError::HeightOutOfRange { .. }
            | EvmError::GenesisParent { .. }
            | EvmError::Signing { .. } => Exit::Failed,
            _ => Exit::Decode,
        });
    }
    if let Some(error) = cause.downcast_ref::<IndexError>() {
        return Some(of_index(error));
    }
    if let Some(error) = cause.downcast_ref::<SqlError>() {
        return Some(of_sql(error));
    }
    if let Some(error) = cause.downcast_ref::<SidecarError>() {
        return of_sidecar(error);
    }
    if let Some(error) = cause.downcast_ref::<UtxoError>() {
        return of_utxo(error);
    }
    if let Some(error) = cause.downcast_ref::<ArchiveError>() {
        let code = error.exit_code();
        return Some(TABLE.iter().find(|(exit, _)| exit.code() == code)?.0);
    }
    cause.downcast_ref::<io::Error>().map(of_io)
}

fn of_index(error: &IndexError) -> Exit {
    match error.class() {
        ErrorClass::Pruned => Exit::Pruned,
        ErrorClass::InvalidCursor => Exit::InvalidCursor,
        ErrorClass::Decode => Exit::Decode,
        ErrorClass::ArchiveIo => Exit::Archive,
        ErrorClass::Sink => Exit::Sink,
        ErrorClass::Refused => Exit::Refused,
        _ => Exit::Failed,
    }
}

fn of_sql(error: &SqlError) -> Exit {
    match error {
        SqlError::Failed { .. } => Exit::Sink,
        SqlError::Full { .. } => Exit::DiskFull,
        SqlError::Unreadable { .. } => Exit::Corrupt,
        SqlError::Refused(_) => Exit::Refused,
    }
}

fn of_sidecar(error: &SidecarError) -> Option<Exit> {
    Some(match error {
        SidecarError::Store(error) => of_store(error),
        SidecarError::Decode(error) => of_core(error),
        SidecarError::Key { .. } => Exit::Usage,
        SidecarError::BlobsPruned { .. } => Exit::Pruned,
        SidecarError::NoCopy { .. } | SidecarError::Provider(_) => Exit::Archive,
        SidecarError::Missing { .. } => Exit::Corrupt,
        SidecarError::Refused { .. }
        | SidecarError::TooManyUndecided { .. }
        | SidecarError::MayNotSign { .. }
        | SidecarError::NoIdentity { .. }
        | SidecarError::RoundConflict { .. }
        | SidecarError::DecidedOtherwise { .. }
        | SidecarError::RecordConflict { .. } => Exit::Refused,
        _ => return None,
    })
}

fn of_utxo(error: &UtxoError) -> Option<Exit> {
    if error.is_disk_full() {
        return Some(Exit::DiskFull);
    }
    Some(match error {
        UtxoError::Store { .. } => Exit::Sink,
        UtxoError::Damaged { .. } => Exit::Corrupt,
        UtxoError::Pruned { .. } => Exit::Pruned,
        UtxoError::Malformed { .. }
        | UtxoError::TooManyOutputs { .. }
        | UtxoError::TooManyInputs { .. }
        | UtxoError::Setting(_) => Exit::Usage,
        UtxoError::File { .. } | UtxoError::NoAnswer { .. } | UtxoError::FileUnsettled { .. } => {
            Exit::Archive
        }
        UtxoError::NotPreserved { source, .. } | UtxoError::Interrupted { source, .. } => {
            return of_utxo(source);
        }
        // Its cause has a code.
        UtxoError::Files(error) => return of_cause(error),
        UtxoError::Service { .. } => Exit::Failed,
        _ => Exit::Refused,
    })
}

fn of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Lookup(LookupError::Pruned { .. })
        | StoreError::Export(ExportError::Pruned { .. }) => Exit::Pruned,
        StoreError::Export(ExportError::InvalidCursor { .. }) => Exit::InvalidCursor,
        StoreError::Export(ExportError::Limit { .. }) => Exit::Usage,
        StoreError::Invalid(error) => of_core(error),
        StoreError::Refused { .. } => Exit::Refused,
        StoreError::DiskFull { .. } => Exit::DiskFull,
        // Half a store, or another store's arena, inside a directory that is ours: damage.
        StoreError::Corrupt { .. }
        | StoreError::Foreign(_)
        | StoreError::StaleGeneration { .. } => Exit::Corrupt,
        StoreError::Locked(_) => Exit::Locked,
        StoreError::Io { source, .. } => of_io(source),
        _ => Exit::Failed,
    }
}

fn of_core(error: &CoreError) -> Exit {
    match error {
        CoreError::InvalidPolicy(_) | CoreError::InvalidInput { .. } => Exit::Usage,
        CoreError::Decode { .. } | CoreError::TooLong { .. } => Exit::Decode,
        _ => Exit::Failed,
    }
}

fn of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::DiskFull,
        // A file that ends too early or holds what it cannot hold.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Exit::Corrupt,
        _ => Exit::Failed,
    }
}

/// Says what went wrong on standard error and returns the code to end with.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        // Whoever read our output has seen enough.
        return Exit::Done.into();
    }
    let exit = exit_of(error);
    let causes = causes(error);
    if json {
        print_json(&causes.join(": "), exit);
    } else if !log::is_for_people() {
        log::write_json(&causes.join(": "), Some(exit.code()));
    } else {
        print_line(&format!("error: {}", causes.join("\n  because: ")));
    }
    exit.into()
}

/// The same shape for every error, whoever found it.
pub(crate) fn print_json(error: &str, exit: Exit) {
    print_line(&serde_json::json!({ "error": error, "exit_code": exit.code() }).to_string());
}

fn print_line(line: &str) {
    // When nobody reads standard error, the code still tells.
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

/// The texts of an error and its causes, without what the text before already tells.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let mut text = cause.to_string();
        let is_told = texts.iter().any(|told| told.contains(UNCHANGED));
        if let Some(rest) = text.strip_suffix(UNCHANGED).filter(|_| is_told) {
            text.truncate(rest.trim_end_matches("; ").len());
        }
        if !texts.iter().any(|told| told.contains(&text)) {
            texts.push(text);
        }
    }
    texts
}

/// The index turns a panic over a damaged page into an error that says so. The panic's own
/// message would only stand beside it and frighten.
pub(crate) fn quiet_index_panics() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let in_index = panic.location().is_some_and(|place| place.file().contains("/redb-"));
        if in_index {
            return;
        }
        if log::is_for_people() {
            shown(panic);
        } else {
            log::write_json(&panic.to_string(), None);
        }
    }));
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_table_lists_every_code_once_in_order() {
        let codes: Vec<u8> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, (0..=11).collect::<Vec<u8>>());
    }

    #[test]
    fn an_error_keeps_its_code_under_any_context() {
        let wrap =
            |error: StoreError| exit_of(&anyhow::Error::from(error).context("while testing"));
        let pruned = LookupError::Pruned { pruned_before_block: 7 };
        assert_eq!(wrap(pruned.into()), Exit::Pruned);
        assert_eq!(wrap(StoreError::Locked("x".into())), Exit::Locked);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(wrap(StoreError::io("x", full)), Exit::DiskFull);
        let policy = CoreError::InvalidPolicy("x".into());
        assert_eq!(wrap(policy.into()), Exit::Usage);
        let wrap = |error: IndexError| exit_of(&anyhow::Error::from(error).context("x"));
        assert_eq!(wrap(IndexError::Pruned { wanted: 1, pruned_before_block: 2 }), Exit::Pruned);
        assert_eq!(wrap(IndexError::InvalidCursor("x".into())), Exit::InvalidCursor);
        assert_eq!(wrap(IndexError::decode(1, "x")), Exit::Decode);
        assert_eq!(wrap(IndexError::sink("x")), Exit::Sink);
        let archive = IndexError::ArchiveIo { reason: "x".into(), retryable: false };
        assert_eq!(wrap(archive), Exit::Archive);
        let wrap = |error: SqlError| exit_of(&anyhow::Error::from(error).context("x"));
        let failed = SqlError::Failed { reason: "x".into(), retryable: true };
        assert_eq!(
            (wrap(failed), wrap(SqlError::Refused("x".into()))),
            (Exit::Sink, Exit::Refused)
        );
        let wrap = |error: UtxoError| exit_of(&anyhow::Error::from(error).context("x"));
        let source = Box::new(UtxoError::Store { reason: "x".into(), retryable: true });
        let interrupted = UtxoError::Interrupted { height: 1, deleted: 2, source };
        assert_eq!(wrap(interrupted), Exit::Sink);
        let source = Box::new(UtxoError::NoWrites { reason: "stop_writes".into() });
        let full = UtxoError::Interrupted { height: 1, deleted: 0, source };
        assert_eq!(wrap(full), Exit::DiskFull, "a cut is a write, and a namespace took no more");
        assert_eq!(wrap(UtxoError::Foreign { reason: "x".into() }), Exit::Refused);
        assert_eq!(wrap(SqlError::Refused("x".into()).into()), Exit::Refused);
    }

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let source = io::Error::other("the disk is on fire");
        let failed: Result<(), _> = Err(StoreError::io("reading", source));
        let error = failed.context("opening the store").unwrap_err();
        assert_eq!(
            causes(&error),
            vec!["opening the store", "reading failed: the disk is on fire"]
        );
        let inner = NodeError::Usage("a path is wanted; nothing was changed".into());
        let error = anyhow::Error::from(inner).context(NodeError::Usage("no place".into()));
        assert_eq!(causes(&error), vec!["no place; nothing was changed", "a path is wanted"]);
    }
}
