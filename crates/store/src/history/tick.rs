//! Ticks: what the daemon does at a trigger, and how two prunes keep out of each other's way.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use secateur_core::Height;

use super::prune::{PruneOutcome, Request, Requester, Staged};
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// What the trigger grants is done.
    Done,
    /// Nothing was cut: it would have been the store's first cut, which was not announced yet.
    Unannounced,
}

/// The turn to prune: one prune runs at a time. When it ends, a tick that came meanwhile is made up
/// for, however the prune ended.
pub(super) struct Turn<'a, A: Arena, I: Index>(&'a Store<A, I>);

impl<A: Arena, I: Index> Drop for Turn<'_, A, I> {
    fn drop(&mut self) {
        // In this order, and a tick looks in the other one: neither can miss the other.
        self.0.prune_running.store(false, Ordering::SeqCst);
        if self.0.tick_missed.swap(false, Ordering::SeqCst) {
            self.0.ring();
        }
    }
}

/// Outcomes of ticks whose batches are on their way: they are heard of once they are durable.
struct Outcomes<F> {
    heard: F,
    waiting: VecDeque<Staged>,
    goes_on: bool,
}

impl<F: FnMut(&PruneOutcome) -> bool> Outcomes<F> {
    fn tell(&mut self, done: u64) {
        while self.waiting.front().is_some_and(|staged| staged.ticket <= done) {
            let Some(staged) = self.waiting.pop_front() else { return };
            self.goes_on &= (self.heard)(&staged.outcome);
        }
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The daemon's step: prunes once if the kill switch is on and something is due. Durable when
    /// it returns.
    pub fn tick(&self) -> Result<Option<PruneOutcome>, StoreError> {
        let Some(staged) = self.stage_tick(true)? else { return Ok(None) };
        self.wait_for(staged.ticket)?;
        Ok(Some(staged.outcome))
    }

    /// What the daemon does at a trigger: one tick, and while the budget drains one after the other
    /// until low water; then what was cut is freed. Under retention `max_ops_per_tick` is what a
    /// trigger may cost. The ticks' batches follow each other through the lane without waiting, so
    /// many of them cost one sync. `heard` hears of each once it is durable, and says whether to go on.
    pub fn drain(&self, heard: impl FnMut(&PruneOutcome) -> bool) -> Result<(), StoreError> {
        self.drain_while(true, heard, || true).map(drop)
    }

    /// The same, as long as `goes_on` says so before each further tick; whether it may make the first
    /// cut of this store is up to the caller.
    pub(super) fn drain_while(
        &self,
        may_be_first: bool,
        heard: impl FnMut(&PruneOutcome) -> bool,
        goes_on: impl Fn() -> bool,
    ) -> Result<Drained, StoreError> {
        let mut outcomes = Outcomes { heard, waiting: VecDeque::new(), goes_on: true };
        let drained = self.stage_ticks(may_be_first, &mut outcomes, goes_on);
        // What is durable was cut, whatever came of the rest.
        outcomes.tell(self.lane.done());
        if drained.is_err() {
            self.note_failed_tick();
        }
        drained
    }

    fn stage_ticks(
        &self,
        may_be_first: bool,
        outcomes: &mut Outcomes<impl FnMut(&PruneOutcome) -> bool>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Drained, StoreError> {
        loop {
            self.wait_for_room()?;
            outcomes.tell(self.lane.done());
            let Some(staged) = self.stage_tick(may_be_first)? else {
                if let Some(last) = outcomes.waiting.back() {
                    self.wait_for(last.ticket)?;
                }
                return Ok(Drained::Done);
            };
            if staged.unannounced {
                return Ok(Drained::Unannounced);
            }
            let (ticket, drains_on) = (staged.ticket, staged.outcome.drains_on());
            outcomes.waiting.push_back(staged);
            if !drains_on || !outcomes.goes_on || !goes_on() {
                if !self.settled_along(ticket)? {
                    self.settle()?;
                }
                return Ok(Drained::Done);
            }
        }
    }

    fn stage_tick(&self, may_be_first: bool) -> Result<Option<Staged>, StoreError> {
        self.blocks_since_tick.store(0, Ordering::Release);
        let (enabled, max_ops) = {
            let control = self.writer()?;
            let ops = control.policy.max_ops_per_tick;
            (control.state.pruning_enabled, self.tick_ops(control.state.pressure, ops))
        };
        if !enabled {
            return Ok(None);
        }
        let Some(turn) = self.turn_or_miss() else { return Ok(None) };
        let by = Requester::Daemon;
        self.prune(&turn, Request { limit: Height::MAX, max_ops, by, may_be_first }).map(Some)
    }

    /// The turn to prune, unless another prune has it.
    pub(super) fn turn(&self) -> Option<Turn<'_, A, I>> {
        let taken = self.prune_running.swap(true, Ordering::SeqCst);
        // Made only if it is free: a turn that is dropped lets go of it.
        (!taken).then(|| Turn(self))
    }

    /// The same for a tick: the prune that has the turn rings when it ends.
    fn turn_or_miss(&self) -> Option<Turn<'_, A, I>> {
        self.turn().or_else(|| {
            self.tick_missed.store(true, Ordering::SeqCst);
            // That prune may have ended before it could see this.
            let turn = self.turn()?;
            self.tick_missed.store(false, Ordering::SeqCst);
            Some(turn)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::ground::{Ground, MemoryArena, MemoryIndex};
    use crate::{StoreConfig, SystemClock};

    fn store() -> (Store<MemoryArena, MemoryIndex>, Arc<AtomicU64>) {
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        let config = StoreConfig::new(7, [1; 16]);
        let store = Store::create(ground, config, Arc::new(SystemClock)).unwrap();
        store.set_pruning_enabled(true).unwrap();
        let rung = Arc::new(AtomicU64::new(0));
        let bell = Arc::clone(&rung);
        assert!(store.on_prune_due(move || {
            bell.fetch_add(1, Ordering::SeqCst);
        }));
        (store, rung)
    }

    #[test]
    fn a_tick_that_met_another_prune_is_rung_for_when_that_one_ends() {
        let (store, rung) = store();
        let turn = store.turn().unwrap();
        assert!(store.turn().is_none() && store.turn().is_none(), "one prune at a time");
        assert!(store.tick().unwrap().is_none());
        assert_eq!(rung.load(Ordering::SeqCst), 0);
        drop(turn);
        assert_eq!(rung.load(Ordering::SeqCst), 1);
        drop(store.turn());
        assert_eq!(rung.load(Ordering::SeqCst), 1, "it was made up for");
    }

    /// Only a prune that succeeded rang, so that a tick which met one that failed was lost.
    #[test]
    fn a_tick_that_met_a_prune_which_fails_is_rung_for_too() {
        let (store, rung) = store();
        let turn = store.turn().unwrap();
        assert!(store.tick().unwrap().is_none());
        store.poison(&StoreError::Foreign("the medium is gone".into()));
        let (limit, by) = (Height::MAX, Requester::Operator);
        let failed = store.prune(&turn, Request { limit, max_ops: 1, by, may_be_first: true });
        assert!(failed.is_err());
        drop(turn);
        assert_eq!(rung.load(Ordering::SeqCst), 1);
    }

    /// A tick that found a prune running noted so, and rested; a prune that had ended just before it
    /// could see the note rang for nobody.
    #[test]
    fn a_prune_that_ends_before_it_sees_the_missed_tick_leaves_it_its_turn() {
        let (store, _) = store();
        store.tick_missed.store(true, Ordering::SeqCst);
        drop(store.turn_or_miss().unwrap());
        store.tick_missed.store(false, Ordering::SeqCst);
        assert!(store.tick().unwrap().is_some(), "an empty store has nothing to cut, and is asked");
    }
}
