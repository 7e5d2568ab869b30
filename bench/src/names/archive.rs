//! `archive`: parts written, uploaded to a directory, read back and listed, beside `zstd`, a copy and
//! a read of the same bytes; one block out of a part of 1 GiB; the proof of an archive beside
//! `sha256sum` and `zstd -d`.

mod counting;
mod tools;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use secateur_archive::{
    Archive, ArchiveUrl, Archiver, ArchiverOptions, Check, Codec, Depth, Grain, Settings,
    VerifyOptions,
};
use secateur_core::{Block, Part, encode_bundle};

use super::Setting;
use crate::chain::{CHAIN_ID, Chain, spec};
use crate::contestants::Identity;
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Feed, Pool, Shape, Sizes};
use counting::Counting;

/// Its name.
pub const NAME: &str = "archive";

/// Transactions of a block: about 65 KB of raw bytes.
const TRANSACTIONS: u32 = 100;
/// The part that one block is fetched from.
const LARGE: u64 = 1 << 30;
/// The blocks in it.
const OPAQUE: Shape = Shape { bytes: 200_000, transactions: 200 };
const GROUP: usize = 32;
const SEED: u64 = 20_261_103;
/// Blocks that are fetched from it.
const FETCHES: u64 = 64;
/// The level of the product.
const LEVEL: &str = "-3";

/// What every contestant works with.
struct Bench {
    runtime: tokio::runtime::Runtime,
    blocks: Vec<Block>,
    /// Their records, end to end, as a part has them before compression.
    raw: PathBuf,
    raw_bytes: u64,
    at: PathBuf,
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (bytes, rounds) = if setting.quick { (48 << 20, 3) } else { (256 << 20, 7) };
    let bench = Bench::new(setting.data.join("archive"), bytes)?;
    let mut cases = Vec::new();
    if setting.wants("write", "write") {
        cases.push(bench.write(rounds)?);
    }
    if setting.wants("verify", "verify") {
        cases.push(bench.verify(rounds)?);
    }
    if setting.wants("block", "block") {
        cases.push(bench.one_block()?);
    }
    std::fs::remove_dir_all(&bench.at)?;
    Ok(Report {
        name: NAME,
        work: "parts of a generated EVM chain in a directory".into(),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_zstd",
    })
}

impl Bench {
    fn new(at: PathBuf, bytes: u64) -> Result<Self> {
        eprintln!("{NAME}: generating {} MiB of blocks …", bytes >> 20);
        std::fs::create_dir_all(&at)?;
        let (mut chain, mut blocks, mut raw) =
            (Chain::new(spec(TRANSACTIONS))?, Vec::new(), Vec::new());
        while (raw.len() as u64) < bytes {
            let block = chain.next()?;
            raw.extend_from_slice(&block.meta.hash.0);
            raw.extend_from_slice(&block.meta.parent_hash.0);
            raw.extend_from_slice(&block.meta.timestamp.to_be_bytes());
            raw.extend_from_slice(&encode_bundle(&block.payloads)?);
            blocks.push(block);
        }
        let path = at.join("raw");
        std::fs::write(&path, &raw)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { runtime, blocks, raw: path, raw_bytes: raw.len() as u64, at })
    }

    /// Parts beside `zstd`, a copy and a read.
    fn write(&self, rounds: u32) -> Result<Case> {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut sizes = (0, 0);
        for round in 1..=rounds {
            eprintln!("{NAME}: write, round {round} …");
            let began = Instant::now();
            let part = self.runtime.block_on(self.archived("ours", self.blocks.iter().cloned()))?;
            ours.push(self.rate(began.elapsed()));
            sizes.0 = part.size;
            let packed = self.at.join("zstd");
            let (took, size) = tools::pack(&self.raw, &packed, LEVEL)?;
            theirs.push(self.rate(took));
            sizes.1 = size;
            if let (Some(ours), Some(theirs)) = (ours.last(), theirs.last()) {
                ratios.push(share(*ours, *theirs));
            }
            // The last round's archive is what `verify` looks at.
            if round < rounds {
                std::fs::remove_dir_all(self.at.join("ours"))?;
            }
            std::fs::remove_dir_all(packed)?;
        }
        let packing = |size| Figure::Ratio(share(float(size), float(self.raw_bytes)));
        let mut ours = line("ours", "Secateur's archiver", "this checkout", WRITE_OURS, &ours);
        ours.reached.push(("packed to", packing(sizes.0)));
        let mut theirs = line("zstd", "zstd, cp, cat", &tools::version()?, WRITE_THEIRS, &theirs);
        theirs.reached.push(("packed to", packing(sizes.1)));
        Ok(Case {
            labels: vec![("kind", "write".into())],
            figures: vec![("vs_zstd", Figure::Ratio(median(&ratios)))],
            rounds: ratios,
            contestants: vec![ours, theirs],
            phases: Vec::new(),
        })
    }

    /// The proof of an archive beside `sha256sum` and `zstd -d` of the same object.
    fn verify(&self, rounds: u32) -> Result<Case> {
        if !self.at.join("ours").exists() {
            self.runtime.block_on(self.archived("ours", self.blocks.iter().cloned()))?;
        }
        let url = ArchiveUrl::Directory(self.at.join("ours/archive"));
        let archive = Archive::open(&url, &Settings::default())?;
        let object = tools::largest(&self.at.join("ours/archive"))?;
        let (mut full, mut hashes, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("{NAME}: verify, round {round} …");
            for (depth, rates) in [(Depth::Full, &mut full), (Depth::Hashes, &mut hashes)] {
                let began = Instant::now();
                let options = VerifyOptions { depth, upto: None };
                let report = self.runtime.block_on(archive.verify(CHAIN_ID, options, |_| {}))?;
                ensure!(report.is_clean(), "{report:?}");
                rates.push(self.rate(began.elapsed()));
            }
            theirs.push(self.rate(tools::prove(&object)?));
        }
        let ratios = |ours: &[f64]| -> Vec<f64> {
            ours.iter().zip(&theirs).map(|(ours, theirs)| share(*ours, *theirs)).collect()
        };
        let (by_hash, by_full) = (ratios(&hashes), ratios(&full));
        Ok(Case {
            labels: vec![("kind", "verify".into())],
            figures: vec![
                ("vs_zstd", Figure::Ratio(median(&by_hash))),
                ("full_vs_zstd", Figure::Ratio(median(&by_full))),
            ],
            rounds: by_hash,
            contestants: vec![
                line("hashes", "verify", "this checkout", "every byte hashed, every link", &hashes),
                line("full", "verify --full", "this checkout", "and every block recomputed", &full),
                line(
                    "zstd",
                    "sha256sum, zstd -d",
                    &tools::version()?,
                    "one after the other",
                    &theirs,
                ),
            ],
            phases: Vec::new(),
        })
    }

    /// One block out of a large part: what is transferred for it.
    fn one_block(&self) -> Result<Case> {
        eprintln!("{NAME}: block, a part of {} MiB …", LARGE >> 20);
        let part = self.runtime.block_on(self.archived("large", opaque_blocks()?))?;
        let counting = Counting::of(&self.at.join("large/archive"))?;
        let archive = counting.archive();
        let (mut most, mut times) = (0, Vec::new());
        let blocks = part.last - part.first + 1;
        for fetch in 0..FETCHES {
            let height = part.first + blocks * fetch / FETCHES;
            counting.reset();
            let began = Instant::now();
            let fetched = archive.fetch_block(&part, height, Check::Hash);
            let block = self.runtime.block_on(fetched)?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            ensure!(block.meta.height == height, "another block");
            most = most.max(counting.bytes());
        }
        std::fs::remove_dir_all(self.at.join("large"))?;
        Ok(Case {
            labels: vec![("kind", "block".into())],
            figures: vec![
                ("bytes", Figure::Count(most)),
                ("part_bytes", Figure::Count(part.size)),
                ("blocks", Figure::Count(blocks)),
                ("ms", Figure::Ratio(median(&times))),
            ],
            rounds: Vec::new(),
            contestants: Vec::new(),
            phases: Vec::new(),
        })
    }

    /// Archives blocks under a new directory; the one part that they make.
    async fn archived(&self, name: &str, blocks: impl Iterator<Item = Block>) -> Result<Part> {
        let (at, opaque) = (self.at.join(name), name == "large");
        let url = ArchiveUrl::Directory(at.join("archive"));
        let archive = Archive::create(&url, &Settings::default())?;
        let codec = if opaque { Codec::Opaque } else { Codec::Evm };
        let first = u64::from(opaque);
        let mut options = ArchiverOptions::new(at.join("stage"), CHAIN_ID, codec, first);
        let all = self.blocks.len() as u64;
        let max_blocks = if opaque { None } else { Some(all) };
        options.grain = Grain { daily: false, max_blocks, max_bytes: LARGE };
        let mut archiver = Archiver::open(archive, options).await?;
        for block in blocks {
            archiver.push(&block).await?;
            if archiver.waiting() > 0 {
                break;
            }
        }
        let part = archiver.publish().await?.context("the blocks make no part")?;
        archiver.settled(&part).await?;
        Ok(part)
    }

    fn rate(&self, took: Duration) -> f64 {
        share(float(self.raw_bytes), took.as_secs_f64())
    }
}

/// More blocks of opaque, incompressible bytes than the large part holds.
fn opaque_blocks() -> Result<impl Iterator<Item = Block>> {
    let (mut pool, mut feed) = (Pool::new(Sizes::Fixed(OPAQUE), GROUP, 1, SEED)?, Feed::new(SEED));
    let groups = LARGE / (OPAQUE.bytes * GROUP) as u64 + 2;
    Ok((0..groups).flat_map(move |_| {
        feed.prepare(&mut pool);
        let blocks: Vec<Block> = pool.groups().flatten().cloned().collect();
        feed.appended(&pool, 1);
        blocks
    }))
}

const WRITE_OURS: &str = "level 3, a packing thread; staged and synced, uploaded to a directory and \
                          synced, read back by SHA-256, manifest written and read back";
const WRITE_THEIRS: &str = "level 3, -T1, to a file and synced; copied into the same place and \
                            synced; read once";

fn line(key: &'static str, name: &str, version: &str, settings: &str, rates: &[f64]) -> Line {
    let (version, settings) = (version.to_owned(), settings.to_owned());
    Line {
        identity: Identity { key, name: name.to_owned(), version, settings },
        reached: vec![("raw MB/s", Figure::Ratio(median(rates) / 1e6))],
        limited_by: "CPU",
    }
}

/// Empties a path's directory, so that a round begins with nothing.
fn fresh(path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path)?;
    }
    Ok(std::fs::create_dir_all(path)?)
}
