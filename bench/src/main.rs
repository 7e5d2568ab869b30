//! Benchmarks of Secateur beside other ways to do the same work.
//!
//! What lives here: the contestants (one file each, behind one trait), the benchmarks (one file a
//! name), the blocks they are fed with, and what becomes of the figures. Every ratio is measured
//! side by side in one run, in turns; nothing here asserts a time. `bench/run` is the way to
//! start it.

mod chain;
mod contestants;
mod machine;
mod measure;
mod names;
mod processes;
mod results;
mod rpc;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::names::Setting;

/// As in the product.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What the command line asks for.
struct Wanted {
    name: Option<String>,
    results: PathBuf,
    setting: Setting,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == names::lookup::CHILD).is_some() {
        return names::lookup::answer(words);
    }
    if words.next_if(|word| word == names::export::CHILD).is_some() {
        return names::export::answer(words);
    }
    if words.next_if(|word| word == names::index::CHILD).is_some() {
        return names::index::answer(words);
    }
    if words.next_if(|word| word == names::utxo::CHILD).is_some() {
        return names::utxo::answer(words);
    }
    let wanted = parse(words)?;
    let chosen = names::choose(wanted.name.as_deref())?;
    let mut lines = Vec::new();
    for benchmark in chosen {
        let report = (benchmark.run)(&wanted.setting)?;
        // A part is not kept: it would take the place of the whole.
        if wanted.setting.case.is_none() {
            report.write(&wanted.results)?;
        }
        print!("{}", report.table());
        lines.extend(report.machine_lines());
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wanted> {
    let (mut name, mut quick, mut case, mut results, mut data) = (None, false, None, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--case" => case = words.next(),
            "--results" => results = words.next().map(PathBuf::from),
            "--data" => data = words.next().map(PathBuf::from),
            other if other.starts_with('-') => {
                bail!("there is no option `{other}`; usage: bench/run [name] [--quick] [--case c]")
            }
            _ if name.is_some() => {
                bail!("one name at a time; usage: bench/run [name] [--quick] [--case c]")
            }
            _ => name = Some(word),
        }
    }
    let results = results.context("--results is missing; start it with `bench/run`")?;
    let data = data.context("--data is missing; start it with `bench/run`")?;
    Ok(Wanted { name, results, setting: Setting { quick, case, data } })
}
