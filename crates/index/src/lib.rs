//! The pull worker: history into a sink.
//!
//! What lives here: where blocks come from ([`source`]) with the checks of what is answered, codecs
//! that turn blocks into rows ([`codec`]), where rows go ([`sink`]), the worker that does it all in
//! order, and a read-only view of the result. What deliberately does not: part files (`secateur-archive`), EVM
//! rules (`secateur-evm`), commands and configuration (the binary).

pub mod api;
pub mod archiving;
pub mod codec;
mod cursor;
mod error;
mod filter;
pub mod postgres;
pub mod refill;
mod rows;
pub mod sink;
pub mod source;
pub mod worker;

pub use cursor::{cursor_from_json, cursor_to_json};
pub use error::{ErrorClass, IndexError};
pub use filter::LogFilter;
pub use rows::{Batch, BlockRow, DailyRow, GapRow, LogRow, PartRow, Rows, TxRow, day_of, day_text};
pub use sink::{IndexReader, Sink};
