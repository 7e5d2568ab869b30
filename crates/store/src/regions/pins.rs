//! Reader pins: a region that a reader may still see is not freed.
//!
//! Every committed cut raises the epoch. A reader pins the epoch before it takes its snapshot;
//! the regions cut at epoch e are freed once no pin is older than e.

use std::collections::BTreeMap;

use parking_lot::Mutex;

#[derive(Debug, Default)]
struct Table {
    epoch: u64,
    held: BTreeMap<u64, u64>,
}

/// The pins of one store.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    table: Mutex<Table>,
}

/// One reader's pin; dropping it lets go.
#[derive(Debug)]
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    epoch: u64,
}

impl Pins {
    /// Pins the present epoch.
    pub(crate) fn pin(&self) -> Pin<'_> {
        let mut table = self.table.lock();
        let epoch = table.epoch;
        *table.held.entry(epoch).or_insert(0) += 1;
        Pin { pins: self, epoch }
    }

    /// Called after a cut is committed: returns the epoch whose pins cannot see what was cut.
    pub(crate) fn raise(&self) -> u64 {
        let mut table = self.table.lock();
        table.epoch += 1;
        table.epoch
    }

    /// Whether every reader that may still see what was cut at `epoch` is gone.
    pub(crate) fn clear_of(&self, epoch: u64) -> bool {
        self.table.lock().held.first_key_value().is_none_or(|(oldest, _)| *oldest >= epoch)
    }

    /// Whether no reader is at work.
    pub(crate) fn is_idle(&self) -> bool {
        self.table.lock().held.is_empty()
    }

    /// How many cuts ago the oldest reader began.
    pub(crate) fn oldest_age(&self) -> u64 {
        let table = self.table.lock();
        table.held.first_key_value().map_or(0, |(oldest, _)| table.epoch - oldest)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut table = self.pins.table.lock();
        if let Some(count) = table.held.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                table.held.remove(&self.epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_waits_for_the_readers_that_were_there_before() {
        let pins = Pins::default();
        let before = pins.pin();
        let epoch = pins.raise();
        let after = pins.pin();
        assert!(!pins.clear_of(epoch));
        assert_eq!(pins.oldest_age(), 1);
        drop(before);
        assert!(pins.clear_of(epoch), "a reader that began later sees the cut");
        drop(after);
        assert_eq!(pins.oldest_age(), 0);
    }
}
