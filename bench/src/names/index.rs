//! `index`: rows into SQLite and PostgreSQL by the product, beside the barest way to put the very same
//! rows into the very same tables: a loop of prepared statements, and binary COPY.
//!
//! Two things are measured. `of=sink` is the sink alone, given decoded batches in memory. `of=worker`
//! is everything: a worker in a process of its own that pulls from a running node, decodes, checks
//! and writes. The last case is the worker's memory at a ten times longer backfill.

mod bare;
mod child;
mod copy;
mod prepared;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::{Batch, Sink};

use super::Setting;
use crate::chain::CHAIN_ID;
use crate::contestants::Identity;
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::processes::node::Node;
use crate::processes::postgres::{self, Postgres};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Feed, Pool, Shape, Sizes};
use bare::Bare;
use child::{Codec, Where};
use copy::Copied;
use prepared::{Kind, Prepared};

pub use child::{CHILD, answer};

/// Its name.
pub const NAME: &str = "index";

/// Blocks of the memory case: little but transactions.
const LEAN: Shape = Shape { bytes: 100_000, transactions: 240 };
const SEED: u64 = 20_261_102;

/// Rates of both sides, and their ratio, round by round.
#[derive(Debug, Default)]
struct Rates {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    whole: Vec<f64>,
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (blocks, rounds) = if setting.quick { (500, 3) } else { (3_000, 5) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let at = setting.data.join(NAME);
    std::fs::create_dir_all(&at)?;
    let mut cases = Vec::new();
    for kind in [Kind::Evm, Kind::EvmLogs, Kind::Opaque] {
        let (sqlite, postgres) = (kind.case("sqlite"), kind.case("postgres"));
        if !setting.wants("sqlite", &sqlite) && !setting.wants("postgres", &postgres) {
            continue;
        }
        eprintln!("{NAME}: preparing {blocks} blocks, {} …", kind.name());
        let prepared = runtime.block_on(Prepared::new(&at.join("node"), kind, blocks))?;
        if setting.wants("sqlite", &sqlite) {
            cases.extend(runtime.block_on(in_sqlite(&at, &prepared, rounds))?);
        }
        if setting.wants("postgres", &postgres) && postgres::programs().is_some() {
            cases.extend(runtime.block_on(in_postgres(&prepared, rounds))?);
        }
        drop(prepared);
        std::fs::remove_dir_all(at.join("node"))?;
    }
    if setting.wants("memory", "memory") {
        let transactions = if setting.quick { 100_000 } else { 600_000 };
        cases.push(runtime.block_on(memory(&at, transactions))?);
    }
    std::fs::remove_dir_all(&at)?;
    Ok(Report {
        name: NAME,
        work: format!("rows of {blocks} blocks of 100 transactions into a database"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_bare",
    })
}

async fn in_sqlite(at: &Path, prepared: &Prepared, rounds: u32) -> Result<Vec<Case>> {
    let (mut sink, mut worker) = (Rates::default(), Rates::default());
    let file = at.join("index.sqlite");
    let rows = float(prepared.rows());
    let mut bare = None;
    for round in 1..=rounds {
        eprintln!("{NAME}: sqlite, {}, round {round} …", prepared.kind.name());
        remove(&file)?;
        let into = SqliteSink::open(&file)?;
        sink.ours.push(rate(rows, commit_all(&into, prepared.batches.clone()).await?));
        drop(into);
        if bare.is_none() {
            bare = Some(Bare::of(&file, &prepared.bounds())?);
        }
        let bare = bare.as_ref().context("the rows are there")?;
        let taken = rate(rows, bare.insert(&at.join("bare.sqlite"))?);
        sink.theirs.push(taken);
        worker.theirs.push(taken);
        if prepared.kind != Kind::EvmLogs {
            remove(&file)?;
            let ran = child::run(
                at,
                &prepared.node.address,
                &Where::Sqlite(file.clone()),
                prepared.kind.codec(),
                prepared.last(),
            )?;
            worker.ours.push(rate(rows, ran.took));
        }
    }
    remove(&file)?;
    let name = prepared.kind.name();
    let bare = "prepared statements, the same schema, indexes, batches and pragmas";
    let mut cases =
        vec![case("sqlite", "sink", name, &sink, ("a bare loop", rusqlite::version(), bare))];
    if !worker.ours.is_empty() {
        cases.push(case(
            "sqlite",
            "worker",
            name,
            &worker,
            ("a bare loop", rusqlite::version(), bare),
        ));
    }
    Ok(cases)
}

async fn in_postgres(prepared: &Prepared, rounds: u32) -> Result<Vec<Case>> {
    let server = Postgres::start().await?;
    let (mut sink, mut worker) = (Rates::default(), Rates::default());
    let rows = float(prepared.rows());
    let mut copied: Option<Copied> = None;
    for round in 1..=rounds {
        eprintln!("{NAME}: postgres, {}, round {round} …", prepared.kind.name());
        let url = server.fresh("ours").await?;
        let into = open(&url).await?;
        sink.ours.push(rate(rows, commit_all(&into, prepared.batches.clone()).await?));
        drop(into);
        if copied.is_none() {
            copied = Some(Copied::of(&server.connect("ours").await?, &prepared.bounds()).await?);
        }
        let copied = copied.as_ref().context("the rows are there")?;
        for whole in [false, true] {
            let url = server.fresh("bare").await?;
            drop(open(&url).await?);
            let took = copied.copy(&mut server.connect("bare").await?, whole).await?;
            let into = if whole { &mut sink.whole } else { &mut sink.theirs };
            into.push(rate(rows, took));
        }
        if prepared.kind != Kind::EvmLogs {
            let url = server.fresh("ours").await?;
            let ran = child::run(
                &std::env::temp_dir(),
                &prepared.node.address,
                &Where::Postgres(url),
                prepared.kind.codec(),
                prepared.last(),
            )?;
            worker.ours.push(rate(rows, ran.took));
        }
    }
    worker.theirs.clone_from(&sink.theirs);
    worker.whole.clone_from(&sink.whole);
    let (name, version) = (prepared.kind.name(), server.version().await?);
    let words =
        format!("the same tables and indexes, a COPY a table and batch; {}", Postgres::settings());
    let theirs = ("binary COPY", version.as_str(), words.as_str());
    let mut cases = vec![case("postgres", "sink", name, &sink, theirs)];
    if !worker.ours.is_empty() {
        cases.push(case("postgres", "worker", name, &worker, theirs));
    }
    drop(server);
    postgres::clean()?;
    Ok(cases)
}

async fn open(url: &str) -> Result<PostgresSink> {
    Ok(PostgresSink::open(&Address::parse(url)?, PostgresOptions::default()).await?)
}

/// Hands batches to a sink, one after another.
async fn commit_all(sink: &impl Sink, batches: Vec<Batch>) -> Result<Duration> {
    let began = Instant::now();
    for batch in batches {
        sink.commit(batch).await?;
    }
    Ok(began.elapsed())
}

/// The worker's memory at a backfill, and at one ten times as long.
async fn memory(at: &Path, transactions: u64) -> Result<Case> {
    let node = Node::start(&at.join("node"), &["--chain-id", &CHAIN_ID.to_string()])?;
    let mut admin = node.admin().await?;
    let (mut pool, mut feed) = (Pool::new(Sizes::Fixed(LEAN), 32, 1, SEED)?, Feed::new(SEED));
    let (mut last, mut peaks) = (0, Vec::new());
    for scale in [1, 10] {
        let wanted = transactions * scale / u64::from(LEAN.transactions);
        eprintln!("{NAME}: memory, {wanted} blocks …");
        while last < wanted {
            feed.prepare(&mut pool);
            for group in pool.groups() {
                admin.append(group).await?;
                last += group.len() as u64;
            }
            feed.appended(&pool, 1);
        }
        let file = at.join("index.sqlite");
        remove(&file)?;
        let ran = child::run(at, &node.address, &Where::Sqlite(file), Codec::Opaque, last)?;
        peaks.push(float(ran.peak_bytes) / f64::from(1 << 20));
    }
    drop(node);
    std::fs::remove_dir_all(at.join("node"))?;
    let peak = |at: usize| peaks.get(at).copied().unwrap_or_default();
    Ok(Case {
        labels: vec![("into", "sqlite".into()), ("of", "memory".into())],
        figures: vec![
            ("ratio_10x", Figure::Ratio(share(peak(1), peak(0)))),
            ("mib_1x", Figure::Ratio(peak(0))),
            ("mib_10x", Figure::Ratio(peak(1))),
            ("transactions_1x", Figure::Count(transactions)),
        ],
        rounds: Vec::new(),
        contestants: Vec::new(),
        phases: Vec::new(),
    })
}

fn case(
    into: &str,
    of: &str,
    rows: &str,
    rates: &Rates,
    (name, version, settings): (&str, &str, &str),
) -> Case {
    let ratios = |theirs: &[f64]| -> Vec<f64> {
        rates.ours.iter().zip(theirs).map(|(ours, theirs)| share(*ours, *theirs)).collect()
    };
    let rounds = ratios(&rates.theirs);
    let mut figures = vec![("vs_bare", Figure::Ratio(median(&rounds)))];
    if !rates.whole.is_empty() {
        figures.push(("vs_one_copy", Figure::Ratio(median(&ratios(&rates.whole)))));
    }
    let line = |key, name: &str, version: &str, settings: &str, rates: &[f64]| Line {
        identity: Identity {
            key,
            name: name.to_owned(),
            version: version.to_owned(),
            settings: settings.to_owned(),
        },
        reached: vec![("rows/s", Figure::Ratio(median(rates)))],
        limited_by: "CPU",
    };
    let ours = if of == "sink" {
        "the sink, given batches in memory"
    } else {
        "a process that pulls from a node (v2), decodes, checks in full and writes"
    };
    let mut contestants = vec![
        line("ours", "Secateur", "this checkout", ours, &rates.ours),
        line("bare", name, version, settings, &rates.theirs),
    ];
    if !rates.whole.is_empty() {
        let settings = "the same, all rows in one COPY a table";
        contestants.push(line("one", "one COPY", version, settings, &rates.whole));
    }
    Case {
        labels: vec![("into", into.into()), ("of", format!("{of}/{rows}"))],
        figures,
        rounds,
        contestants,
        phases: Vec::new(),
    }
}

fn rate(rows: f64, took: Duration) -> f64 {
    share(rows, took.as_secs_f64())
}

/// Removes a database with what lies beside it.
fn remove(file: &Path) -> Result<()> {
    for end in ["", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(end);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
