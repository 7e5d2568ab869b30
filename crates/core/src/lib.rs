//! Secateur's vocabulary, without I/O, without a clock, without async.
//!
//! What lives here: heights and ids, the payload and bundle codecs, the export cursor and its
//! chunks, the prune policy with its water marks, holds, the selection that decides what a prune
//! cuts, the reports it leaves, and the bytes of archive notices. What deliberately does not: anything that reads a disk, a
//! network or a clock. Time comes in as a number of seconds, bytes come in as slices.

mod block;
mod bundle;
mod bytesize;
mod codec;
mod error;
mod export;
mod exposition;
mod hold;
mod id;
mod lookup;
pub mod notice;
mod part;
mod payload;
mod policy;
mod report;
mod select;
mod status;
mod timespan;

pub use block::{Block, BlockMeta, MAX_SEGMENT_LEN, MAX_TX_INDEX, Payloads};
pub use bundle::{BUNDLE_PREFIX_LEN, decode_bundle, encode_bundle};
pub use bytesize::{format_bytes, parse_bytes, spell_bytes};
pub use codec::{Reader, Writer};
pub use error::CoreError;
pub use export::{
    Chunk, Cursor, DEFAULT_EXPORT_BYTES, ExportError, ExportReply, MAX_EXPORT_BYTES, PayloadSource,
    Segment, read_chunks,
};
pub use exposition::{OPENMETRICS_KIND, PLAIN_KIND, exposition};
pub use hold::{Hold, HoldKind, Holds, MAX_CONSUMER_NAME_LEN, Strength, check_consumer_name};
pub use id::{BlockHash, TxId};
pub use lookup::LookupError;
pub use part::{Locator, MAX_LOCATOR_LEN, Part};
pub use payload::{
    RECEIPT_HEAD_LEN, ReceiptEntry, TX_INDEX_ENTRY_LEN, TxIndexEntry, push_receipt, push_tx_index,
    receipts, tx_index,
};
pub use policy::{
    ClockSource, DEFAULT_TICK_OPS, MAX_AHEAD_SECONDS, PrunePolicy, Ratio, SECONDS_PER_DAY, Trigger,
    WaterMarks,
};
pub use report::{Cause, ClassBytes, Report, StopReason};
pub use select::{Candidate, EMERGENCY_OPS, Pressure, Selection, Totals, Verdict, ops_of_block};
pub use status::{
    ClassUse, CutTx, ExplainBlock, ExplainTx, IdUse, Pace, Plan, PruneNeed, PruneStatus,
};
pub use timespan::{TimeUnit, format_duration, parse_span, spell_span};

/// A block number.
pub type Height = u64;
