//! Ponder, as its package comes, on the project in `bench/peers/ponder`.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::anvil::Anvil;
use super::{Kept, Start, told, until};
use crate::rpc;

/// How long it may take.
const PATIENCE: Duration = Duration::from_mins(20);
/// The files of its project.
const PROJECT: [&str; 5] =
    ["package.json", "ponder.config.ts", "ponder.schema.ts", "src/index.ts", "src/api/index.ts"];

/// What it took to index the chain.
pub struct Took {
    /// From the start of its process until it was ready.
    pub whole: Duration,
    /// From the moment it began to index.
    pub backfill: Duration,
}

/// Its version, as it is installed.
pub fn version() -> Result<String> {
    let path = told("BENCH_PONDER")?.join("node_modules/ponder/package.json");
    let package: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let version = package.get("version").and_then(Value::as_str);
    Ok(version.context("Ponder's package has no version")?.to_owned())
}

/// Indexes anvil's chain from nothing, in a directory of its own; into `PGlite`, or into the
/// database that is named.
pub async fn index(at: &Path, anvil: &Anvil, database: Option<&str>) -> Result<Took> {
    let installed = told("BENCH_PONDER")?;
    for file in PROJECT {
        let to = at.join(file);
        std::fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
        std::fs::copy(told("BENCH_PEERS")?.join("ponder").join(file), to)?;
    }
    std::os::unix::fs::symlink(installed.join("node_modules"), at.join("node_modules"))?;
    let program = installed.join("node_modules/ponder/dist/esm/bin/ponder.js");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let flags = ["start", "--schema", "bench", "--log-format", "json", "--hostname", "127.0.0.1"];
    let mut start = Start::new(at, "node").words([program]).words(flags).words(["--port", &port]);
    start.complaints = Some(at.join("complaints"));
    start.environment = vec![
        ("PONDER_TELEMETRY_DISABLED", "1".into()),
        ("BENCH_RPC", anvil.url.clone()),
        ("BENCH_CONTRACT", anvil.contract.clone()),
        ("BENCH_LAST", anvil.last.to_string()),
    ];
    if let Some(database) = database {
        start.environment.push(("DATABASE_URL", database.to_owned()));
    }
    let began = Instant::now();
    let process = Kept::start(start)?;
    let started = |line: &str| line.contains("Started backfill indexing").then(Instant::now);
    let backfill = process.line(PATIENCE, started).context("Ponder does not begin")?;
    let http = rpc::http()?;
    let address = format!("http://127.0.0.1:{port}");
    let ready = || async {
        let answer = http.get(format!("{address}/ready")).send().await?;
        Ok(answer.status().is_success())
    };
    until(PATIENCE, "Ponder is ready", ready).await?;
    let took = Took { whole: began.elapsed(), backfill: backfill.elapsed() };
    let count = http.get(format!("{address}/count")).send().await?.bytes().await?;
    let count: Value = serde_json::from_slice(&count)?;
    let rows = count.get("n").and_then(Value::as_u64);
    ensure!(rows == Some(anvil.events), "Ponder has {count} rows, not {}", anvil.events);
    Ok(took)
}
