//! How far a job is: a bar on a terminal, a line a minute otherwise; what happens goes to the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_core::format_duration;
use secateur_index::worker::{Event, Observer, Progress as At};
use secateur_index::{ErrorClass, IndexError};

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
    /// Where parts go, if they do.
    archive: Option<String>,
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
    pub(crate) fn new(ui: Ui, source: &BlocksFrom, archive: Option<String>) -> Self {
        let bar = if ui.json { None } else { Progress::bar("indexing") };
        Self {
            shown: Mutex::new(Shown { bar, ..Shown::default() }),
            source: source.to_string(),
            archive,
        }
    }

    /// Whose trouble it is: the source's, or that of the archive that parts go to.
    fn whose(&self, error: &IndexError) -> (Option<&str>, Option<&str>) {
        match &self.archive {
            Some(archive) if error.class() == ErrorClass::ArchiveIo => (None, Some(archive)),
            _ => (Some(&self.source), None),
        }
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
        match event {
            Event::Retrying { error, wait } => {
                let (source, archive) = self.whose(error);
                let wait = format_duration(*wait);
                tracing::warn!(%error, source, archive, wait, "tried again");
            }
            Event::Alarm { error, since } => {
                let (source, archive) = self.whose(error);
                let told = "ALARM: nothing goes on for too long";
                let since = format_duration(*since);
                tracing::error!(%error, source, archive, since, "{told}");
            }
            Event::Recovered => tracing::info!("it works again"),
            Event::Gap { from, to } => {
                tracing::warn!(from, to, "the source had cut these blocks; `gaps` has a row");
            }
            Event::Begins { first } => {
                let told = "the index begins above block 0: the source has nothing below, and `gaps` has a row";
                tracing::warn!(first, source = self.source, "{told}");
            }
            Event::Stalled { reasons } => {
                tracing::warn!(reasons = reasons.join("; "), source = self.source, "not ready");
            }
            Event::CaughtUp { next } => tracing::info!(next, "caught up"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn a_line_about_trouble_names_the_source_or_the_archive_whichever_it_is() {
        let node = BlocksFrom::Node(GrpcOptions::new("http://127.0.0.1:1"));
        let ui = Ui { json: true };
        let net = IndexError::Net("gone".into());
        let archive = IndexError::ArchiveIo { reason: "gone".into(), retryable: true };
        let look = Look::new(ui, &node, Some("s3://bucket".into()));
        assert_eq!(look.whose(&net), (Some("http://127.0.0.1:1"), None));
        assert_eq!(look.whose(&archive), (None, Some("s3://bucket")));
        // Parts that blocks come from are the source.
        let look = Look::new(ui, &node, None);
        assert_eq!(look.whose(&archive), (Some("http://127.0.0.1:1"), None));
    }
}
