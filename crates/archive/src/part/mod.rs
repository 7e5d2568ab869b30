//! A part's bytes (`docs/format/part.md`).

mod range;
mod reader;
mod record;
mod writer;

pub use range::{FileRange, ObjectRange, RangeRead};
pub use reader::{PartHeader, PartReader, PartScan, read_part};
pub use record::RECORD_HEAD_LEN;
pub(crate) use record::record_len;
pub use writer::PartWriter;

/// The most bytes of a part before compression: 16 GiB.
pub const MAX_PART_RAW: u64 = 16 << 30;
