//! What a shell has for the same work: `zstd`, a copy, a read, `sha256sum`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fresh;

/// Packs a file, copies it into another directory, and reads it back there; how long that takes, and
/// the size it has.
pub fn pack(raw: &Path, at: &Path, level: &str) -> Result<(Duration, u64)> {
    fresh(at)?;
    let (staged, placed) = (at.join("stage.zst"), at.join("place.zst"));
    let began = Instant::now();
    run(Command::new("zstd").args([level, "-T1", "-q", "-f"]).arg(raw).arg("-o").arg(&staged))?;
    File::open(&staged)?.sync_all()?;
    std::fs::copy(&staged, &placed)?;
    File::open(&placed)?.sync_all()?;
    let mut back = File::open(&placed)?;
    let (mut buffer, mut size) = (vec![0; 1 << 20], 0);
    loop {
        match back.read(&mut buffer)? {
            0 => break,
            len => size += len as u64,
        }
    }
    std::fs::remove_file(&staged)?;
    Ok((began.elapsed(), size))
}

/// Hashes a file and unpacks it, one after the other.
pub fn prove(object: &Path) -> Result<Duration> {
    let began = Instant::now();
    run(Command::new("sha256sum").arg(object).stdout(Stdio::null()))?;
    run(Command::new("zstd").args(["-d", "-q", "-c"]).arg(object).stdout(Stdio::null()))?;
    Ok(began.elapsed())
}

/// The largest file under a directory.
pub fn largest(directory: &Path) -> Result<PathBuf> {
    let (mut rest, mut found) = (vec![directory.to_owned()], (0, None));
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(directory)? {
            let (entry, path) = {
                let entry = entry?;
                (entry.metadata()?, entry.path())
            };
            if entry.is_dir() {
                rest.push(path);
            } else if entry.len() > found.0 {
                found = (entry.len(), Some(path));
            }
        }
    }
    found.1.context("the archive has no part")
}

/// The version of `zstd`.
pub fn version() -> Result<String> {
    let output = Command::new("zstd").args(["-q", "-V"]).output().context("there is no `zstd`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
