//! The live view: one frame, redrawn in place.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use console::{Term, style, truncate_str};
use secateur_core::{PruneStatus, format_bytes};

use super::indexing::Reached;
use super::show::{Event, Moment, Show};
use crate::ui::gauge;
use crate::ui::words::{allows, blocks, count, height, plural, report, span, strength, tenths};

const RHYTHM: Duration = Duration::from_millis(200);
/// The view never asks for more columns than a plain terminal has.
const MAX_WIDTH: usize = 80;
const LABEL: usize = 10;
const BAR_WIDTH: usize = 58;
/// Holds and alarms that fit; the others are counted.
const MAX_HOLDS: usize = 4;
const MAX_ALARMS: usize = 3;
/// Clears what an earlier, longer line left behind, and what an earlier, longer frame did.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The view on a terminal. The cursor is hidden while it lives.
#[derive(Debug)]
pub(super) struct Live {
    term: Term,
    place: String,
    drawn: usize,
}

impl Live {
    /// Takes the lines below the cursor.
    pub(super) fn start(path: &Path) -> Result<Self, anyhow::Error> {
        let term = Term::stdout();
        term.hide_cursor()?;
        Ok(Self { term, place: path.display().to_string(), drawn: 0 })
    }
}

impl Show for Live {
    fn listening(&mut self, http: SocketAddr, grpc: SocketAddr) -> Result<(), anyhow::Error> {
        self.place = format!("{}  http://{http}  grpc {grpc}", self.place);
        Ok(())
    }

    fn rhythm(&self) -> Duration {
        RHYTHM
    }

    fn moment(&mut self, moment: &Moment) -> Result<(), anyhow::Error> {
        let columns = usize::from(self.term.size().1);
        let width = columns.saturating_sub(1).min(MAX_WIDTH);
        let lines = frame(moment, &self.place);
        // One write for the whole frame, so that it does not flicker.
        let mut text = String::new();
        if self.drawn > 0 {
            // Writing into a string cannot fail.
            write!(text, "\u{1b}[{}A", self.drawn).unwrap_or_default();
        }
        for line in &lines {
            text.push_str(&truncate_str(line, width, "…"));
            text.push_str(CLEAR_LINE);
            text.push('\n');
        }
        text.push_str(CLEAR_BELOW);
        self.drawn = lines.len();
        Ok(self.term.write_str(&text)?)
    }

    fn event(&mut self, _: &Event) -> Result<(), anyhow::Error> {
        // The next frame, a moment from now, shows it.
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A terminal that is gone has no cursor to show.
        self.term.show_cursor().unwrap_or_default();
    }
}

/// The lines of one frame.
fn frame(moment: &Moment, place: &str) -> Vec<String> {
    let status = &moment.status;
    let mut lines = vec![
        format!(
            "{}  {place}  running {}",
            style("secateur demo").bold(),
            span(moment.elapsed.as_secs())
        ),
        String::new(),
    ];
    let mut row = |label: &str, value: String| lines.push(format!("{label:<LABEL$}{value}"));
    if let Some(marks) = gauge::marks(status) {
        let bar = gauge::bar(status.used_bytes, status.target_bytes, BAR_WIDTH);
        row("budget", format!("{bar} {}", format_bytes(marks.target)));
        row("", gauge::marks_row(&marks, BAR_WIDTH));
        row("", gauge::legend(&marks));
    }
    let state = gauge::styled_state(status);
    row("used", format!("{}   {state}", gauge::used(status)));
    row("head", format!("{:<14} {} blocks/s", height(status.head), tenths(moment.rate_tenths)));
    row(
        "boundary",
        format!(
            "{:<14} kept {}, {} each",
            height(status.pruned_before_block),
            blocks(moment.kept()),
            format_bytes(status.bytes_per_block)
        ),
    );
    if let Some(reached) = moment.indexed {
        row("index", indexed(reached));
        row("archive", format!("{:<14} in verified parts", height(status.archived)));
    }
    for (place, one) in moment.blobs.iter().enumerate() {
        let label = if place == 0 { "blobs" } else { "" };
        row(label, format!("v{}  {}", one.validator, one.line()));
    }
    if let Some(utxo) = &moment.utxo {
        row(
            "utxo",
            format!("{:<14} {}", height(utxo.head), plural(utxo.pruned, "record") + " pruned"),
        );
        let held =
            format!("held {}, {} preserved", plural(utxo.held, "time"), count(utxo.preserved));
        row("", format!("about {} here, {held}", count(utxo.records)));
    }
    row("arena", arena(moment));
    row(
        "disk",
        format!(
            "{} given to the arena, index {}",
            format_bytes(status.disk_bytes),
            format_bytes(status.index_bytes)
        ),
    );
    holds(status, &mut row);
    let last = status.last_report.as_ref();
    row("last", last.map_or_else(|| "no prune yet".into(), report));
    alarms(moment, &mut row);
    lines.push(String::new());
    lines.push(style("Ctrl-C stops it cleanly; run again, it goes on.").dim().to_string());
    lines
}

fn indexed(reached: Reached) -> String {
    let next = reached.next;
    let behind = reached.head.map_or(0, |head| (head + 1).saturating_sub(next));
    format!("{:<14} {} behind", height(next.checked_sub(1)), blocks(behind))
}

fn arena(moment: &Moment) -> String {
    let size = format_bytes(moment.status.arena_bytes);
    match (moment.counts.arena_grew_at, moment.status.head) {
        (Some(at), Some(head)) => {
            let flat = blocks(head.saturating_sub(at));
            format!("{size:<14} last grew at block {}, flat for {flat}", count(at))
        }
        _ => format!("{size:<14} did not grow in this run"),
    }
}

fn holds(status: &PruneStatus, row: &mut impl FnMut(&str, String)) {
    for (place, hold) in status.holds.iter().take(MAX_HOLDS).enumerate() {
        let name = hold.kind.to_string();
        let binds = status.binding_hold.as_ref() == Some(&name);
        let binds = if binds { "  ← binds" } else { "" };
        row(
            if place == 0 { "holds" } else { "" },
            format!("{name:<20} {}  lets go {}{binds}", strength(hold.strength), allows(hold)),
        );
    }
    let hidden = status.holds.iter().count().saturating_sub(MAX_HOLDS);
    if hidden > 0 {
        row("", format!("and {hidden} more (`secateur holds`)"));
    }
}

fn alarms(moment: &Moment, row: &mut impl FnMut(&str, String)) {
    let alarms = &moment.status.alarms;
    if alarms.is_empty() && moment.counts.trouble.is_none() {
        row("alarms", "none".into());
    }
    for alarm in alarms.iter().take(MAX_ALARMS) {
        row("ALARM", style(alarm).red().to_string());
    }
    if let Some(trouble) = &moment.counts.trouble {
        row("ALARM", style(format!("a prune failed: {trouble}")).red().to_string());
    }
}
