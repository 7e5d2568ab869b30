//! The selection: which blocks a prune cuts and where it stops.
//!
//! One code decides for the trigger, the plan and the real run, so a dry run cannot promise what
//! the run does not do. It sees numbers only; the caller shows it one candidate after another.

use serde::{Deserialize, Serialize};

use crate::{Cause, Height, Holds, StopReason, WaterMarks};

/// A tick's operations in an emergency, if the policy grants fewer.
pub const EMERGENCY_OPS: u64 = 1_000_000;

/// The nominal weight of a block: itself, and a receipt, an index entry and a location for each
/// transaction.
pub const fn ops_of_block(tx_count: u32) -> u64 {
    1 + 3 * tx_count as u64
}

/// How hard the budget presses. Stored, because both flags have a memory: once set they stay
/// until low water.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pressure {
    /// Over high water, and not back at low water yet.
    pub draining: bool,
    /// Over hard water, and not back at low water yet.
    pub emergency: bool,
}

impl Pressure {
    /// The pressure after `used_bytes` was seen. Without a budget there is none.
    pub fn observe(self, used_bytes: u64, marks: Option<WaterMarks>) -> Self {
        let Some(marks) = marks else {
            return Self::default();
        };
        if used_bytes <= marks.low {
            return Self::default();
        }
        Self {
            draining: self.draining || used_bytes > marks.high,
            emergency: self.emergency || used_bytes > marks.hard,
        }
    }

    /// The operations of one tick: raised in an emergency, so that pruning is faster than
    /// appending whatever the policy grants.
    pub fn tick_ops(self, max_ops_per_tick: u64) -> u64 {
        if self.emergency { max_ops_per_tick.max(EMERGENCY_OPS) } else { max_ops_per_tick }
    }
}

/// The oldest block, as the selection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its height.
    pub height: Height,
    /// Its transactions.
    pub tx_count: u32,
    /// Bytes of the regions that cutting it releases.
    pub bytes: u64,
}

/// What to do with a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Cut it, for this cause.
    Cut(Cause),
    /// Stop before it.
    Stop(StopReason),
}

/// What a selection has taken so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The first height taken.
    pub first: Option<Height>,
    /// The last height taken.
    pub last: Option<Height>,
    /// Blocks taken.
    pub blocks: u64,
    /// Their transactions.
    pub transactions: u64,
    /// Their nominal operations.
    pub ops: u64,
    /// Bytes that they release.
    pub bytes: u64,
    /// Those of them that the last block released.
    pub last_bytes: u64,
    /// Whether the first block alone cost more than the tick grants.
    pub overrun: bool,
}

/// One prune's selection in progress.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    holds: &'a Holds,
    marks: Option<WaterMarks>,
    retain_min: Option<Height>,
    max_ops: u64,
    used_bytes: u64,
    pressure: Pressure,
    totals: Totals,
}

impl<'a> Selection<'a> {
    /// Begins with the budget as it stands. `retain_min` is the lowest height that retention
    /// keeps, if retention is on.
    pub fn new(
        holds: &'a Holds,
        marks: Option<WaterMarks>,
        retain_min: Option<Height>,
        max_ops: u64,
        used_bytes: u64,
        pressure: Pressure,
    ) -> Self {
        let pressure = pressure.observe(used_bytes, marks);
        Self { holds, marks, retain_min, max_ops, used_bytes, pressure, totals: Totals::default() }
    }

    /// Why the block at `height` is due, if it is. The trigger and the stop are this one line.
    pub fn due(&self, height: Height) -> Option<Cause> {
        if self.pressure.emergency {
            Some(Cause::Emergency)
        } else if self.pressure.draining {
            Some(Cause::Capacity)
        } else {
            self.retain_min.filter(|min| height < *min).map(|_| Cause::Retention)
        }
    }

    /// Judges the next candidate; says nothing yet about what is taken.
    pub fn consider(&self, candidate: &Candidate) -> Verdict {
        let Some(cause) = self.due(candidate.height) else {
            return Verdict::Stop(StopReason::Done);
        };
        if let Some(hold) = self.holds.binding(self.pressure.draining)
            && hold.covers(candidate.height)
        {
            return Verdict::Stop(StopReason::Hold {
                hold: hold.kind.to_string(),
                strength: hold.strength,
                limit: hold.limit,
            });
        }
        let ops = self.totals.ops.saturating_add(ops_of_block(candidate.tx_count));
        if ops > self.max_ops && self.totals.blocks > 0 {
            return Verdict::Stop(StopReason::MaxOps);
        }
        Verdict::Cut(cause)
    }

    /// Takes a candidate that [`Self::consider`] said to cut.
    pub fn take(&mut self, candidate: &Candidate) {
        let ops = ops_of_block(candidate.tx_count);
        self.totals.overrun |= self.totals.blocks == 0 && ops > self.max_ops;
        self.totals.first.get_or_insert(candidate.height);
        self.totals.last = Some(candidate.height);
        self.totals.blocks += 1;
        self.totals.transactions += u64::from(candidate.tx_count);
        self.totals.ops = self.totals.ops.saturating_add(ops);
        self.totals.bytes += candidate.bytes;
        self.totals.last_bytes = candidate.bytes;
        self.used_bytes = self.used_bytes.saturating_sub(candidate.bytes);
        self.pressure = self.pressure.observe(self.used_bytes, self.marks);
    }

    /// Something else took space meanwhile: so many bytes are used now.
    pub fn observe(&mut self, used_bytes: u64) {
        self.used_bytes = used_bytes;
        self.pressure = self.pressure.observe(used_bytes, self.marks);
    }

    /// What was taken so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The pressure as it stands now.
    pub fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Used bytes as they stand now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hold, HoldKind, PrunePolicy, Strength};

    fn marks(target: u64) -> Option<WaterMarks> {
        PrunePolicy { target_bytes: target, ..PrunePolicy::default() }.water_marks()
    }

    fn holds(limit: Height) -> Holds {
        let (kind, strength) = (HoldKind::MinKeep, Strength::Hard);
        Holds::new(vec![Hold { kind, strength, limit: Some(limit), active: true }])
    }

    fn run(mut selection: Selection<'_>, tx_count: u32, bytes: u64) -> (Totals, StopReason) {
        for height in 1.. {
            let candidate = Candidate { height, tx_count, bytes };
            match selection.consider(&candidate) {
                Verdict::Cut(_) => selection.take(&candidate),
                Verdict::Stop(stop) => return (*selection.totals(), stop),
            }
        }
        unreachable!()
    }

    #[test]
    fn draining_begins_over_high_water_and_ends_at_low_water() {
        let marks = marks(1000);
        let calm = Pressure::default().observe(900, marks);
        assert!(!calm.draining);
        let draining = calm.observe(901, marks);
        assert!(draining.draining && !draining.emergency);
        assert!(draining.observe(801, marks).draining, "the flag has a memory");
        assert!(!draining.observe(800, marks).draining);
        let emergency = draining.observe(951, marks);
        assert!(emergency.emergency && emergency.observe(900, marks).emergency);
        assert_eq!(emergency.observe(951, None), Pressure::default());
    }

    #[test]
    fn a_drain_stops_at_low_water_and_not_further() {
        let holds = holds(u64::MAX);
        let selection =
            Selection::new(&holds, marks(1000), None, u64::MAX, 950, Pressure::default());
        let (totals, stop) = run(selection, 0, 10);
        assert_eq!((totals.blocks, stop), (15, StopReason::Done));
    }

    #[test]
    fn a_block_larger_than_the_tick_is_cut_as_the_first_and_counted() {
        let holds = holds(u64::MAX);
        let selection = Selection::new(&holds, None, Some(100), 5, 0, Pressure::default());
        let (totals, stop) = run(selection, 2, 10);
        assert_eq!((totals.blocks, totals.overrun, stop), (1, true, StopReason::MaxOps));
    }

    #[test]
    fn soft_holds_give_way_only_while_draining() {
        let soft = Hold {
            kind: HoldKind::Export("slow".into()),
            strength: Strength::Soft,
            limit: Some(3),
            active: true,
        };
        let holds = Holds::new(vec![soft]);
        let calm = Selection::new(&holds, marks(1000), Some(50), 1000, 100, Pressure::default());
        let (totals, stop) = run(calm, 0, 10);
        assert_eq!(totals.last, Some(3));
        assert!(matches!(stop, StopReason::Hold { .. }));
        let pressed = Selection::new(&holds, marks(1000), Some(50), 1000, 910, Pressure::default());
        assert_eq!(run(pressed, 0, 10).0.blocks, 11, "to low water, past the soft hold");
    }

    #[test]
    fn a_hard_hold_stands_in_an_emergency() {
        let holds = holds(4);
        let pressed = Selection::new(&holds, marks(1000), None, 1000, 999, Pressure::default());
        let (totals, stop) = run(pressed, 0, 10);
        assert_eq!(totals.last, Some(4));
        assert_eq!(
            stop,
            StopReason::Hold { hold: "min_keep".into(), strength: Strength::Hard, limit: Some(4) }
        );
    }

    #[test]
    fn retention_stops_where_the_trigger_becomes_false() {
        let holds = holds(u64::MAX);
        let selection = Selection::new(&holds, None, Some(6), 1000, 0, Pressure::default());
        let (totals, stop) = run(selection.clone(), 0, 10);
        assert_eq!((totals.last, stop), (Some(5), StopReason::Done));
        assert_eq!(selection.due(6), None);
    }

    #[test]
    fn an_emergency_raises_the_operations_of_a_tick() {
        let emergency = Pressure { draining: true, emergency: true };
        assert_eq!(emergency.tick_ops(1), EMERGENCY_OPS);
        assert_eq!(Pressure::default().tick_ops(1), 1);
    }
}
