//! `sidecar-start`: opening a store of blobs at 10,000 heights and at 1,000,000, closed in order and
//! not. Metadata is kept for ever, so a start that read it would take longer every year.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use secateur_sidecar::engine::Role;
use secateur_sidecar::{Proposal, testdata};

use super::{line, open, record, validator};
use crate::machine::Machine;
use crate::measure::{median, share};
use crate::names::Setting;
use crate::results::{Case, Figure, Report};

/// Its name.
pub const NAME: &str = "sidecar-start";

/// One height of so many has a blob.
const EVERY: u64 = 50;
/// Heights of a batch.
const BATCH: u64 = 1_000;
/// Heights at the end whose blobs are not pruned yet.
const KEPT: u64 = 2_000;

/// Runs both cases.
pub fn run(setting: &Setting) -> Result<Report> {
    let (small, large, rounds) =
        if setting.quick { (2_000, 50_000, 5) } else { (10_000, 1_000_000, 9) };
    let at = setting.data.join("start");
    let stores = [Filled::new(at.join("small"), small)?, Filled::new(at.join("large"), large)?];
    let mut cases = Vec::new();
    for (closed, name) in [(true, "in order"), (false, "killed")] {
        // A disk is busy for a while with what was copied: all copies are made before any is opened.
        for (round, store) in
            (1..=rounds).flat_map(|round| stores.iter().map(move |of| (round, of)))
        {
            store.prepare(closed, round)?;
        }
        let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for round in 1..=rounds {
            eprintln!("{NAME}: closed {name}, round {round} …");
            let mut took = [0.0; 2];
            for ((store, took), times) in stores.iter().zip(&mut took).zip(&mut times) {
                *took = store.start(closed, round)?;
                times.push(*took);
            }
            ratios.push(share(took[1], took[0]));
        }
        let ms = |times: &[f64]| ("ms", median(times) * 1e3);
        let words = |heights| format!("{heights} heights, one in {EVERY} with a blob");
        cases.push(Case {
            labels: vec![("closed", name.to_owned())],
            figures: vec![
                ("ratio", Figure::Ratio(median(&ratios))),
                ("ms_small", Figure::Ratio(median(&times[0]) * 1e3)),
                ("ms_large", Figure::Ratio(median(&times[1]) * 1e3)),
                ("index_mib_large", Figure::Count(stores[1].index_bytes()? >> 20)),
            ],
            rounds: ratios,
            contestants: vec![
                line("ours", "large", &words(large), ms(&times[1]), "disk"),
                line("small", "small", &words(small), ms(&times[0]), "disk"),
            ],
            phases: Vec::new(),
        });
    }
    std::fs::remove_dir_all(&at)?;
    Ok(Report {
        name: NAME,
        work: format!("opening a store of blobs at {small} and at {large} heights"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "ratio",
    })
}

/// A store with a chain in it: closed in order, and as a kill left it.
struct Filled {
    closed: PathBuf,
    killed: PathBuf,
    heights: u64,
}

impl Filled {
    fn new(at: PathBuf, heights: u64) -> Result<Self> {
        eprintln!("{NAME}: filling {heights} heights …");
        let (closed, killed, us) = (at.join("closed"), at.join("killed"), validator()?);
        let store = open(&closed)?;
        for first in (0..heights).step_by(usize::try_from(BATCH)?) {
            let batch: Vec<Proposal> = (first..heights.min(first + BATCH))
                .map(|height| {
                    let which = usize::try_from(height / EVERY).unwrap_or(0) % testdata::POOL;
                    let with = height % EVERY == 0;
                    testdata::proposal(
                        height,
                        0,
                        &us,
                        if with { std::slice::from_ref(&which) } else { &[] },
                    )
                })
                .collect();
            for decided in store.store_decided_all(&batch, |_| Role::Proposer)? {
                decided?;
            }
            let keys: Vec<_> = store.list_archivable(
                u64::MAX,
                secateur_sidecar::engine::BlobKey { height: 0, index: 0 },
                1_000,
            )?;
            let records = keys.iter().map(|key| Ok((*key, record(&format!("{key:?}"))?)));
            let records: Vec<_> = records.collect::<Result<_>>()?;
            for marked in store.record_archived_all(&records)? {
                marked?;
            }
            store.acknowledged(&keys)?;
            store.set_finalized(first + BATCH)?;
            store.prune_archived_before((first + BATCH).saturating_sub(KEPT))?;
        }
        // What a kill leaves: the files as they are while the store is open.
        copy(&closed, &killed)?;
        drop(store);
        Ok(Self { closed, killed, heights })
    }

    /// What a round opens: opening changes what a kill left.
    fn place(&self, closed: bool, round: u32) -> PathBuf {
        if closed { self.closed.clone() } else { self.killed.with_extension(round.to_string()) }
    }

    fn prepare(&self, closed: bool, round: u32) -> Result<()> {
        if closed { Ok(()) } else { copy(&self.killed, &self.place(closed, round)) }
    }

    /// Opens it and asks what a node asks first; seconds.
    fn start(&self, closed: bool, round: u32) -> Result<f64> {
        let at = self.place(closed, round);
        let began = Instant::now();
        let store = open(&at)?;
        let summary = store.summary()?;
        store.next_due()?;
        store.plan(16)?;
        let took = began.elapsed().as_secs_f64();
        ensure!(summary.heights == self.heights, "{} heights", summary.heights);
        Ok(took)
    }

    fn index_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.closed.join("index.redb"))?.len())
    }
}

/// Copies a directory, holes as holes. The copy is on the disk, as what a store wrote would be: a
/// start that syncs its index is not to wait for pages that only the copying left behind.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp").args(["-r", "--sparse=always"]).arg(from).arg(to).status()?;
    ensure!(done.success(), "cp {} {}", from.display(), to.display());
    for file in std::fs::read_dir(to)? {
        File::open(file?.path())?.sync_all()?;
    }
    Ok(())
}
