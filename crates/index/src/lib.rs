//! The pull worker: history into a sink.
//!
//! What lives here: where blocks come from ([`sink`] says where they go), the checks of what a
//! source answers, codecs that turn blocks into rows, the worker that does it all in order, and a
//! read-only view of the result. What deliberately does not: part files (`secateur-archive`), EVM
//! rules (`secateur-evm`), commands and configuration (the binary).

mod cursor;
mod error;
mod filter;
pub mod postgres;
mod rows;
pub mod sink;

pub use cursor::{cursor_from_json, cursor_to_json};
pub use error::{ErrorClass, IndexError};
pub use filter::LogFilter;
pub use rows::{Batch, BlockRow, DailyRow, GapRow, LogRow, PartRow, Rows, TxRow, day_of, day_text};
pub use sink::{IndexReader, Sink};
