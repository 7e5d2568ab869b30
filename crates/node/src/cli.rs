//! The command line, as clap reads it. Only shapes and help texts live here.

mod blob;
mod utxo;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use secateur_core::{Height, TxId};

pub(crate) use blob::{BlobArgs, BlobVerb, RecordsVerb};
pub(crate) use utxo::{UtxoArgs, UtxoServeArgs, UtxoVerb};

use crate::exit::{self, Exit};
use crate::ui::log;

/// Keeps a blockchain node's data inside a byte budget, never deletes what is still needed, and
/// keeps whatever it deleted findable.
#[derive(Debug, Parser)]
#[command(name = "secateur", version, after_help = exit::help(), arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The data directory [default: ./secateur-data; for `demo` ./secateur-demo]
    #[arg(long, global = true, env = "SECATEUR_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Answer in JSON; errors too, on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a generated chain live under a small budget, and watch it being pruned
    Demo(DemoArgs),
    /// Run the node: history store, prune daemon, gRPC, HTTP and JSON-RPC
    Node(ServiceArgs),
    /// Pull a node's history into SQLite or PostgreSQL, and into an archive
    Index(Box<IndexCommand>),
    /// List, prove, read and restore the parts of an archive
    Archive(ArchiveArgs),
    /// Show, archive again, prune and fetch blobs; make the key that notices are signed with
    Blob(BlobArgs),
    /// Keep UTXO records and prune the spent ones: run the service, or ask about it
    Utxo(UtxoArgs),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Show the budget, the boundary, the holds and what is due
    Status,
    /// Show what a prune would do now, and what stops it
    Plan,
    /// Prune now: cut what is due, oldest first, as policy and holds allow
    Prune(PruneArgs),
    /// Switch the prune daemon on or off
    Pruning(PruningArgs),
    /// Show or change the prune policy
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// List the holds; register or remove the hold of an export consumer
    Holds(HoldsArgs),
    /// Tell the story of a block, a transaction or a blob: is it here, was it cut, when, why, who
    /// holds it
    #[command(subcommand)]
    Explain(ExplainVerb),
    /// Recompute every invariant from scratch and report each difference
    Verify(VerifyArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct DemoArgs {
    /// Append this many blocks in this run, unpaced, then end with a summary [default: about 20
    /// blocks a second until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) blocks: Option<u64>,
    /// The byte budget of a new demo [default: 24MiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) budget: Option<String>,
    /// The seed of a new demo's chain [default: 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Where HTTP, JSON-RPC and metrics listen; it must be free [default: 127.0.0.1:7740, or any free
    /// port]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Where gRPC listens; it must be free [default: 127.0.0.1:7741, or any free port]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    /// Only the history: no index, no archive, no blobs and no UTXO records, and pruning waits for
    /// none of them
    #[arg(long)]
    pub(crate) no_archive: bool,
    /// No validators and no blobs
    #[arg(long)]
    pub(crate) no_blobs: bool,
    /// No UTXO chain
    #[arg(long)]
    pub(crate) no_utxo: bool,
    /// Print plain lines even on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Print `ack <height> <hash>` as soon as a block is acknowledged
    #[arg(long, hide = true)]
    pub(crate) acks: bool,
}

/// What every service can be told on the command line; all of it is in the configuration too.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServiceArgs {
    /// The configuration file [default: ./secateur.toml, if it is there]
    #[arg(long, env = "SECATEUR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where HTTP, JSON-RPC and metrics listen [default: 127.0.0.1:7740]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Where gRPC listens [default: 127.0.0.1:7741]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log one JSON object a line
    #[arg(long)]
    pub(crate) json_logs: bool,
    /// Follow the chain of an EVM node by its JSON-RPC address
    #[arg(long, value_name = "URL")]
    pub(crate) follow: Option<String>,
    /// The first block of a new store that follows: a number, or `finalized` [default: 0]
    #[arg(long, value_name = "BLOCK")]
    pub(crate) start: Option<String>,
    /// Follow the blobs of a beacon node by its HTTP address, once their slots are final
    #[arg(long, visible_alias = "beacon", value_name = "URL")]
    pub(crate) follow_beacon: Option<String>,
    /// The first slot of new blobs: a number, or `finalized` [default: finalized]
    #[arg(long, value_name = "SLOT")]
    pub(crate) beacon_start: Option<String>,
    /// The byte budget of the history, such as 64G (GiB); 0 means none
    #[arg(long, value_name = "BYTES")]
    pub(crate) budget: Option<String>,
    /// The chain's number, for a new data directory
    #[arg(long, value_name = "ID")]
    pub(crate) chain_id: Option<u64>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct IndexCommand {
    #[command(subcommand)]
    pub(crate) verb: Option<IndexVerb>,
    #[command(flatten)]
    pub(crate) args: IndexArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexVerb {
    /// Move an index from SQLite to PostgreSQL, and compare both before saying done
    Promote {
        /// The index that is moved: sqlite:<file>
        #[arg(long, value_name = "SINK")]
        from: String,
        /// Where it goes: postgres://… [default: index.sink]
        #[arg(long, value_name = "SINK")]
        to: Option<String>,
    },
    /// Fill blocks below the cursor again: gaps, logs that are wanted since, rows to be decoded anew
    Backfill(Box<BackfillArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct BackfillArgs {
    /// `first..last`, both included; `first..` means up to the cursor; `gaps` means all that `gaps` lists
    pub(crate) range: String,
    /// Where blocks come from [default: the node, and what it has cut from the archive if one is named]
    #[arg(long, value_name = "WHERE")]
    pub(crate) from: Option<FillFrom>,
    #[command(flatten)]
    pub(crate) args: IndexArgs,
}

/// Where a backfill has its blocks from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FillFrom {
    /// The node (`--source`) alone
    Node,
    /// The parts of the archive (`--archive`, or an archive as `--source`) alone
    Archive,
}

/// What an index can be told on the command line; nearly all of it is in the configuration too.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct IndexArgs {
    /// The configuration file [default: ./secateur.toml, if it is there]
    #[arg(long, env = "SECATEUR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node's gRPC address, or an archive to index its parts [default: the node that has --data
    /// open, else 127.0.0.1:7741]
    #[arg(long, value_name = "URL")]
    pub(crate) source: Option<String>,
    /// Where rows go: sqlite:<file> or postgres://…
    #[arg(long, value_name = "SINK")]
    pub(crate) sink: Option<String>,
    /// Archive too: a directory, or `s3://bucket/prefix`
    #[arg(long, value_name = "URL")]
    pub(crate) archive: Option<String>,
    /// Where parts are made [default: stage/ beside the index]
    #[arg(long, value_name = "DIR")]
    pub(crate) stage: Option<String>,
    /// The most blocks of a part [default: a day's, or 1 GiB of them]
    #[arg(long, value_name = "N")]
    pub(crate) part_blocks: Option<u64>,
    /// The most bytes of a part before compression [default: 1GiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) part_bytes: Option<String>,
    /// evm, kasane or opaque [default: evm]
    #[arg(long, value_name = "CODEC")]
    pub(crate) codec: Option<String>,
    /// How far blocks are recomputed: full, hash or off [default: full]
    #[arg(long, value_name = "HOW")]
    pub(crate) verify: Option<String>,
    /// What to do about pruned blocks: stop, or rebase above them and note the gap [default: stop]
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_pruned: Option<String>,
    /// Register at the node as a consumer of this name: nothing is cut that it does not have
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// The consumer's hold never gives way, a full disk included
    #[arg(long, requires = "consumer")]
    pub(crate) hard: bool,
    /// A file with a token for the node, readable by its owner alone; its `node.json` is one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<String>,
    /// Certificates (PEM) to trust instead of the system's, for an https:// source
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Where the network of an ic:// source answers [default: <https://icp-api.io>]
    #[arg(long, value_name = "URL")]
    pub(crate) ic_url: Option<String>,
    /// A file with the key (PEM) of a consumer or controller of an ic:// source, readable by its owner
    /// alone
    #[arg(long, value_name = "FILE")]
    pub(crate) ic_identity: Option<String>,
    /// How long rows are kept, such as 90d; 0 means for ever [default: 90d]
    #[arg(long, value_name = "DAYS")]
    pub(crate) retention_days: Option<String>,
    /// Keep logs of this contract, or of `all`; may come again
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) log_address: Vec<String>,
    /// Keep logs with this first topic; may come again
    #[arg(long, value_name = "TOPIC")]
    pub(crate) log_topic: Vec<String>,
    /// Workers that share a backfill (PostgreSQL) [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u64>,
    /// Payload bytes that wait between source and sink at most [default: 16MiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) budget_bytes: Option<String>,
    /// Serve the read-only API and metrics here
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// The chain's number, if the source does not say it
    #[arg(long, value_name = "ID")]
    pub(crate) chain_id: Option<u64>,
    /// End when everything is written
    #[arg(long)]
    pub(crate) once: bool,
    /// End when this block is written
    #[arg(long, value_name = "BLOCK")]
    pub(crate) to: Option<Height>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log one JSON object a line
    #[arg(long)]
    pub(crate) json_logs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// The configuration file [default: ./secateur.toml, if it is there]
    #[arg(long, env = "SECATEUR_CONFIG", value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The archive: a directory, or `s3://bucket/prefix` [default: archive.url]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) archive: Option<String>,
    /// The chain's number, if the archive holds several
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) chain_id: Option<u64>,
    #[command(subcommand)]
    pub(crate) verb: ArchiveVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveVerb {
    /// List the parts in the order of their heights
    Ls {
        /// Only parts that end at this block or above
        #[arg(long, value_name = "BLOCK", default_value_t = 0)]
        from: Height,
        /// At most so many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Prove from the archive alone that every part is whole, links and leaves no gap
    Verify {
        /// Recompute every block from its bytes too
        #[arg(long)]
        full: bool,
        /// Look at names, manifests and tables only
        #[arg(long, conflicts_with = "full")]
        quick: bool,
        /// How far it must reach
        #[arg(long, value_name = "BLOCK")]
        upto: Option<Height>,
    },
    /// Fetch one block, by its number or a transaction's hash, and recompute it
    Fetch {
        /// A block's number or a transaction's hash
        what: String,
        /// An index that knows where transactions are: sqlite:<file> or postgres://…
        #[arg(long, value_name = "SINK")]
        index: Option<String>,
        /// Write the block's bundle to this file
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Append archived blocks to a store, byte for byte as they were
    Restore {
        /// `first..last`, both included; `first..` means to the end
        range: String,
        /// The data directory; it is made if it is missing
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// The byte budget of a new data directory, such as 64G (GiB); its regions suit it
        /// [default: `policy.target_bytes`, or none]
        #[arg(long, value_name = "BYTES")]
        budget: Option<String>,
    },
    /// List the heights that are in no part
    Gaps {
        /// How far it must reach
        #[arg(long, value_name = "BLOCK")]
        upto: Option<Height>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Say whether the configuration is sound
    Check(ServiceArgs),
    /// Print every key with its value and where it came from
    Show(ServiceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Nominal operations of one tick [default: the policy's `max_ops_per_tick`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_ops: Option<u64>,
    /// Only show the plan
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PruningArgs {
    /// The kill switch
    pub(crate) switch: Switch,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// The daemon prunes what is due
    On,
    /// The daemon rests; `prune` still works
    Off,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Print the policy in force
    Show,
    /// Change one or more keys, all or none: `target_bytes=64MiB retain_days=14d`
    Set {
        /// What to change
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HoldsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<HoldsVerb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HoldsVerb {
    /// Register an export consumer: nothing that it has not acknowledged is cut
    Add {
        /// Its name
        name: String,
        /// Its hold gives way while the budget is draining (the default)
        #[arg(long, conflicts_with = "hard")]
        soft: bool,
        /// Its hold never gives way, a full disk included
        #[arg(long)]
        hard: bool,
    },
    /// Remove an export consumer and its hold
    Remove {
        /// Its name, with or without `export:`
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExplainVerb {
    /// A block, by its number
    Block {
        /// The block's number
        height: Height,
    },
    /// A transaction, by its hash
    Tx {
        /// The transaction's hash
        hash: TxId,
    },
    /// A blob, by its height and its place there: stored, decided, archived, pruned, fetched how
    Blob {
        /// The height
        height: Height,
        /// The blob's place in the block, from 0 on
        index: u32,
        /// The configuration file of the directory [default: as for `blob`]
        #[arg(long, env = "SECATEUR_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Put back what can be derived: the free list, the counters, orphaned regions
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair: only say what it would do
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Reads the command line. Help goes to standard output; a mistake is told with exit code 2, as
/// JSON if that was asked for.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let mistake = error.use_stderr();
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        if mistake && std::env::args_os().any(|arg| arg == "--json") {
            exit::print_json(text, Exit::Usage);
        } else if mistake && log::is_json_asked_for() {
            log::write_json(text, Some(Exit::Usage.code()));
        } else if error.print().is_err() {
            // Nobody reads; the code still tells.
        }
        if mistake { Exit::Usage } else { Exit::Done }.into()
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_its_help_lists_the_exit_codes() {
        Cli::command().debug_assert();
        let help = Cli::command().render_help().to_string();
        assert!(help.contains("10  another process"), "{help}");
    }
}
