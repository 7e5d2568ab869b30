//! What the tests share: starting the binary, looking at files, small mounted disks, the ledger of
//! acknowledged blocks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use secateur_store::ground::disk::{DiskStore, FsVolume, RESERVE_BYTES, open_ground};
use secateur_store::{Sabotage, SystemClock};
use serde_json::Value;

pub const SECATEUR: &str = env!("CARGO_BIN_EXE_secateur");

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that standard error says this.
    #[track_caller]
    pub fn complains(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no `{text}` in {self:#?}");
        self
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A command on a data directory, not started.
pub fn secateur(data: &Path, words: &str) -> Command {
    let mut command = Command::new(SECATEUR);
    command
        .env_remove("SECATEUR_DATA")
        .arg("--data")
        .arg(data)
        .args(words.split_whitespace())
        .stdin(Stdio::null());
    command
}

/// Runs a command on a data directory.
pub fn run(data: &Path, words: &str) -> Run {
    Run::of(secateur(data, words).output().unwrap())
}

/// Runs a command, expects it to work, and reads its JSON.
#[track_caller]
pub fn ask(data: &Path, words: &str) -> Value {
    run(data, &format!("{words} --json")).ends(0).json()
}

/// A demo of so many blocks in a directory that is new.
pub fn small_demo(data: &Path, blocks: u64) -> Run {
    run(data, &format!("demo --no-archive --blocks {blocks} --budget 4MiB")).ends(0)
}

/// Every file below a directory with its bytes, to see whether anything changed.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_symlink() {
            found.insert(path, b"a link".to_vec());
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

/// The history of a data directory, opened as a library would.
pub fn open_store(data: &Path) -> DiskStore {
    let volume = FsVolume::open(&data.join("history")).unwrap();
    let ground = open_ground(&volume, RESERVE_BYTES, Sabotage::None).unwrap();
    DiskStore::open(ground, Arc::new(SystemClock)).unwrap()
}

/// The blocks that were acknowledged: what `--acks` printed, kept outside.
#[derive(Debug, Default)]
pub struct Ledger {
    pub acked: BTreeMap<u64, String>,
}

impl Ledger {
    /// Takes the acknowledgements out of what a demo printed. A line that a kill cut short
    /// acknowledges nothing.
    pub fn note(&mut self, printed: &str) -> u64 {
        let mut noted = 0;
        for line in printed.split_inclusive('\n') {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (true, ["ack", height, hash]) = (line.ends_with('\n'), words.as_slice()) else {
                continue;
            };
            let before = self.acked.insert(height.parse().unwrap(), (*hash).to_owned());
            assert!(
                before.is_none_or(|before| before == *hash),
                "block {height} was acknowledged with two hashes"
            );
            noted += 1;
        }
        noted
    }

    /// Every acknowledged block above the boundary must be there, whole, with its hash; all below
    /// must answer that they were pruned. Returns the boundary.
    #[track_caller]
    pub fn check(&self, store: &DiskStore, context: &str) -> Option<u64> {
        let status = store.get_prune_status().unwrap();
        let boundary = status.pruned_before_block;
        let newest = self.acked.keys().next_back().copied();
        assert!(status.head >= newest, "{context}: head {:?} < acked {newest:?}", status.head);
        for (height, hash) in &self.acked {
            match store.get_block(*height) {
                Ok(block) => {
                    assert!(boundary.is_none_or(|b| *height > b), "{context}: {height} is back");
                    assert_eq!(&block.meta.hash.to_string(), hash, "{context}: block {height}");
                }
                Err(error) => {
                    let pruned = matches!(
                        error.as_lookup(),
                        Some(secateur_core::LookupError::Pruned { .. })
                    );
                    let below = boundary.is_some_and(|b| *height <= b);
                    assert!(pruned && below, "{context}: block {height}: {error}");
                }
            }
        }
        boundary
    }
}

/// A running process that does not outlive its test.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(data: &Path, words: &str) -> Self {
        Self::logging(data, words, Stdio::inherit())
    }

    /// The same, with its standard error somewhere else.
    pub fn logging(data: &Path, words: &str, log: impl Into<Stdio>) -> Self {
        let mut child = secateur(data, words).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Waits for a line that begins like this.
    pub fn wait_for(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "it ended before {beginning}");
        }
        line
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Reads the rest of its output and waits for its end.
    pub fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, or ended now: either way it is gone.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A small disk of its own, mounted for one test.
#[derive(Debug)]
pub struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one, or says why not: it needs root and a kernel that lets it.
    pub fn mount(mebibytes: u64) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "secateur-test"])
            .arg(place.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { place }),
            _ => {
                eprintln!("SKIPPED: a small disk cannot be mounted here (it needs root)");
                None
            }
        }
    }

    pub fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.place.path().join("filler")).unwrap();
        let page = [7u8; 4096];
        while filler.write_all(&page).is_ok() {}
    }

    /// Gives that space back.
    pub fn empty(&self) {
        fs::remove_file(self.place.path().join("filler")).unwrap();
    }

    pub fn make_read_only(&self) {
        self.remount("remount,ro");
    }

    pub fn make_writable(&self) {
        self.remount("remount,rw");
    }

    fn remount(&self, how: &str) {
        let remounted = Command::new("mount").args(["-o", how]).arg(self.place.path()).status();
        assert!(remounted.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that a process that is still ending cannot keep the mount alive.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.place.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("the test disk at {} stays mounted", self.place.path().display());
        }
    }
}
