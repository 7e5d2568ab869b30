//! The pace of pruning: what a tick cuts beside what comes in between two of them, and whether
//! retention falls behind.

use secateur_core::{Height, Pace, PrunePolicy, ops_of_block};

use super::record::Walk;
use super::situation::Situation;
use super::state::State;
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot};

/// So many of the newest blocks stand for those to come.
const SAMPLE: u64 = 64;
/// Retention that falls further and further behind for so long is an alarm.
const PATIENCE_MILLIS: u64 = 60 * 60 * 1000;

/// How many blocks ticks left that retention does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The fewest, and when that was so last.
    least: u64,
    since_millis: u64,
    /// The last number.
    last: u64,
}

impl Behind {
    /// What is known after one more number.
    fn after(before: Option<Self>, last: u64, now_millis: u64) -> Self {
        match before {
            Some(before) if last > before.least => Self { last, ..before },
            _ => Self { least: last, since_millis: now_millis, last },
        }
    }

    fn has_grown_for_long(&self, now_millis: u64) -> bool {
        self.last > self.least && now_millis.saturating_sub(self.since_millis) >= PATIENCE_MILLIS
    }
}

/// Blocks that retention does not keep and that are still here; none without a retention.
pub(crate) fn behind_of(state: &State, retain_min: Option<Height>) -> Option<u64> {
    let (min, oldest) = (retain_min?, state.oldest_kept());
    Some(oldest.map_or(0, |oldest| min.saturating_sub(oldest)))
}

impl<A: Arena, I: Index> Store<A, I> {
    /// What a tick cuts, and what is appended between two of them. `span_seconds` is the chain's time
    /// from the oldest kept block to the head.
    pub(crate) fn pace_of(
        &self,
        rows: &impl Snapshot,
        state: &State,
        policy: &PrunePolicy,
        span_seconds: u64,
    ) -> Result<Pace, StoreError> {
        let (Some(head), Some(oldest)) = (state.head, state.oldest_kept()) else {
            return Ok(Pace::default());
        };
        let (mut blocks, mut ops) = (0, 0u64);
        let first = oldest.max(head.height.saturating_sub(SAMPLE - 1));
        let mut walk = Walk::new(first, head.height);
        while let Some(record) = walk.next(rows)? {
            blocks += 1;
            ops = ops.saturating_add(ops_of_block(record.tx_count));
        }
        let granted = self.tick_ops(state.pressure, policy.max_ops_per_tick);
        let blocks_per_tick = u128::from(granted) * blocks / u128::from(ops.max(1));
        let counted = policy.trigger.blocks().map(u64::from);
        let gaps = state.kept_blocks().saturating_sub(1);
        let timed =
            policy.trigger.millis().filter(|_| span_seconds > 0 && gaps > 0).map(|millis| {
                let blocks = u128::from(millis) * u128::from(gaps)
                    / (u128::from(span_seconds) * 1000).max(1);
                u64::try_from(blocks).unwrap_or(u64::MAX)
            });
        Ok(Pace {
            // A tick cuts one block whatever it costs.
            blocks_per_tick: u64::try_from(blocks_per_tick.max(1)).ok(),
            blocks_between_ticks: match (counted, timed) {
                (Some(counted), Some(timed)) => Some(counted.min(timed)),
                (counted, timed) => counted.or(timed),
            },
        })
    }

    /// After a tick: notes how far it left retention behind.
    pub(crate) fn note_behind(&self, state: &State, retain_min: Option<Height>) {
        let now = self.clock.now_millis();
        let left = behind_of(state, retain_min);
        let mut behind = self.behind.lock();
        *behind = left.map(|left| Behind::after(*behind, left, now));
    }

    /// After a tick that failed: what was to be done is still there.
    pub(crate) fn note_failed_tick(&self) {
        let look = || -> Result<(), StoreError> {
            let view = self.view()?;
            let Situation { retain_min, .. } = self.situation_of(&view.snapshot, &view.state)?;
            self.note_behind(&view.state, retain_min);
            Ok(())
        };
        // Where even that cannot be read, the failure itself is told.
        look().unwrap_or_default();
    }

    /// Why an operator should look at retention, if it falls behind.
    pub(crate) fn behind_alarm(&self) -> Option<String> {
        let behind = (*self.behind.lock())?;
        behind.has_grown_for_long(self.clock.now_millis()).then(|| {
            format!(
                "retention falls behind: {} blocks more than it keeps are here, and they have become \
                 more for over an hour; raise max_ops_per_tick or let the trigger come more often",
                behind.last
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_grows_for_an_hour_is_an_alarm_and_one_that_falls_back_is_none() {
        let minute = 60 * 1000;
        let after = |left: &[u64]| {
            let mut behind = None;
            for (at, left) in (0..).zip(left) {
                behind = Some(Behind::after(behind, *left, at * minute));
            }
            behind.is_some_and(|b: Behind| b.has_grown_for_long((left.len() as u64 - 1) * minute))
        };
        let growing: Vec<u64> = (0..=60).map(|at| 100 + at).collect();
        assert!(after(&growing));
        assert!(!after(&growing[..60]), "59 minutes");
        assert!(!after(&vec![100; 200]), "it does not grow");
        let fallen = [&growing[..50], &[90], &growing[..50]].concat();
        assert!(!after(&fallen), "it fell in between");
        assert!(!after(&vec![0; 200]));
    }
}
