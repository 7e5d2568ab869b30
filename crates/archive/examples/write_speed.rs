//! How fast parts are written, beside plain `zstd` at the same level, a copy and a read back.
//!
//! `cargo run --release -p secateur-archive --example write_speed [MiB] [directory]`

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use secateur_archive::{
    Archive, ArchiveUrl, Archiver, ArchiverOptions, Check, Codec, Grain, Settings,
};
use secateur_core::{Block, BlockHash, encode_bundle};
use secateur_evm::{ChainSpec, Generator};

const CHAIN: u64 = 1337;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let wanted = args.next().map_or(Ok(256), |text| text.parse::<u64>())? << 20;
    let root = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("write-speed-{}", std::process::id()));
    fs::create_dir_all(&root)?;
    let result = measure(&root, wanted).await;
    fs::remove_dir_all(&root)?;
    result
}

async fn measure(root: &Path, wanted: u64) -> Result<(), Box<dyn Error>> {
    let generator = Generator::new(ChainSpec { chain_id: CHAIN, ..ChainSpec::default() })?;
    let (mut blocks, mut raw) = (Vec::new(), Vec::new());
    let mut parent = BlockHash::default();
    while (raw.len() as u64) < wanted {
        let block = generator.block(blocks.len() as u64, parent)?;
        parent = block.meta.hash;
        raw.extend_from_slice(&block.meta.hash.0);
        raw.extend_from_slice(&block.meta.parent_hash.0);
        raw.extend_from_slice(&block.meta.timestamp.to_be_bytes());
        raw.extend_from_slice(&encode_bundle(&block.payloads)?);
        blocks.push(block);
    }
    println!("blocks={} raw_bytes={}", blocks.len(), raw.len());
    for round in 1..=3 {
        let before = cpu_seconds()?;
        let plain = plain(root, &raw)?;
        println!("round={round} plain_s={plain:.3} cpu_s={:.2}", cpu_seconds()? - before);
        for check in [Check::Framing, Check::Hash] {
            let before = cpu_seconds()?;
            let ours = ours(root, &blocks, check).await?;
            println!(
                "round={round} check={check:?} parts_s={ours:.3} cpu_s={:.2} ratio={:.2}",
                cpu_seconds()? - before,
                plain / ours
            );
        }
    }
    Ok(())
}

/// Processor time of this process so far, in hundredths of a second.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.map(str::parse::<u32>).sum::<Result<_, _>>()?;
    Ok(f64::from(ticks) / 100.0)
}

/// One thread packs into a file, which is copied and read back.
fn plain(root: &Path, raw: &[u8]) -> Result<f64, Box<dyn Error>> {
    let (packed, copied) = (root.join("plain.zst"), root.join("copy.zst"));
    let begun = Instant::now();
    let mut encoder = zstd::Encoder::new(File::create(&packed)?, 3)?;
    encoder.write_all(raw)?;
    encoder.finish()?.sync_all()?;
    fs::copy(&packed, &copied)?;
    File::open(&copied)?.sync_all()?;
    let mut back = File::open(&copied)?;
    let mut buffer = vec![0u8; 1 << 20];
    while back.read(&mut buffer)? > 0 {}
    let taken = begun.elapsed().as_secs_f64();
    fs::remove_file(packed)?;
    fs::remove_file(copied)?;
    Ok(taken)
}

async fn ours(root: &Path, blocks: &[Block], check: Check) -> Result<f64, Box<dyn Error>> {
    let (stage, place) = (root.join("stage"), root.join("archive"));
    let archive = Archive::create(&ArchiveUrl::Directory(place.clone()), &Settings::default())?;
    let grain = Grain { daily: false, max_blocks: Some(blocks.len() as u64), ..Grain::default() };
    let mut options = ArchiverOptions::new(&stage, CHAIN, Codec::Evm, 0);
    (options.grain, options.check) = (grain, check);
    let begun = Instant::now();
    let mut archiver = Archiver::open(archive, options).await?;
    for block in blocks {
        archiver.push(block).await?;
        while let Some(part) = archiver.publish().await? {
            archiver.settled(&part).await?;
        }
    }
    let taken = begun.elapsed().as_secs_f64();
    if archiver.waiting() > 0 || archiver.metrics().snapshot().verified_height.is_none() {
        return Err("nothing was archived".into());
    }
    fs::remove_dir_all(stage)?;
    fs::remove_dir_all(place)?;
    Ok(taken)
}
