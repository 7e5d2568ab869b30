//! `index-evm`: the events of an anvil chain, from nothing to its head, into a database that can be
//! asked: ours (`secateur node --follow` with `secateur index` beside it, into SQLite) and Ponder's
//! (into `PGlite` and into PostgreSQL). Beside them what the source itself can give at most.
//!
//! All of them work on the same running anvil, one after another, round by round.

mod ceiling;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::Setting;
use crate::contestants::Identity;
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::processes::anvil::{Anvil, EVENTS, TRANSACTIONS};
use crate::processes::node::Node;
use crate::processes::ponder;
use crate::processes::postgres::{self, Postgres};
use crate::processes::worker::{self, Worker};
use crate::results::{Case, Figure, Line, Report};

/// Its name.
pub const NAME: &str = "index-evm";

/// Seconds of each way, round by round.
#[derive(Debug, Default)]
struct Seconds {
    ours: Vec<f64>,
    pglite: Vec<f64>,
    postgres: Vec<f64>,
    /// Without Ponder's start, the faster of the two.
    backfill: Vec<f64>,
    blocks: Vec<f64>,
    logs: Vec<f64>,
}

impl Seconds {
    /// The last round, for whoever waits.
    fn last(&self) -> String {
        let of = |all: &[f64]| all.last().map_or("-".to_owned(), |last| format!("{last:.2} s"));
        format!(
            "ours {}, Ponder {} (PGlite) and {} (PostgreSQL), source {}",
            of(&self.ours),
            of(&self.pglite),
            of(&self.postgres),
            of(&self.blocks)
        )
    }
}

/// Runs it.
pub fn run(setting: &Setting) -> Result<Report> {
    let (blocks, rounds) = if setting.quick { (200, 1) } else { (2_000, 3) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let at = setting.data.join(NAME);
    std::fs::create_dir_all(&at)?;
    let case = runtime.block_on(measure(&at, blocks, rounds))?;
    std::fs::remove_dir_all(&at)?;
    let events = blocks * (TRANSACTIONS * EVENTS) as u64;
    Ok(Report {
        name: NAME,
        work: format!("{events} events of {blocks} blocks of an anvil chain, from zero to head"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases: vec![case],
        plotted: "vs_ponder",
    })
}

async fn measure(at: &Path, blocks: u64, rounds: u32) -> Result<Case> {
    eprintln!("{NAME}: building a chain of {blocks} blocks …");
    let anvil = Anvil::build(at, blocks).await?;
    let postgres = if postgres::programs().is_some() {
        Some(Postgres::start().await?)
    } else {
        eprintln!("{NAME}: Ponder gets PGlite only, PostgreSQL is not installed");
        None
    };
    let mut seconds = Seconds::default();
    for round in 1..=rounds {
        eprintln!("{NAME}: round {round}, what the source gives …");
        let ceiling = ceiling::look(&anvil).await?;
        seconds.blocks.push(ceiling.blocks.as_secs_f64());
        seconds.logs.push(ceiling.logs.as_secs_f64());
        let here = at.join(round.to_string());
        eprintln!("{NAME}: round {round}, ours …");
        let took = ours(&here.join("ours"), &anvil).await?;
        eprintln!("{NAME}: round {round}, ours took {took:.2} s");
        seconds.ours.push(took);
        eprintln!("{NAME}: round {round}, Ponder with PGlite …");
        let took = ponder::index(&here.join("pglite"), &anvil, None).await?;
        seconds.pglite.push(took.whole.as_secs_f64());
        let mut backfill = took.backfill.as_secs_f64();
        if let Some(postgres) = &postgres {
            eprintln!("{NAME}: round {round}, Ponder with PostgreSQL …");
            let database = postgres.fresh("ponder").await?;
            let took = ponder::index(&here.join("postgres"), &anvil, Some(&database)).await?;
            seconds.postgres.push(took.whole.as_secs_f64());
            backfill = backfill.min(took.backfill.as_secs_f64());
        }
        seconds.backfill.push(backfill);
        eprintln!("{NAME}: round {round}: {}", seconds.last());
        std::fs::remove_dir_all(&here)?;
    }
    let version = match &postgres {
        Some(postgres) => {
            format!("PostgreSQL {}, {}", postgres.version().await?, Postgres::settings())
        }
        None => String::new(),
    };
    case(&anvil, &seconds, &version)
}

/// Our own way, from nothing: a node that follows anvil, and the indexer beside it.
async fn ours(at: &Path, anvil: &Anvil) -> Result<f64> {
    let began = Instant::now();
    let node = Node::start(&at.join("data"), &["--follow", &anvil.url, "--chain-id", "31337"])?;
    let file = at.join("index.sqlite");
    let worker = Worker::start(&at.join("worker"), &node.address, &file, &anvil.contract)?;
    worker::reached(&file, anvil.last).await?;
    let took = began.elapsed().as_secs_f64();
    let rows = worker::count(&file, "logs")?;
    ensure!(rows == anvil.events, "we have {rows} events, not {}", anvil.events);
    drop((worker, node));
    Ok(took)
}

fn case(anvil: &Anvil, seconds: &Seconds, version: &str) -> Result<Case> {
    let fastest: Vec<f64> = (0..seconds.ours.len())
        .map(|round| {
            let of = |all: &[f64]| all.get(round).copied().unwrap_or(f64::INFINITY);
            of(&seconds.pglite).min(of(&seconds.postgres))
        })
        .collect();
    let ratios = |theirs: &[f64]| -> Vec<f64> {
        theirs.iter().zip(&seconds.ours).map(|(theirs, ours)| share(*theirs, *ours)).collect()
    };
    let rounds = ratios(&fastest);
    let events_per_s = share(float(anvil.events), median(&seconds.ours));
    Ok(Case {
        labels: vec![("blocks", (anvil.last - 1).to_string())],
        figures: vec![
            ("vs_ponder", Figure::Ratio(median(&rounds))),
            ("vs_backfill", Figure::Ratio(median(&ratios(&seconds.backfill)))),
            ("of_source", Figure::Ratio(median(&ratios(&seconds.blocks)))),
            ("events_per_s", Figure::Ratio(events_per_s)),
        ],
        rounds,
        contestants: contestants(anvil, seconds, version)?,
        phases: Vec::new(),
    })
}

fn contestants(anvil: &Anvil, seconds: &Seconds, version: &str) -> Result<Vec<Line>> {
    let line = |key, name: &str, version: &str, settings: &str, taken: &[f64], limited_by| Line {
        identity: Identity {
            key,
            name: name.to_owned(),
            version: version.to_owned(),
            settings: settings.to_owned(),
        },
        reached: vec![
            ("events/s", Figure::Ratio(share(float(anvil.events), median(taken)))),
            ("seconds", Figure::Ratio(median(taken))),
        ],
        limited_by,
    };
    let (here, ponder, raw) = ("this checkout", ponder::version()?, "anvil 1.7.1");
    let postgres = format!("{PONDER}; {version}");
    let (us, source) = ("secateur node --follow, secateur index", "the source");
    let mut lines = vec![
        line("ours", us, here, OURS, &seconds.ours, "CPU"),
        line("pglite", "Ponder, PGlite", &ponder, PONDER, &seconds.pglite, "itself"),
        line("postgres", "Ponder, PostgreSQL", &ponder, &postgres, &seconds.postgres, "itself"),
        line("rpc", "blocks and receipts", raw, ceiling::BLOCKS, &seconds.blocks, source),
        line("getlogs", "eth_getLogs", raw, ceiling::LOGS, &seconds.logs, source),
    ];
    lines.retain(|line| line.identity.key != "postgres" || !seconds.postgres.is_empty());
    Ok(lines)
}

const OURS: &str = "stores every block, transaction and receipt (checked: hash and roots) in the node; \
                    blocks, transactions with senders and receipt columns, and the events (all checked \
                    again, signatures too) in SQLite";
const PONDER: &str = "stores the events as rows, and what it fetched (events, their blocks and \
                      transactions, no receipts) in its cache";
