//! What a run did, as it is kept and shown.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::Height;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::store::Kept;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "reason")]
pub enum Outcome {
    /// Both phases are done: the height counts as processed.
    Completed,
    /// Something failed; the next event begins again.
    Failed(String),
    /// It took too long; the next event goes on.
    TimedOut,
    /// It was told to stop; the next event goes on.
    Cancelled,
}

/// The part of a run that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Parents of old unmined transactions are preserved.
    #[default]
    Preserve,
    /// Preservations that ended are looked at again.
    Expire,
    /// Records go.
    Delete,
}

impl Phase {
    /// Its name in reports and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preserve => "preserve",
            Self::Expire => "expire",
            Self::Delete => "delete",
        }
    }
}

/// What a run has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {
    /// Old unmined transactions that were looked at.
    pub old_unmined: u64,
    /// Parents that were preserved. One is counted once for each page of old transactions that spend it, so
    /// the number depends on the order in which a store lists them.
    pub preserved: u64,
    /// Parents that are not here.
    pub parents_missing: u64,
    /// Preservations that ended.
    pub expired: u64,
    /// Records that are gone.
    pub deleted: u64,
    /// Records that were due and stay, by reason.
    pub kept: BTreeMap<Kept, u64>,
    /// External files that are gone.
    pub files_deleted: u64,
    /// External files that were not there.
    pub files_missing: u64,
}

impl Done {
    /// The records that stay, for a line of the log: `held 3, preserved 1`, or `none`.
    pub fn kept_words(&self) -> String {
        let words: Vec<String> =
            self.kept.iter().map(|(why, count)| format!("{} {count}", why.name())).collect();
        if words.is_empty() { "none".into() } else { words.join(", ") }
    }

    /// Counts records that stay.
    pub(crate) fn keep(&mut self, why: Kept, records: u64) {
        if records > 0 {
            *self.kept.entry(why).or_default() += records;
        }
    }

    /// Records that stay for this reason.
    pub(crate) fn stays(&self, why: Kept) -> u64 {
        self.kept.get(&why).copied().unwrap_or(0)
    }

    /// Records that stay because of their files: another run finds them, also at the same height.
    pub(crate) fn left_by_files(&self) -> u64 {
        self.stays(Kept::FilesMissing) + self.stays(Kept::FileStays)
    }
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its height.
    pub height: Height,
    /// Up to which height records went.
    pub safe_height: Height,
    /// When it began, in seconds of Unix time.
    pub started_at: u64,
    /// How long it took.
    pub millis: u64,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it did.
    #[serde(flatten)]
    pub done: Done,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Progress {
    /// The run's height.
    pub height: Height,
    /// What it is at.
    pub phase: Phase,
    /// Records that were due when the deleting phase began; 0 also where nobody could count them.
    pub due: u64,
    /// What it has done.
    pub done: Done,
    /// For how long the deleting phase has been going on.
    pub deleting: Duration,
    /// For how long nothing of it has moved.
    pub still: Duration,
}

/// Nothing moves if nothing did for so long: longer than a step takes.
const STILL: Duration = Duration::from_secs(15);

impl Progress {
    /// Records a second; nothing while none moves.
    pub fn rate(&self) -> Option<u64> {
        let millis = u64::try_from(self.deleting.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = self.looked_at().saturating_mul(1000) / millis;
        (rate > 0 && self.still < STILL).then_some(rate)
    }

    /// How much longer it takes at this rate.
    pub fn eta(&self) -> Option<Duration> {
        if self.due == 0 {
            return None;
        }
        let left = self.due.saturating_sub(self.looked_at());
        self.rate().and_then(|rate| left.checked_div(rate)).map(Duration::from_secs)
    }

    fn looked_at(&self) -> u64 {
        self.done.deleted + self.done.kept.values().sum::<u64>()
    }
}

/// A run's progress, shared with whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Option<Sheet>>);

#[derive(Debug)]
struct Sheet {
    progress: Progress,
    /// When its phase began, and when something last moved.
    since: Instant,
    moved: Instant,
}

impl Board {
    pub(crate) fn begin(&self, height: Height) {
        let (progress, now) = (Progress { height, ..Progress::default() }, Instant::now());
        *self.0.lock() = Some(Sheet { progress, since: now, moved: now });
    }

    pub(crate) fn enter(&self, phase: Phase, due: u64) {
        if let Some(sheet) = &mut *self.0.lock() {
            (sheet.progress.phase, sheet.progress.due) = (phase, due);
            sheet.since = Instant::now();
            sheet.moved = sheet.since;
        }
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Done)) {
        if let Some(sheet) = &mut *self.0.lock() {
            let before = sheet.progress.looked_at();
            count(&mut sheet.progress.done);
            if sheet.progress.looked_at() > before {
                sheet.moved = Instant::now();
            }
        }
    }

    pub(crate) fn look(&self) -> Option<Progress> {
        let board = self.0.lock();
        let Sheet { progress, since, moved } = board.as_ref()?;
        let (deleting, still) = match progress.phase {
            Phase::Delete => (since.elapsed(), moved.elapsed()),
            Phase::Preserve | Phase::Expire => (Duration::ZERO, Duration::ZERO),
        };
        Some(Progress { deleting, still, ..progress.clone() })
    }

    pub(crate) fn end(&self) -> Done {
        self.0.lock().take().map(|sheet| sheet.progress.done).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_reads_back_as_it_was_kept() {
        let mut done = Done { deleted: 3, ..Done::default() };
        done.keep(Kept::Held, 2);
        done.keep(Kept::Unstable, 0);
        for outcome in [Outcome::Completed, Outcome::Failed("no".into()), Outcome::TimedOut] {
            let (started_at, millis) = (7, 8);
            let job =
                Job { height: 5, safe_height: 4, started_at, millis, outcome, done: done.clone() };
            let text = serde_json::to_string(&job).unwrap();
            assert!(text.contains(r#""kept":{"held":2}"#), "{text}");
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        }
    }

    #[test]
    fn the_time_that_is_left_follows_from_the_rate() {
        let done = Done { deleted: 200, ..Done::default() };
        let deleting = Duration::from_secs(2);
        let progress = Progress { due: 1000, done, deleting, ..Progress::default() };
        assert_eq!((progress.rate(), progress.eta()), (Some(100), Some(Duration::from_secs(8))));
        // While nothing moves nobody knows.
        let still = Progress { done: Done::default(), ..progress };
        assert_eq!((still.rate(), still.eta()), (None, None));
        let done = Done { deleted: 200, ..Done::default() };
        let stands = Progress { done, still: STILL, ..still.clone() };
        assert_eq!((stands.rate(), stands.eta()), (None, None));
        let uncounted =
            Progress { due: 0, done: Done { deleted: 200, ..Done::default() }, ..still };
        assert_eq!((uncounted.rate(), uncounted.eta()), (Some(100), None));
    }
}
