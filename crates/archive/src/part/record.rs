//! One block in a part's raw stream.

use secateur_core::{BUNDLE_PREFIX_LEN, Block};

/// Bytes of a record besides its payloads.
pub const RECORD_HEAD_LEN: u64 = 32 + 32 + 8 + BUNDLE_PREFIX_LEN as u64;

/// Bytes that a block takes in the raw stream.
pub(crate) fn record_len(block: &Block) -> u64 {
    RECORD_HEAD_LEN + block.payloads.total_len()
}
