//! How far a job is: a bar on a terminal, a line a minute otherwise; what happens goes to the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_index::worker::{Event, Observer, Progress as At};

use super::BlocksFrom;
use crate::ui::words::{count, span};
use crate::ui::{Progress, Ui};

/// How often a line is logged.
const LINE_EVERY: Duration = Duration::from_mins(1);

/// Looks on and tells.
pub(crate) struct Look {
    shown: Mutex<Shown>,
    /// Where blocks come from.
    source: String,
}

#[derive(Default)]
struct Shown {
    bar: Option<Progress>,
    line: Option<Instant>,
    first: Option<u64>,
    /// When it was last told that nothing is left to do.
    caught_up: Option<Instant>,
}

impl Shown {
    /// Whether an event is told now. At the tip the same one comes with every poll.
    fn tells(&mut self, event: &Event<'_>, now: Instant) -> bool {
        if !matches!(event, Event::CaughtUp { .. }) {
            return true;
        }
        let due = self.caught_up.is_none_or(|at| now.duration_since(at) >= LINE_EVERY);
        if due {
            self.caught_up = Some(now);
        }
        due
    }
}

impl Look {
    pub(crate) fn new(ui: Ui, source: &BlocksFrom) -> Self {
        let bar = if ui.json { None } else { Progress::bar("indexing") };
        Self { shown: Mutex::new(Shown { bar, ..Shown::default() }), source: source.to_string() }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        drop(self.shown.lock().bar.take());
    }
}

impl Observer for Look {
    fn progress(&self, at: &At) {
        let mut shown = self.shown.lock();
        let first = *shown.first.get_or_insert(at.next.saturating_sub(at.blocks));
        if let Some(bar) = &mut shown.bar {
            let head = at.head.map_or(at.next, |head| head.saturating_add(1)).max(at.next);
            bar.at(at.next.saturating_sub(first), head.saturating_sub(first));
            return;
        }
        let since = *shown.line.get_or_insert_with(Instant::now);
        if since.elapsed() < LINE_EVERY {
            return;
        }
        shown.line = Some(Instant::now());
        let left = at.eta.map_or_else(|| "unknown".into(), |eta| span(eta.as_secs()));
        tracing::info!(
            next = at.next,
            head = at.head,
            blocks = at.blocks,
            transactions = at.txs,
            logs = at.logs,
            blocks_per_second = format!("{:.1}", at.blocks_per_second),
            left,
            "indexing, {} blocks behind",
            count(at.lag())
        );
    }

    fn event(&self, event: &Event<'_>) {
        if !self.shown.lock().tells(event, Instant::now()) {
            return;
        }
        let source = self.source.as_str();
        match event {
            Event::Retrying { error, wait } => {
                tracing::warn!(%error, source, ?wait, "tried again");
            }
            Event::Alarm { error, since } => {
                tracing::error!(%error, source, ?since, "ALARM: nothing goes on for too long");
            }
            Event::Recovered => tracing::info!("it works again"),
            Event::Gap { from, to } => {
                tracing::warn!(from, to, "the source had cut these blocks; `gaps` has a row");
            }
            Event::CaughtUp { next } => tracing::info!(next, "caught up"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use secateur_index::IndexError;
    use secateur_index::source::GrpcOptions;

    use super::*;

    #[test]
    fn at_an_idle_tip_a_line_comes_once_a_minute_and_trouble_always() {
        let (mut shown, start) = (Shown::default(), Instant::now());
        let told: Vec<u64> = (0..300)
            .step_by(5)
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                shown.tells(&Event::CaughtUp { next: 6_000 }, now)
            })
            .collect();
        assert_eq!(told, [0, 60, 120, 180, 240]);
        let error = IndexError::Net("gone".into());
        let retrying = Event::Retrying { error: &error, wait: Duration::ZERO };
        assert!(shown.tells(&retrying, start) && shown.tells(&retrying, start));
    }

    #[test]
    fn a_line_about_trouble_names_the_source() {
        let node = BlocksFrom::Node(GrpcOptions::new("http://127.0.0.1:1"));
        let ui = Ui { json: true };
        assert_eq!(Look::new(ui, &node).source, "http://127.0.0.1:1");
    }
}
