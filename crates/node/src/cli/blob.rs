//! The words of `secateur blob`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secateur_core::Height;

#[derive(Debug, Args)]
pub(crate) struct BlobArgs {
    /// The configuration file, for a directory that no node has open [default: secateur.toml in the
    /// data directory, else in this one, if it is there]
    #[arg(long, global = true, env = "SECATEUR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: BlobVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlobVerb {
    /// Show where each blob of a height is in its life; without a height, the figures of all
    Status {
        /// The height
        height: Option<Height>,
    },
    /// Show what a prune of blobs would do now, and what holds what
    Plan,
    /// Prune blobs now: what is final and archived goes, lowest height first
    Prune {
        /// Only heights below this one
        #[arg(long, value_name = "HEIGHT")]
        before: Option<Height>,
        /// Only show the plan
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Archive a height's blobs again at once, whatever their jobs wait for
    Retry {
        /// The height
        height: Height,
    },
    /// Tell peers this node's own notices of a height again
    Rebroadcast {
        /// The height
        height: Height,
    },
    /// Read a blob from an archived copy and compare it with its hash
    Fetch {
        /// The height
        height: Height,
        /// The blob's place in the block, from 0 on
        index: u32,
        /// Where to write its bytes; nothing is overwritten
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Archive records: who signed for which copies
    #[command(subcommand)]
    Records(RecordsVerb),
    /// Make a key for signing notices, in a file that nobody else can read
    Keygen {
        /// The file; it must not be there yet
        path: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecordsVerb {
    /// Print every archived blob with its records, one JSON object a line, lowest height first
    Export {
        /// The first height
        #[arg(long, value_name = "HEIGHT", default_value_t = 0)]
        from: Height,
    },
}
