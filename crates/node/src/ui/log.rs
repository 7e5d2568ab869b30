//! Where log lines go: standard error, above a progress bar if one is there.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use parking_lot::Mutex;

/// The bar that stands below the log now.
static BELOW: Mutex<Option<ProgressBar>> = Mutex::new(None);
/// Whether programs read the log.
static JSON: AtomicBool = AtomicBool::new(false);

/// Says who reads the log.
pub(crate) fn is_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// Whether people read the log.
pub(super) fn is_for_people() -> bool {
    !JSON.load(Ordering::Relaxed)
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
