//! The reliability programme's command.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use parking_lot::Mutex;
use secateur_sim::enumerate::{self, Plan};
use secateur_sim::script::Op;
use secateur_store::Sabotage;

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
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    match command {
        Command::Crash {
            seed,
            images,
            recovery,
            ground,
            sequence,
        } => {
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
    for violation in tally.first_violations() {
        eprintln!("{violation}");
    }
    println!(
        "of the images, {} are arena and redb together",
        tally.disk_images()
    );
    println!("{}", tally.line());
    if tally.violations() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
