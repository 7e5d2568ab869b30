//! The words of `secateur utxo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secateur_core::Height;

#[derive(Debug, Args)]
pub(crate) struct UtxoArgs {
    /// The configuration file [default: secateur.toml in utxo/ of the data directory, in the data
    /// directory, or in this one, if it is there]
    #[arg(long, global = true, env = "SECATEUR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where records are: `sqlite:///path`, `postgres://…`, or `aerospike://…` in a program built with
    /// it [default: utxo/utxo.sqlite in the data directory]
    #[arg(long, global = true, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The place of external files: a directory, or `s3://bucket/prefix` [default: files/ beside an
    /// SQLite store]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) files: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: UtxoVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UtxoVerb {
    /// Run the service: records come in over gRPC, events of the chain set prunes off
    Serve(UtxoServeArgs),
    /// Show the records, the heights and what is past due
    Status,
    /// Show what a prune would do now
    Plan {
        /// At this height [default: the chain's top, or the last one processed]
        #[arg(long, value_name = "HEIGHT")]
        height: Option<Height>,
    },
    /// Prune now: preserve the parents of old unmined transactions, then delete what is due
    Prune {
        /// At this height [default: the chain's top, or the last one processed]
        #[arg(long, value_name = "HEIGHT")]
        height: Option<Height>,
        /// Only show the plan
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Tell the story of a transaction: what spends it, what keeps it, when it goes
    Explain {
        /// The transaction's id, 64 hexadecimal digits
        txid: String,
    },
    /// List past runs, newest first
    Jobs,
}

/// What the service can be told on the command line; all of it is in the configuration too.
#[derive(Debug, Default, Args)]
pub(crate) struct UtxoServeArgs {
    /// Where gRPC listens [default: 127.0.0.1:8096]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Where metrics, /healthz and /readyz are [default: 127.0.0.1:8097]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Listen to the events of this blockchain service
    #[arg(long, value_name = "URL")]
    pub(crate) blockchain: Option<String>,
    /// Ask this block assembly before every run
    #[arg(long, value_name = "URL")]
    pub(crate) assembly: Option<String>,
    /// What sets a prune off: auto, persisted or mined [default: auto]
    #[arg(long, value_name = "MODE")]
    pub(crate) trigger: Option<String>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log one JSON object a line
    #[arg(long)]
    pub(crate) json_logs: bool,
}
