//! Progress of long work: a bar on a terminal, a plain line now and then otherwise.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::words::{count, percent};
use super::{Ui, log};

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of one piece of work, shown on standard error.
pub(crate) struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    lines: bool,
    last_line: Instant,
}

impl Progress {
    /// A bar with its rate, if standard error is a terminal that the log shares with people.
    pub(crate) fn bar(what: &'static str) -> Option<Self> {
        let shown = std::io::stderr().is_terminal() && log::is_for_people();
        shown.then(|| {
            let bar =
                draw("{prefix} {bar:40} {human_pos} of {human_len} blocks, {per_sec}, {eta} left");
            let bar = bar.with_prefix(what);
            log::write_above(Some(bar.clone()));
            Self { what, bar: Some(bar), lines: false, last_line: Instant::now() }
        })
    }

    /// Begins; in JSON nothing is shown.
    pub(crate) fn start(ui: Ui, what: &'static str) -> Self {
        let terminal = std::io::stderr().is_terminal() && log::is_for_people();
        let bar = (terminal && !ui.json).then(|| {
            draw("{prefix} {bar:40} {human_pos} of {human_len} blocks, {eta} left")
                .with_prefix(what)
        });
        Self {
            what,
            bar,
            lines: !terminal && !ui.json && log::is_for_people(),
            last_line: Instant::now(),
        }
    }

    /// Shows how far it is.
    pub(crate) fn at(&mut self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        } else if self.lines && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let (what, share) = (self.what, percent(done, total));
            eprintln!("{what}: {} of {} blocks, {share}", count(done), count(total));
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Work that ends early leaves no bar behind either.
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            log::write_above(None);
        }
    }
}

fn draw(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
