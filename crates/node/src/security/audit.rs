//! `audit.log`: a JSON line for every call that may change something, written when it has ended.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use secateur_store::{Clock as _, SystemClock};
use serde::Serialize;

use super::Caller;
use crate::durable;
use crate::error::NodeError;

const FILE: &str = "audit.log";

/// The open log.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Mutex<File>,
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
        let path = data.join(FILE);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let file = durable::open(&path, flags)?.ok_or_else(|| NodeError::Missing(path.clone()))?;
        Ok(Self { file: Mutex::new(file) })
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
        let written =
            serde_json::to_vec(&line).map_err(std::io::Error::from).and_then(|mut line| {
                line.push(b'\n');
                self.file.lock().write_all(&line)
            });
        if let Err(error) = written {
            tracing::error!(%error, call, "the audit log cannot be written");
        }
    }
}
