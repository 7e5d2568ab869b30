//! How far a job is: a bar on a terminal, a line a minute otherwise; what happens goes to the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_index::worker::{Event, Observer, Progress as At};

use crate::ui::words::{count, span};
use crate::ui::{Progress, Ui};

/// How often a line is logged.
const LINE_EVERY: Duration = Duration::from_mins(1);

/// Looks on and tells.
pub(crate) struct Look {
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    bar: Option<Progress>,
    line: Option<Instant>,
    first: Option<u64>,
}

impl Look {
    pub(crate) fn new(ui: Ui) -> Self {
        let bar = if ui.json { None } else { Progress::bar("indexing") };
        Self { shown: Mutex::new(Shown { bar, ..Shown::default() }) }
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
        match event {
            Event::Retrying { error, wait } => tracing::warn!(%error, ?wait, "tried again"),
            Event::Alarm { error, since } => {
                tracing::error!(%error, ?since, "ALARM: nothing goes on for too long");
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
