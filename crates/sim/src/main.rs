//! The reliability programme's command.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use parking_lot::Mutex;
use secateur_sidecar::Sabotage as BlobSabotage;
use secateur_sim::enumerate::Plan;
use secateur_sim::script::Op;
use secateur_sim::{corrupt, enumerate, faults, kill, saboteurs, sidecar};
use secateur_store::{Sabotage, StoreError};

#[derive(Debug, Parser)]
#[command(about = "Secateur's reliability programme")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Enumerate crashes, and crashes of recoveries, and check every image.
    Crash {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Distinct images to check; a tenth of them with the real redb.
        #[arg(long, default_value_t = 210_000)]
        images: u64,
        /// Distinct images of crashed recoveries [default: a tenth of the images].
        #[arg(long)]
        recovery: Option<u64>,
        /// Only this ground: seams or disk.
        #[arg(long)]
        ground: Option<String>,
        /// Only this sequence, once: a replay.
        #[arg(long, value_delimiter = ',')]
        sequence: Option<Vec<Op>>,
    },
    /// Damage every stored byte and check that no answer is wrong.
    Corrupt {
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Damage one byte in so many.
        #[arg(long, default_value_t = 1)]
        stride: u64,
    },
    /// Make call n fail, once and for ever, for every n of seeded workloads.
    Faults {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many workloads.
        #[arg(long, default_value_t = 20)]
        workloads: u64,
    },
    /// Kill a real process on a real directory at seeded moments and check what it left.
    Kill {
        #[command(flatten)]
        load: Load,
        /// How often to kill.
        #[arg(long, default_value_t = 20)]
        kills: u64,
    },
    /// The load that `kill` runs and kills.
    #[command(hide = true)]
    Load {
        #[command(flatten)]
        load: Load,
        /// Where.
        #[arg(long)]
        directory: PathBuf,
    },
    /// Simulate four validators' blobs: crashes at every step, lying providers, signers and messages.
    Sidecar {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many seeds.
        #[arg(long, default_value_t = 300)]
        seeds: u64,
        /// Plant each bug and check that the seeds catch it.
        #[arg(long)]
        saboteurs: bool,
    },
    /// Plant each bug and check that it is caught.
    Saboteurs {
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Debug, Args)]
#[group(skip)]
struct Load {
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Blocks to reach.
    #[arg(long, default_value_t = 130_000)]
    blocks: u64,
    /// The budget; the default keeps somewhat over 100,000 blocks.
    #[arg(long, default_value_t = 252 << 20)]
    target_bytes: u64,
}

impl Load {
    fn plan(&self, kills: u64) -> kill::Plan {
        let (seed, blocks, target_bytes) = (self.seed, self.blocks, self.target_bytes);
        kill::Plan { seed, blocks, kills, target_bytes }
    }
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    match command {
        Command::Crash { seed, images, recovery, ground, sequence } => {
            let recovery = recovery.unwrap_or(images / 10);
            let disk_images = images / 10;
            let plan = Plan {
                seed,
                seam_images: images - disk_images,
                disk_images,
                recovery_images: recovery,
                only: sequence,
                sabotage: Sabotage::None,
            };
            crash(&plan, ground.as_deref())
        }
        Command::Corrupt { seed, stride } => sweep_damage(seed, stride),
        Command::Faults { seed, workloads } => {
            let tally = faults::run(seed, workloads);
            let clean = tally.first().is_empty();
            finish(&tally.first(), &tally.line(), clean)
        }
        Command::Kill { load, kills } => kill_and_check(&load.plan(kills)),
        Command::Load { load, directory } => match kill::load(&directory, &load.plan(0)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => finish(&[error.to_string()], "load failed", false),
        },
        Command::Sidecar { seed, seeds, saboteurs: false } => {
            let tally = sidecar::run(&sidecar::Plan { seed, seeds, bug: BlobSabotage::None });
            let violations = tally.violations();
            finish(&violations, &tally.line(), violations.is_empty())
        }
        Command::Sidecar { seed, seeds, saboteurs: true } => catch_blob_saboteurs(seed, seeds),
        Command::Saboteurs { seed } => catch_saboteurs(seed),
    }
}

fn crash(plan: &Plan, ground: Option<&str>) -> ExitCode {
    let began = Instant::now();
    let last = Mutex::new(began);
    let tally = enumerate::run(plan, ground, |tally| {
        let mut last = last.lock();
        if last.elapsed().as_secs() >= 5 {
            *last = Instant::now();
            eprintln!("{} ({} s)", tally.line(), began.elapsed().as_secs());
        }
    });
    println!("of the images, {} are arena and redb together", tally.disk_images());
    finish(&tally.first_violations(), &tally.line(), tally.violations() == 0)
}

fn sweep_damage(seed: u64, stride: u64) -> ExitCode {
    let plan = corrupt::Plan { seed, stride: stride.max(1), sabotage: Sabotage::None };
    match corrupt::run(&plan) {
        Ok(tally) => finish(&tally.first(), &tally.line(), tally.wrong() == 0),
        Err(error) => finish(&[error.to_string()], "corrupt failed", false),
    }
}

fn kill_and_check(plan: &kill::Plan) -> ExitCode {
    let directory = std::env::temp_dir().join(format!("secateur-kill-{}", std::process::id()));
    let ran = std::env::current_exe()
        .map_err(|source| StoreError::io("finding this program", source))
        .and_then(|program| kill::run(&program, &directory, plan));
    let (troubles, line, good) = match ran {
        Ok(tally) => (vec![], tally.line(), tally.lost == 0 && tally.findings == 0),
        Err(error) => (vec![error.to_string()], "kill failed".into(), false),
    };
    let replay = format!("replay: -- kill --seed {} --blocks {}", plan.seed, plan.blocks);
    let troubles = if good { troubles } else { [troubles, vec![replay]].concat() };
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        eprintln!("{} was not removed: {error}", directory.display());
    }
    finish(&troubles, &line, good)
}

fn catch_saboteurs(seed: u64) -> ExitCode {
    let control = saboteurs::run(Sabotage::None, seed);
    if let Some(false_alarm) = control.caught_by {
        return finish(&[false_alarm], "the checks complain without a bug", false);
    }
    let verdicts: Vec<_> = Sabotage::ALL.into_iter().map(|bug| saboteurs::run(bug, seed)).collect();
    for verdict in &verdicts {
        let by = verdict.caught_by.as_deref().unwrap_or("NOT CAUGHT");
        println!("{:?}: {by}", verdict.bug);
    }
    let caught = verdicts.iter().filter(|verdict| verdict.caught_by.is_some()).count();
    let line = format!("saboteurs caught={caught} of={}", verdicts.len());
    finish(&[], &line, caught == verdicts.len())
}

fn catch_blob_saboteurs(seed: u64, seeds: u64) -> ExitCode {
    let mut caught = 0;
    for bug in BlobSabotage::ALL {
        let tally = sidecar::run(&sidecar::Plan { seed, seeds, bug });
        let first = tally.violations().into_iter().next();
        println!("{bug:?}: {}", first.as_deref().unwrap_or("NOT CAUGHT"));
        caught += usize::from(first.is_some());
    }
    let of = BlobSabotage::ALL.len();
    finish(&[], &format!("sidecar saboteurs caught={caught} of={of}"), caught == of)
}

/// Prints what went wrong, then the one line that machines read.
fn finish(troubles: &[String], line: &str, good: bool) -> ExitCode {
    for trouble in troubles {
        eprintln!("{trouble}");
    }
    println!("{line}");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_holds_what_its_parser_asserts() {
        Cli::command().debug_assert();
    }
}
