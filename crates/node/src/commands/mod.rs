//! The commands on a data directory, a file each. A command opens the directory, asks the store,
//! and shows the answer; nothing is decided here.

mod archive;
mod blob;
mod config;
mod explain;
mod holds;
mod index;
mod node;
mod plan;
mod policy;
mod prune;
mod pruning;
mod status;
mod utxo;
mod verify;

pub(crate) use policy::changes as policy_changes;

use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::cli::{Cli, Command};
use crate::data_dir::DEFAULT_DATA;
use crate::desk::Whole;
use crate::ui::{self, Ui};
use crate::{demo, desk};

/// Runs what the command line asks for.
pub(crate) fn run(cli: Cli) -> Result<(), anyhow::Error> {
    let ui = Ui { json: cli.json };
    let named = cli.data;
    let open = |named: Option<PathBuf>| desk::open(named, DEFAULT_DATA);
    let whole = |named: Option<PathBuf>| Whole::open(&named.unwrap_or_else(|| DEFAULT_DATA.into()));
    match cli.command {
        Command::Demo(args) => demo::run(&args, named, ui),
        Command::Node(args) => node::run(&args, named),
        Command::Index(command) => index::run(*command, named.as_deref(), ui),
        Command::Archive(args) => archive::run(&args, ui),
        Command::Blob(args) => blob::run(&args, named, ui),
        Command::Utxo(args) => utxo::run(&args, named, ui),
        Command::Config(verb) => config::run(&verb, named, ui),
        Command::Status => status::run(whole(named)?, ui),
        Command::Plan => plan::run(&open(named)?, ui),
        Command::Prune(args) => prune::run(&open(named)?, &args, ui),
        Command::Pruning(args) => pruning::run(&open(named)?, &args, ui),
        Command::Policy(verb) => policy::run(&open(named)?, &verb, ui),
        Command::Holds(args) => holds::run(&open(named)?, args.verb.as_ref(), ui),
        Command::Explain(verb) => explain::run(named, &verb, ui),
        Command::Verify(args) => verify::run(&whole(named)?, &args, ui),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "secateur", &mut script);
            ui::print(&String::from_utf8_lossy(&script))
        }
    }
}
