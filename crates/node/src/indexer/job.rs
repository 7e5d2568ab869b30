//! What an index is to do, whoever says so.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secateur_archive::{Archive, Check, Grain};
use secateur_core::{Height, Strength};
use secateur_evm::Verify;
use secateur_index::LogFilter;
use secateur_index::codec::CodecName;
use secateur_index::source::GrpcOptions;
use secateur_index::worker::OnPruned;

use crate::config::ArchivePlace;
use crate::error::NodeError;
use crate::http::Origins;

/// Where blocks come from.
#[derive(Debug, Clone)]
pub(crate) enum BlocksFrom {
    /// A node.
    Node(GrpcOptions),
    /// The parts of an archive: an index is built again without a node.
    Archive(ArchivePlace),
    /// A canister of the Internet Computer. A program without its client has refused it by then.
    #[cfg(feature = "ic")]
    Canister(Canister),
}

/// How a canister is reached.
#[derive(Debug, Clone)]
#[cfg(feature = "ic")]
pub(crate) struct Canister {
    /// `ic://<canister id>`.
    pub(crate) source: String,
    /// Where its network answers.
    pub(crate) url: String,
    /// A file with the key of one of its consumers or controllers.
    pub(crate) identity: Option<PathBuf>,
}

impl std::fmt::Display for BlocksFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(options) => f.write_str(&options.url),
            Self::Archive(place) => write!(f, "{}", place.url),
            #[cfg(feature = "ic")]
            Self::Canister(canister) => f.write_str(&canister.source),
        }
    }
}

/// What a data directory says of the node that has it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Its chain.
    pub(crate) chain_id: Option<u64>,
    /// Its store; known only while a node runs there.
    pub(crate) store_id: Option<[u8; 16]>,
}

/// How long a failure may last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Then there is an alarm, and attempts are further apart.
    pub(crate) alarm_after: Duration,
    /// How far apart.
    pub(crate) pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { alarm_after: Duration::from_mins(1), pause: Duration::from_mins(1) }
    }
}

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowsInto {
    Sqlite(PathBuf),
    /// Its address, which may hold a password: it is never shown.
    Postgres(String),
}

/// An archive to be written.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveJob {
    pub(crate) place: ArchivePlace,
    pub(crate) stage: PathBuf,
    pub(crate) grain: Grain,
    /// Whether the source is told of each part.
    pub(crate) acknowledge: bool,
}

/// What is to be done.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) source: BlocksFrom,
    /// The directory whose node the source is to be, if one was named or found.
    pub(crate) directory: Option<Directory>,
    pub(crate) sink: RowsInto,
    pub(crate) archive: Option<ArchiveJob>,
    pub(crate) codec: CodecName,
    pub(crate) verify: Verify,
    pub(crate) logs: LogFilter,
    pub(crate) on_pruned: OnPruned,
    pub(crate) consumer: Option<String>,
    /// How strong the consumer's hold is.
    pub(crate) strength: Strength,
    pub(crate) retention_days: Option<u32>,
    pub(crate) workers: usize,
    /// Payload bytes in flight at most.
    pub(crate) budget_bytes: u64,
    pub(crate) patience: Patience,
    pub(crate) http: Option<SocketAddr>,
    /// Whose pages may read what is answered there.
    pub(crate) cors_origins: Origins,
    pub(crate) chain_id: Option<u64>,
    /// Ends when everything is written.
    pub(crate) once: bool,
    /// Ends with this block.
    pub(crate) to: Option<Height>,
}

impl Job {
    /// Whether it ends by itself.
    pub(super) fn ends(&self) -> bool {
        self.once || self.to.is_some()
    }

    /// How far the parts of an archive are checked, as a source.
    pub(super) fn check(&self) -> Check {
        match self.verify {
            Verify::Full => Check::Full,
            Verify::Hash => Check::Hash,
            Verify::Off => Check::Framing,
        }
    }
}

impl RowsInto {
    /// `sqlite:<file>` or `postgres://…`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        // The text is not repeated: it may be an address with a password whose beginning is wrong.
        Err("sqlite:<file> or postgres://… is wanted".into())
    }
}

/// Refuses a password on a command line, where every user of the machine can read it.
pub(crate) fn no_password(flag: &str, key: &str, text: &str) -> Result<(), NodeError> {
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    let named = text.split(['?', '&', ' ']).any(|pair| pair.starts_with("password="));
    if named || user.is_some_and(|user| user.contains(':')) {
        let variable = key.replace('.', "_").to_uppercase();
        return Err(NodeError::Usage(format!(
            "--{flag} holds a password, which everybody on this machine can read; put it into \
             ~/.pgpass, or the address into SECATEUR_{variable} or the configuration file ({key}), \
             and leave --{flag} out"
        )));
    }
    Ok(())
}

/// The chain that is named, or the only one that an archive has.
pub(crate) async fn only_chain(
    archive: &Archive,
    named: Option<u64>,
) -> Result<u64, anyhow::Error> {
    if let Some(id) = named {
        return Ok(id);
    }
    match archive.chains().await?.as_slice() {
        [only] => Ok(*only),
        [] => Err(NodeError::Archive(format!("there is no part in {}", archive.provider())).into()),
        several => {
            let several: Vec<String> = several.iter().map(u64::to_string).collect();
            Err(NodeError::Usage(format!(
                "{} holds several chains ({}); name one with --chain-id",
                archive.provider(),
                several.join(", ")
            ))
            .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_on_a_command_line_is_refused_wherever_it_stands_and_not_repeated() {
        for text in [
            "postgres://me:secret@host/db",
            "postgres://me@host/db?password=secret",
            "postgres://me@host/db?sslmode=require&password=secret",
            "host=here password=secret",
        ] {
            let error = no_password("sink", "index.sink", text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        for text in ["postgres://me@host/db", "postgres://[::1]:5432/db", "sqlite:a:b"] {
            no_password("sink", "index.sink", text).unwrap();
        }
    }
}
