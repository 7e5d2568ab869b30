//! Work in slices: how much a store does in one go where every step is a message with a limit of its own.
//! A node has no such limit, and nothing here concerns it.

use secateur_core::Pressure;

use super::runs::SealLimits;
use super::store::{Control, Store};
use crate::StoreError;
use crate::ground::{Arena, Index};

/// The most that one step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slices {
    /// Nominal operations of a tick, in an emergency too. The first block of a tick is cut whatever it
    /// costs.
    pub tick_ops: u64,
    /// Blocks of an epoch of ids. An epoch that is open is read back when the store is opened.
    pub epoch_blocks: u64,
    /// Payload bytes of an epoch's blocks, besides those of its last one.
    pub epoch_bytes: u64,
    /// Ids of a run that is made of two. Runs that would be longer stay two.
    pub merge_ids: u64,
}

/// An epoch is sealed when its blocks take this part of the budget.
const EPOCHS_PER_TARGET: u64 = 16;

impl<A: Arena, I: Index> Store<A, I> {
    /// Works in slices from now on: appends leave full epochs to whoever calls [`Store::seal_one`], and
    /// no step does more than that. Said once, before the first append; whether it was is the answer.
    pub fn work_in_slices(&self, slices: Slices) -> bool {
        self.slices.set(slices).is_ok()
    }

    /// Reads back the ids of the open epoch and the filters of all runs now, and not when they are first
    /// needed.
    pub fn read_ids(&self) -> Result<(), StoreError> {
        self.build_hashes()
    }

    /// The operations of a tick.
    pub(crate) fn tick_ops(&self, pressure: Pressure, max_ops_per_tick: u64) -> u64 {
        let ops = pressure.tick_ops(max_ops_per_tick);
        self.slices.get().map_or(ops, |slices| ops.min(slices.tick_ops.max(1)))
    }

    /// When the open epoch is full.
    pub(crate) fn seal_limits(&self, control: &Control) -> SealLimits {
        let ids = control.settings.epoch_ids;
        let of_budget = control.policy.target_bytes / EPOCHS_PER_TARGET;
        let Some(slices) = self.slices.get() else {
            return SealLimits { ids, bytes: of_budget, blocks: 0 };
        };
        let bytes = match of_budget {
            0 => slices.epoch_bytes,
            bytes => bytes.min(slices.epoch_bytes),
        };
        SealLimits { ids, bytes, blocks: slices.epoch_blocks }
    }

    /// Ids of a run that may be made of two, if there is a limit.
    pub(crate) fn merge_limit(&self) -> Option<u64> {
        self.slices.get().map(|slices| slices.merge_ids)
    }

    /// Whether an append seals what it has filled.
    pub(crate) fn appends_seal(&self) -> bool {
        !self.lane.has_workers() && self.slices.get().is_none()
    }
}
