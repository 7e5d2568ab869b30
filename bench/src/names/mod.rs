//! The benchmarks by name: one file each.

mod append_prune;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::results::Report;

/// How a benchmark is to be run.
pub struct Setting {
    /// Fewer bytes and fewer cases.
    pub quick: bool,
    /// An empty directory on the disk that is measured.
    pub data: PathBuf,
}

/// One benchmark.
pub struct Benchmark {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Setting) -> Result<Report>,
}

const ALL: [Benchmark; 1] = [Benchmark { name: append_prune::NAME, run: append_prune::run }];

/// The benchmark of that name, or all of them.
pub fn choose(name: Option<&str>) -> Result<Vec<Benchmark>> {
    let Some(name) = name else { return Ok(ALL.into()) };
    let found: Vec<Benchmark> = ALL.into_iter().filter(|b| b.name == name).collect();
    if found.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|benchmark| benchmark.name).collect();
        bail!("there is no benchmark `{name}`; there is: {}", names.join(", "));
    }
    Ok(found)
}
