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

/// How many blocks ticks left that neither retention nor a hold keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The fewest, and when that was so last.
    least: u64,
    least_at: u64,
    /// The most since then, and when that was reached.
    most: u64,
    most_at: u64,
    /// The last number, and when it was noted.
    last: u64,
    last_at: u64,
    /// Whether the last tick failed.
    failed: bool,
}

impl Behind {
    /// What is known after one more number.
    fn after(before: Option<Self>, last: u64, now_millis: u64, failed: bool) -> Self {
        match before {
            Some(before) if last > before.least => {
                let grown = last > before.most;
                Self {
                    most: before.most.max(last),
                    most_at: if grown { now_millis } else { before.most_at },
                    last,
                    last_at: now_millis,
                    failed,
                    ..before
                }
            }
            _ => Self {
                least: last,
                least_at: now_millis,
                most: last,
                most_at: now_millis,
                last,
                last_at: now_millis,
                failed,
            },
        }
    }

    /// A hold that lets go leaves much to cut at once: what becomes less since then does not grow.
    fn has_grown_for_long(&self, now_millis: u64) -> bool {
        self.last > self.least
            && now_millis.saturating_sub(self.least_at) >= PATIENCE_MILLIS
            && self.last_at.saturating_sub(self.most_at) < PATIENCE_MILLIS / 2
    }
}

/// Blocks below a height that are still here.
fn kept_below(state: &State, height: Height) -> u64 {
    state.oldest_kept().map_or(0, |oldest| height.saturating_sub(oldest))
}

/// Blocks that retention does not keep and that are still here; none without a retention.
pub(crate) fn behind_of(state: &State, situation: &Situation) -> Option<u64> {
    situation.retain_min.map(|min| kept_below(state, min))
}

/// Those of them that no hold keeps: a tick that granted enough would cut them.
fn unheld_of(state: &State, situation: &Situation) -> Option<u64> {
    let min = situation.retain_min?;
    let held = situation.holds.binding(state.pressure.draining);
    let held = held.map(|hold| hold.limit.map_or(0, |limit| limit.saturating_add(1)));
    Some(kept_below(state, held.map_or(min, |held| held.min(min))))
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
    pub(crate) fn note_behind(&self, state: &State, situation: &Situation, failed: bool) {
        let now = self.clock.now_millis();
        let left = unheld_of(state, situation).filter(|_| state.pruning_enabled);
        let mut behind = self.behind.lock();
        *behind = left.map(|left| Behind::after(*behind, left, now, failed));
    }

    /// After a tick that failed: what was to be done is still there.
    pub(crate) fn note_failed_tick(&self) {
        let look = || -> Result<(), StoreError> {
            let view = self.view()?;
            let situation = self.situation_of(&view.snapshot, &view.state)?;
            self.note_behind(&view.state, &situation, true);
            Ok(())
        };
        // Where even that cannot be read, the failure itself is told.
        look().unwrap_or_default();
    }

    /// What was noted holds for another policy, or nothing is pruned by itself.
    pub(crate) fn forget_behind(&self) {
        *self.behind.lock() = None;
    }

    /// Why an operator should look at retention, if it falls behind. What a hold keeps is no reason: the
    /// holds say so themselves.
    pub(crate) fn behind_alarm(&self, state: &State, situation: &Situation) -> Option<String> {
        let behind = (*self.behind.lock())?;
        let left = unheld_of(state, situation).filter(|left| *left > behind.least)?;
        behind.has_grown_for_long(self.clock.now_millis()).then(|| {
            let advice = if behind.failed {
                "the last tick failed, and the log says why"
            } else {
                "raise max_ops_per_tick or let the trigger come more often"
            };
            format!(
                "retention falls behind: {left} blocks are here that neither it nor a hold keeps, and \
                 they have become more for over an hour; {advice}"
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
                behind = Some(Behind::after(behind, *left, at * minute, false));
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
        let caught_up: Vec<u64> =
            [0, 0].into_iter().chain((10..100).rev().map(|n| 10 * n)).collect();
        for minutes in 0..caught_up.len() {
            assert!(!after(&caught_up[..minutes]), "it jumped and falls, {minutes} minutes on");
        }
    }
}
