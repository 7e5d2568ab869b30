//! The shelf: a ground for families that keep things of one size and rows about them.
//!
//! Equal regions of an arena and the family's rows, changed together in atomic batches: bytes are
//! placed, written and synced before the batch that refers to them is committed; what a batch cuts
//! is quarantined with a journal entry and freed in a later one, when no reader can see it. Regions,
//! pins, rows and recovery are those of `regions`; what rows mean, and what may be cut, is the
//! family's.
//!
//! ```text
//! Shelf::open(ground, family) | create(ground, ShelfConfig)
//!   .write(|batch| …)        one batch, durable when it returns; an error in it changes nothing
//!       batch.row · rows · row_before      what is committed and what is staged (trait `Rows`)
//!       batch.put · delete                 rows of the family's own tables
//!       batch.place(&bytes) -> Slot        a region and its checksum; store the slot in a row
//!       batch.cut(&slot) -> bool           Used → Quarantine; false: it is not there any more
//!   .view()                  a pin and a snapshot: rows, and `read(&slot)`, checked
//!   .settle(budget)          frees what can be freed; gives space over the budget back
//!   .usage() · verify(claims, progress)
//! ```
//!
//! Batches that come together share one sync and one commit: whoever waits first carries them all.
//! There is no thread here and no clock.

mod batch;
mod lane;
mod open;
mod state;
mod verify;
mod view;

#[cfg(test)]
mod tests;

pub use batch::ShelfBatch;
pub use open::{Shelf, ShelfConfig, ShelfUsage};
pub use state::{SHELF_VERSION, ShelfHeader, Slot};
pub use verify::{Claims, ShelfReport};
pub use view::ShelfView;
