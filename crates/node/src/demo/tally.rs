//! What this run did so far: counted where it happens, read by whoever shows it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use secateur_core::{Block, Height, Report};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{PruneOutcome, StoreError};

use super::show::Event;

/// The counts of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Blocks appended.
    pub(super) appended: u64,
    /// Their payload bytes.
    pub(super) payload_bytes: u64,
    /// The arena's length when it was last looked at.
    pub(super) arena_bytes: u64,
    /// The head when the arena last grew in this run.
    pub(super) arena_grew_at: Option<Height>,
    /// Reports that prunes of this run wrote.
    pub(super) reports: u64,
    /// Blocks cut.
    pub(super) cut: u64,
    /// The last report.
    pub(super) last_report: Option<Report>,
    /// The last failure of a prune.
    pub(super) trouble: Option<String>,
}

/// The counts, shared.
#[derive(Debug)]
pub(super) struct Tally {
    began: Instant,
    counts: Mutex<Counts>,
}

impl Tally {
    /// Begins with the arena as it is.
    pub(super) fn begin(store: &DiskStore) -> Result<Self, StoreError> {
        let counts =
            Counts { arena_bytes: store.get_prune_status()?.arena_bytes, ..Counts::default() };
        Ok(Self { began: Instant::now(), counts: Mutex::new(counts) })
    }

    /// How long the run takes already.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The counts now.
    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Notes an acknowledged group.
    pub(super) fn appended(&self, group: &[Block], store: &DiskStore) -> Result<(), StoreError> {
        let arena_bytes = store.get_prune_status()?.arena_bytes;
        let mut counts = self.lock();
        counts.appended += group.len() as u64;
        counts.payload_bytes += group.iter().map(|block| block.payloads.total_len()).sum::<u64>();
        if arena_bytes > counts.arena_bytes {
            counts.arena_bytes = arena_bytes;
            counts.arena_grew_at = group.last().map(|block| block.meta.height);
        }
        Ok(())
    }

    /// Notes what a tick of the daemon did, and says it as an event.
    pub(super) fn pruned(&self, tick: Result<&PruneOutcome, &StoreError>) -> Event {
        let mut counts = self.lock();
        match tick {
            Ok(outcome) => {
                counts.cut += outcome.totals.blocks;
                // Ticks that go on with one another's work share a report: it counts once.
                let seq = |report: &Option<Report>| report.as_ref().map(|report| report.seq);
                if seq(&outcome.report) != seq(&counts.last_report) {
                    counts.reports += 1;
                }
                counts.last_report.clone_from(&outcome.report);
                Event::Pruned(outcome.report.clone().map(Box::new))
            }
            Err(error) => {
                counts.trouble = Some(error.to_string());
                Event::Trouble(error.to_string())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // A count that a panicking thread left behind is still the best there is.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks a second over the last few seconds.
#[derive(Debug)]
pub(super) struct Rate {
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(5);

    /// Begins now, with nothing appended.
    pub(super) fn begin() -> Self {
        let seen = VecDeque::from([(Instant::now(), 0)]);
        Self { seen }
    }

    /// Notes the count and returns the rate in tenths of a block.
    pub(super) fn observe(&mut self, appended: u64) -> u64 {
        let now = Instant::now();
        self.seen.push_back((now, appended));
        while self.seen.front().is_some_and(|(at, _)| now.duration_since(*at) > Self::WINDOW)
            && self.seen.len() > 2
        {
            self.seen.pop_front();
        }
        let Some((since, before)) = self.seen.front() else {
            return 0;
        };
        per_second_tenths(appended.saturating_sub(*before), now.duration_since(*since))
    }
}

/// `count` in `span` as tenths of one in a second.
pub(super) fn per_second_tenths(count: u64, span: Duration) -> u64 {
    let tenths = u128::from(count) * 10_000;
    u64::try_from(tenths.checked_div(span.as_millis()).unwrap_or(0)).unwrap_or(u64::MAX)
}
