//! Where log lines go: standard error, above a progress bar if one is there.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde_json::json;

use super::words;

/// The bar that stands below the log now.
static BELOW: Mutex<Option<ProgressBar>> = Mutex::new(None);
/// Whether programs read the log.
static JSON: AtomicBool = AtomicBool::new(false);

/// Says who reads the log.
pub(crate) fn is_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// Whether people read the log.
pub(crate) fn is_for_people() -> bool {
    !JSON.load(Ordering::Relaxed)
}

/// Whether the command line asks for a log that programs read. It is asked before the command line
/// is understood, because a mistake in it is reported too.
pub(crate) fn is_json_asked_for() -> bool {
    std::env::args_os().any(|arg| arg == "--json-logs")
}

/// Writes what is no event of the log, an error at the end or a panic, in the shape of its lines.
pub(crate) fn write_json(message: &str, exit_code: Option<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut fields = json!({ "message": message });
    if let (Some(code), Some(fields)) = (exit_code, fields.as_object_mut()) {
        fields.insert("exit_code".into(), code.into());
    }
    let timestamp = words::timestamp(now);
    let line =
        json!({ "timestamp": timestamp, "level": "ERROR", "fields": fields, "target": "secateur" });
    writeln!(writer(), "{line}").unwrap_or_default();
}

/// Lines go above this bar from now on.
pub(super) fn write_above(bar: Option<ProgressBar>) {
    *BELOW.lock() = bar;
}

/// A writer for one line of the log.
pub(crate) fn writer() -> impl Write {
    Lines
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bar = BELOW.lock().clone();
        let written = match bar {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        };
        // A full disk or a reader that has gone costs the line, and never the service that wrote it.
        written.or(Ok(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush().or(Ok(()))
    }
}
