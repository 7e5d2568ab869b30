//! Room on the medium: whether an append or a run fits, what blocks are refused for, and the alarms
//! about it.

use secateur_core::format_bytes;

use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

/// Space that must be left on the medium after a write, so that the index can go on.
const INDEX_HEADROOM: u64 = 2 * 1024 * 1024;

/// A store without a budget grows until the medium is full. It is an alarm when less than this part of
/// the medium is free, or less than so many bytes, whichever is smaller.
const LOW_SPACE_DIVISOR: u64 = 20;
const LOW_SPACE_BYTES: u64 = 1 << 30;

/// What the medium can still give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headroom {
    /// Free bytes, where that is known.
    pub free: Option<u64>,
    /// All bytes of the medium, where that is known.
    pub total: Option<u64>,
    /// What blocks need, if they are refused for want of it.
    pub short_of: Option<u64>,
}

impl Headroom {
    /// `noted` is what the last append needed, if there was not so much.
    fn of(free: Option<u64>, total: Option<u64>, noted: Option<u64>) -> Self {
        let needed = noted.unwrap_or(INDEX_HEADROOM);
        // Where free space is unknown only another append can find out that there is some.
        let short = free.map_or(noted.is_some(), |free| free < needed);
        Self { free, total, short_of: short.then_some(needed) }
    }

    /// What an operator should look at. `target` is the budget, 0 without one; `taken` what the arena
    /// has been given.
    pub(super) fn alarm(&self, target: u64, taken: u64) -> Option<String> {
        if let Some(needed) = self.short_of {
            let free = self.free.map_or_else(|| "too little is".into(), are);
            return Some(format!(
                "the disk is full: {free} free, and the next blocks need {}; blocks are refused, reads \
                 and pruning go on",
                format_bytes(needed)
            ));
        }
        let free = self.free?;
        // What the arena may still grow by before its budget is full.
        let growth = target.saturating_sub(taken);
        if growth > free {
            let (free, growth) = (are(free), format_bytes(growth));
            return Some(format!(
                "the disk is too small for the budget: {free} free, and the arena may grow by {growth}"
            ));
        }
        let low = (self.total? / LOW_SPACE_DIVISOR).min(LOW_SPACE_BYTES);
        (target == 0 && free < low).then(|| {
            format!(
                "the disk is nearly full: {} free, and the store has no budget, so it grows until \
                 blocks are refused",
                are(free)
            )
        })
    }
}

fn are(bytes: u64) -> String {
    format!("{} are", format_bytes(bytes))
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Refuses a group before anything of it is written when the medium could not take it, and notes
    /// what blocks are refused for.
    pub(super) fn check_append_headroom(&self, fresh_bytes: u64) -> Result<(), StoreError> {
        let checked = self.check_headroom("append", fresh_bytes);
        let noted = match &checked {
            Err(StoreError::DiskFull { needed: 0, .. }) => {
                // There will be room for the reserve once there is more than now.
                let free = self.arena.space()?.available;
                Some(free.map_or(INDEX_HEADROOM, |free| free.saturating_add(1)))
            }
            Err(StoreError::DiskFull { needed, .. }) => Some(*needed),
            _ => None,
        };
        *self.short_of.lock() = noted;
        checked
    }

    /// Refuses before anything is written when the medium could not take it.
    pub(super) fn check_headroom(
        &self,
        what: &'static str,
        fresh_bytes: u64,
    ) -> Result<(), StoreError> {
        // What is staged may still have to be given, where it goes into holes.
        let needed = fresh_bytes + self.lane.unwritten() + INDEX_HEADROOM;
        let available = self.arena.space()?.available;
        if let Some(available) = available.filter(|available| *available < needed) {
            return Err(StoreError::DiskFull { what, needed, available });
        }
        if !self.index.ensure_reserve()? {
            let what = "the space reserve";
            return Err(StoreError::DiskFull { what, needed: 0, available: 0 });
        }
        Ok(())
    }

    /// What the medium can still give, and whether blocks are refused.
    pub(super) fn headroom(&self) -> Result<Headroom, StoreError> {
        let space = self.arena.space()?;
        Ok(Headroom::of(space.available, space.total, *self.short_of.lock()))
    }

    /// Whether blocks are refused for want of space. Where that cannot be asked they are not.
    pub fn is_full(&self) -> bool {
        self.headroom().is_ok_and(|headroom| headroom.short_of.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn alarm(headroom: Headroom, target: u64) -> String {
        headroom.alarm(target, 0).unwrap_or_default()
    }

    /// The alarm began with the free space, so that a full medium whose free space is unknown raised
    /// none.
    #[test]
    fn a_full_disk_is_an_alarm_though_its_free_space_is_unknown() {
        let full = Headroom::of(None, None, Some(3 * MIB));
        assert_eq!(full.short_of, Some(3 * MIB));
        assert!(alarm(full, 0).starts_with("the disk is full: too little is free"), "{full:?}");
        assert_eq!(alarm(Headroom::of(None, None, None), 0), "");
        let known = Headroom::of(Some(MIB), Some(GIB), None);
        assert!(alarm(known, 0).starts_with("the disk is full: 1.0 MiB are free"), "{known:?}");
    }

    /// Only a budget that the disk could not hold was an alarm: without one there was none before
    /// blocks were refused.
    #[test]
    fn a_store_without_a_budget_warns_before_the_disk_is_full() {
        let of = |free, total| alarm(Headroom::of(Some(free), Some(total), None), 0);
        assert!(of(GIB - 1, 1000 * GIB).contains("has no budget"));
        assert_eq!(of(GIB, 1000 * GIB), "");
        assert!(of(GIB / 2 - 1, 10 * GIB).contains("has no budget"));
        assert_eq!(of(GIB / 2, 10 * GIB), "");
        let budget = Headroom::of(Some(GIB / 2), Some(1000 * GIB), None);
        assert_eq!(alarm(budget, GIB / 2), "", "a budget that fits");
        assert!(alarm(budget, GIB).contains("too small for the budget"));
    }
}
