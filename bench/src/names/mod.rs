//! The benchmarks by name: one file each.

mod append_prune;
mod archive;
pub mod export;
mod growth;
pub mod index;
mod index_evm;
pub mod lookup;
mod side;
mod sidecar;
pub mod utxo;
mod versus;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::results::Report;
use sidecar::{archiver, notice, start};

/// How a benchmark is to be run.
pub struct Setting {
    /// Fewer bytes and fewer cases.
    pub quick: bool,
    /// Only this case, if one is named: `200KB`, `200KB/32`, `10M`.
    pub case: Option<String>,
    /// An empty directory on the disk that is measured.
    pub data: PathBuf,
}

impl Setting {
    /// Whether a case is wanted, by its name or the name of its kind.
    fn wants(&self, kind: &str, name: &str) -> bool {
        self.case.as_deref().is_none_or(|case| case == kind || case == name)
    }
}

/// One benchmark.
pub struct Benchmark {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Setting) -> Result<Report>,
}

const ALL: [Benchmark; 11] = [
    Benchmark { name: append_prune::NAME, run: append_prune::run },
    Benchmark { name: lookup::NAME, run: lookup::run },
    Benchmark { name: export::NAME, run: export::run },
    Benchmark { name: growth::NAME, run: growth::run },
    Benchmark { name: archive::NAME, run: archive::run },
    Benchmark { name: index::NAME, run: index::run },
    Benchmark { name: index_evm::NAME, run: index_evm::run },
    Benchmark { name: notice::NAME, run: notice::run },
    Benchmark { name: archiver::NAME, run: archiver::run },
    Benchmark { name: start::NAME, run: start::run },
    Benchmark { name: utxo::NAME, run: utxo::run },
];

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
