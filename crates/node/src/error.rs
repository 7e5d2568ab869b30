//! What this crate itself finds wrong. Each message says what happened, what was not changed and
//! what to do; `exit.rs` gives it its code.

use std::path::PathBuf;

use crate::config::Unsound;
use crate::exit::Exit;
use crate::ui::words::plural;

/// An error of the command line, the data directory or the demo.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(
        "there is no data directory at {}; nothing was changed. Name one with --data <dir> or \
         SECATEUR_DATA, or make one with `secateur demo`", .0.display()
    )]
    Missing(PathBuf),
    /// A directory without a node that runs.
    #[error(
        "no node is running on {}; nothing was changed. Start one with `secateur --data {} node`, or name \
         the source with --source http://host:port", .0.display(), .0.display()
    )]
    NoNode(PathBuf),
    #[error("{} is not a directory; nothing was changed", .0.display())]
    NotADirectory(PathBuf),
    #[error(
        "{} is not a Secateur data directory: it holds other files and no store.toml; nothing \
         was changed. Name an empty or new directory with --data <dir>", .0.display()
    )]
    ForeignDirectory(PathBuf),
    #[error(
        "{} was written by a newer secateur (directory format {found}, this one knows {known}); \
         nothing was changed. Use a newer secateur", path.display()
    )]
    NewerDirectory { path: PathBuf, found: i64, known: u32 },
    #[error("{} is damaged: {reason}; nothing was changed. Restore it from a backup", path.display())]
    BadFile { path: PathBuf, reason: String },
    #[error(
        "{} is a symbolic link, and a link is not followed here; nothing was changed. Put the \
         file itself there", .0.display()
    )]
    Symlink(PathBuf),
    #[error(
        "{} cannot be written: the file system is read-only or the permission is missing; \
         nothing was changed. Mount it writable, or run as the owner", .0.display()
    )]
    NotWritable(PathBuf),
    #[error(
        "{} is in use by another process{}; nothing was changed. Stop that process first \
         (a running demo stops with Ctrl-C), or wait for it", path.display(), process(*pid)
    )]
    Locked { path: PathBuf, pid: Option<u32> },
    /// Whoever has it takes no calls.
    #[error(
        "{} is in use by another process{}, which takes no calls: a service that is starting and \
         waits for its database (its log and /readyz say so), or another command; nothing was \
         changed. Ask again in a while", path.display(), process(*pid)
    )]
    NotUp { path: PathBuf, pid: Option<u32> },
    #[error(
        "store.toml says chain {directory}, the history's own header says chain {store}; nothing \
         was changed. The files come from two stores: put back the ones that belong together"
    )]
    ChainMismatch { directory: u64, store: u64 },
    #[error(
        "there is no history in {}: its creation was interrupted, or its files were removed; \
         nothing was changed. Run the command that made it again, or restore the files", .0.display()
    )]
    NoHistory(PathBuf),
    /// A family that was made and is not there any more.
    #[error(
        "there {} in {}, though {} says that a store was made here: its files were removed; nothing was \
         changed. Restore the directory from a backup. To begin anew without what was in it, take \
         \"{family}\" out of that file{}",
        Gone::of(family).there, place.display(), noted.display(), Gone::of(family).caution
    )]
    Lost { family: &'static str, place: PathBuf, noted: PathBuf },
    #[error(
        "there are no blobs in {}: nothing was changed. `secateur node` keeps them with \
         `sidecar.enabled = true`, and `secateur demo` makes some", .0.display()
    )]
    NoBlobs(PathBuf),
    #[error(
        "there are no UTXO records at {}; nothing was changed. `secateur utxo serve` makes them, and \
         `secateur demo` makes some", .0.display()
    )]
    NoUtxo(PathBuf),
    /// What was asked for is known and its bytes are not here.
    #[error("{}", unchanged(.0))]
    Pruned(String),
    #[error(
        "{0} asks first, and here is no terminal to ask on; nothing was changed. Add --yes if \
         you mean it"
    )]
    NeedsYes(&'static str),
    #[error("{0} was not confirmed; nothing was changed")]
    NotConfirmed(&'static str),
    #[error("{}", unchanged(.0))]
    Usage(String),
    /// All that is wrong with a configuration.
    #[error("{0}")]
    Unsound(Box<Unsound>),
    #[error("{}", unchanged(.0))]
    Refused(String),
    #[error("{}", unchanged(.0))]
    Failed(String),
    /// Nobody knows whether it is done.
    #[error("{0}")]
    Unanswered(String),
    /// The disk of a database is full.
    #[error("{0}")]
    DiskFull(String),
    #[error("{0}")]
    Database(String),
    /// What a database holds does not read back.
    #[error("{0}")]
    Damage(String),
    /// A part of what was wanted was done.
    #[error("{0}; what was done before stays done, and the next run goes on")]
    Unfinished(String),
    #[error("{}", unchanged(.0))]
    Archive(String),
    /// Records stay because their files are somewhere else.
    #[error("{0}; the others are done")]
    FilesAway(String),
    /// A part of what was wanted was written.
    #[error("{0}. To have the rest, archive it first and restore again: it goes on behind them")]
    Restored(String),
    /// A part of a range was filled.
    #[error("{0}; the others are written")]
    NotFilled(String),
    #[error("the archive is not whole: {}, above{hint}", plural(*found, "finding"))]
    ArchiveDamaged { found: u64, hint: &'static str },
    #[error(
        "verify found {}, {repairable} of them can be repaired{hint}",
        plural(*found, "difference")
    )]
    Damaged { found: u64, repairable: u64, hint: &'static str },
    /// A thread ended without a result; its own message stands on standard error.
    #[error("the {0} thread stopped unexpectedly; what was acknowledged before is safe")]
    ThreadDied(&'static str),
}

/// How errors say that they left everything alone.
pub(crate) const UNCHANGED: &str = "nothing was changed";

/// A text that says so; whoever found the error may have said it already.
fn unchanged(text: &str) -> String {
    if text.contains(UNCHANGED) { text.to_owned() } else { format!("{text}; {UNCHANGED}") }
}

/// What is said of a family that is gone.
struct Gone {
    there: &'static str,
    caution: &'static str,
}

impl Gone {
    fn of(family: &str) -> Self {
        match family {
            "sidecars" => Self {
                there: "are no blobs",
                caution: "; a validator needs a new key for notices then, because it has forgotten \
                          what it signed",
            },
            _ => Self { there: "is no history", caution: "" },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl NodeError {
    /// Its exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Missing(_)
            | Self::NoNode(_)
            | Self::NotADirectory(_)
            | Self::ForeignDirectory(_)
            | Self::NewerDirectory { .. }
            | Self::Symlink(_)
            | Self::NotWritable(_)
            | Self::NoBlobs(_)
            | Self::NoUtxo(_)
            | Self::Unfinished(_)
            | Self::NotConfirmed(_)
            | Self::Failed(_)
            | Self::Unanswered(_)
            | Self::ThreadDied(_) => Exit::Failed,
            Self::NeedsYes(_) | Self::Usage(_) => Exit::Usage,
            Self::Unsound(unsound) => unsound.exit(),
            Self::BadFile { .. }
            | Self::ChainMismatch { .. }
            | Self::NoHistory(_)
            | Self::Damage(_)
            | Self::Lost { .. }
            | Self::Damaged { .. } => Exit::Corrupt,
            Self::DiskFull(_) => Exit::DiskFull,
            Self::Database(_) => Exit::Sink,
            Self::Pruned(_) | Self::NotFilled(_) => Exit::Pruned,
            Self::Locked { .. } | Self::NotUp { .. } => Exit::Locked,
            Self::Refused(_) => Exit::Refused,
            Self::Archive(_)
            | Self::FilesAway(_)
            | Self::Restored(_)
            | Self::ArchiveDamaged { .. } => Exit::Archive,
        }
    }
}
