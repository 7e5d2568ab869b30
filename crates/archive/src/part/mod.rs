//! A part's bytes (`docs/format/part.md`).
//!
//! ```text
//! [skippable: header][zstd frame]…[zstd frame][skippable: footer][skippable: seek table]
//! ```
//!
//! `zstd -d` skips the header, the footer and the table and gives the raw stream: one record for
//! each block. Frames hold whole records, about 1 MiB of them, so one block is one range read.

mod around;
mod frame;
mod layout;
mod range;
mod reader;
mod record;
mod scan;
mod writer;

pub use layout::PartHeader;
pub use range::{FileRange, ObjectRange, RangeRead};
pub use reader::PartReader;
pub use record::RECORD_HEAD_LEN;
pub(crate) use record::record_len;
pub use scan::{PartScan, read_part};
pub use writer::PartWriter;

use secateur_core::MAX_SEGMENT_LEN;

/// The most bytes of a part before compression: 16 GiB.
pub const MAX_PART_RAW: u64 = 16 << 30;
/// A frame takes further records up to this many raw bytes: 1 MiB.
const FRAME_TARGET: usize = 1 << 20;
/// The most raw bytes of a frame: one record of three segments at their limit.
const MAX_FRAME_RAW: u64 = RECORD_HEAD_LEN + 3 * MAX_SEGMENT_LEN as u64;
/// The most frames of a part. Two neighbours hold more than 1 MiB, so 16 GiB never reach this.
const MAX_FRAMES: u32 = 1 << 16;
