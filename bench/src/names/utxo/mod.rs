//! `utxo-prune`: a run of the UTXO pruner, with all its checks, beside one bare
//! `DELETE … WHERE delete_at <= h` over the same rows in the same database; what writers keep of their
//! rate meanwhile; and the memory that it takes.

mod postgres;
mod rows;
mod sqlite;
mod writers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use secateur_utxo::{Metrics, Outcome, Pruner, Settings, Trigger, UtxoStore};
use tokio::sync::watch;

use crate::machine::Machine;
use crate::measure::{float, median, peak_bytes, share};
use crate::names::Setting;
use crate::names::sidecar::line;
use crate::processes::postgres as server;
use crate::results::{Case, Figure, Report};
use rows::{HEIGHT, HEIGHTS, Shape};

/// Its name.
pub const NAME: &str = "utxo-prune";
/// The word that begins the command line of the process whose memory is measured.
pub const CHILD: &str = "utxo-memory";

/// Records in a chunk, as it is set by default.
const CHUNK: u64 = 1000;
const MODES: [(&str, bool); 2] = [("plain", false), ("defensive", true)];

/// One run at the height at which all are due. In defensive mode the children are as old as their
/// parents, so that they are deep enough where the run's height is one retention more.
async fn prune<S: UtxoStore>(store: &S, shape: Shape, defensive: bool) -> Result<()> {
    let settings = Settings { defensive, ..Settings::default() };
    let metrics = Arc::new(Metrics::default());
    let pruner = Pruner::new(store.clone(), None, settings, None, metrics)?;
    let height = if defensive { HEIGHT + HEIGHTS } else { HEIGHT };
    let trigger = Trigger { height, persisted: None };
    let (_stop, go) = watch::channel(false);
    let ran = pruner.run(trigger, go).await;
    let (job, _) = ran.map_err(|skip| anyhow::anyhow!("{skip:?}"))?;
    ensure!(job.outcome == Outcome::Completed, "{job:?}");
    ensure!(job.done.deleted == shape.due, "{job:?}");
    Ok(())
}

/// Both sides in turns.
fn compare(
    database: &str,
    mode: &str,
    shape: Shape,
    rounds: u32,
    mut bare: impl FnMut() -> Result<Duration>,
    mut ours: impl FnMut() -> Result<Duration>,
) -> Result<Case> {
    let (mut fast, mut plain, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let (ours, theirs) = if round % 2 == 1 {
            let first = bare()?;
            (ours()?, first)
        } else {
            (ours()?, bare()?)
        };
        let rate = |took: Duration| share(float(shape.due), took.as_secs_f64());
        eprintln!(
            "{NAME}: {database}/{mode}, round {round}: ours {:.0}, bare {:.0} records/s",
            rate(ours),
            rate(theirs)
        );
        fast.push(rate(ours));
        plain.push(rate(theirs));
        ratios.push(share(theirs.as_secs_f64(), ours.as_secs_f64()));
    }
    Ok(Case {
        labels: vec![("database", database.to_owned()), ("mode", mode.to_owned())],
        figures: vec![("vs_bare", Figure::Ratio(median(&ratios)))],
        rounds: ratios,
        contestants: vec![
            line(
                "ours",
                "Secateur's UTXO pruner",
                "chunks of 1000; still due, not preserved, not held; parents told",
                ("records/s", median(&fast)),
                "processor",
            ),
            line(
                "bare",
                "one DELETE",
                "one statement, nothing looked at or told",
                ("records/s", median(&plain)),
                "processor",
            ),
        ],
        phases: Vec::new(),
    })
}

fn on_sqlite(setting: &Setting, shape: Shape, rounds: u32, cases: &mut Vec<Case>) -> Result<()> {
    let at = setting.data.join("utxo");
    std::fs::create_dir_all(&at)?;
    let (filled, work) = (at.join("filled"), at.join("work"));
    eprintln!("{NAME}: filling SQLite with {} records …", shape.records);
    sqlite::fill(&filled, shape)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (mode, defensive) in MODES {
        if !setting.wants("sqlite", &format!("sqlite/{mode}")) {
            continue;
        }
        let bare = || sqlite::bare(&filled, &work, shape);
        let ours = || runtime.block_on(sqlite::ours(&filled, &work, shape, defensive));
        cases.push(compare("SQLite", mode, shape, rounds, bare, ours)?);
    }
    std::fs::remove_dir_all(&at)?;
    Ok(())
}

fn on_postgres(setting: &Setting, shape: Shape, rounds: u32, cases: &mut Vec<Case>) -> Result<()> {
    eprintln!("{NAME}: filling PostgreSQL with {} records …", shape.records);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let filled = runtime.block_on(postgres::Filled::new(shape))?;
    for (mode, defensive) in MODES {
        if !setting.wants("postgres", &format!("postgres/{mode}")) {
            continue;
        }
        let bare = || runtime.block_on(filled.bare());
        let ours = || runtime.block_on(filled.ours(defensive));
        cases.push(compare("PostgreSQL", mode, shape, rounds, bare, ours)?);
    }
    if setting.wants("postgres", "postgres/writers") {
        cases.push(runtime.block_on(writers_beside(&filled, rounds))?);
    }
    drop(filled);
    server::clean()
}

/// What writers keep of their rate.
async fn writers_beside(filled: &postgres::Filled, rounds: u32) -> Result<Case> {
    let (mut kept, mut alone_rates, mut during_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let store = filled.store().await?;
        let (alone, during) = writers::rates(&store, prune(&store, filled.shape(), false)).await?;
        eprintln!(
            "{NAME}: PostgreSQL/writers, round {round}: alone {alone:.0}, during {during:.0} txs/s"
        );
        kept.push(share(during, alone));
        alone_rates.push(alone);
        during_rates.push(during);
    }
    let writers = "four writers, a hundred transactions at a time, created and mined";
    Ok(Case {
        labels: vec![("database", "PostgreSQL".into()), ("mode", "writers".into())],
        figures: vec![("writers_keep", Figure::Ratio(median(&kept)))],
        rounds: kept,
        contestants: vec![
            line(
                "during",
                "writers beside a prune",
                writers,
                ("txs/s", median(&during_rates)),
                "processor",
            ),
            line("alone", "writers alone", writers, ("txs/s", median(&alone_rates)), "processor"),
        ],
        phases: Vec::new(),
    })
}

/// How long a writer waits on SQLite, which has one at a time.
fn waits(setting: &Setting, shape: Shape) -> Result<Case> {
    let at = setting.data.join("utxo-waits");
    std::fs::create_dir_all(&at)?;
    let filled = at.join("filled");
    sqlite::fill(&filled, shape)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let [alone, beside, chunk] = runtime.block_on(sqlite::waits(&filled, shape))?;
    eprintln!(
        "{NAME}: SQLite/writers: longest call alone {alone:?}, beside {beside:?}, a chunk {chunk:?}"
    );
    std::fs::remove_dir_all(&at)?;
    let millis = |time: Duration| Figure::Ratio(time.as_secs_f64() * 1000.0);
    Ok(Case {
        labels: vec![("database", "SQLite".into()), ("mode", "writers".into())],
        figures: vec![
            ("longest_alone_ms", millis(alone)),
            ("longest_beside_ms", millis(beside)),
            ("chunk_ms", millis(chunk)),
        ],
        rounds: Vec::new(),
        contestants: Vec::new(),
        phases: Vec::new(),
    })
}

/// What the process of [`memory`] does: prunes a store, and says how much memory it took at most.
pub fn answer(mut words: impl Iterator<Item = String>) -> Result<()> {
    let at = words.next().unwrap_or_default();
    let due: u64 = words.next().unwrap_or_default().parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store =
            secateur_utxo::SqliteStore::open(Path::new(&at), secateur_utxo::Rules::default())?;
        prune(&store, Shape { records: due * 5 / 4, due }, false).await
    })?;
    println!("{}", peak_bytes()?);
    Ok(())
}

fn memory(setting: &Setting, due: u64) -> Result<Case> {
    let at = setting.data.join("utxo-memory");
    std::fs::create_dir_all(&at)?;
    let filled = at.join("filled");
    eprintln!("{NAME}: memory with {due} due records …");
    sqlite::fill(&filled, Shape { records: due * 5 / 4, due })?;
    let child = std::process::Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(&filled)
        .arg(due.to_string())
        .output()?;
    ensure!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let peak: u64 = String::from_utf8(child.stdout)?.trim().parse()?;
    std::fs::remove_dir_all(&at)?;
    Ok(Case {
        labels: vec![("database", "SQLite".into()), ("due", due.to_string())],
        figures: vec![("peak_bytes", Figure::Count(peak))],
        rounds: Vec::new(),
        contestants: Vec::new(),
        phases: Vec::new(),
    })
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (records, due, many, rounds) = if setting.quick {
        (400_000, 100_000, 500_000, 3)
    } else {
        (10_000_000, 1_000_000, 10_000_000, 3)
    };
    let shape = Shape { records, due };
    let mut cases = Vec::new();
    let any = |kind: &str, modes: &[&str]| {
        modes.iter().any(|mode| setting.wants(kind, &format!("{kind}/{mode}")))
    };
    if any("sqlite", &["plain", "defensive"]) {
        on_sqlite(setting, shape, rounds, &mut cases)?;
    }
    if setting.wants("sqlite", "sqlite/writers") {
        cases.push(waits(setting, shape)?);
    }
    if any("postgres", &["plain", "defensive", "writers"]) {
        server::programs().context("PostgreSQL is not installed (on Debian: postgresql)")?;
        on_postgres(setting, shape, rounds, &mut cases)?;
    }
    if setting.wants("memory", "memory") {
        cases.push(memory(setting, many)?);
    }
    Ok(Report {
        name: NAME,
        work: format!("{due} due of {records} records"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_bare",
    })
}
