//! `audit.log`: a JSON line for every call that may change something, written when it has ended.
//!
//! It stands outside the byte budget, so it is bounded by itself: a full one is set aside as
//! `audit.log.1`, that one as `audit.log.2`, and so on; the oldest goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use secateur_store::{Clock as _, SystemClock};
use serde::Serialize;

use super::Caller;
use crate::durable;
use crate::error::NodeError;

const FILE: &str = "audit.log";
/// A log that is this long is full.
const FULL: u64 = 16 << 20;
/// Full logs that are kept.
const KEPT: u32 = 4;

/// The open log.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    full: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    len: u64,
}

impl Open {
    fn at(path: &Path) -> Result<Self, anyhow::Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let file =
            durable::open(path, flags)?.ok_or_else(|| NodeError::Missing(path.to_owned()))?;
        let len = file.metadata()?.len();
        Ok(Self { file, len })
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: u64,
    peer: Option<String>,
    token: Option<&'a str>,
    call: &'a str,
    /// What was asked for, in a few words.
    what: &'a str,
    outcome: &'a str,
}

impl Audit {
    /// Opens the log of a data directory; new lines go behind the old ones.
    pub(crate) fn open(data: &Path) -> Result<Self, anyhow::Error> {
        Self::with(data, FULL)
    }

    fn with(data: &Path, full: u64) -> Result<Self, anyhow::Error> {
        let path = data.join(FILE);
        let open = Mutex::new(Open::at(&path)?);
        Ok(Self { path, full, open })
    }

    /// Writes a line. A log that cannot be written is told, and does not undo what was done.
    pub(crate) fn note(&self, caller: &Caller, call: &str, what: &str, outcome: &str) {
        let line = Line {
            at: SystemClock.now_seconds(),
            peer: caller.peer.map(|peer| peer.to_string()),
            token: caller.token.as_deref(),
            call,
            what,
            outcome,
        };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.write(&line)
        });
        if let Err(error) = written {
            tracing::error!(%error, call, "the audit log cannot be written");
        }
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock();
        if open.len > 0 && open.len.saturating_add(line.len() as u64) > self.full {
            match self.set_aside() {
                Ok(fresh) => *open = fresh,
                // A log that is too long is better than one with a hole.
                Err(error) => tracing::error!(%error, "the full audit log cannot be set aside"),
            }
        }
        open.file.write_all(line)?;
        open.len = open.len.saturating_add(line.len() as u64);
        Ok(())
    }

    /// Moves the full log and those before it one place on.
    fn set_aside(&self) -> Result<Open, anyhow::Error> {
        let place = |number: u32| match number {
            0 => self.path.clone(),
            number => self.path.with_extension(format!("log.{number}")),
        };
        for number in (0..KEPT).rev() {
            match fs::rename(place(number), place(number + 1)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        Open::at(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_set_aside_and_only_the_oldest_lines_go() {
        let data = tempfile::tempdir().unwrap();
        let caller = Caller { peer: None, token: None };
        let lines = |name: &str| -> Vec<String> {
            let text = fs::read_to_string(data.path().join(name)).unwrap_or_default();
            let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
            text.lines().map(|line| of(line)["what"].as_str().unwrap().to_owned()).collect()
        };
        let mut wanted = Vec::new();
        for number in 0..40 {
            // Opened again now and then: what is there already counts.
            let audit = Audit::with(data.path(), 400).unwrap();
            for part in 0..3 {
                let what = format!("{number}/{part}");
                audit.note(&caller, "Append", &what, "done");
                wanted.push(what);
            }
        }
        let names = ["audit.log.4", "audit.log.3", "audit.log.2", "audit.log.1", "audit.log"];
        let kept: Vec<String> = names.iter().flat_map(|name| lines(name)).collect();
        assert!(kept.len() >= 12, "{kept:?}");
        assert_eq!(kept, wanted[wanted.len() - kept.len()..], "none is missing in between");
        assert!(names.iter().all(|name| !lines(name).is_empty()));
        assert!(!data.path().join("audit.log.5").exists());
        let len = |name: &&str| fs::metadata(data.path().join(name)).unwrap().len();
        assert!(names.iter().all(|name| len(name) <= 400));
    }
}
